//! What can go wrong, as the workflow sees it.
//!
//! Three kinds of errors meet in a workflow. The *declared* error of an activity stays the user's own type. What only
//! the engine can say (timed out, cancelled, cannot be decoded) is a [`Failure`] and reaches the caller through
//! `From<Failure>`. And [`Error`] takes any error there is, keeps its chain, and crosses the journal unchanged.

mod durable;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use durable::{Error, Result, ResultExt};
pub(crate) use durable::{Foreign, met_while};
#[cfg(feature = "http")]
pub(crate) use durable::{Marks, note};

/// What only the engine can say about a call: it timed out, was cancelled, could not be decoded.
///
/// A typed error gets a place for it with one variant:
///
/// ```
/// use composer_sdk::Failure;
///
/// #[derive(Debug, thiserror::Error, serde::Serialize, serde::Deserialize)]
/// enum ChargeError {
///     #[error("the card was declined")]
///     Declined,
///     #[error(transparent)]
///     Engine(#[from] Failure),
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// Which of them.
    pub kind: FailureKind,
    /// In words.
    pub message: String,
    /// How many attempts were made.
    #[serde(default)]
    pub attempts: u32,
}

/// The kinds of [`Failure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// It took longer than it was given.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// An operator ended it without its code.
    Terminated,
    /// Every attempt failed in a way that has no declared error, such as a panic.
    Exhausted,
    /// A value could not be written to the journal.
    Encode,
    /// A value of the journal could not be read as the declared type.
    Decode,
    /// The process died in the middle of a step that must not be repeated.
    Interrupted,
    /// What was asked for cannot be done: a timer beyond the last instant, a retry policy without attempts.
    Refused,
}

impl Failure {
    /// A failure of `kind`, in words.
    pub fn new(kind: FailureKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string(), attempts: 0 }
    }

    /// The same failure after that many attempts.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Whether trying again cannot help: the same values would be refused again.
    pub fn is_permanent(&self) -> bool {
        matches!(self.kind, FailureKind::Encode | FailureKind::Decode | FailureKind::Refused)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// `Result<T, String>` is everybody's first try, and only this crate can write this.
impl From<Failure> for String {
    fn from(failure: Failure) -> String {
        failure.message
    }
}
