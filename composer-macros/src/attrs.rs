//! Where the user's other attributes go: one function becomes several items, and each attribute must act once, on the
//! item that it speaks about.
//!
//! | attribute | goes to |
//! |---|---|
//! | `cfg` | every item |
//! | `doc`, `deprecated`, `must_use` | the constructor: what others see and call |
//! | `allow`, `warn`, `deny`, `forbid` | every item |
//! | `expect` | the item whose lint it is; the others get `allow` |
//! | everything else (`inline`, `tracing::instrument`, …) | the user's body |
//!
//! A `cfg_attr` goes where what it holds goes.

use syn::{Attribute, Meta, Path, Token, parse_quote, punctuated::Punctuated};

use crate::{errors::Errors, lint};

/// The attributes by where they go.
#[derive(Debug, Default)]
pub(crate) struct Attrs {
    /// Onto every item.
    pub(crate) all: Vec<Attribute>,
    /// Onto the constructor.
    pub(crate) constructor: Vec<Attribute>,
    /// Onto the user's body.
    pub(crate) body: Vec<Attribute>,
}

/// Lints that speak about the constructor, not about the body.
const OUTSIDE_LINTS: [&str; 2] = ["missing_docs", "unreachable_pub"];

/// Sorts the attributes of a function.
pub(crate) fn sort(attrs: Vec<Attribute>, errors: &mut Errors) -> Attrs {
    let mut sorted = Attrs::default();
    for attr in attrs {
        if attr.path().is_ident(lint::NAME) {
            let name = lint::NAME;
            errors.at(
                &attr,
                format_args!(
                    "`#[{name}]` goes into the body, before the statement or expression that it is about"
                ),
            );
            continue;
        }
        refuse_second(&attr.meta, errors);
        sorted.place(attr.meta, &|meta| parse_quote!(#[#meta]));
    }
    sorted
}

/// One function is one thing.
fn refuse_second(meta: &Meta, errors: &mut Errors) {
    if is_ours(meta.path()) {
        errors
            .at(meta.path(), "a function is one workflow or one activity: remove one of the two attributes");
    }
}

impl Attrs {
    fn place(&mut self, meta: Meta, wrap: &dyn Fn(Meta) -> Attribute) {
        if is_ours(meta.path()) {
            return;
        }
        let Some(name) = meta.path().get_ident().map(ToString::to_string) else {
            return self.body.push(wrap(meta));
        };
        match name.as_str() {
            "cfg" | "allow" | "warn" | "deny" | "forbid" => self.all.push(wrap(meta)),
            // A bare `must_use` says nothing that the call does not say itself.
            "must_use" if matches!(meta, Meta::Path(_)) => {}
            "doc" | "deprecated" | "must_use" => self.constructor.push(wrap(meta)),
            "expect" => self.place_expect(meta, wrap),
            "cfg_attr" => self.place_cfg_attr(meta, wrap),
            _ => self.body.push(wrap(meta)),
        }
    }

    fn place_expect(&mut self, meta: Meta, wrap: &dyn Fn(Meta) -> Attribute) {
        let lints = meta
            .require_list()
            .and_then(|list| list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated));
        let Ok(lints) = lints else { return self.body.push(wrap(meta)) };
        for lint in lints.iter().filter(|lint| !lint.path().is_ident("reason")) {
            if lint.path().is_ident("dead_code") {
                // The definition mentions the constructor, so there is nothing to expect.
                self.all.push(wrap(parse_quote!(allow(#lint))));
                continue;
            }
            let (expecting, allowing) = if is_outside(lint.path()) {
                (&mut self.constructor, &mut self.body)
            } else {
                (&mut self.body, &mut self.constructor)
            };
            expecting.push(wrap(parse_quote!(expect(#lint))));
            allowing.push(wrap(parse_quote!(allow(#lint))));
        }
    }

    fn place_cfg_attr(&mut self, meta: Meta, wrap: &dyn Fn(Meta) -> Attribute) {
        let parts = meta
            .require_list()
            .and_then(|list| list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated));
        let Ok(parts) = parts else { return self.body.push(wrap(meta)) };
        let mut parts = parts.into_iter();
        let Some(when) = parts.next() else { return self.body.push(wrap(meta)) };
        for part in parts {
            self.place(part, &|meta| wrap(parse_quote!(cfg_attr(#when, #meta))));
        }
    }
}

/// `workflow`, `composer_sdk::activity`.
pub(crate) fn is_ours(path: &Path) -> bool {
    let named = path.segments.last().is_some_and(|last| last.ident == "activity" || last.ident == "workflow");
    let home =
        path.segments.first().is_some_and(|first| first.ident == "composer_sdk" || path.segments.len() == 1);
    named && home
}

fn is_outside(lint: &Path) -> bool {
    lint.get_ident().is_some_and(|lint| OUTSIDE_LINTS.iter().any(|outside| lint == outside))
}

/// Whether it decides if what it stands on exists at all.
pub(crate) fn is_cfg(attr: &Attribute) -> bool {
    attr.path().is_ident("cfg") || attr.path().is_ident("cfg_attr")
}

#[cfg(test)]
mod tests {
    use quote::ToTokens as _;

    use super::*;

    fn show(attrs: &[Attribute]) -> String {
        attrs.iter().map(|attr| attr.to_token_stream().to_string().replace(' ', "")).collect()
    }

    #[track_caller]
    fn check(written: &str, all: &str, constructor: &str, body: &str) {
        let function: syn::ItemFn =
            syn::parse_str(&format!("{written} fn f() {{}}")).expect("the test is a function");
        let sorted = sort(function.attrs, &mut Errors::default());
        let sorted = [show(&sorted.all), show(&sorted.constructor), show(&sorted.body)];
        assert_eq!(sorted, [all, constructor, body], "{written}");
    }

    #[test]
    fn each_attribute_acts_once_on_the_item_it_speaks_about() {
        check("#[cfg(unix)]", "#[cfg(unix)]", "", "");
        check("#[deprecated] #[doc = \"x\"]", "", "#[deprecated]#[doc=\"x\"]", "");
        check("#[must_use]", "", "", "");
        check("#[must_use = \"x\"]", "", "#[must_use=\"x\"]", "");
        check(
            "#[inline] #[tracing::instrument(skip_all)]",
            "",
            "",
            "#[inline]#[tracing::instrument(skip_all)]",
        );
        check("#[allow(unused)]", "#[allow(unused)]", "", "");
        check("#[expect(dead_code)]", "#[allow(dead_code)]", "", "");
        check("#[expect(missing_docs)]", "", "#[expect(missing_docs)]", "#[allow(missing_docs)]");
        check("#[expect(clippy::x)]", "", "#[allow(clippy::x)]", "#[expect(clippy::x)]");
    }

    #[test]
    fn a_cfg_attr_goes_where_its_parts_go() {
        check(
            "#[cfg_attr(x, doc = \"d\", inline, cfg(y))]",
            "#[cfg_attr(x,cfg(y))]",
            "#[cfg_attr(x,doc=\"d\")]",
            "#[cfg_attr(x,inline)]",
        );
    }
}
