//! What a client or a worker's `main` can meet.

use composer_sdk::{error::Failure, id::InvalidWorkflowId};

use crate::store::{Status, StoreError};

/// Why a call to the engine failed. What a *workflow* returned, also its error, is not among these: it is in the
/// value of [`RunHandle::result`](crate::RunHandle::result).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The id cannot be one.
    #[error(transparent)]
    Id(#[from] InvalidWorkflowId),
    /// A value cannot be stored, or a stored one not read as the type that is asked for; or what the engine says
    /// about a run whose workflow returns no `Result`.
    #[error("{0}")]
    Run(#[from] Failure),
    /// The call cannot be started by a client.
    #[error("{0}")]
    Start(String),
    /// The id is taken, and the policy is [`IdPolicy::Reject`](crate::IdPolicy::Reject); or it is to be that of a fork.
    #[error("there is a run of workflow id `{id}` already ({status:?}); its run id is {run_id}")]
    AlreadyExists {
        /// The workflow id.
        id: String,
        /// The run that has it.
        run_id: composer_sdk::id::RunId,
        /// Where that run stands.
        status: Status,
    },
    /// The id belongs to a run of another workflow.
    #[error("workflow id `{id}` belongs to a run of workflow `{found}`, not of `{asked}`")]
    WrongWorkflow {
        /// The workflow id.
        id: String,
        /// The workflow asked for.
        asked: String,
        /// The workflow of the run.
        found: String,
    },
    /// There is no such run.
    #[error("there is no run of workflow id `{id}`")]
    NoRun {
        /// The workflow id.
        id: String,
    },
    /// The run is closed: it takes no more messages.
    #[error("the run of workflow id `{id}` is closed ({status:?})")]
    Closed {
        /// The workflow id.
        id: String,
        /// How it ended.
        status: Status,
    },
    /// A run that stands so cannot be paused, and has no attempt that could be hurried.
    #[error("the run of workflow id `{id}` is {status:?}: nothing of it goes on; `resume` lets it try again")]
    CannotNow {
        /// The workflow id.
        id: String,
        /// Where it stands.
        status: Status,
    },
    /// The run does not know the step that a fork is to begin with.
    #[error(
        "the run of workflow id `{id}` cannot be forked at step {step}: its journal knows steps up to {last}, so {first} to \
         {next} can be made anew",
        next = last + 1
    )]
    NoStep {
        /// The workflow id.
        id: String,
        /// The step asked for.
        step: u32,
        /// The first one: 1, unless the run has continued as new.
        first: u32,
        /// The last one that the journal knows, 0 for none.
        last: u32,
    },
    /// The run has completed: nothing went wrong that could be made good.
    #[error(
        "the run of workflow id `{id}` has completed: there is nothing to redrive; `fork` makes steps of it again"
    )]
    NothingToRedrive {
        /// The workflow id.
        id: String,
    },
    /// The run is open: it can be neither deleted nor redriven.
    #[error("the run of workflow id `{id}` is open ({status:?}); wait for its end first, or cancel it")]
    Open {
        /// The workflow id.
        id: String,
        /// Where it stands.
        status: Status,
    },
    /// A worker cannot start as it was built: every fault, a line each.
    #[error("the worker cannot start:\n{faults}")]
    Worker {
        /// The faults.
        faults: String,
    },
}
