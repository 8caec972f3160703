//! The tokens of the attribute's options.

use std::time::Duration;

use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt as _;

use crate::{
    args::{Limit, Retry, Value},
    model::Model,
};

/// The name under which the journal knows the function.
pub(crate) fn journal_name(model: &Model) -> TokenStream {
    match &model.options.name {
        Some(name) => name.to_token_stream(),
        None => model.ident.unraw().to_string().to_token_stream(),
    }
}

/// `Activity::options`, when the attribute sets any.
pub(crate) fn options(model: &Model) -> Option<TokenStream> {
    let options = &model.options;
    let settings: Vec<TokenStream> = [
        options.retry.as_ref().map(|policy| {
            let policy = retry(policy);
            // An item, since the compiler looks into those even where nothing calls the function.
            quote! {
                const __COMPOSER_RETRY: ::composer_sdk::__private::Retry = #policy;
                options.retry = __COMPOSER_RETRY;
            }
        }),
        options.timeout.as_ref().map(|limit| set_limit(&quote!(timeout), limit)),
        options.total_timeout.as_ref().map(|limit| set_limit(&quote!(total_timeout), limit)),
        options.queue.as_ref().map(|queue| {
            quote!(options.queue = ::core::option::Option::Some(::core::convert::Into::into(#queue));)
        }),
    ]
    .into_iter()
    .flatten()
    .collect();
    if settings.is_empty() {
        return None;
    }
    Some(quote! {
        fn options() -> ::composer_sdk::__private::ActivityOptions {
            let mut options = ::composer_sdk::__private::ActivityOptions::DEFAULT;
            #(#settings)*
            options
        }
    })
}

fn set_limit(field: &TokenStream, limit: &Limit) -> TokenStream {
    match limit {
        Limit::None => quote!(options.#field = ::core::option::Option::None;),
        Limit::After(value) => {
            let value = span_of_time(value);
            quote!(options.#field = ::core::option::Option::Some(#value);)
        }
    }
}

/// The policy, checked by the compiler where it holds constants that we cannot see.
fn retry(retry: &Retry) -> TokenStream {
    let settings: TokenStream = [
        retry
            .max_attempts
            .as_ref()
            .map(|value| plain(value, |n| Literal::u32_suffixed(*n)).call("max_attempts")),
        retry.first.as_ref().map(|value| span_of_time(value).call("first")),
        retry.factor.as_ref().map(|value| plain(value, |n| Literal::f64_suffixed(*n)).call("factor")),
        retry.max.as_ref().map(|value| span_of_time(value).call("max")),
        retry.jitter.as_ref().map(|value| plain(value, |n| Literal::f64_suffixed(*n)).call("jitter")),
    ]
    .into_iter()
    .flatten()
    .collect();
    quote!(::composer_sdk::__private::checked_retry(::composer_sdk::__private::Retry::DEFAULT #settings))
}

/// `Activity::retryable`, when the attribute has a predicate.
pub(crate) fn retryable(model: &Model) -> Option<TokenStream> {
    let on = model.options.retry.as_ref()?.on.as_ref()?;
    Some(quote! {
        fn retryable(output: &Self::Output) -> ::composer_sdk::__private::Verdict {
            let own = <Self as ::composer_sdk::Definition>::judge(output).retry;
            ::composer_sdk::__private::retry_on(output, own, #on)
        }
    })
}

fn plain<T>(value: &Value<T>, literal: impl Fn(&T) -> Literal) -> TokenStream {
    match value {
        Value::Literal(known, span) => {
            let mut literal = literal(known);
            literal.set_span(*span);
            literal.to_token_stream()
        }
        Value::Constant(expr) => expr.to_token_stream(),
    }
}

fn span_of_time(value: &Value<Duration>) -> TokenStream {
    match value {
        Value::Literal(duration, _) => {
            let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
            quote!(::core::time::Duration::new(#seconds, #nanos))
        }
        Value::Constant(expr) => expr.to_token_stream(),
    }
}

/// `.setting(value)`
trait Call {
    fn call(self, setting: &str) -> TokenStream;
}

impl Call for TokenStream {
    fn call(self, setting: &str) -> TokenStream {
        let setting = proc_macro2::Ident::new(setting, proc_macro2::Span::call_site());
        quote!(.#setting(#self))
    }
}
