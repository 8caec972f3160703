//! Which types may stand in a signature. Each type gets at most one message, at the token that is in the way.

use proc_macro2::Span;
use syn::{
    Path, Type, TypeReference,
    spanned::Spanned as _,
    visit::{self, Visit},
};

/// What is in the way, and what to write instead.
#[derive(Debug)]
pub(crate) struct Obstacle {
    pub(crate) span: Span,
    pub(crate) message: String,
}

/// An argument: stored in the journal, read back as an owned value.
pub(crate) fn argument(ty: &Type) -> Option<Obstacle> {
    match peel(ty) {
        Type::Reference(reference) => {
            top_reference(reference, ARGUMENT_MUT).or_else(|| find(&reference.elem, Role::Argument))
        }
        ty => find(ty, Role::Argument),
    }
}

/// A `#[state]`: found by its type, shared with other activities.
pub(crate) fn state(ty: &Type) -> Option<Obstacle> {
    let Type::Reference(reference) = peel(ty) else { return find(ty, Role::State) };
    top_reference(
        reference,
        "a state is shared by all activities of a worker: take `&T`, or a `Mutex` in an `Arc`",
    )
    .or_else(|| unsized_state(&reference.elem))
    .or_else(|| find(&reference.elem, Role::State))
}

/// What a function returns: written to the journal, read back where it is awaited.
pub(crate) fn output(ty: &Type) -> Option<Obstacle> {
    find(ty, Role::Output)
}

/// Without the parentheses and invisible groups around it.
pub(crate) fn peel(ty: &Type) -> &Type {
    match ty {
        Type::Paren(paren) => peel(&paren.elem),
        Type::Group(group) => peel(&group.elem),
        ty => ty,
    }
}

const ARGUMENT_MUT: &str = "each attempt gets its own copy of the arguments, so nothing can be changed through `&mut`: \
    take the value (`mut order: Order`) and return what has changed";

fn top_reference(reference: &TypeReference, why_not_mut: &str) -> Option<Obstacle> {
    if let Some(token) = &reference.mutability {
        return Some(Obstacle { span: token.span, message: why_not_mut.into() });
    }
    reference.lifetime.as_ref().map(|lifetime| Obstacle {
        span: lifetime.span(),
        message: format!("lifetimes cannot be named here: write `&` without `{lifetime}`"),
    })
}

fn unsized_state(ty: &Type) -> Option<Obstacle> {
    let what = match peel(ty) {
        Type::TraitObject(_) => "`Arc<dyn …>` by value",
        Type::Slice(_) => "`&Vec<…>`",
        Type::Path(path) if path.path.is_ident("str") => "`&String`",
        _ => return None,
    };
    Some(Obstacle {
        span: ty.span(),
        message: format!("a worker finds a state by its sized type: take {what}, or a type of your own"),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Argument,
    State,
    Output,
}

fn find(ty: &Type, role: Role) -> Option<Obstacle> {
    let mut search = Search { role, found: None };
    search.visit_type(ty);
    search.found
}

struct Search {
    role: Role,
    found: Option<Obstacle>,
}

impl Search {
    fn obstacle(&mut self, span: Span, message: impl Into<String>) {
        self.found.get_or_insert(Obstacle { span, message: message.into() });
    }

    fn borrowed(&mut self, span: Span) {
        match self.role {
            Role::Argument => self.obstacle(span, NESTED),
            Role::State => self.obstacle(span, "a state outlives every borrow: own what is inside"),
            Role::Output => {
                self.obstacle(span, "a result is read back from the journal, where nothing can be borrowed from: return an owned value, such as `String` for `&str`");
            }
        }
    }
}

/// Most likely the function stands in an `impl`.
pub(crate) const SELF: &str = "workflows and activities are free-standing functions, where `Self` has no meaning: move \
    the function out of the `impl`, and write the type's name";

const NESTED: &str = "only a whole argument can be borrowed (`&T`, `&str`, `&[T]`), not a part of one: own what is inside, \
    as in `Option<T>` or `Vec<String>`";

impl<'ast> Visit<'ast> for Search {
    fn visit_type(&mut self, ty: &'ast Type) {
        match ty {
            Type::TraitObject(object) if self.role == Role::Argument => {
                self.obstacle(object.span(), "a `dyn` value cannot be read back from the journal: take a concrete type, such as an enum of the cases");
            }
            Type::ImplTrait(object) => {
                let instead = if self.role == Role::Output { "return" } else { "take" };
                self.obstacle(
                    object.span(),
                    format!(
                        "the journal needs to know the type: {instead} a concrete type instead of `impl …`"
                    ),
                );
            }
            Type::Infer(infer) => self.obstacle(infer.span(), "the type must be written out here"),
            Type::Ptr(pointer) => self
                .obstacle(pointer.span(), "a raw pointer means nothing in another process: take the value"),
            Type::FnPtr(function) if self.role == Role::Argument => {
                self.obstacle(function.span(), "a function cannot be stored in the journal: take a value that says what to do, such as an enum");
            }
            // What a function or a trait says about borrows is its own affair.
            Type::FnPtr(_) | Type::TraitObject(_) => {}
            Type::Never(never) => {
                self.obstacle(never.span(), "a result that never comes cannot be stored: write `-> std::convert::Infallible` or leave the arrow out");
            }
            ty => visit::visit_type(self, ty),
        }
    }

    fn visit_type_reference(&mut self, reference: &'ast TypeReference) {
        let is_static = reference.lifetime.as_ref().is_some_and(|lifetime| lifetime.ident == "static");
        if !(is_static && self.role == Role::State) {
            self.borrowed(reference.and_token.span);
        }
        visit::visit_type_reference(self, reference);
    }

    fn visit_lifetime(&mut self, lifetime: &'ast syn::Lifetime) {
        if lifetime.ident == "static" && self.role != Role::Argument {
            return;
        }
        self.borrowed(lifetime.span());
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if let Some(this) = path.segments.iter().find(|segment| segment.ident == "Self") {
            self.obstacle(this.ident.span(), SELF);
        }
        if let Some(last) = path.segments.last()
            && last.ident == "Cow"
            && !matches!(&last.arguments, syn::PathArguments::AngleBracketed(args)
                if args.args.iter().any(|arg| matches!(arg, syn::GenericArgument::Lifetime(_))))
        {
            self.borrowed(last.ident.span());
        }
        visit::visit_path(self, path);
    }
}
