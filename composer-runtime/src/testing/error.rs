//! What a test can meet besides what its workflow returns.

use std::fmt;

use composer_sdk::{call::StartRefused, error::Failure, id::WorkflowId};

use super::Journal;
use crate::store::Status;

/// Why a test environment cannot go on. What a workflow *returned*, also its error, is not among these.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The environment is not complete: every fault, a line each.
    #[error("the test environment cannot start a run:\n{faults}")]
    Setup {
        /// The faults.
        faults: String,
    },
    /// The call cannot be started.
    #[error(transparent)]
    Start(#[from] StartRefused),
    /// The workflow id belongs to a run of another workflow.
    #[error("workflow id `{id}` belongs to a run of workflow `{found}`: give this one another `.id(..)`")]
    WrongWorkflow {
        /// The id.
        id: WorkflowId,
        /// Whose it is.
        found: &'static str,
    },
    /// The run waits for something, and there is nothing to come.
    #[error(transparent)]
    Waits(Box<Waiting>),
    /// The run was driven until its journal should say something, and never did.
    #[error(
        "the run `{id}` of `{workflow}` came to its end ({status:?}) before its journal was as asked for; it says:\n{journal}"
    )]
    NeverCame {
        /// The run's workflow id.
        id: WorkflowId,
        /// Its workflow.
        workflow: &'static str,
        /// How it ended.
        status: Status,
        /// What has happened.
        journal: Journal,
    },
    /// The run is stuck: with a worker it would wait for a person, a fix or another build.
    #[error("the run `{id}` of `{workflow}` is stuck: {reason}")]
    Stuck {
        /// The run's workflow id.
        id: WorkflowId,
        /// Its workflow.
        workflow: &'static str,
        /// Why.
        reason: String,
    },
    /// The runs write on and on.
    #[error(
        "the runs made {writes} journal writes and go on: does a workflow loop for ever? Drive it with `advance(..)`, or \
         `run.until(..)`, instead of waiting for its result. The last of them:\n{last}"
    )]
    Endless {
        /// So many.
        writes: usize,
        /// What the last of them said.
        last: String,
    },
    /// The run has ended: it takes no more messages.
    #[error("the run `{id}` has ended ({status:?}) and takes no more messages: send them before its end")]
    Closed {
        /// The run's workflow id.
        id: WorkflowId,
        /// How it ended.
        status: Status,
    },
    /// A value cannot be journaled; or what the engine says about a run whose workflow returns no `Result`.
    #[error("{0}")]
    Run(#[from] Failure),
}

/// What a run waits for when there is nothing to come.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Waiting {
    /// The run's workflow id.
    pub id: WorkflowId,
    /// Its workflow.
    pub workflow: &'static str,
    /// The signals that it waits for.
    pub signals: Vec<String>,
    /// The activities that hang and have no timeout.
    pub hanging: Vec<&'static str>,
    /// Its children that have not ended.
    pub children: Vec<String>,
    /// What has happened.
    pub journal: Journal,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, workflow, signals, hanging, children, journal } = self;
        write!(
            f,
            "the run `{id}` of `{workflow}` waits, and nothing is to come that could wake it: it waits for "
        )?;
        let signals =
            signals.iter().map(|name| format!("the signal `{name}` (send it with `run.signal(..)`)"));
        let hanging = hanging.iter().map(|name| {
            format!("an attempt of `{name}` that hangs (give it a `timeout`, or do not make it hang)")
        });
        let children =
            children.iter().map(|child| format!("its child {child} (see it with `run.children(..)`)"));
        match signals.chain(hanging).chain(children).collect::<Vec<_>>() {
            nothing if nothing.is_empty() => f.write_str("nothing that this environment knows")?,
            waits => f.write_str(&waits.join(", and for "))?,
        }
        write!(f, "\nits journal so far:\n{journal}")
    }
}

impl std::error::Error for Waiting {}
