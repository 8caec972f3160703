//! What we understood of the function. Every check of it is here, each with the span of the token that is in the way.
//!
//! A [`Model`] always comes out, together with the mistakes: with [`Shape::Sound`] the function can be expanded as it
//! is meant (also when its attribute has mistakes), otherwise the expansion is inert, and only keeps the uses of the
//! function from failing in turn.

use proc_macro2::{Group, Ident, TokenStream};
use syn::{
    Attribute, FnArg, GenericParam, Generics, Pat, PatType, ReturnType, Signature, Type, Visibility,
    parse::{Parse, ParseStream},
    spanned::Spanned as _,
};

use crate::{
    args::{Kind, Options},
    attrs::{self, Attrs},
    body::{self, Found},
    errors::Errors,
    suggest, types,
};

/// How many arguments are journaled at most: as many as the standard library's tuples have traits for.
pub(crate) const MAX_ARGUMENTS: usize = 12;

/// A function as it is written: everything but the body is understood.
pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) body: Group,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let sig = input.parse()?;
        let body = input.parse()?;
        Ok(Self { attrs, vis, sig, body })
    }
}

/// What the expansion is made from.
pub(crate) struct Model {
    pub(crate) kind: Kind,
    pub(crate) options: Options,
    pub(crate) attrs: Attrs,
    pub(crate) vis: Visibility,
    pub(crate) ident: Ident,
    pub(crate) generics: Generics,
    pub(crate) params: Vec<Param>,
    pub(crate) output: ReturnType,
    /// A plain `fn` for a thread that may block.
    pub(crate) blocking: bool,
    pub(crate) body: Group,
    /// Bare macros of the prelude that the body uses, whose meaning is checked.
    pub(crate) prelude_macros: Vec<Ident>,
    pub(crate) shape: Shape,
    /// The signature as it was, for an inert expansion.
    pub(crate) sig: Signature,
}

/// What can be made of the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// All that it is meant to be.
    Sound,
    /// A constructor that returns a call of the declared type.
    Inert,
    /// The function as it stands, and a definition that returns nothing: its result cannot be named.
    Verbatim,
    /// The function as it stands: it is a method, where nothing can stand beside it.
    Method,
}

/// One parameter.
pub(crate) struct Param {
    /// `cfg` and its like, on each mention of the parameter.
    pub(crate) cfgs: Vec<Attribute>,
    /// The parameter of the user's body, without our attributes.
    pub(crate) written: PatType,
    /// Its name in the constructor.
    pub(crate) name: Ident,
    /// Its name in messages.
    pub(crate) label: String,
    pub(crate) role: Role,
}

/// Where a parameter's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The caller.
    Argument,
    /// The worker.
    State,
}

impl Param {
    /// The type without its `&`, and whether it had one.
    pub(crate) fn owned(&self) -> (&Type, bool) {
        match types::peel(&self.written.ty) {
            Type::Reference(reference) => (&reference.elem, true),
            ty => (ty, false),
        }
    }
}

impl Model {
    /// The function under the attribute, and its mistakes.
    pub(crate) fn new(kind: Kind, options: Options, function: Function, errors: &mut Errors) -> Self {
        let Function { attrs, vis, sig, body } = function;
        let before = errors.len();
        let blocking = check_color(kind, &options, &sig, errors);
        check_qualifiers(kind, &sig, errors);
        check_generics(kind, &sig.generics, errors);
        let is_method = check_receiver(kind, &sig, errors);
        let params = params(kind, &sig, errors);
        check_count(kind, &params, errors);
        let nameable = check_output(&sig, errors);
        let Found { macros, this } = body::look(&body);
        if let Some(this) = this
            && !is_method
        {
            errors.at_span(
                this,
                "`Self` has no meaning here: the function is free-standing, so write the type's name",
            );
        }
        let shape = match () {
            () if is_method => Shape::Method,
            () if !nameable || mentions_generics(&sig) => Shape::Verbatim,
            () if errors.len() > before => Shape::Inert,
            () => Shape::Sound,
        };
        Self {
            kind,
            options,
            attrs: attrs::sort(attrs, errors),
            vis,
            ident: sig.ident.clone(),
            generics: sig.generics.clone(),
            params,
            output: sig.output.clone(),
            blocking,
            body,
            prelude_macros: macros,
            shape,
            sig,
        }
    }

    /// The journaled parameters.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &Param> {
        self.params.iter().filter(|param| param.role == Role::Argument)
    }

    /// What awaiting a call gives.
    pub(crate) fn output_type(&self) -> TokenStream {
        match &self.output {
            ReturnType::Default => quote::quote!(()),
            ReturnType::Type(_, ty) => quote::quote!(#ty),
        }
    }
}

/// Async or not, as the attribute says; whether it is a plain `fn`.
fn check_color(kind: Kind, options: &Options, sig: &Signature, errors: &mut Errors) -> bool {
    match (&options.blocking, &sig.asyncness) {
        (Some(blocking), Some(_)) => {
            errors.at(blocking, "`blocking` is for a plain `fn`: remove it, or remove `async`");
            false
        }
        (None, None) => {
            let message = match kind {
                Kind::Workflow => "a workflow is an `async fn`: put `async` before `fn`",
                Kind::Activity => {
                    "put `async` before `fn`; for a plain `fn` that blocks its thread write `#[activity(blocking)]`"
                }
            };
            errors.at(sig.fn_token, message);
            false
        }
        (blocking, _) => blocking.is_some(),
    }
}

fn check_qualifiers(kind: Kind, sig: &Signature, errors: &mut Errors) {
    let a = kind.a();
    if let Some(token) = &sig.constness {
        errors.at(token, format_args!("{a} runs at run time: remove `const`"));
    }
    if let syn::Safety::Unsafe(token) = &sig.safety {
        errors.at(token, format_args!("{a} is called by the engine, which cannot keep promises for you: put the `unsafe` block inside"));
    }
    if let syn::Safety::Safe(token) = &sig.safety {
        errors.at(token, "remove `safe`");
    }
    if let Some(abi) = &sig.abi {
        errors.at(abi, format_args!("{a} is called from Rust only: remove `extern`"));
    }
    if let Some(variadic) = &sig.variadic {
        errors.at(variadic.dots, "the journal needs to know each argument: take a `Vec<T>`");
    }
}

fn check_generics(kind: Kind, generics: &Generics, errors: &mut Errors) {
    let a = kind.a();
    let mut seen = [false; 3];
    for param in &generics.params {
        let (index, message) = match param {
            GenericParam::Type(_) => (
                0,
                format!(
                    "{a} cannot be generic, since the journal needs one concrete type for each value: write one function \
                 for each type, which may call a generic helper"
                ),
            ),
            GenericParam::Const(_) => (1, format!("{a} cannot be generic: take the constant as an argument")),
            GenericParam::Lifetime(_) => (
                2,
                "lifetimes cannot be named here, since arguments are read back from the journal: borrow \
                 a whole argument (`&T`), or take it by value"
                    .to_owned(),
            ),
        };
        if !std::mem::replace(&mut seen[index], true) {
            errors.at(param, message);
        }
    }
    if let Some(clause) = &generics.where_clause
        && generics.params.is_empty()
    {
        errors.at(clause.where_token, format_args!("{a} has concrete types only: remove the `where` clause"));
    }
}

/// Whether it is a method.
fn check_receiver(kind: Kind, sig: &Signature, errors: &mut Errors) -> bool {
    let Some(receiver) = sig.receiver() else { return false };
    let instead = match kind {
        Kind::Activity => "take what it needs as arguments, or as `#[state]`",
        Kind::Workflow => "take what it needs as arguments",
    };
    errors.at(
        receiver.self_token,
        format_args!("{} is a free-standing function, not a method: {instead}", kind.a()),
    );
    true
}

fn check_count(kind: Kind, params: &[Param], errors: &mut Errors) {
    let mut arguments = params.iter().filter(|param| param.role == Role::Argument);
    if let Some(first_too_many) = arguments.nth(MAX_ARGUMENTS) {
        errors.at(
            &first_too_many.written.pat,
            format_args!(
                "{} has at most {MAX_ARGUMENTS} arguments: put some of them into a struct",
                kind.a()
            ),
        );
    }
}

/// Whether the declared result can be named outside the function.
fn check_output(sig: &Signature, errors: &mut Errors) -> bool {
    let ReturnType::Type(_, ty) = &sig.output else { return true };
    let Some(obstacle) = types::output(ty) else { return true };
    errors.at_span(obstacle.span, obstacle.message);
    false
}

/// Whether the declared result speaks of the function's generics.
fn mentions_generics(sig: &Signature) -> bool {
    let ReturnType::Type(_, ty) = &sig.output else { return false };
    let mentioned = |name: &Ident| body::mentions(quote::quote!(#ty), name);
    sig.generics.params.iter().any(|param| match param {
        GenericParam::Type(param) => mentioned(&param.ident),
        GenericParam::Const(param) => mentioned(&param.ident),
        GenericParam::Lifetime(param) => mentioned(&param.lifetime.ident),
    })
}

fn params(kind: Kind, sig: &Signature, errors: &mut Errors) -> Vec<Param> {
    let typed = sig.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => Some(typed),
        FnArg::Receiver(_) => None,
    });
    typed.enumerate().map(|(index, typed)| param(kind, index, typed, errors)).collect()
}

fn param(kind: Kind, index: usize, typed: &PatType, errors: &mut Errors) -> Param {
    let mut written = typed.clone();
    let attrs = std::mem::take(&mut written.attrs);
    let (ours, kept): (Vec<_>, Vec<_>) = attrs.into_iter().partition(|attr| is_ours(attr, errors));
    let role = role(kind, &ours, errors);
    let obstacle = match role {
        Some(Role::Argument) => types::argument(&written.ty),
        Some(Role::State) => types::state(&written.ty),
        // Refused as a whole.
        None => None,
    };
    if let Some(obstacle) = obstacle {
        errors.at_span(obstacle.span, obstacle.message);
    }
    let cfgs = kept.iter().filter(|attr| attrs::is_cfg(attr)).cloned().collect();
    written.attrs = kept;
    let (name, label) = name(index, &written.pat);
    Param { cfgs, written, name, label, role: role.unwrap_or(Role::State) }
}

fn is_ours(attr: &Attribute, errors: &mut Errors) -> bool {
    let Some(name) = attr.path().get_ident().map(ToString::to_string) else { return false };
    match name.as_str() {
        "state" | "tx" => true,
        "doc" | "cfg" | "cfg_attr" | "allow" | "warn" | "deny" | "forbid" | "expect" => false,
        other => match suggest::meant(other, &["state"]) {
            Some(known) => {
                errors.at(
                    attr.path(),
                    format_args!("a parameter knows no `{other}`: did you mean `#[{known}]`?"),
                );
                true
            }
            None => false,
        },
    }
}

/// Where the value comes from; `None` when that was refused.
fn role(kind: Kind, ours: &[Attribute], errors: &mut Errors) -> Option<Role> {
    let (first, more) = ours.split_first().map_or((None, ours), |(first, more)| (Some(first), more));
    let Some(first) = first else { return Some(Role::Argument) };
    if let Some(second) = more.first() {
        errors.at(second, "a parameter has one role: remove one of the two attributes");
    }
    if first.path().is_ident("tx") {
        errors.at(first, "`#[tx]` is not available yet: take the pool as `#[state]`, and write under the activity's idempotency key");
    } else if kind == Kind::Workflow {
        errors.at(
            first,
            "a workflow has no state, since a replay would not see the same: let an activity take it",
        );
    } else if first.meta.require_path_only().is_err() {
        errors.at(&first.meta, "`#[state]` stands alone: a worker finds the value by its type");
    } else if first.path().is_ident("state") {
        return Some(Role::State);
    }
    None
}

/// A parameter's name: its own, or one that says which it is.
fn name(index: usize, pat: &Pat) -> (Ident, String) {
    match pat {
        Pat::Ident(ident) => (ident.ident.clone(), syn::ext::IdentExt::unraw(&ident.ident).to_string()),
        Pat::Paren(paren) => name(index, &paren.pat),
        pat => {
            let number = index + 1;
            let span = pat.span().resolved_at(proc_macro2::Span::mixed_site());
            (Ident::new(&format!("arg{number}"), span), format!("#{number}"))
        }
    }
}
