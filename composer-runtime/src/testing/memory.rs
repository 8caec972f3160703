//! What is durable: the rows of a run, in the place of a database.
//!
//! It outlives every crash of the test, and keeps what the stores keep: entries come back as they are read from their
//! stored form, and a message changes from the inbox into the journal in one step.

use std::collections::BTreeMap;

use composer_sdk::{
    call::StartRequest,
    error::{Failure, FailureKind},
    id::{RunId, Timestamp, WorkflowId},
    journal::{Entry, Event, Outcome},
    payload::Payload,
    workflow::WorkflowEntry,
};

use crate::{
    store::{End, Message, MessageContent, Status},
    task::driver::Write,
};

/// One run, as a database would have it.
pub(super) struct Stored {
    pub(super) run_id: RunId,
    pub(super) workflow_id: WorkflowId,
    pub(super) workflow: WorkflowEntry,
    pub(super) input: Payload,
    /// Of a child: the id of its parent, and the number of the step there.
    pub(super) parent: Option<(RunId, u32)>,
    /// Not before.
    pub(super) due_at: Timestamp,
    pub(super) deadline: Option<Timestamp>,
    /// When a process first took it.
    pub(super) started_at: Option<Timestamp>,
    pub(super) journal: Vec<Entry>,
    /// Entries before the present generation.
    past: usize,
    pub(super) inbox: Vec<Message>,
    /// What it shows, by name.
    pub(super) published: BTreeMap<String, Payload>,
    pub(super) end: Option<End>,
}

impl Stored {
    /// A run that is asked for.
    pub(super) fn new(run_id: RunId, workflow: WorkflowEntry, request: StartRequest, now: Timestamp) -> Self {
        let due_at = now.saturating_add(request.delay);
        Self {
            run_id,
            workflow_id: request.id.unwrap_or_else(|| run_id.into()),
            workflow,
            input: request.input,
            parent: None,
            due_at,
            deadline: request.timeout.map(|timeout| due_at.saturating_add(timeout)),
            started_at: None,
            journal: vec![],
            past: 0,
            inbox: vec![],
            published: BTreeMap::new(),
            end: None,
        }
    }

    pub(super) fn status(&self) -> Status {
        match &self.end {
            Some(End::Closed { status, .. }) => *status,
            Some(End::Stuck { .. }) => Status::Stuck,
            Some(End::Continued { .. }) => unreachable!("invariant: a run that goes on has no end"),
            None if self.started_at.is_none() => Status::Pending,
            None => Status::Running,
        }
    }

    /// What a replay begins with.
    pub(super) fn generation(&self) -> &[Entry] {
        &self.journal[self.past..]
    }

    /// Keeps what a run has decided; returns its last entry.
    pub(super) fn write(&mut self, write: Write) -> u32 {
        assert_eq!(write.prev as usize, self.journal.len(), "invariant: the journal has no gap");
        for entry in write.entries {
            self.inbox.retain(|message| Some(message.id) != entry.event.inbox());
            self.journal.push(reread(entry));
        }
        self.published.extend(write.published);
        match write.end {
            Some(End::Continued { base, .. }) => self.past = base as usize - 1,
            Some(end) => self.end = Some(end),
            None => {}
        }
        self.journal.len() as u32
    }

    /// Whether somebody has asked it to cancel in these words already.
    pub(super) fn was_asked_to_cancel(&self, why: &str) -> bool {
        let asks = |message: &Message| matches!(&message.content, MessageContent::Cancel { reason } if reason == why);
        let asked =
            |entry: &Entry| matches!(&entry.event, Event::CancelRequested { reason, .. } if reason == why);
        self.inbox.iter().any(asks) || self.journal.iter().any(asked)
    }

    /// Puts a message into the inbox. A cancel closes a run that is stuck or was never begun, without its code.
    pub(super) fn send(&mut self, id: i64, content: MessageContent) -> Result<(), Status> {
        let status = self.status();
        match content {
            _ if status.is_closed() => return Err(status),
            MessageContent::Cancel { reason } if matches!(status, Status::Stuck | Status::Pending) => {
                let outcome = Outcome::Failed(Failure::new(FailureKind::Cancelled, &reason));
                let (status, reason, unconsumed) = (Status::Cancelled, Some(reason), vec![]);
                self.end = Some(End::Closed { status, outcome, reason, unconsumed });
            }
            content => self.inbox.push(Message { id, run_id: self.run_id, content }),
        }
        Ok(())
    }
}

/// Nothing but its stored form is left of an entry.
fn reread(entry: Entry) -> Entry {
    let record = entry.event.to_record();
    let event = Event::from_record(record.kind, &record.meta, record.payload);
    Entry { event: event.expect("invariant: what is written can be read"), ..entry }
}
