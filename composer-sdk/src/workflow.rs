//! What workflow code calls, and what the runtime registers.
//!
//! For workflow code: [`sleep`], [`sleep_until`], [`now`], [`uuid`](fn@uuid), [`random`], [`info`], [`spawn`], [`map`],
//! [`poll_until`], [`side_effect`](fn@side_effect), [`shield`], [`cancelled`], [`continue_as_new`] (and
//! [`Signal::recv`](crate::Signal::recv)). All of them give the same answers in every life of a run. [`fn@log`] and
//! [`is_replaying`] are for lines that people read.
//!
//! For the runtime: [`WorkflowEntry`], which a [`Machine`](crate::replay::Machine) runs.

mod branch;
mod cancel;
mod continued;
mod log;
mod map;
mod poll;
mod random;
mod side_effect;
mod timer;

use std::{fmt, time::SystemTime};

use uuid::Uuid;

pub use crate::definition::Workflow;
use crate::{
    context::{self, Here},
    definition::BodyFuture,
    error::Failure,
    id::{RunId, Timestamp, WorkflowId},
    journal::Outcome,
    payload::Payload,
    replay::Run,
};
pub use branch::{Branch, spawn};
pub use cancel::{Cancelled, Shield, cancelled, shield};
pub use continued::{ContinueAsNew, continue_as_new};
pub use log::{is_replaying, log};
pub use map::{Map, Settled, TooManyFailed, map};
pub use poll::{Checked, NotYet, PollUntil, PollWithin, poll_until};
pub use random::Random;
pub use side_effect::{SideEffect, side_effect, try_side_effect};
pub use timer::{DurationExt, Sleep, sleep, sleep_until};

/// A registered workflow.
#[derive(Clone, Copy)]
pub struct WorkflowEntry {
    /// Its name in the journal.
    pub name: &'static str,
    /// Where it is written, `file:line`.
    pub source: &'static str,
    /// The version of its attribute; 0 without one.
    pub version: u32,
    begin: fn(&Payload) -> Result<BodyFuture<'static, Ended>, Failure>,
}

/// How a body ended.
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    /// The error's chain; empty for a value.
    pub(crate) error: String,
}

impl WorkflowEntry {
    /// Of a `#[workflow]` function.
    pub fn of<W: Workflow>() -> Self {
        Self { name: W::NAME, source: W::SOURCE, version: W::VERSION, begin: begin::<W> }
    }

    pub(crate) fn begin(&self, input: &Payload) -> Result<BodyFuture<'static, Ended>, Failure> {
        (self.begin)(input)
    }
}

impl fmt::Debug for WorkflowEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "workflow `{}` ({})", self.name, self.source)
    }
}

fn begin<W: Workflow>(input: &Payload) -> Result<BodyFuture<'static, Ended>, Failure> {
    let body = W::body(input)?;
    Ok(Box::pin(async move {
        let output = body.await;
        let outcome = W::encode(&output);
        let error = match &outcome {
            Outcome::Ok(_) => String::new(),
            Outcome::Err(_) => W::judge(&output).error,
            Outcome::Failed(failure) => failure.to_string(),
        };
        Ended { outcome, error }
    }))
}

/// What a workflow may know about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkflowInfo {
    /// The run.
    pub run_id: RunId,
    /// The user's key of the run.
    pub workflow_id: WorkflowId,
    /// The workflow's name.
    pub workflow: String,
    /// When a worker first took the run; when its generation began, if it is a later one.
    pub started_at: SystemTime,
    /// How often the run has [continued as new](continue_as_new).
    pub generation: u32,
}

/// What this workflow may know about itself.
///
/// # Panics
/// Outside a workflow, as all functions of this module. In a workflow that makes the run `stuck`.
#[track_caller]
pub fn info() -> WorkflowInfo {
    let run = known("info");
    WorkflowInfo {
        run_id: run.id,
        workflow_id: run.workflow_id.clone(),
        workflow: run.workflow.to_owned(),
        started_at: run.started_at.into(),
        generation: run.generation,
    }
}

/// The instant of the decision that is being made, by the database's clock: that of the last event that was
/// delivered. It stands still between two events, and never differs between two lives of a run.
#[track_caller]
pub fn now() -> SystemTime {
    match context::here() {
        Here::Workflow(run) | Here::Dropping(Some(run)) => run.now().into(),
        Here::Dropping(None) => Timestamp::from_micros(0).into(),
        Here::Outside | Here::Delivering(_) | Here::Activity(_) => outside("now"),
    }
}

/// A unique id (a version 4 UUID) from the run's own randomness: the same in every life of the run, so not a secret.
#[track_caller]
pub fn uuid() -> Uuid {
    let run = known("uuid");
    let (high, low) = (run.random("uuid"), run.random("uuid"));
    uuid::Builder::from_random_bytes(((u128::from(high) << 64) | u128::from(low)).to_be_bytes()).into_uuid()
}

/// Random numbers from a named stream of the run: the same in every life of the run, so not a secret.
///
/// Each name is a stream of its own, so drawing from one never shifts another.
#[track_caller]
pub fn random(stream: &str) -> Random {
    Random::new(known("random"), stream)
}

/// The run of the code that calls, for what is harmless in `Drop` code, too.
#[track_caller]
fn known(what: &str) -> std::sync::Arc<Run> {
    match context::here() {
        Here::Workflow(run) | Here::Dropping(Some(run)) => run,
        _ => outside(what),
    }
}

/// The run of the code that calls; none in `Drop` code, where everything durable is inert.
#[track_caller]
pub(crate) fn current(what: &str) -> Option<std::sync::Arc<Run>> {
    match context::here() {
        Here::Workflow(run) => Some(run),
        Here::Dropping(_) => None,
        Here::Outside | Here::Delivering(_) | Here::Activity(_) => outside(what),
    }
}

#[track_caller]
fn outside(what: &str) -> ! {
    panic!(
        "`{what}` was called outside a workflow. It works in the body of a `#[workflow]` and in what that awaits, not \
         in a task that was spawned from there, and not in an activity. (Two versions of composer-sdk in one binary \
         look the same: see `cargo tree -d`.)"
    )
}
