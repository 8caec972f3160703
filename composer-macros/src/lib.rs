//! The `#[workflow]` and `#[activity]` attributes.

mod args;
mod attrs;
mod body;
mod duration;
mod errors;
mod expand;
mod model;
mod options;
mod params;
mod suggest;
mod types;

use args::Kind;
use errors::Errors;
use model::{Function, Model, Shape};
use proc_macro2::TokenStream;
use quote::quote;

/// Makes an async function an activity.
#[proc_macro_attribute]
pub fn activity(args: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    attribute(Kind::Activity, args.into(), item.into()).into()
}

/// Makes an async function a workflow.
#[proc_macro_attribute]
pub fn workflow(args: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    attribute(Kind::Workflow, args.into(), item.into()).into()
}

/// Parse, model, expand; all mistakes at once, and the function all the same.
fn attribute(kind: Kind, args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let function = match syn::parse2::<Function>(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            let error = not_a_function(kind, &item).unwrap_or(error).to_compile_error();
            return quote!(#error #item);
        }
    };
    let options = args::parse(kind, args, &mut errors);
    let model = Model::new(kind, options, function, &mut errors);
    let items = match model.shape {
        Shape::Sound => expand::sound(&model),
        Shape::Inert => expand::inert::call(&model),
        Shape::Verbatim => expand::inert::verbatim(&model),
        Shape::Method => expand::inert::function(&model),
    };
    let errors = compile_errors(&model, &errors);
    quote!(#errors #items)
}

/// The mistakes; as much a part of the build as the function is.
fn compile_errors(model: &Model, errors: &Errors) -> TokenStream {
    let cfgs: Vec<_> = model.attrs.all.iter().filter(|attr| attrs::is_cfg(attr)).collect();
    let errors = errors.to_compile_errors();
    if errors.is_empty() || cfgs.is_empty() || model.shape == Shape::Method {
        return errors;
    }
    quote!(#(#cfgs)* const _: () = { #errors };)
}

/// What else it is, if it is something else.
fn not_a_function(kind: Kind, item: &TokenStream) -> Option<syn::Error> {
    let name = kind.attribute();
    let message = match syn::parse2::<syn::Item>(item.clone()).ok()? {
        syn::Item::Fn(_) => return None,
        syn::Item::Impl(_) | syn::Item::Trait(_) => {
            format!("`#[{name}]` goes on a free-standing `async fn`, not on an `impl` or a `trait`")
        }
        _ => format!("`#[{name}]` goes on an `async fn`"),
    };
    let first = item.clone().into_iter().next();
    Some(syn::Error::new_spanned(first, message))
}
