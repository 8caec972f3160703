//! `#[allow_nondeterminism = "why"]`: the way to say that something is meant, at the statement or expression it is
//! about.
//!
//! The attribute is ours alone, so it is taken out of the tokens before the compiler sees them: that is what lets it
//! stand on any expression on stable Rust. For the walk it is replaced by a mark with a number, since marks survive
//! parsing, also that of a macro's arguments, and tell afterwards which of them were met and of use.

use proc_macro2::{Delimiter, Group, Literal, TokenStream, TokenTree};
use quote::quote;
use syn::{Attribute, Expr, ExprLit, Lit, LitInt, Meta};

use crate::errors::Errors;

/// The attribute's name.
pub(crate) const NAME: &str = "allow_nondeterminism";

/// Added to the first message of a function.
pub(super) const HINT: &str =
    " (where no step depends on it, `#[allow_nondeterminism = \"why\"]` in front of it lets it pass)";

/// All attributes of this kind in a body, in source order.
#[derive(Default)]
pub(crate) struct Allowances(Vec<Allowance>);

struct Allowance {
    /// The attribute as it is written.
    written: TokenStream,
    reason: Reason,
}

#[derive(PartialEq, Eq)]
enum Reason {
    Given,
    Missing,
}

/// A body without the attributes, and one that has marks in their place.
pub(crate) struct Taken {
    pub(crate) stripped: Group,
    pub(crate) marked: TokenStream,
    pub(crate) allowances: Allowances,
}

/// Takes the attributes out of a body. What holds none keeps its very tokens.
pub(crate) fn take(body: Group) -> Taken {
    let mut allowances = Allowances::default();
    match without(body.stream(), &mut allowances) {
        Some((stripped, marked)) => Taken { stripped: like(&body, stripped), marked, allowances },
        None => Taken { marked: body.stream(), stripped: body, allowances },
    }
}

/// Without the attributes, and with marks; `None` where there are none.
fn without(tokens: TokenStream, allowances: &mut Allowances) -> Option<(TokenStream, TokenStream)> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let before = allowances.len();
    let (mut stripped, mut marked) = (Vec::new(), Vec::new());
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if let Some(inside) = attribute(&tokens[at..]) {
            let length = if inside.is_inner { 3 } else { 2 };
            // Nothing is marked by one that speaks of what is around it, so it will be of no use.
            if !inside.is_inner {
                marked.extend([token.clone(), mark(inside.group, allowances.len()).into()]);
            }
            allowances.0.push(Allowance {
                written: tokens[at..at + length].iter().cloned().collect(),
                reason: reason(inside.group),
            });
            at += length;
            continue;
        }
        at += 1;
        if let TokenTree::Group(group) = token
            && let Some((without, with)) = without(group.stream(), allowances)
        {
            stripped.push(like(group, without).into());
            marked.push(like(group, with).into());
            continue;
        }
        stripped.push(token.clone());
        marked.push(token.clone());
    }
    let found = allowances.len() > before;
    found.then(|| (stripped.into_iter().collect(), marked.into_iter().collect()))
}

struct Inside<'a> {
    /// `#![…]`.
    is_inner: bool,
    group: &'a Group,
}

/// Whether the tokens begin with the attribute.
fn attribute(tokens: &[TokenTree]) -> Option<Inside<'_>> {
    let is =
        |token: &TokenTree, wanted| matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted);
    let (is_inner, group) = match tokens {
        [hash, TokenTree::Group(group), ..] if is(hash, '#') => (false, group),
        [hash, bang, TokenTree::Group(group), ..] if is(hash, '#') && is(bang, '!') => (true, group),
        _ => return None,
    };
    let named = matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(ident)) if ident == NAME);
    (named && group.delimiter() == Delimiter::Bracket).then_some(Inside { is_inner, group })
}

fn reason(attribute: &Group) -> Reason {
    let Ok(Meta::NameValue(meta)) = syn::parse2(attribute.stream()) else { return Reason::Missing };
    match meta.value {
        Expr::Lit(ExprLit { lit: Lit::Str(words), .. }) if !words.value().trim().is_empty() => Reason::Given,
        _ => Reason::Missing,
    }
}

fn mark(attribute: &Group, index: usize) -> Group {
    let name = attribute.stream().into_iter().next();
    let index = Literal::usize_unsuffixed(index);
    like(attribute, quote!(#name(#index)))
}

fn like(group: &Group, tokens: TokenStream) -> Group {
    let mut new = Group::new(group.delimiter(), tokens);
    new.set_span(group.span());
    new
}

/// The number of a mark, if the attribute is one.
pub(super) fn marked(attr: &Attribute) -> Option<usize> {
    if !attr.path().is_ident(NAME) {
        return None;
    }
    attr.parse_args::<LitInt>().ok()?.base10_parse().ok()
}

impl Allowances {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Each must say why, and be of use.
    pub(super) fn check(&self, used: &[bool], errors: &mut Errors) {
        for (allowance, used) in self.0.iter().zip(used) {
            if allowance.reason == Reason::Missing {
                errors.at(
                    &allowance.written,
                    format_args!(
                        "say why no step depends on it: `#[{NAME} = \"it is only shown to people\"]`"
                    ),
                );
            } else if !used {
                errors.at(
                    &allowance.written,
                    format_args!(
                        "`#[{NAME}]` lets nothing pass here: remove it, or put it directly before the statement or \
                         expression that it is about"
                    ),
                );
            }
        }
    }

    /// In an activity there is nothing to allow.
    pub(super) fn refuse_all(&self, errors: &mut Errors) {
        for allowance in &self.0 {
            errors.at(
                &allowance.written,
                format_args!("an activity is not replayed, and may look at the world: remove `#[{NAME}]`"),
            );
        }
    }
}
