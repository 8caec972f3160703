//! The first net for determinism: what a workflow's body visibly does that a replay would not repeat.
//!
//! A workflow is run again from its first line, so its code may not look at the world by itself. This walks the body,
//! closures, `async` blocks and the arguments of macros included, and refuses the well-known ways of doing so, each at
//! its own tokens and with what to write instead. It sees names and not what they mean, so it is made to miss rather
//! than to be wrong: a method or a function of the user's own is left alone, and so is what a helper function does.
//! What it misses is left to the run-time nets: waits on nothing durable, and steps that do not fit the journal.
//!
//! [`rules`] says which names, [`walk`] finds them, [`macros`] reads the arguments of macros, [`names`] knows what the
//! body itself imports and binds, [`order`] looks for steps in the order of a hash table, and [`allow`] is the way to
//! say that something is meant.

mod allow;
mod macros;
mod names;
mod order;
mod rules;
#[cfg(test)]
mod tests;
mod walk;

use proc_macro2::{Ident, TokenStream};
use syn::Stmt;

use crate::{errors::Errors, params::Param};
pub(crate) use allow::{Allowances, NAME, Taken, take};

/// Something that a replay would not repeat.
struct Hit {
    /// The user's tokens.
    at: TokenStream,
    /// It may be of use without deciding anything.
    may_be_meant: bool,
    message: String,
}

/// What the walk leaves to be known.
#[derive(Default)]
pub(crate) struct Checked {
    /// Bare `select!`s that were refused here; their meaning need not be checked a second time.
    pub(crate) refused_macros: Vec<Ident>,
}

/// Notes everything in a workflow's body that a replay would not repeat.
pub(crate) fn check(
    stmts: &[Stmt],
    params: &[Param],
    allowances: &Allowances,
    errors: &mut Errors,
) -> Checked {
    let mut walk = walk::Walk::new(stmts, allowances.len());
    for param in params {
        walk.bind_param(&param.written);
    }
    walk.body(stmts);
    // Said once a function: a way out should be known, but not be what is read each time.
    let mut hint = Some(allow::HINT);
    for hit in &walk.hits {
        let hint = hit.may_be_meant.then(|| hint.take()).flatten().unwrap_or_default();
        errors.at(&hit.at, format_args!("{}{hint}", hit.message));
    }
    allowances.check(&walk.used, errors);
    Checked { refused_macros: walk.refused_macros }
}

/// Notes what stands in an activity's body as if it were a workflow's.
pub(crate) fn check_activity(allowances: &Allowances, errors: &mut Errors) {
    allowances.refuse_all(errors);
}
