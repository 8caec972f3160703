//! A run, as a client holds it.

use std::{collections::BTreeMap, fmt, marker::PhantomData, time::Duration};

use composer_sdk::{
    Journaled, Workflow,
    error::Failure,
    id::{RunId, Timestamp, WorkflowId},
    journal::{Entry, Event, Outcome, StepKind},
    message::{Published, Signal},
    payload::Payload,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;

use super::Composer;
use crate::{
    error::Error,
    journal_file::{JournalFile, generation},
    store::{MessageContent, NewMessage, Order, Ordered, RunRow, Sent, Status, Topic},
};

/// The longest name of a signal, in bytes.
const SIGNAL_NAME: usize = 256;
/// The longest reason of a cancel or an order, in bytes.
const REASON: usize = 4096;
/// Between two looks whether a run that is waited for is still there.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Entries of a journal read at once.
pub(super) const READ: u32 = 1_000;

/// What a run returns, seen by a client: the workflow's own type, or [`Json`] where its code is not at hand.
pub trait Returns: 'static {
    /// The value of [`RunHandle::result`].
    type Output;
    #[doc(hidden)]
    fn decode(outcome: &Outcome) -> Result<Self::Output, Failure>;
}

impl<W: Workflow> Returns for W {
    type Output = W::Output;
    fn decode(outcome: &Outcome) -> Result<Self::Output, Failure> {
        <W as composer_sdk::Definition>::decode(outcome)
    }
}

/// The result of a run whose workflow is known by its name only: its value or its error, as JSON. A number that JSON
/// libraries would round (an integer of more than 64 bits) is an error instead.
#[derive(Debug, Clone, Copy)]
pub enum Json {}

impl Returns for Json {
    type Output = Result<serde_json::Value, serde_json::Value>;
    fn decode(outcome: &Outcome) -> Result<Self::Output, Failure> {
        match outcome {
            Outcome::Ok(value) => value.decode_json().map(Ok),
            Outcome::Err(error) => error.decode_json().map(Err),
            Outcome::Failed(failure) => Err(failure.clone()),
        }
    }
}

/// A run: wait for it, signal it, look at it. Cheap to clone; holds nothing in the database.
pub struct RunHandle<W = Json> {
    composer: Composer,
    run_id: RunId,
    workflow_id: WorkflowId,
    already: bool,
    _returns: PhantomData<fn() -> W>,
}

impl<W> RunHandle<W> {
    pub(super) fn new(composer: Composer, run_id: RunId, workflow_id: WorkflowId, already: bool) -> Self {
        Self { composer, run_id, workflow_id, already, _returns: PhantomData }
    }

    pub(super) fn composer(&self) -> &Composer {
        &self.composer
    }

    /// The run's own id.
    pub fn run_id(&self) -> RunId {
        self.run_id
    }

    /// Your key for it; for a run without one, the run id as text.
    pub fn workflow_id(&self) -> &WorkflowId {
        &self.workflow_id
    }

    /// Whether the run was there before this handle: the start found it.
    pub fn already(&self) -> bool {
        self.already
    }

    /// Sends a signal. When this returns, the signal is durable: the run sees it, or lists it as unconsumed.
    ///
    /// # Errors
    /// [`Error::Closed`] when the run has ended; [`Error::Run`] when the value cannot be encoded.
    pub async fn signal<T: Serialize + DeserializeOwned>(
        &self,
        signal: &Signal<T>,
        value: T,
    ) -> Result<(), Error> {
        let payload = signal.encode(&value)?;
        self.send(NewMessage::Signal { name: check_name(signal.name())?, payload }).await.map(drop)
    }

    /// Sends a signal by its name, with a value as JSON.
    ///
    /// # Errors
    /// As [`RunHandle::signal`].
    pub async fn signal_json(&self, name: &str, value: &serde_json::Value) -> Result<(), Error> {
        let payload = Payload::encode(value)?;
        self.send(NewMessage::Signal { name: check_name(name)?, payload }).await.map(drop)
    }

    /// Asks the run to cancel. When this returns the request is durable; who wins against an end that comes at the
    /// same time, only the run's status says: wait for [`RunHandle::result`].
    ///
    /// # Errors
    /// [`Error::Closed`] when the run had ended before.
    pub async fn cancel(&self, reason: &str) -> Result<(), Error> {
        self.send(NewMessage::Cancel { reason: told(reason) }).await.map(drop)
    }

    /// Ends the run at once, as terminated: none of its code runs any more, also no undo steps. What is under way is
    /// dropped, and what it reports is refused. To end a run in an orderly way, [`RunHandle::cancel`] it.
    ///
    /// # Errors
    /// [`Error::Closed`] when the run had ended before; [`Error::NoRun`] when it was deleted.
    pub async fn terminate(&self, reason: &str) -> Result<(), Error> {
        self.order(Order::Terminate { reason: told(reason) }).await
    }

    /// Puts the run on hold: no step of it starts until it is [resumed](RunHandle::resume). What is under way is dropped and
    /// begins again then, with the same idempotency key; messages are kept, and deadlines go on. Pausing a paused run does
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Closed`] when the run has ended, [`Error::CannotNow`] when it is stuck; [`Error::NoRun`] when it was deleted.
    pub async fn pause(&self, reason: &str) -> Result<(), Error> {
        self.order(Order::Pause { reason: told(reason) }).await
    }

    /// Lets a paused run go on where it was, and a stuck one try again at once with any build. A run that is neither goes
    /// on as it does.
    ///
    /// # Errors
    /// [`Error::Closed`] when the run has ended; [`Error::NoRun`] when it was deleted.
    pub async fn resume(&self) -> Result<(), Error> {
        self.order(Order::Resume).await
    }

    /// Ends the rests between attempts: each step of the run that waits for its next attempt makes it at once. The
    /// number of attempts and the policy stay as they are. In a run that rests nowhere it changes nothing; a paused one
    /// hears of it when it is resumed.
    ///
    /// ```no_run
    /// # async fn example(composer: composer_runtime::Composer) -> Result<(), composer_runtime::Error> {
    /// // The bank is back: nobody has to wait for the next attempt in an hour.
    /// composer.get_json("order-102").await?.retry_now().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Closed`] when the run has ended, [`Error::CannotNow`] when it is stuck; [`Error::NoRun`] when it was
    /// deleted.
    pub async fn retry_now(&self) -> Result<(), Error> {
        match self.send(NewMessage::Retry).await {
            Err(Error::Closed { id, status }) if !status.is_closed() => Err(Error::CannotNow { id, status }),
            sent => sent.map(drop),
        }
    }

    async fn order(&self, order: Order) -> Result<(), Error> {
        let id = || self.workflow_id.to_string();
        match (self.composer.store().order(self.run_id, &order).await?, &order) {
            (Ordered::Done, _) => {}
            (Ordered::NoRun, _) => return Err(Error::NoRun { id: id() }),
            (Ordered::Not(status), _) if status.is_closed() => {
                return Err(Error::Closed { id: id(), status });
            }
            (Ordered::Not(Status::Paused), Order::Pause { .. }) | (Ordered::Not(_), Order::Resume) => {
                return Ok(());
            }
            (Ordered::Not(status), _) => return Err(Error::CannotNow { id: id(), status }),
        }
        let hub = self.composer.hub();
        hub.start(self.composer.store(), self.composer.poll());
        hub.notify(Topic::Orders);
        match order {
            Order::Terminate { .. } => hub.notify(Topic::Ends),
            Order::Resume => hub.notify(Topic::Runs),
            _ => {}
        }
        Ok(())
    }

    pub(super) async fn send(&self, message: NewMessage) -> Result<Sent, Error> {
        let id = || self.workflow_id.to_string();
        match self.composer.store().send(self.run_id, &message).await? {
            Sent::NoRun => Err(Error::NoRun { id: id() }),
            Sent::NotOpen(status) => Err(Error::Closed { id: id(), status }),
            sent => {
                self.composer.hub().start(self.composer.store(), self.composer.poll());
                self.composer.hub().notify(if sent == Sent::Closed { Topic::Ends } else { Topic::Inbox });
                Ok(sent)
            }
        }
    }

    /// Where the run stands, and why.
    ///
    /// # Errors
    /// [`Error::NoRun`] when it was deleted.
    pub async fn status(&self) -> Result<RunRow, Error> {
        let row = self.composer.store().run(self.run_id).await?;
        row.ok_or_else(|| Error::NoRun { id: self.workflow_id.to_string() })
    }

    /// What the run shows under that name, if it has shown anything yet: also while no worker lives, and after its end.
    ///
    /// # Errors
    /// [`Error::Run`] when the stored value is no `T`; [`Error::Store`].
    pub async fn published<T: Journaled>(&self, state: &Published<T>) -> Result<Option<T>, Error> {
        let found = self.shown().await?.into_iter().find(|(name, ..)| name == state.name());
        Ok(found.map(|(_, _, value)| state.decode(&value)).transpose()?)
    }

    /// Everything that the run shows, by name, as JSON.
    ///
    /// # Errors
    /// [`Error::Run`] when a stored value is no JSON; [`Error::Store`].
    pub async fn published_json(&self) -> Result<BTreeMap<String, serde_json::Value>, Error> {
        let shown = self.shown().await?;
        shown.into_iter().map(|(name, _, value)| Ok((name, value.decode()?))).collect()
    }

    async fn shown(&self) -> Result<Vec<(String, Timestamp, Payload)>, Error> {
        Ok(self.composer.store().published(self.run_id).await?)
    }

    /// The run's journal, as lines for people: what was asked, what came of it, with attempts and errors.
    ///
    /// # Errors
    /// [`Error::NoRun`] when it was deleted.
    pub async fn journal(&self) -> Result<Vec<Line>, Error> {
        let entries = self.entries().await?;
        // The row is read after the entries: a run that ends meanwhile shows its end only with all of its journal.
        let row = self.status().await?;
        Ok(lines(&row, &entries))
    }

    /// The run and its journal, to be written into a file: for replaying it with other code, in a test or another
    /// process. Values are as the workflow sees them, without the store's codec: treat the file as you treat them.
    ///
    /// # Errors
    /// [`Error::NoRun`] when it was deleted.
    pub async fn export(&self) -> Result<JournalFile, Error> {
        let (store, id) = (self.composer.store(), self.run_id);
        let entries = self.entries().await?;
        let row = self.status().await?;
        let no_run = || Error::NoRun { id: self.workflow_id.to_string() };
        let input = store.input(id).await?.ok_or_else(no_run)?;
        let end = store.ends(&[id]).await?.pop().map(|(_, end)| end.outcome);
        Ok(JournalFile {
            run_id: id,
            seed: row.seed,
            workflow_id: row.workflow_id,
            workflow: row.workflow,
            started_at: row.started_at.unwrap_or(row.created_at),
            input,
            status: row.status,
            end,
            entries: generation(entries),
        })
    }

    async fn entries(&self) -> Result<Vec<Entry>, Error> {
        let mut entries = vec![];
        loop {
            let after = entries.last().map_or(0, |entry: &Entry| entry.seq);
            let page = self.composer.store().journal(self.run_id, after, READ).await?;
            let last = page.len() < READ as usize;
            entries.extend(page);
            if last {
                return Ok(entries);
            }
        }
    }

    /// What the run, once closed, never received.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn unconsumed(&self) -> Result<Vec<MessageContent>, Error> {
        Ok(self.composer.store().unconsumed(self.run_id).await?)
    }
}

impl<W: Returns> RunHandle<W> {
    /// Waits for the run's end. What the workflow returned, also its declared error, is the value; a run that was
    /// cancelled or timed out is told through the workflow's error type (`From<Failure>`).
    ///
    /// # Errors
    /// [`Error::Run`] when the engine has something to say to a workflow that returns no `Result`; [`Error::NoRun`]
    /// when the run was deleted.
    ///
    /// # Cancel safety
    /// May be dropped and called again at any time.
    pub async fn result(&self) -> Result<W::Output, Error> {
        let mut end = self.composer.hub().wait(self.composer.store(), self.run_id, self.composer.poll());
        let mut pause = self.composer.poll();
        loop {
            if let Ok(end) = timeout(pause, &mut end).await {
                let end = end.map_err(|_| Error::NoRun { id: self.workflow_id.to_string() })?;
                return Ok(W::decode(&end.outcome)?);
            }
            // Nobody reports the end of a run that was deleted. A database that is away is waited for.
            if let Err(deleted @ Error::NoRun { .. }) = self.status().await {
                return Err(deleted);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

pub(super) fn check_name(name: &str) -> Result<String, Error> {
    if name.is_empty() || name.len() > SIGNAL_NAME || name.contains('\0') {
        let message = format!("a signal's name has 1 to {SIGNAL_NAME} bytes, without NUL");
        return Err(Failure::new(composer_sdk::error::FailureKind::Encode, message).into());
    }
    Ok(name.to_owned())
}

impl<W> Clone for RunHandle<W> {
    fn clone(&self) -> Self {
        Self::new(self.composer.clone(), self.run_id, self.workflow_id.clone(), self.already)
    }
}

impl<W> fmt::Debug for RunHandle<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunHandle")
            .field("run_id", &self.run_id)
            .field("workflow_id", &self.workflow_id)
            .finish()
    }
}

/// One line of a journal, for people: a local step that took one row shows as two, asked and done.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Line {
    /// The entry it comes from; 0 for the start, and none for the end.
    pub seq: Option<u32>,
    /// When.
    pub at: Timestamp,
    /// What: `started`, `step_scheduled`, `step_completed`, `step_failed`, `side_effect`, `side_effect_failed`,
    /// `undo_completed`, `undo_failed`, `attempt_failed`, `child_started`, `child_completed`, `child_failed`, `timer_set`, `timer_fired`, `signal`,
    /// `cancel_requested`, `retry_requested`, `continued`, `run_timed_out`, `run_completed`, `run_failed`, `run_cancelled`,
    /// `run_terminated`.
    pub kind: &'static str,
    /// The step's number.
    pub step: Option<u32>,
    /// The name of the workflow, activity or signal.
    pub name: String,
    /// The attempt.
    pub attempt: Option<u32>,
    /// The error's chain, and what follows from it; when a timer is due; where a fork comes from.
    pub detail: String,
}

fn lines(row: &RunRow, entries: &[Entry]) -> Vec<Line> {
    let line = |seq, at, kind| Line {
        seq,
        at,
        kind,
        step: None,
        name: String::new(),
        attempt: None,
        detail: String::new(),
    };
    let mut start = Line { name: row.workflow.clone(), ..line(Some(0), row.created_at, "started") };
    if let Some((original, step)) = row.forked_from {
        start.detail = format!("forked from run {original} before step {step}");
    }
    let mut asked = std::collections::HashSet::new();
    let mut lines = vec![start];
    for entry in entries {
        let own = |kind| line(Some(entry.seq), entry.at, kind);
        match &entry.event {
            Event::StepDone { step, error, .. } if step.kind == StepKind::SideEffect => {
                let (kind, detail) = match error.is_empty() {
                    true => ("side_effect", step.line.to_string()),
                    false => ("side_effect_failed", error.clone()),
                };
                lines.push(Line { step: Some(step.number), detail, ..own(kind) });
            }
            Event::StepDone { step, attempt, error, gave_up, .. } => {
                if asked.insert(step.number) {
                    let (number, name) = (Some(step.number), step.name.to_string());
                    lines.push(Line {
                        step: number,
                        name,
                        detail: step.line.to_string(),
                        ..own("step_scheduled")
                    });
                }
                let kind = match (step.kind, error.is_empty()) {
                    (StepKind::Undo, true) => "undo_completed",
                    (StepKind::Undo, false) => "undo_failed",
                    (_, true) => "step_completed",
                    (_, false) => "step_failed",
                };
                let why = gave_up.map(|why| match why {
                    composer_sdk::journal::GaveUp::Permanent => " (not retryable)",
                    composer_sdk::journal::GaveUp::Attempts => " (attempts used up)",
                    _ => " (out of time)",
                });
                lines.push(Line {
                    step: Some(step.number),
                    name: step.name.to_string(),
                    attempt: Some(*attempt),
                    detail: format!("{error}{}", why.unwrap_or_default()),
                    ..own(kind)
                });
            }
            Event::AttemptFailed { step, attempt, error, .. } => {
                if asked.insert(step.number) {
                    let (number, name) = (Some(step.number), step.name.to_string());
                    lines.push(Line {
                        step: number,
                        name,
                        detail: step.line.to_string(),
                        ..own("step_scheduled")
                    });
                }
                lines.push(Line {
                    step: Some(step.number),
                    name: step.name.to_string(),
                    attempt: Some(*attempt),
                    detail: format!("{error} (will be retried)"),
                    ..own("attempt_failed")
                });
            }
            Event::ChildStarted { step, run_id } => {
                asked.insert(step.number);
                lines.push(Line {
                    step: Some(step.number),
                    name: step.name.to_string(),
                    detail: format!("{run_id} ({})", step.line),
                    ..own("child_started")
                });
            }
            Event::ChildDone { step, outcome, .. } => {
                let kind = if matches!(outcome, Outcome::Ok(_)) { "child_completed" } else { "child_failed" };
                let detail = match outcome {
                    Outcome::Failed(failure) => failure.to_string(),
                    _ => String::new(),
                };
                lines.push(Line { step: Some(*step), detail, ..own(kind) });
            }
            Event::TimerSet { step, due } => lines.push(Line {
                step: Some(step.number),
                name: step.name.to_string(),
                detail: format!("due {}", due.as_micros()),
                ..own("timer_set")
            }),
            Event::TimerFired { step } => lines.push(Line { step: Some(*step), ..own("timer_fired") }),
            Event::Signal { name, .. } => lines.push(Line { name: name.clone(), ..own("signal") }),
            Event::Continued { workflow, .. } => {
                lines.push(Line { name: workflow.clone(), ..own("continued") });
            }
            Event::CancelRequested { reason, .. } => {
                lines.push(Line { detail: reason.clone(), ..own("cancel_requested") });
            }
            other => lines.push(own(other.name())),
        }
    }
    use crate::store::Status;
    let end = match row.status {
        Status::Completed => "run_completed",
        Status::Failed => "run_failed",
        Status::Cancelled => "run_cancelled",
        Status::Terminated => "run_terminated",
        _ => return lines,
    };
    let at = row.closed_at.unwrap_or(row.created_at);
    lines.push(Line { detail: row.reason.clone().unwrap_or_default(), ..line(None, at, end) });
    lines
}

/// A reason as every store takes it.
fn told(reason: &str) -> String {
    let reason: String = reason.chars().filter(|c| *c != '\0').collect();
    reason[..reason.floor_char_boundary(REASON)].to_owned()
}
