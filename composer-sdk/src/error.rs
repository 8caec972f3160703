//! What can go wrong, as the workflow sees it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What only the engine can say about a call: it timed out, was cancelled, could not be decoded.
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
    /// Every attempt failed in a way that has no declared error, such as a panic.
    Exhausted,
    /// A value could not be written to the journal.
    Encode,
    /// A value of the journal could not be read as the declared type.
    Decode,
    /// The process died in the middle of a step that must not be repeated.
    Interrupted,
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
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
