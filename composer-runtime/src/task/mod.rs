//! A hosted run: what it decides ([`driver`]), the task that acts on it ([`workflow`]), one attempt of an activity
//! ([`activity`]), and its children.

pub(crate) mod activity;
mod children;
pub(crate) mod driver;
pub(crate) mod workflow;

use tokio::sync::mpsc;

use crate::store::Message;

/// Where a hosted run is told things. Unbounded in type, bounded by what can be under way: its open steps, its unread
/// messages, its unacknowledged writes.
pub(crate) type Mailbox = mpsc::UnboundedSender<Note>;

/// What a hosted run is told.
#[derive(Debug)]
pub(crate) enum Note {
    /// Everything up to this entry is durable; and the end, if one was sent with it.
    Written { upto: u32, ended: bool, mark: u64 },
    /// A write was refused: the memory is worth nothing.
    Refused(Refusal),
    /// An attempt is over.
    Attempt { step: u32, attempt: u32, end: activity::AttemptEnd },
    /// A child's start is certain: it is there, or refused in these words.
    ChildStarted { step: u32, refused: Option<String> },
    /// A child that was to be cancelled is not there.
    ChildGone { step: u32 },
    /// Messages are in the inbox.
    Mail(Vec<Message>),
    /// A message is in the inbox that cannot be read, for this reason.
    Unreadable(String),
    /// Something outside the journal woke the workflow.
    Alarm,
    /// There is no room for others: who only waits lets go at once.
    Crowded,
    /// Begin nothing new; let go when nothing is under way.
    Drain,
    /// Stop what is under way, and let go.
    Stop,
    /// The session is lost: drop everything.
    Lost,
}

/// Why a write was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The run belongs to somebody else.
    Fenced,
    /// The run is still ours, but the journal is not what memory thinks.
    Rebuild,
    /// The database will never accept it.
    Rejected(String),
}
