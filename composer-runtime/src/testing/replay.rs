//! Replaying a stored journal with the code of today.

use std::sync::Arc;

use composer_sdk::{
    Workflow,
    journal::{Event, Outcome, Step, StepKind},
    replay::{Finished, FinishedStatus, Machine, Mismatch, Progress, Start, StuckReason},
    workflow::WorkflowEntry,
};
use futures::FutureExt;

use crate::{journal_file::JournalFile, store::Status};

/// How far today's code comes with a stored journal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// Whether the workflow ends with the journal. If not, it waits for what follows.
    pub ended: bool,
    /// What it waits for, in step order: names of activities and children, `sleep`.
    pub open: Vec<String>,
    /// The signals that it waits for.
    pub signals: Vec<String>,
}

/// Why a stored journal does not replay.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// It is another workflow's.
    #[error(
        "the journal is of workflow `{recorded}`, and `{asked}` was to replay it: a workflow that was renamed keeps its \
         name with `#[workflow(name = \"{recorded}\")]`"
    )]
    WrongWorkflow {
        /// Whose it is.
        recorded: String,
        /// Who was to replay it.
        asked: &'static str,
    },
    /// The code asks for something else than the journal holds: both sides.
    #[error("{0}")]
    Mismatch(Box<Mismatch>),
    /// The code cannot go on for another reason.
    #[error("{0}")]
    Stuck(StuckReason),
    /// The run had ended, and the code goes on.
    #[error(
        "the run had ended ({recorded:?}), and the code goes on after its last entry, with {}: was a step added at the \
         end?", open.join(", ")
    )]
    GoesOn {
        /// How it had ended.
        recorded: Status,
        /// With what the code goes on.
        open: Vec<String>,
    },
    /// The run had ended otherwise.
    #[error("the run had ended with {recorded}, and the code ends with {now}")]
    EndsOtherwise {
        /// With what it had ended.
        recorded: String,
        /// With what the code ends.
        now: String,
    },
}

/// Replays a stored journal with the code of `W`: no activity runs, and nothing waits. What would leave runs stuck after a
/// deployment fails a test before it.
///
/// ```
/// use composer_runtime::{JournalFile, testing::{self, Testing}};
/// # use composer_sdk::prelude::*;
/// # mod yesterday {
/// #     use composer_sdk::prelude::*;
/// #     #[activity] pub async fn reserve(n: u32) -> u32 { n }
/// #     #[activity] pub async fn charge(n: u32) -> u32 { n }
/// #     #[workflow] pub async fn buy(n: u32) -> u32 { charge(reserve(n).await).await }
/// # }
/// # use yesterday::{charge, reserve};
///
/// // Of a run in production: `handle.export().await?.to_json()`.
/// # let env = Testing::new().activity::<reserve>().activity::<charge>();
/// # let run = env.start(yesterday::buy(7)).unwrap();
/// # run.result().wait().unwrap();
/// # let text = run.export().to_json();
/// let journal = JournalFile::from_json(&text).unwrap();
/// testing::replay::<yesterday::buy>(&journal).unwrap();
///
/// #[workflow]
/// async fn buy(n: u32) -> u32 {
///     charge(n).await // `reserve` is gone
/// }
/// let mismatch = testing::replay::<buy>(&journal).unwrap_err().to_string();
/// assert!(mismatch.starts_with("the code does not fit the journal at step 1: the journal holds activity `reserve`"));
/// ```
///
/// # Errors
/// [`ReplayError::Mismatch`] with both sides; the others where the code ends, or does not, as the run did.
pub fn replay<W: Workflow>(journal: &JournalFile) -> Result<Replayed, ReplayError> {
    if journal.workflow != W::NAME {
        return Err(ReplayError::WrongWorkflow { recorded: journal.workflow.clone(), asked: W::NAME });
    }
    let mut machine = Machine::new(Start {
        run_id: journal.run_id,
        seed: journal.seed,
        workflow_id: journal.workflow_id.clone(),
        workflow: WorkflowEntry::of::<W>(),
        input: journal.input.clone(),
        started_at: journal.started_at,
        alarm: Arc::new(|| {}),
    });
    // Never caught up: no side effect runs, however far the code comes.
    machine = machine.resumed(u32::MAX);
    let driven = async {
        let mut progress = machine.drive();
        for entry in &journal.entries {
            machine.feed(entry);
            progress = machine.drive();
        }
        progress
    };
    // Tokio's cooperative budget would make honest channels look like a wait on nothing durable.
    let progress =
        tokio::task::unconstrained(driven).now_or_never().expect("invariant: it waits for nothing");
    let open: Vec<String> = machine.open().iter().map(named).collect();
    match progress {
        Progress::Waiting => match ended_by_code(journal) {
            Some(_) => {
                Err(ReplayError::GoesOn { recorded: journal.status, open: or_signals(open, &machine) })
            }
            None => Ok(Replayed { ended: false, open, signals: machine.awaited_signals() }),
        },
        Progress::Continued(_) if ended_by_code(journal).is_some() => {
            Err(ReplayError::GoesOn { recorded: journal.status, open: vec!["a new generation".into()] })
        }
        Progress::Continued(_) => Ok(Replayed { ended: false, open, signals: vec![] }),
        Progress::Done(finished) => {
            if let Some(recorded) =
                ended_by_code(journal).filter(|recorded| !same(journal, recorded, &finished))
            {
                let now = words(status(&finished), &finished.outcome);
                return Err(ReplayError::EndsOtherwise { recorded: words(journal.status, recorded), now });
            }
            Ok(Replayed { ended: true, open: vec![], signals: vec![] })
        }
        Progress::Stuck(StuckReason::Nondeterminism(mismatch)) => Err(ReplayError::Mismatch(mismatch)),
        Progress::Stuck(reason) => Err(ReplayError::Stuck(reason)),
    }
}

/// What the run's own code ended with. A run may also be closed without it.
fn ended_by_code(journal: &JournalFile) -> Option<&Outcome> {
    let asked = || journal.entries.iter().any(|entry| matches!(entry.event, Event::CancelRequested { .. }));
    match journal.status {
        Status::Completed | Status::Failed => journal.end.as_ref(),
        Status::Cancelled if asked() => journal.end.as_ref(),
        _ => None,
    }
}

fn same(journal: &JournalFile, recorded: &Outcome, finished: &Finished) -> bool {
    let value = |outcome: &Outcome| match outcome {
        Outcome::Ok(value) => value.decode_json().map(Ok).ok(),
        Outcome::Err(error) => error.decode_json().map(Err).ok(),
        Outcome::Failed(_) => None,
    };
    let equal = *recorded == finished.outcome
        // The order of a map's keys is no difference.
        || value(recorded).is_some_and(|recorded| value(&finished.outcome) == Some(recorded));
    equal && journal.status == status(finished)
}

fn status(finished: &Finished) -> Status {
    match finished.status {
        FinishedStatus::Completed => Status::Completed,
        FinishedStatus::Cancelled => Status::Cancelled,
        _ => Status::Failed,
    }
}

fn words(status: Status, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Ok(value) => format!("the value {value:?} ({status:?})"),
        Outcome::Err(error) => format!("the error {error:?} ({status:?})"),
        Outcome::Failed(failure) => format!("{failure:?} ({status:?})"),
    }
}

fn named(step: &Step) -> String {
    match step.kind {
        StepKind::Undo => format!("undo {}", step.name),
        StepKind::Child => format!("child {}", step.name),
        _ => step.name.to_string(),
    }
}

fn or_signals(open: Vec<String>, machine: &Machine) -> Vec<String> {
    let signals = machine.awaited_signals().into_iter().map(|name| format!("the signal `{name}`"));
    open.into_iter().chain(signals).collect()
}
