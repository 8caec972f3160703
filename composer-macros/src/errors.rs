//! Collects mistakes, so that a function with three of them is reported once with all three.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// The mistakes found so far, in the order in which they were found.
#[derive(Debug, Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    /// A mistake at these tokens of the user.
    pub(crate) fn at(&mut self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    /// A mistake at this place.
    pub(crate) fn at_span(&mut self, span: Span, message: impl std::fmt::Display) {
        self.push(syn::Error::new(span, message));
    }

    /// A mistake that was found elsewhere.
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            none => *none = Some(error),
        }
    }

    /// Keeps what went well, notes what did not.
    pub(crate) fn ok<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// One `compile_error!` for each.
    pub(crate) fn to_compile_errors(&self) -> TokenStream {
        self.0.as_ref().map(syn::Error::to_compile_error).unwrap_or_default()
    }

    /// Their words, for tests.
    #[cfg(test)]
    pub(crate) fn messages(&self) -> Vec<String> {
        self.0.iter().flatten().map(|error| error.to_string()).collect()
    }
}
