//! The stores: every promise that the engine makes about rows, as one trait.
//!
//! Each method is one transaction with one promise; most take a batch. Everything that decides lives above, in pure
//! code; a store compares, writes and reports. Both implementations, [Postgres](postgres) and [SQLite](sqlite), pass
//! the same conformance suite (`tests/it/conformance/`), which shows for each rule of `ARCHITECTURE.md` the
//! interleaving that it prevents.
//!
//! **The fence.** A run is owned by a session at an epoch. Whatever changes a run on its owner's behalf matches
//! `run_id`, `epoch`, `session` and `status = running` in one place, with a row lock that skips locked rows, and
//! every other part of the statement reads from there. What does not match is *fenced*: nothing of it is written.
//!
//! **Time.** `Timestamp`s that decide are read from the database's clock inside the statement.

#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use composer_sdk::{
    id::{RunId, Timestamp, WorkflowId},
    journal::{Entry, Outcome},
    payload::Payload,
};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

/// A run's fencing token: one higher at each claim, never reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub i64);

/// One worker process's life: given out by the database, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub i64);

/// Where a run stands. The numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(i16)]
#[non_exhaustive]
pub enum Status {
    /// Put on hold by an operator: nothing of it runs until it is resumed.
    Paused = 0,
    /// Waits for a worker, from `due_at` on.
    Pending = 1,
    /// A session owns it.
    Running = 2,
    /// Waits for `wake_at` or an inbox row, and costs nothing.
    Parked = 3,
    /// Needs a person, a fix or another build; the reason is in words.
    Stuck = 4,
    /// Ended with a value.
    Completed = 5,
    /// Ended with an error.
    Failed = 6,
    /// Ended by a cancellation.
    Cancelled = 7,
    /// Ended by an operator, without its code.
    Terminated = 8,
}

impl Status {
    /// Whether it never changes again.
    pub fn is_closed(self) -> bool {
        matches!(self, Status::Completed | Status::Failed | Status::Cancelled | Status::Terminated)
    }
}

impl TryFrom<i16> for Status {
    type Error = StoreError;
    fn try_from(stored: i16) -> Result<Self, StoreError> {
        [
            Status::Paused,
            Status::Pending,
            Status::Running,
            Status::Parked,
            Status::Stuck,
            Status::Completed,
            Status::Failed,
            Status::Cancelled,
            Status::Terminated,
        ]
        .into_iter()
        .find(|status| *status as i16 == stored)
        .ok_or_else(|| StoreError::unreadable(format!("a run's status is {stored}")))
    }
}

/// What a store can fail with. What to do about it is the class, not the text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database cannot be reached or said "not now" (connection lost, deadlock, serialization failure, busy,
    /// out of connections, shutting down). Repeating the same call later is right, except after a commit was sent:
    /// then the outcome is unknown (see [`JournalConn::settle`]).
    #[error("the database is not available: {message}")]
    Unavailable {
        /// What it said.
        message: String,
        /// Whether the statement may have been committed all the same.
        maybe_committed: bool,
    },
    /// The rows as they stand contradict what we wrote: a unique violation in the journal, say.
    #[error("the database refused rows that contradict others: {message}")]
    Conflict {
        /// What it said.
        message: String,
    },
    /// These rows will never be accepted (too large, no partition, bad text): repeating the call is useless.
    #[error("the database will not accept this: {message}")]
    Rejected {
        /// What it said.
        message: String,
    },
    /// A row cannot be read by this version.
    #[error("a stored row cannot be read: {message}")]
    Unreadable {
        /// What is wrong with it.
        message: String,
    },
    /// The schema is missing, behind, or ahead, and may not be migrated here.
    #[error("the schema needs attention: {message}")]
    Schema {
        /// What is wrong and what to do.
        message: String,
    },
    /// The URL or another setting cannot be used.
    #[error("bad setting: {message}")]
    Config {
        /// Which, and what to write instead.
        message: String,
    },
}

impl StoreError {
    pub(crate) fn unreadable(message: impl Into<String>) -> Self {
        StoreError::Unreadable { message: message.into() }
    }

    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, StoreError::Unavailable { .. })
    }
}

/// The result of a store's method.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// The seam for compression and encryption: applied to user payloads only, on the way into and out of a store.
///
/// The encoded form must say by itself how to read it (a version byte, say): rows outlive settings.
pub trait Codec: Send + Sync + fmt::Debug + 'static {
    /// Before the bytes are stored.
    fn encode(&self, payload: Payload) -> Payload;
    /// After they were read.
    ///
    /// # Errors
    /// In words, when the bytes are not what `encode` made.
    fn decode(&self, stored: Payload) -> Result<Payload, String>;
}

/// No encoding: payloads are stored as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

impl Codec for Plain {
    fn encode(&self, payload: Payload) -> Payload {
        payload
    }
    fn decode(&self, stored: Payload) -> Result<Payload, String> {
        Ok(stored)
    }
}

// ---------------------------------------------------------------------------------------------- starting and asking

/// A run to be started.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Its identity, made with the database's clock.
    pub run_id: RunId,
    /// The user's key; `None` makes the run's own id its key, and needs no row in `ids`.
    pub workflow_id: Option<WorkflowId>,
    /// The workflow's name.
    pub workflow: String,
    /// The argument list.
    pub input: Payload,
    /// Not before this long from now.
    pub delay: Duration,
    /// Closed as failed when it is still open this long after its start.
    pub timeout: Option<Duration>,
    /// For finding it again.
    pub tags: BTreeMap<String, String>,
    /// The build that started it, for explaining.
    pub build: String,
    /// A signal that is in its inbox from the start: name and value.
    pub signal: Option<(String, Payload)>,
}

/// Whose step a child run is, and as whom that is said: a parent that is owned by somebody else by now starts nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    /// The parent.
    pub run_id: RunId,
    /// Its owner.
    pub session: SessionId,
    /// At this epoch.
    pub epoch: Epoch,
    /// The number of the step.
    pub step: u32,
    /// Whether the child goes on when its parent is terminated.
    pub abandoned: bool,
}

/// The answer to a child's start.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildStarted {
    /// It is there: since now, or since an earlier life of its parent.
    Started,
    /// Another run has the workflow id.
    Taken {
        /// That run.
        run_id: RunId,
    },
    /// The parent is not owned at that epoch by that session.
    Fenced,
}

/// A run to be made that begins with what another one has done.
#[derive(Debug, Clone)]
pub struct NewFork {
    /// The other one. It stays as it is.
    pub from: RunId,
    /// The new one's identity, made with the database's clock.
    pub run_id: RunId,
    /// Its key.
    pub key: ForkKey,
    /// The number of the first step that is not taken over: for the link between the two.
    pub step: u32,
    /// The first entry that may be copied: 1, or the one that begins a later generation, whose arguments are in it.
    pub first: u32,
    /// The last entry that is copied.
    pub upto: u32,
    /// Entries up to there that are left out.
    pub without: Vec<u32>,
    /// The argument list, if it is another one.
    pub input: Option<Payload>,
}

/// The key of a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForkKey {
    /// Its own run id.
    OwnId,
    /// This one, which nobody may have.
    New(WorkflowId),
    /// That of its original, which has to be closed, and to which no other run may have succeeded.
    Inherit,
}

/// The answer to a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Forked {
    /// It is there, with the whole of what it begins with.
    Done,
    /// Another run has the key.
    Taken {
        /// That run.
        run_id: RunId,
        /// Where it stands.
        status: Status,
    },
    /// The original is open, and so keeps its key.
    Open(Status),
    /// There is no such run.
    NoRun,
}

/// What to do when the workflow id is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum IdPolicy {
    /// Return the existing run, open or closed, marked `already`. The default.
    #[default]
    UseExisting,
    /// A typed error.
    Reject,
    /// A new run when the existing one is closed; the existing one, marked `already`, while it is open.
    NewWhenClosed,
}

/// The answer to a start.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Started {
    /// The run is new: `Some` epoch when it was handed to the asking session at once.
    New {
        /// The epoch at which the asking session owns it.
        owned: Option<Epoch>,
        /// `started_at`, when it is owned.
        at: Timestamp,
    },
    /// There is one of that id (and, by the policy, it is the answer or the obstacle: the caller knows which).
    Exists {
        /// That run.
        run_id: RunId,
        /// Its workflow's name.
        workflow: String,
        /// Where it stands.
        status: Status,
    },
}

/// What a run's row says: everything but the payloads.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RunRow {
    /// The run.
    pub run_id: RunId,
    /// The user's key; for a run without one, the run id as text.
    pub workflow_id: WorkflowId,
    /// The workflow's name.
    pub workflow: String,
    /// Where it stands.
    pub status: Status,
    /// Its fencing token.
    pub epoch: Epoch,
    /// Who owns it, when it is running.
    pub session: Option<SessionId>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When a worker first took it.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub closed_at: Option<Timestamp>,
    /// When it is due, while it is pending or parked; `None` waits for an inbox row alone.
    pub due_at: Option<Timestamp>,
    /// When its own timeout ends it.
    pub deadline: Option<Timestamp>,
    /// Found by them.
    pub tags: BTreeMap<String, String>,
    /// Why it is stuck or failed, in words.
    pub reason: Option<String>,
    /// How often a worker died while it held the run, without progress in between.
    pub strikes: u32,
    /// Of a child: its parent, and the number of the step there.
    pub parent: Option<(RunId, u32)>,
    /// Of a fork: its original, and the number of the first step that it did not take over. It counts as started when
    /// the original was.
    pub forked_from: Option<(RunId, u32)>,
    /// The run whose random numbers it draws: itself, or the first of a chain of forks.
    pub seed: RunId,
    /// Whether a live session hosts its workflow: `false` explains why it waits.
    pub hosted: bool,
}

/// Which runs to list; empty fields do not restrict.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Any of these.
    pub statuses: Vec<Status>,
    /// The workflow's name.
    pub workflow: Option<String>,
    /// Literal prefix of the workflow id.
    pub id_prefix: Option<String>,
    /// A tag and its value.
    pub tag: Option<(String, String)>,
    /// Created at or after.
    pub created_from: Option<Timestamp>,
    /// Created before.
    pub created_before: Option<Timestamp>,
    /// Children of this run.
    pub parent: Option<RunId>,
}

/// A run's end.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEnd {
    /// The terminal status.
    pub status: Status,
    /// What the client gets.
    pub outcome: Outcome,
    /// In words, when it failed.
    pub reason: Option<String>,
}

/// A message for a run's inbox.
#[derive(Debug, Clone)]
pub enum NewMessage {
    /// A signal.
    Signal {
        /// Its name.
        name: String,
        /// Its value.
        payload: Payload,
    },
    /// A request to cancel.
    Cancel {
        /// Why, in the caller's words.
        reason: String,
    },
    /// A request that steps which rest between two attempts rest no longer.
    Retry,
}

/// The answer to a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sent {
    /// In the inbox: it will be journaled before the run ends, or listed as unconsumed.
    Accepted,
    /// A cancel found the run stuck, or not begun by any worker yet, and closed it without its code.
    Closed,
    /// The run is closed; or it is stuck, where nothing rests that a retry could hurry.
    NotOpen(Status),
    /// There is no such run.
    NoRun,
}

/// A message in a run's inbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The row's id: the order of a sender that waits for each answer.
    pub id: i64,
    /// For whom.
    pub run_id: RunId,
    /// What.
    pub content: MessageContent,
}

/// What a [`Message`] says.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageContent {
    /// A signal.
    Signal {
        /// Its name.
        name: String,
        /// Its value.
        payload: Payload,
    },
    /// A request to cancel.
    Cancel {
        /// Why, in the caller's words.
        reason: String,
    },
    /// A child of the run has ended.
    Child {
        /// The number of its step.
        step: u32,
        /// With this.
        outcome: Outcome,
    },
    /// A request that steps which rest between two attempts rest no longer.
    Retry,
}

/// What an operator orders. An order takes the run over: its epoch grows, so that whoever owns it is fenced and lets go.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// Close the run as terminated, without its code and without undo steps.
    Terminate {
        /// Why, in the operator's words.
        reason: String,
    },
    /// Put a run on hold that is pending, running or parked.
    Pause {
        /// Why, in the operator's words.
        reason: String,
    },
    /// Let a paused run go on where it was; let a stuck one try again with any build, as if for the first time.
    Resume,
}

/// The answer to an [`Order`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ordered {
    /// It is so.
    Done,
    /// A run that stands so cannot be ordered that: it is as it was.
    Not(Status),
    /// There is no such run.
    NoRun,
}

/// The answer to a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deleted {
    /// Row, journal, inbox and id are gone.
    Done,
    /// The run is open.
    Open(Status),
    /// There is no such run.
    NoRun,
}

// ---------------------------------------------------------------------------------------------------------- working

/// What a new session says of itself.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// For people: host, process id.
    pub name: String,
    /// The build, for `stuck` runs and explanations.
    pub build: String,
    /// The workflows it hosts.
    pub workflows: Vec<String>,
    /// How long its lease runs from each renewal.
    pub lease: Duration,
}

/// What to claim.
#[derive(Debug, Clone)]
pub struct Claim {
    /// For whom.
    pub session: SessionId,
    /// Its build: stuck runs are offered to others than the one that failed them.
    pub build: String,
    /// The workflows it hosts.
    pub workflows: Vec<String>,
    /// At most that many runs.
    pub limit: usize,
    /// How long a stuck run rests between two offers.
    pub stuck_backoff: Duration,
    /// From how many strikes on a run is set stuck instead of handed out.
    pub max_strikes: u32,
}

/// A run that now belongs to the session.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// The run.
    pub run_id: RunId,
    /// The user's key; for a run without one, the run id as text.
    pub workflow_id: WorkflowId,
    /// The workflow's name.
    pub workflow: String,
    /// At this epoch.
    pub epoch: Epoch,
    /// The argument list, or why it cannot be read: the other runs of the claim are not its problem.
    pub input: std::result::Result<Payload, String>,
    /// When it was first taken by a worker: the workflow's first `now()`.
    pub started_at: Timestamp,
    /// The instant of this claim: timers asked for but not yet armed count from here.
    pub claimed_at: Timestamp,
    /// When its own timeout ends it.
    pub deadline: Option<Timestamp>,
    /// Whether it was taken over from a dead session.
    pub taken_over: bool,
    /// How often a worker died over it without progress; from 2 on it is hosted with few others.
    pub strikes: u32,
    /// Whether it is a child: then its end is mail for its parent.
    pub is_child: bool,
    /// The run whose random numbers it draws: its own, or the original of a fork.
    pub seed: RunId,
    /// Of a fork: how many entries of its journal were copied. What it showed by then nobody has written.
    pub copied: u32,
}

/// What one statement of the journal writer carries. Runs are in ascending order of their id, each at most once.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// New runs with engine-made ids, owned by the writing session from the start.
    pub starts: Vec<NewRun>,
    /// What the owned runs decided.
    pub runs: Vec<RunBatch>,
}

/// What one run decided: written together or not at all.
#[derive(Debug, Clone)]
pub struct RunBatch {
    /// The run.
    pub run_id: RunId,
    /// The epoch at which it is owned.
    pub epoch: Epoch,
    /// The last durable entry, 0 for none: the store refuses a gap.
    pub prev: u32,
    /// The next entries: `prev + 1`, `prev + 2`, …; those that came from an inbox row name it, and the row goes in
    /// the same statement (an entry whose row is gone is not written, and the run counts as fenced).
    pub entries: Vec<Entry>,
    /// How the run ends, if it does.
    pub end: Option<End>,
    /// What it shows from now on, each name at most once.
    pub published: Vec<(String, Payload)>,
}

/// How ownership of a run ends together with its last entries.
#[derive(Debug, Clone)]
pub enum End {
    /// For good.
    Closed {
        /// `Completed`, `Failed` or `Cancelled`.
        status: Status,
        /// What the client gets.
        outcome: Outcome,
        /// In words, when it failed: which step, how many attempts, the last error.
        reason: Option<String>,
        /// Entries of signals that nobody received.
        unconsumed: Vec<u32>,
    },
    /// Not at all: the same owner goes on with the next generation. The last entries, from `base` on, are what it begins
    /// with; nothing before them is loaded any more.
    Continued {
        /// The workflow that goes on.
        workflow: String,
        /// The entry that begins the generation, one of those that are written with this.
        base: u32,
    },
    /// Until a person, a fix or another build.
    Stuck {
        /// In words.
        reason: String,
        /// The build that could not go on.
        build: String,
    },
}

/// What became of one run's part of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// Durable.
    Accepted,
    /// The run is not owned at that epoch by this session: nothing was written.
    Fenced,
    /// Somebody else locks the run's row at this moment: nothing was written, try again alone.
    Busy,
}

/// The answer to a batch: one for each of its parts, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchWritten {
    /// For each start: whether it was written (all or none: `false` when the session is gone).
    pub started: bool,
    /// `started_at` of the new runs.
    pub started_at: Timestamp,
    /// For each run.
    pub runs: Vec<Written>,
}

/// What is certain about a run after an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Still owned, at a new epoch; the journal ends at `last`, and nothing older can arrive any more.
    Owned {
        /// The new epoch.
        epoch: Epoch,
        /// The last entry of the journal, 0 for none.
        last: u32,
    },
    /// Closed or stuck by this session at the old epoch: the unknown batch was accepted, with its end.
    Ended(Status),
    /// Not ours.
    Lost,
}

/// A run to be parked or given back.
#[derive(Debug, Clone)]
pub struct Release {
    /// The run.
    pub run_id: RunId,
    /// The epoch at which it is owned.
    pub epoch: Epoch,
    /// What it waits for.
    pub until: Until,
}

/// What a released run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Parked: this instant (`None`: none), the run's deadline if that is earlier, or an inbox row. Refused while an
    /// inbox row exists.
    Due(Option<Timestamp>),
    /// Given back: pending, due at once for any worker.
    Now,
}

/// What became of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The run is the session's no more.
    Done,
    /// Not parked: a message is there or on its way; the run stays the session's.
    Mail,
    /// It was not the session's.
    Fenced,
}

/// How a session stands, by the database's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// The lease runs from now; `now` is the database's clock during the call.
    Alive {
        /// The database's clock.
        now: Timestamp,
    },
    /// The session was declared dead: drop everything, open a new one.
    Dead,
}

/// What woke a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Topic {
    /// A run became pending.
    Runs,
    /// An inbox row was written.
    Inbox,
    /// A run ended.
    Ends,
    /// An operator took runs over.
    Orders,
}

/// What a periodic look around repaired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Sessions declared dead because their lease was over.
    pub expired: u64,
    /// Sessions declared dead because the process let go of what only a living one holds.
    pub gone: u64,
    /// Rows of dead sessions removed after their last run was handed out.
    pub removed: u64,
    /// Inbox rows of closed runs, taken out of the claims' way.
    pub shelved: u64,
    /// Runs of dead sessions whose row somebody locks, so that they cannot be taken over.
    pub blocked: u64,
}

/// The database: shared by every client and worker of a process.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// `postgres` or `sqlite`, for logs.
    fn kind(&self) -> &'static str;

    /// Where it is, for people, without secrets.
    fn location(&self) -> String;

    /// Brings the schema up to date, or finds it so without any DDL. Safe when many processes call it at once.
    async fn migrate(&self) -> Result<()>;

    /// A typed error when the schema is missing or behind; no lock, no DDL.
    async fn check_schema(&self) -> Result<()>;

    /// The database's clock.
    async fn now(&self) -> Result<Timestamp>;

    // ---- a client's side

    /// Starts a run, or finds the one of that id. With `owner`, the new run is that session's at once (unless the
    /// session is gone or the run is delayed: then it is pending).
    async fn start(&self, run: &NewRun, policy: IdPolicy, owner: Option<SessionId>) -> Result<Started>;

    /// Starts a run that is a step of another one, pending, as the owner of that one. Repeating it with the same run id
    /// changes nothing. When the child ends, in whatever way, its parent has a message in the same transaction.
    async fn start_child(&self, child: &NewRun, parent: &Parent) -> Result<ChildStarted>;

    /// Makes a new run, pending, of the same workflow, with the same tags, that begins with a part of another one's
    /// journal: all of it or nothing. Its deadline, if it has one, counts from now. The original may be open, and is only
    /// read. Repeating it with the same run id changes nothing.
    async fn fork(&self, fork: &NewFork) -> Result<Forked>;

    /// Puts a message into a run's inbox. Takes no lock that an append waits for.
    async fn send(&self, run: RunId, message: &NewMessage) -> Result<Sent>;

    /// Carries out an operator's order, as a take-over (PROTOCOL 22): the owner is fenced, and a closed run stays as it is.
    async fn order(&self, run: RunId, order: &Order) -> Result<Ordered>;

    /// The run that a workflow id names now.
    async fn find(&self, id: &WorkflowId) -> Result<Option<RunRow>>;

    /// A run's row.
    async fn run(&self, run: RunId) -> Result<Option<RunRow>>;

    /// A run's input.
    async fn input(&self, run: RunId) -> Result<Option<Payload>>;

    /// Runs by filter, newest first, after (older than) `before`, at most `limit`.
    async fn list(&self, filter: &RunFilter, before: Option<RunId>, limit: u32) -> Result<Vec<RunRow>>;

    /// Of these runs, those that have ended.
    async fn ends(&self, runs: &[RunId]) -> Result<Vec<(RunId, RunEnd)>>;

    /// A run's journal after `after`, in order, at most `limit` entries.
    async fn journal(&self, run: RunId, after: u32, limit: u32) -> Result<Vec<Entry>>;

    /// What a run shows, by name, and since when.
    async fn published(&self, run: RunId) -> Result<Vec<(String, Timestamp, Payload)>>;

    /// What a closed run never received: signals journaled but not waited for, then signals and requests to cancel that
    /// are still in the inbox.
    async fn unconsumed(&self, run: RunId) -> Result<Vec<MessageContent>>;

    /// Deletes a closed run with everything that belongs to it.
    async fn delete(&self, run: RunId) -> Result<Deleted>;

    // ---- a worker's side

    /// Takes due runs for a session: pending and parked ones whose time has come, parked ones with mail, those of
    /// dead sessions, stuck ones that another build failed. Raises each epoch by one. Nothing for a dead session. What
    /// a claim whose answer was lost has taken, [`Store::owned`] tells.
    async fn claim(&self, claim: &Claim) -> Result<Vec<Claimed>>;

    /// The journals of runs just claimed, from the entry on that begins their generation, in a statement that starts after
    /// the claim's commit.
    async fn load(&self, runs: &[RunId]) -> Result<Vec<(RunId, Vec<Entry>)>>;

    /// The inbox rows of these runs, in order.
    async fn inbox(&self, runs: &[RunId]) -> Result<Vec<Message>>;

    /// Deletes a run's entries before that one, except what its generation begins with and what follows.
    async fn prune(&self, run: RunId, before: u32) -> Result<u64>;

    /// Parks or gives back runs, each by itself, in order.
    async fn release(&self, session: SessionId, runs: &[Release]) -> Result<Vec<Released>>;

    /// Every run that the database says the session owns.
    async fn owned(&self, session: SessionId) -> Result<Vec<(RunId, Epoch)>>;

    /// When the next pending or parked run of these workflows is due (`None`: none has a time).
    async fn next_due(&self, workflows: &[String]) -> Result<Option<Timestamp>>;

    /// Workflows with due runs that no live session hosts, and how many (up to 1,000 each).
    async fn unhosted(&self) -> Result<Vec<(String, u64)>>;

    /// One bounded pass: declares sessions dead by lease or by early hint, removes what is left of them. `seen` is
    /// the hint's memory between two looks.
    async fn sweep(&self, seen: &mut Suspects) -> Result<Swept>;

    /// Ends a session whose runs were given back.
    async fn close_session(&self, session: SessionId) -> Result<()>;

    // ---- connections that are owned, not pooled

    /// How many connections the journal writer may use at once: one where writes go one after another anyway.
    fn journal_lanes(&self) -> usize {
        1
    }

    /// A connection of the journal writer.
    async fn open_journal(&self) -> Result<Box<dyn JournalConn>>;

    /// Opens a session, with the connection that renews its lease. Called on the liveness thread's own runtime.
    async fn open_session(
        &self,
        session: &NewSession,
    ) -> Result<(SessionId, Timestamp, Box<dyn SessionConn>)>;

    /// A connection that hears what others do; it may miss things. While it lives and belongs to a session, it holds
    /// what tells others that the process lives.
    async fn listen(&self, session: Option<SessionId>) -> Result<Box<dyn ListenConn>>;

    /// Tells listeners in other processes, after a commit. Best effort.
    async fn notify(&self, topics: &[Topic]) -> Result<()>;
}

/// Sessions that looked dead at the last look, and what their rows said then.
#[derive(Debug, Default)]
pub struct Suspects(pub std::collections::HashMap<SessionId, (String, Option<std::time::Instant>)>);

/// The connection of a journal writer. Its futures are never dropped or timed out in place: whoever gives up drops
/// the connection and settles on a new one.
#[async_trait]
pub trait JournalConn: Send {
    /// Writes a batch in one statement.
    ///
    /// # Errors
    /// `Unavailable { maybe_committed: true }`: the outcome is unknown, settle it on a new connection.
    /// `Conflict`: settle it. `Rejected`: one part can never be written; bisect.
    async fn write(&mut self, session: SessionId, batch: &Batch) -> Result<BatchWritten>;

    /// After an unknown outcome: raises the epochs of these runs, which waits for what may still commit and fences
    /// whatever arrives later; then, in a second statement, says what is there.
    async fn settle(&mut self, session: SessionId, runs: &[(RunId, Epoch)]) -> Result<Vec<Settled>>;
}

/// The connection that keeps a session alive.
#[async_trait]
pub trait SessionConn: Send {
    /// Renews the lease by compare-and-set. After an error the next call opens a connection of its own.
    ///
    /// # Cancel safety
    /// May be dropped at any time; the next call starts on a fresh connection.
    async fn renew(&mut self) -> Result<Renewed>;
}

/// A connection that hears.
#[async_trait]
pub trait ListenConn: Send {
    /// Waits for the next topic.
    ///
    /// # Errors
    /// When the connection is lost: open a new one, then read the state.
    ///
    /// # Cancel safety
    /// May be dropped at any time; at worst a topic is missed, which the poll makes good.
    async fn next(&mut self) -> Result<Topic>;
}

/// What an inbox row says of a child's end: the step and the outcome's meta in its name, the value in its payload.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn child_ended(
    name: &str,
    payload: Option<Payload>,
) -> std::result::Result<MessageContent, String> {
    let (step, meta) = name.split_once(' ').ok_or_else(|| format!("{name:?} names no step"))?;
    let step = step.parse().map_err(|e| format!("the step {step:?}: {e}"))?;
    let outcome = Outcome::from_record(meta, payload).map_err(|e| e.to_string())?;
    Ok(MessageContent::Child { step, outcome })
}

/// The longest wait for an answer: longer than any statement may take.
pub(crate) const ANSWER: Duration = Duration::from_secs(45);

/// The longest wait for a connection of one's own.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);

/// Waits for a call, but not for ever: a connection can be lost without a word, and nobody but us would notice.
pub(crate) async fn within<T>(limit: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
        Err(StoreError::Unavailable { message: format!("no answer within {limit:?}"), maybe_committed: true })
    })
}

/// What was read for many runs, and for which of them it cannot be read, with the reason in words.
pub(crate) type Readable<T> = (Vec<T>, Vec<(RunId, String)>);

/// Reads for many runs at once what may be unreadable for some of them: these are found by halving.
pub(crate) async fn read_each<'a, T>(
    runs: &'a [RunId],
    read: impl Fn(&'a [RunId]) -> BoxFuture<'a, Result<Vec<T>>>,
) -> Result<Readable<T>> {
    let (mut found, mut unreadable) = (vec![], vec![]);
    let mut todo = vec![runs];
    while let Some(runs) = todo.pop() {
        match (within(ANSWER, read(runs)).await, runs) {
            (Ok(some), _) => found.extend(some),
            (Err(StoreError::Unreadable { message }), [run]) => unreadable.push((*run, message)),
            (Err(StoreError::Unreadable { .. }), [_, _, ..]) => {
                let (left, right) = runs.split_at(runs.len() / 2);
                todo.extend([right, left]);
            }
            (Err(error), _) => return Err(error),
        }
    }
    Ok((found, unreadable))
}

/// The store that a URL names.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// `postgres://…`, or `sqlite:path`.
    pub url: String,
    /// The schema, on Postgres; `composer` by default.
    pub schema: String,
    /// For payloads.
    pub codec: Arc<dyn Codec>,
    /// Connections of the shared pool (client calls, claims): at most this many.
    pub pool_size: u32,
}

/// Connects to the store that the URL names. The schema is not looked at: see [`Store::migrate`] and
/// [`Store::check_schema`].
///
/// # Errors
/// `Config` when the URL names no store of this build or cannot be used; `Unavailable` when nobody answers.
pub async fn connect(options: StoreOptions) -> Result<Arc<dyn Store>> {
    let scheme = options.url.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Arc::new(postgres::PostgresStore::connect(options).await?)),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(sqlite::SqliteStore::connect(options).await?)),
        _ => Err(StoreError::Config {
            message: format!(
                "no store of this build is called {scheme:?}; write postgres://user:password@host/database or \
                 sqlite:path, and check the features of composer-runtime"
            ),
        }),
    }
}
