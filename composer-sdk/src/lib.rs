//! Durable execution for Rust as a library: what workflow and activity code uses.
//!
//! Ordinary async functions, annotated with `#[workflow]` and `#[activity]`, that survive crashes: each awaited
//! call is a step whose result is journaled, and a restarted run takes the journaled results instead of doing the
//! steps again. No context argument is threaded through; where the code runs decides what a call means (see
//! [`call`]).
//!
//! | for | see |
//! |---|---|
//! | workflow code: `sleep`, `now`, `uuid`, `random` | [`mod@workflow`] |
//! | activity code: attempt, idempotency key, cancellation | [`mod@activity`] |
//! | telling a run something | [`Signal`] |
//! | errors | [`Error`], [`Failure`], [`ResultExt`] |
//! | retries and timeouts | [`options`] |
//! | running a workflow against a journal | [`replay`] |
//!
//! A worker's `main` adds `composer_runtime`.

#[doc(hidden)]
pub mod __private;
pub mod activity;
pub mod call;
mod codec;
mod context;
mod definition;
pub mod error;
#[cfg(feature = "http")]
pub mod http;
pub mod id;
pub mod journal;
pub mod message;
pub mod options;
pub mod payload;
pub mod prelude;
pub mod replay;
pub mod select;
pub mod workflow;

pub use composer_macros::{activity, workflow};

pub use crate::{
    call::Call,
    definition::{Activity, Definition, FromFailure, Journaled, State, Workflow},
    error::{Error, Failure, FailureKind, Result, ResultExt},
    message::Signal,
    workflow::DurationExt,
};
