//! From the model to tokens. Nothing is decided here.
//!
//! What comes out for `#[activity] async fn charge(order: Order) -> Result<Receipt>`:
//!
//! ```text
//! fn charge(order: Order) -> Call<charge> { … }                     // the constructor
//! struct charge {}                                                  // the definition, in the type namespace
//! impl charge { async fn charge(…) { the user's body }  async fn run(…) }
//! impl Definition for charge { … }
//! impl Activity for charge { … }
//! ```
//!
//! The user's tokens keep their spans. Tokens of ours carry the attribute's, so no lint of the user's crate speaks of
//! them; where a message should point at the function's name they stand there, but are ours all the same (that is what
//! keeps `non_camel_case_types` silent, even where it is forbidden).

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{LitStr, ReturnType, Visibility, ext::IdentExt as _};

use crate::{
    args::Kind,
    model::Model,
    options,
    params::{Param, Role},
};

/// The items of a sound function.
pub(crate) fn sound(model: &Model) -> TokenStream {
    let constructor = constructor(model);
    let definition = definition_struct(model);
    let functions = functions(model);
    let behaviour = definition_impl(model);
    let of_kind = match model.kind {
        Kind::Workflow => workflow_impl(model),
        Kind::Activity => activity_impl(model),
    };
    quote!(#constructor #definition #functions #behaviour #of_kind)
}

fn constructor(model: &Model) -> TokenStream {
    let Model { vis, ident, .. } = model;
    let (all, own) = (&model.attrs.all, &model.attrs.constructor);
    let about_run = about_run(model);
    let name = definition_name(model);
    let args = hidden("args");
    // With the user's own `fn`, lints speak of the constructor as they would of the function, and of nothing else.
    let fn_token = &model.sig.fn_token;
    let params = model.arguments().map(|param| declared(param, &param.name));
    let pushes = model.arguments().map(|param| {
        let Param { cfgs, name, label, .. } = param;
        let codec = codec(param);
        let value = if param.owned().1 { quote!(#name) } else { quote!(&#name) };
        quote!(#(#cfgs)* #args.push(#label, #codec, #value);)
    });
    quote! {
        #(#all)* #(#own)* #about_run
        #[track_caller]
        #vis #fn_token #ident(#(#params),*) -> ::composer_sdk::Call<#name> {
            let mut #args = ::composer_sdk::__private::Args::new();
            #(#pushes)*
            ::composer_sdk::__private::call(#args.finish())
        }
    }
}

fn definition_struct(model: &Model) -> TokenStream {
    let (all, vis, name) = (&model.attrs.all, our_vis(&model.vis), definition_name(model));
    quote!(#(#all)* #[doc(hidden)] #vis struct #name {})
}

/// The user's body, and `run` to call it as it stands.
fn functions(model: &Model) -> TokenStream {
    let (all, body_attrs) = (&model.attrs.all, &model.attrs.body);
    let name = definition_name(model);
    let color = (!model.blocking).then(|| quote!(async));
    let params = model.params.iter().map(|param| &param.written);
    let (output, body) = (&model.output, checked_body(model));
    let run = run(model);
    let vis = (run.is_none() && model.kind == Kind::Activity).then(|| our_vis(&model.vis));
    quote! {
        #(#all)*
        impl #name {
            #(#body_attrs)* #vis #color fn #name(#(#params),*) #output #body
            #run
        }
    }
}

/// `charge::run`; an activity whose own name is `run` is it already.
fn run(model: &Model) -> Option<TokenStream> {
    if model.kind == Kind::Workflow || model.ident.unraw() == "run" {
        return None;
    }
    let (vis, name) = (our_vis(&model.vis), definition_name(model));
    let params = model.params.iter().map(|param| declared(param, &ours(&param.name)));
    let args = model.params.iter().map(|Param { cfgs, name, .. }| {
        let name = ours(name);
        quote!(#(#cfgs)* #name)
    });
    let (color, wait) =
        if model.blocking { (None, None) } else { (Some(quote!(async)), Some(quote!(.await))) };
    let output = &model.output;
    Some(quote! {
        /// The function itself, as an ordinary call.
        #[doc(hidden)]
        #vis #color fn run(#(#params),*) #output { Self::#name(#(#args),*) #wait }
    })
}

/// A line for the reader of the constructor's docs.
fn about_run(model: &Model) -> Option<TokenStream> {
    let documented = model.attrs.constructor.iter().any(|attr| attr.path().is_ident("doc"));
    (documented && model.kind == Kind::Activity).then(|| {
        let line = format!("\n\nThis returns a call; `{}::run` is the function itself.", model.ident);
        quote!(#[doc = #line])
    })
}

fn definition_impl(model: &Model) -> TokenStream {
    let all = &model.attrs.all;
    let (name, output) = (definition_name(model), model.output_type());
    let journal_name = options::journal_name(model);
    let role = role(model.kind);
    // A result that cannot cross the journal is reported at the declared type.
    let here = model.output_span().resolved_at(Span::mixed_site());
    let codec =
        quote_spanned!(here=> ::composer_sdk::__private::picked(::composer_sdk::__private::codec!(#output)));
    let constructor = used_constructor(model);
    quote! {
        #(#all)*
        impl ::composer_sdk::Definition for #name {
            const NAME: &'static ::core::primitive::str = #journal_name;
            const SOURCE: &'static ::core::primitive::str = ::core::concat!(::core::file!(), ":", ::core::line!());
            const ROLE: ::composer_sdk::__private::Role<Self> = #role;
            type Output = #output;
            fn encode(output: &Self::Output) -> ::composer_sdk::__private::Outcome {
                #constructor
                #codec.encode(output)
            }
            fn decode(
                outcome: &::composer_sdk::__private::Outcome,
            ) -> ::core::result::Result<Self::Output, ::composer_sdk::Failure> {
                #codec.decode(outcome)
            }
            fn judge(output: &Self::Output) -> ::composer_sdk::__private::Judgement {
                ::composer_sdk::__private::judge!(#output)(output)
            }
        }
    }
}

/// An activity that is registered here and called elsewhere is no dead code. (To mention a deprecated one is to be
/// warned of it.)
fn used_constructor(model: &Model) -> Option<TokenStream> {
    let deprecated = model.attrs.constructor.iter().any(|attr| attr.path().is_ident("deprecated"));
    let constructor = ours(&model.ident);
    (!deprecated).then(|| quote!(let _ = #constructor;))
}

fn role(kind: Kind) -> TokenStream {
    match kind {
        Kind::Workflow => quote!(::composer_sdk::__private::Role::workflow()),
        Kind::Activity => quote!(::composer_sdk::__private::Role::activity()),
    }
}

fn workflow_impl(model: &Model) -> TokenStream {
    let (all, name) = (&model.attrs.all, definition_name(model));
    let version = model
        .options
        .version
        .as_ref()
        .map(|version| quote!(const VERSION: ::core::primitive::u32 = #version;));
    let input = hidden("input");
    let (decode, body) = (decode(model, |_| true), boxed_body(model));
    quote! {
        #(#all)*
        impl ::composer_sdk::Workflow for #name {
            #version
            fn body(
                #input: &::composer_sdk::__private::Payload,
            ) -> ::core::result::Result<::composer_sdk::__private::BodyFuture<'static, Self::Output>, ::composer_sdk::Failure>
            {
                #decode
                ::core::result::Result::Ok(#body)
            }
        }
    }
}

fn activity_impl(model: &Model) -> TokenStream {
    let (all, name) = (&model.attrs.all, definition_name(model));
    let (options, retryable, needs) = (options::options(model), options::retryable(model), needs(model));
    let (lends, body) = (lends(model), if model.blocking { blocking_body(model) } else { async_body(model) });
    quote! {
        #(#all)*
        impl ::composer_sdk::Activity for #name { #options #retryable #needs #body }
        #lends
    }
}

/// Lends the arguments to whatever stands in for the function.
fn lends(model: &Model) -> TokenStream {
    let (all, name) = (&model.attrs.all, definition_name(model));
    let (input, to, f, r) = (hidden("input"), hidden("to"), hidden("F"), hidden("R"));
    // A list of parameter types has no place for a `#[cfg]`: then the list is lent as it is stored.
    let conditional = model.arguments().any(|param| !param.cfgs.is_empty());
    let (types, decode, values) = if conditional {
        (vec![quote!(&::composer_sdk::__private::Payload)], TokenStream::new(), vec![input.to_token_stream()])
    } else {
        let types = model.arguments().map(|param| param.written.ty.to_token_stream()).collect();
        let is_argument = |param: &Param| param.role == Role::Argument;
        (types, decode(model, is_argument), values(model, is_argument))
    };
    quote! {
        #(#all)*
        impl<#f: ::core::ops::FnMut(#(#types),*) -> #r, #r> ::composer_sdk::__private::Lends<#f, #r> for #name {
            fn lend(
                #input: &::composer_sdk::__private::Payload,
                #to: &mut #f,
            ) -> ::core::result::Result<#r, ::composer_sdk::Failure> {
                #decode
                ::core::result::Result::Ok(#to(#(#values),*))
            }
        }
    }
}

fn needs(model: &Model) -> Option<TokenStream> {
    let states: Vec<_> = model.params.iter().filter(|param| param.role == Role::State).collect();
    if states.is_empty() {
        return None;
    }
    let needs = states.iter().map(|param| {
        let (cfgs, (ty, _)) = (&param.cfgs, param.owned());
        quote!(#(#cfgs)* ::composer_sdk::__private::Need::state::<#ty>())
    });
    Some(quote! {
        fn needs() -> ::std::vec::Vec<::composer_sdk::__private::Need> { ::std::vec![#(#needs),*] }
    })
}

fn async_body(model: &Model) -> TokenStream {
    let (input, env) = (hidden("input"), hidden("env"));
    let (decode, body) = (decode(model, |_| true), boxed_body(model));
    quote! {
        fn body<'a>(
            #input: &::composer_sdk::__private::Payload,
            #env: ::composer_sdk::__private::Env<'a>,
        ) -> ::core::result::Result<::composer_sdk::__private::BodyFuture<'a, Self::Output>, ::composer_sdk::Failure> {
            #decode
            ::core::result::Result::Ok(#body)
        }
    }
}

fn blocking_body(model: &Model) -> TokenStream {
    let (input, env) = (hidden("input"), hidden("env"));
    let (decode, call) = (decode(model, |_| true), call(model));
    quote! {
        const BLOCKING: ::core::primitive::bool = true;
        fn body_blocking(
            #input: &::composer_sdk::__private::Payload,
            #env: ::composer_sdk::__private::Env<'_>,
        ) -> ::core::result::Result<Self::Output, ::composer_sdk::Failure> {
            #decode
            ::core::result::Result::Ok(#call)
        }
    }
}

/// Binds each parameter to its value.
fn decode(model: &Model, wanted: impl Fn(&Param) -> bool) -> TokenStream {
    let (args, input, env) = (hidden("args"), hidden("input"), hidden("env"));
    let values = model.params.iter().enumerate().filter(|(_, param)| wanted(param)).map(|(index, param)| {
        let (Param { cfgs, label, .. }, name) = (param, value_name(index));
        let (ty, by_ref) = param.owned();
        let value = match (param.role, by_ref) {
            (Role::Argument, _) => {
                let codec = codec(param);
                quote!(#args.next(#label, #codec)?)
            }
            (Role::State, false) => quote!(#env.state::<#ty>()?),
            (Role::State, true) => quote!(#env.state_ref::<#ty>()?),
        };
        quote!(#(#cfgs)* let #name = #value;)
    });
    quote! {
        let mut #args = ::composer_sdk::__private::Given::new(#input)?;
        #(#values)*
        #args.end()?;
    }
}

/// The user's body on the bound values, as the future that the engine polls.
fn boxed_body(model: &Model) -> TokenStream {
    let call = call(model);
    let borrows = model.params.iter().any(|param| param.owned().1);
    // A future that cannot be sent is reported here: at the function's name.
    let here = ours(&model.ident).span();
    let future = if borrows { quote_spanned!(here=> async move { #call.await }) } else { call };
    quote_spanned!(here=> ::std::boxed::Box::pin(#future))
}

fn call(model: &Model) -> TokenStream {
    let (name, values) = (definition_name(model), values(model, |_| true));
    quote!(Self::#name(#(#values),*))
}

/// The bound values, as the function takes them.
fn values(model: &Model, wanted: impl Fn(&Param) -> bool) -> Vec<TokenStream> {
    let params = model.params.iter().enumerate().filter(|(_, param)| wanted(param));
    let values = params.map(|(index, param)| {
        let (cfgs, name) = (&param.cfgs, value_name(index));
        let value = if param.owned().1 { quote!(&*#name) } else { name.to_token_stream() };
        quote!(#(#cfgs)* #value)
    });
    values.collect()
}

/// What takes an argument across the journal; the place where its type is checked, at its own tokens.
fn codec(param: &Param) -> TokenStream {
    let (ty, by_ref) = param.owned();
    let function = if by_ref { quote!(arg_ref) } else { quote!(arg) };
    quote!(::composer_sdk::__private::#function::<#ty>())
}

fn declared(param: &Param, name: &Ident) -> TokenStream {
    let (cfgs, ty) = (&param.cfgs, &param.written.ty);
    quote!(#(#cfgs)* #name: #ty)
}

/// The body; before its first statement, a check that prelude macros are ours.
fn checked_body(model: &Model) -> Group {
    if model.prelude_macros.is_empty() {
        return model.body.clone();
    }
    let checks = model.prelude_macros.iter().map(|name| {
        // A macro that does not know this form is another crate's. The compiler then shows the first token that does
        // not fit, where the macro is used: tokio's own know an `@`, so they show the sentence.
        let words = format!(
            "this `{name}!` is another crate's, and may decide otherwise on a replay: remove its `use`, and import \
             `composer_sdk::prelude::*`"
        );
        let here = ours(name).span();
        let words = LitStr::new(&words, here);
        let words = quote_spanned!(here=> @ #words);
        quote!(const _: () = #name!(#words);)
    });
    let (inner_attrs, rest) = split_inner_attrs(model.body.stream());
    let mut body = Group::new(model.body.delimiter(), quote!(#inner_attrs #(#checks)* #rest));
    body.set_span(model.body.span());
    body
}

/// `#![…]` must stay in front.
fn split_inner_attrs(body: TokenStream) -> (TokenStream, TokenStream) {
    let tokens: Vec<TokenTree> = body.into_iter().collect();
    let is = |at: usize, wanted: char| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == wanted);
    let mut end = 0;
    while is(end, '#') && is(end + 1, '!') && matches!(tokens.get(end + 2), Some(TokenTree::Group(_))) {
        end += 3;
    }
    let rest = tokens[end..].iter().cloned().collect();
    (tokens[..end].iter().cloned().collect(), rest)
}

/// The definition's name: where the user wrote it, but ours.
fn definition_name(model: &Model) -> Ident {
    ours(&model.ident)
}

/// The value of a parameter in the definition's own functions.
fn value_name(index: usize) -> Ident {
    hidden(&format!("value{}", index + 1))
}

/// A name that no name of the user's can meet.
fn hidden(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// A name of the user's as a token of ours.
fn ours(ident: &Ident) -> Ident {
    let mut ident = ident.clone();
    ident.set_span(ident.span().resolved_at(Span::mixed_site()));
    ident
}

/// The user's visibility as tokens of ours: what is unreachable is said once, of the constructor.
fn our_vis(vis: &Visibility) -> TokenStream {
    respan(vis.to_token_stream())
}

fn respan(tokens: TokenStream) -> TokenStream {
    let respan_tree = |mut tree: TokenTree| {
        if let TokenTree::Group(group) = &tree {
            tree = Group::new(group.delimiter(), respan(group.stream())).into();
        }
        tree.set_span(Span::call_site());
        tree
    };
    tokens.into_iter().map(respan_tree).collect()
}

/// What stands in for a function that was refused, so that its uses add no errors.
pub(crate) mod inert {
    use super::*;

    /// A constructor of the declared type and a definition that does nothing.
    pub(crate) fn call(model: &Model) -> TokenStream {
        let Model { vis, ident, .. } = model;
        let (all, own, body_attrs) = (&model.attrs.all, &model.attrs.constructor, &model.attrs.body);
        let name = definition_name(model);
        let (impl_generics, _, where_clause) = model.generics.split_for_impl();
        let params = model.arguments().map(|param| declared(param, &ours(&param.name)));
        let written = model.params.iter().map(|param| &param.written);
        let (output, body, color) = (&model.output, &model.body, color(model));
        let stubs = stubs(model, &model.output_type());
        quote! {
            #(#all)* #(#own)*
            #vis fn #ident #impl_generics (#(#params),*) -> ::composer_sdk::Call<#name> #where_clause {
                ::composer_sdk::__private::refused()
            }
            #(#all)*
            impl #name { #(#body_attrs)* #color fn #name #impl_generics (#(#written),*) #output #where_clause #body }
            #stubs
        }
    }

    /// The function as it stands, and a definition that does nothing.
    pub(crate) fn verbatim(model: &Model) -> TokenStream {
        let function = function(model);
        let stubs = stubs(model, &quote!(()));
        quote!(#function #stubs)
    }

    /// The function as it stands.
    pub(crate) fn function(model: &Model) -> TokenStream {
        let (all, own, body_attrs) = (&model.attrs.all, &model.attrs.constructor, &model.attrs.body);
        let (vis, ident, body, color) = (&model.vis, &model.ident, &model.body, color(model));
        let (impl_generics, _, where_clause) = model.generics.split_for_impl();
        let receiver = model.sig.receiver().into_iter().map(ToTokens::to_token_stream);
        let params = receiver.chain(model.params.iter().map(|param| param.written.to_token_stream()));
        let output = match &model.output {
            ReturnType::Default => None,
            output => Some(output),
        };
        quote! {
            #(#all)* #(#own)* #(#body_attrs)* #[allow(dead_code)]
            #vis #color fn #ident #impl_generics (#(#params),*) #output #where_clause #body
        }
    }

    fn color(model: &Model) -> Option<TokenStream> {
        (!model.blocking).then(|| quote!(async))
    }

    fn stubs(model: &Model, output: &TokenStream) -> TokenStream {
        let (all, definition, name) = (&model.attrs.all, definition_struct(model), definition_name(model));
        let (journal_name, role) = (options::journal_name(model), role(model.kind));
        let refused = quote!({ ::composer_sdk::__private::refused() });
        let payload = quote!(&::composer_sdk::__private::Payload);
        let of_kind = match model.kind {
            Kind::Activity => quote!(impl ::composer_sdk::Activity for #name {}),
            Kind::Workflow => quote! {
                impl ::composer_sdk::Workflow for #name {
                    fn body(_: #payload) -> ::core::result::Result<
                        ::composer_sdk::__private::BodyFuture<'static, Self::Output>, ::composer_sdk::Failure
                    > #refused
                }
            },
        };
        quote! {
            #definition
            #(#all)*
            impl ::composer_sdk::Definition for #name {
                const NAME: &'static ::core::primitive::str = #journal_name;
                const SOURCE: &'static ::core::primitive::str = "";
                const ROLE: ::composer_sdk::__private::Role<Self> = #role;
                type Output = #output;
                fn encode(_: &Self::Output) -> ::composer_sdk::__private::Outcome #refused
                fn decode(_: &::composer_sdk::__private::Outcome)
                    -> ::core::result::Result<Self::Output, ::composer_sdk::Failure> #refused
                fn judge(_: &Self::Output) -> ::composer_sdk::__private::Judgement #refused
            }
            #(#all)*
            #of_kind
        }
    }
}
