//! The parameters of an annotated function: where each value comes from, and by which name.

use proc_macro2::{Ident, Span};
use syn::{Attribute, FnArg, Pat, PatType, Signature, Type, ext::IdentExt as _, spanned::Spanned as _};

use crate::{args::Kind, attrs, errors::Errors, suggest, types};

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

/// The parameters of a signature, without `self`.
pub(crate) fn read(kind: Kind, sig: &Signature, errors: &mut Errors) -> Vec<Param> {
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
        Pat::Ident(ident) => (ident.ident.clone(), ident.ident.unraw().to_string()),
        Pat::Paren(paren) => name(index, &paren.pat),
        pat => {
            let number = index + 1;
            let span = pat.span().resolved_at(Span::mixed_site());
            (Ident::new(&format!("arg{number}"), span), format!("#{number}"))
        }
    }
}
