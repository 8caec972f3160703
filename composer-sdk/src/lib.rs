//! Durable execution for Rust as a library: what workflow and activity code uses.
//!
//! Ordinary async functions, annotated with `#[workflow]` and `#[activity]`, that survive crashes: each awaited
//! call is a step whose result is journaled, and a restarted run takes the journaled results instead of doing the
//! steps again. No context argument is threaded through; where the code runs decides what a call means (see
//! [`call`]).
//!
//! ```
//! use composer_sdk::prelude::*;
//! # #[derive(Clone, serde::Serialize, serde::Deserialize)] pub struct Order { euros: u32 }
//! # #[derive(serde::Serialize, serde::Deserialize)] pub struct Receipt(String);
//!
//! #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
//! pub enum Decision {
//!     Yes,
//!     No,
//!     Expired,
//! }
//!
//! static APPROVAL: Signal<Decision> = Signal::new("approval");
//!
//! #[activity(retry(max_attempts = 5, first = "200ms"), timeout = "10s")]
//! async fn charge_card(order: Order) -> Result<Receipt> {
//!     if order.euros > 10_000 {
//!         return Err(Error::permanent("the card's limit is 10,000 euros"));
//!     }
//!     // The same key on every attempt: the service at the other end can tell a repetition.
//!     Ok(Receipt(activity::idempotency_key()))
//! }
//!
//! #[activity]
//! async fn tell_customer(words: &str) {
//!     println!("{words}");
//! }
//!
//! #[workflow]
//! async fn buy(order: Order) -> Result<Option<Receipt>> {
//!     let decision = select! {
//!         decision = APPROVAL.recv() => decision,
//!         () = sleep(Duration::days(2)) => Decision::Expired, // a row with a wake-up time, not a thread
//!     };
//!     if decision != Decision::Yes {
//!         tell_customer("your order was not approved").await;
//!         return Ok(None);
//!     }
//!     let (receipt, ()) = join!(charge_card(order), tell_customer("your order is on its way"));
//!     Ok(Some(receipt?))
//! }
//! ```
//!
//! | for | see |
//! |---|---|
//! | workflow code: `sleep`, `now`, `uuid`, `random` | [`mod@workflow`] |
//! | activity code: attempt, idempotency key, cancellation | [`mod@activity`] |
//! | HTTP with the activity's idempotency key (feature `http`) | `http` |
//! | telling a run something | [`Signal`] |
//! | showing what a run is at | [`Published`] |
//! | undoing what was done | [`saga`] |
//! | cancelling | [`workflow::shield`], [`workflow::cancelled`] |
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
pub mod saga;
pub mod select;
pub mod workflow;

pub use composer_macros::{activity, workflow};

pub use crate::{
    call::Call,
    definition::{Activity, Definition, FromFailure, Journaled, State, Workflow},
    error::{Error, Failure, FailureKind, Result, ResultExt},
    message::{Published, Signal},
    workflow::DurationExt,
};
