//! The journal: what happened in a run, in order, and the form in which it is stored.
//!
//! An [`Entry`] is one row. Its [`Event`] splits into a [`Record`]: a small JSON text for people and SQL (`meta`)
//! and the user's own bytes (`payload`), which a codec may compress or encrypt. The start and the end of a run are
//! not entries: they live on the run's row, written in the same statement that starts or ends it.
//!
//! The stored form is a promise: a journal that a released version wrote is read by every later one. Fields are
//! added with a default, never renamed or reused.

use std::{borrow::Cow, fmt, panic::Location, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    error::Failure,
    id::{RunId, Timestamp},
    payload::{Digest, Payload},
};

/// One row of a run's journal.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its place in the journal, from 1, without gaps.
    pub seq: u32,
    /// When it was decided, by the database's clock; `now()` in the workflow until the next delivered event.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// An activity was done: its value, its error, or what the engine has to say about it. Delivered.
    StepDone {
        /// What the workflow had asked for.
        step: Step,
        /// The attempt that decided, from 1.
        attempt: u32,
        /// Why it is an error, in words; empty for a value.
        error: String,
        /// Why no other attempt follows an error; `None` for a value.
        gave_up: Option<GaveUp>,
        /// What the workflow gets.
        outcome: Outcome,
    },
    /// An attempt failed and another one will follow. Not delivered to the workflow.
    AttemptFailed {
        /// What the workflow had asked for.
        step: Step,
        /// Which attempt it was, from 1.
        attempt: u32,
        /// The error's chain, in words.
        error: String,
        /// The earliest instant of the next attempt.
        retry_at: Timestamp,
    },
    /// A timer was armed. Not delivered.
    TimerSet {
        /// The `sleep` that asked for it.
        step: Step,
        /// When it is due.
        due: Timestamp,
    },
    /// An armed timer came due. Delivered.
    TimerFired {
        /// The number of the step that armed it.
        step: u32,
    },
    /// A signal arrived. Delivered to the first wait on its name, now or later.
    Signal {
        /// The signal's name.
        name: String,
        /// The inbox row it came from; 0 for one that the generation before has left.
        inbox: i64,
        /// Its value.
        payload: Payload,
    },
    /// Somebody asked the run to cancel. Delivered.
    CancelRequested {
        /// The inbox row it came from.
        inbox: i64,
        /// Why, in the caller's words.
        reason: String,
    },
    /// The run's own timeout passed. Delivered: the body is dropped.
    RunTimedOut,
    /// A child's run id was chosen: from here on it may be there. Not delivered.
    ChildStarted {
        /// The step that it is.
        step: Step,
        /// The child.
        run_id: RunId,
    },
    /// A child has ended. Delivered.
    ChildDone {
        /// The step's number.
        step: u32,
        /// The inbox row that said so.
        inbox: i64,
        /// With what it ended.
        outcome: Outcome,
    },
    /// A generation of the run begins: nothing before this entry is replayed any more. Signals that the one before has left
    /// follow. Delivered.
    Continued {
        /// Counts the generations; the first one has no such entry and is number 0.
        generation: u32,
        /// Step numbers that were taken before: the next step is one higher, so that no idempotency key comes twice.
        steps: u32,
        /// The workflow that goes on.
        workflow: String,
        /// Its arguments.
        input: Payload,
    },
    /// Somebody asked that steps which rest between two attempts rest no longer. Not delivered.
    RetryRequested {
        /// The inbox row it came from.
        inbox: i64,
    },
}

/// What a workflow asked for: the identity that a replay compares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The step's number, from 1, in source order.
    pub number: u32,
    /// What kind of thing it is.
    pub kind: StepKind,
    /// The activity's name; `sleep` for a timer.
    pub name: Cow<'static, str>,
    /// Of the input's canonical form.
    pub digest: Digest,
    /// Of the call, in the build that asked.
    pub line: Place,
}

/// A place in the source: `file:line`. Costs nothing until somebody reads it.
#[derive(Clone)]
pub struct Place(At);

#[derive(Clone)]
enum At {
    /// In this build.
    Here(&'static Location<'static>),
    /// As a journal says.
    Read(Arc<str>),
}

impl Place {
    /// Whether it is not known.
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, At::Read(text) if text.is_empty())
    }
}

impl From<&'static Location<'static>> for Place {
    fn from(at: &'static Location<'static>) -> Self {
        Self(At::Here(at))
    }
}

impl From<&str> for Place {
    fn from(text: &str) -> Self {
        Self(At::Read(text.into()))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            At::Here(at) => write!(f, "{}:{}", at.file(), at.line()),
            At::Read(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (At::Here(a), At::Here(b)) => (a.file(), a.line()) == (b.file(), b.line()),
            (At::Read(a), At::Read(b)) => a == b,
            _ => self.to_string() == other.to_string(),
        }
    }
}

impl Eq for Place {}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(String::deserialize(from)?.as_str().into())
    }
}

/// The kinds of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepKind {
    /// An activity.
    Activity,
    /// A timer.
    Timer,
    /// A child workflow.
    Child,
    /// A value that the workflow took from the world by itself.
    SideEffect,
    /// An activity that undoes another: recorded by `compensate`, run when the run or its scope fails.
    Undo,
}

/// Why the last error of an activity was the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GaveUp {
    /// The error is permanent: not retryable.
    Permanent,
    /// The policy's attempts are used up.
    Attempts,
    /// The next attempt would begin after the time for all attempts.
    Time,
}

/// How an activity or a run ended, as bytes: what crosses the journal.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The value.
    Ok(Payload),
    /// The declared error.
    Err(Payload),
    /// What only the engine can say.
    Failed(Failure),
}

/// An event as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The event's name, a stable number.
    pub kind: i16,
    /// JSON text: everything but the user's bytes.
    pub meta: String,
    /// The user's bytes.
    pub payload: Option<Payload>,
}

/// A stored event that this build cannot read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a journal entry of kind {kind} cannot be read: {why}; was it written by a newer version?")]
pub struct UnreadableRecord {
    /// The stored kind.
    pub kind: i16,
    /// What is wrong with it.
    pub why: String,
}

/// The `meta` of every kind: absent fields are left out.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Meta {
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<Step>,
    #[serde(skip_serializing_if = "is_zero")]
    number: u32,
    #[serde(skip_serializing_if = "is_zero")]
    attempt: u32,
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    inbox: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gave_up: Option<GaveUp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Tag>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<RunId>,
    #[serde(skip_serializing_if = "is_zero")]
    generation: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Which of the three an [`Outcome`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Tag {
    Ok,
    Err,
    Failed,
}

/// The stored numbers of the kinds. Never reused.
mod kind {
    pub(super) const STEP_DONE: i16 = 1;
    pub(super) const ATTEMPT_FAILED: i16 = 2;
    pub(super) const TIMER_SET: i16 = 3;
    pub(super) const TIMER_FIRED: i16 = 4;
    pub(super) const SIGNAL: i16 = 5;
    pub(super) const CANCEL_REQUESTED: i16 = 6;
    pub(super) const RUN_TIMED_OUT: i16 = 7;
    pub(super) const CHILD_STARTED: i16 = 10;
    pub(super) const CHILD_DONE: i16 = 11;
    pub(super) const RETRY_REQUESTED: i16 = 8;
    pub(super) const CONTINUED: i16 = 12;
}

impl Outcome {
    /// The outcome as a small text and the user's bytes, for a column each.
    pub fn to_record(&self) -> (String, Option<Payload>) {
        let (outcome, failure, payload) = self.split();
        (json(&Meta { outcome: Some(outcome), failure, ..Meta::default() }), payload)
    }

    /// The reverse of [`Outcome::to_record`].
    ///
    /// # Errors
    /// When the text was not written by this or an earlier version.
    pub fn from_record(meta: &str, payload: Option<Payload>) -> Result<Self, UnreadableRecord> {
        let meta: Meta =
            serde_json::from_str(meta).map_err(|e| UnreadableRecord { kind: 0, why: e.to_string() })?;
        Self::join(meta.outcome, meta.failure, payload)
            .ok_or_else(|| UnreadableRecord { kind: 0, why: "its outcome is not complete".into() })
    }

    fn split(&self) -> (Tag, Option<Failure>, Option<Payload>) {
        match self {
            Outcome::Ok(value) => (Tag::Ok, None, Some(value.clone())),
            Outcome::Err(error) => (Tag::Err, None, Some(error.clone())),
            Outcome::Failed(failure) => (Tag::Failed, Some(failure.clone()), None),
        }
    }

    fn join(tag: Option<Tag>, failure: Option<Failure>, payload: Option<Payload>) -> Option<Self> {
        match tag? {
            Tag::Ok => payload.map(Outcome::Ok),
            Tag::Err => payload.map(Outcome::Err),
            Tag::Failed => failure.map(Outcome::Failed),
        }
    }
}

impl Event {
    /// The event's name, as people and SQL see it.
    pub fn name(&self) -> &'static str {
        match self {
            Event::StepDone { .. } => "step_done",
            Event::AttemptFailed { .. } => "attempt_failed",
            Event::TimerSet { .. } => "timer_set",
            Event::TimerFired { .. } => "timer_fired",
            Event::Signal { .. } => "signal",
            Event::CancelRequested { .. } => "cancel_requested",
            Event::RunTimedOut => "run_timed_out",
            Event::ChildStarted { .. } => "child_started",
            Event::ChildDone { .. } => "child_done",
            Event::RetryRequested { .. } => "retry_requested",
            Event::Continued { .. } => "continued",
        }
    }

    /// Whether the workflow sees it: it is polled after each such event, and only then.
    pub fn is_delivered(&self) -> bool {
        !matches!(
            self,
            Event::AttemptFailed { .. }
                | Event::TimerSet { .. }
                | Event::ChildStarted { .. }
                | Event::RetryRequested { .. }
        )
    }

    /// The inbox row that the event came from: the row and the event change hands in one statement.
    pub fn inbox(&self) -> Option<i64> {
        match self {
            Event::Signal { inbox: 0, .. } => None,
            Event::Signal { inbox, .. }
            | Event::CancelRequested { inbox, .. }
            | Event::ChildDone { inbox, .. }
            | Event::RetryRequested { inbox } => Some(*inbox),
            _ => None,
        }
    }

    /// The step that the event is about, where the event says all of it.
    pub(crate) fn whole_step(&self) -> Option<&Step> {
        match self {
            Event::StepDone { step, .. }
            | Event::AttemptFailed { step, .. }
            | Event::TimerSet { step, .. }
            | Event::ChildStarted { step, .. } => Some(step),
            _ => None,
        }
    }

    /// The step that the event is about.
    pub fn step(&self) -> Option<u32> {
        match self {
            Event::TimerFired { step } | Event::ChildDone { step, .. } => Some(*step),
            event => event.whole_step().map(|step| step.number),
        }
    }

    /// The stored form.
    pub fn to_record(&self) -> Record {
        let none = Meta::default;
        let (kind, meta, payload) = match self {
            Event::StepDone { step, attempt, error, gave_up, outcome } => {
                let (tag, failure, payload) = outcome.split();
                let meta = Meta {
                    step: Some(step.clone()),
                    attempt: *attempt,
                    error: error.clone(),
                    gave_up: *gave_up,
                    outcome: Some(tag),
                    failure,
                    ..none()
                };
                (kind::STEP_DONE, meta, payload)
            }
            Event::AttemptFailed { step, attempt, error, retry_at } => {
                let meta = Meta {
                    step: Some(step.clone()),
                    attempt: *attempt,
                    error: error.clone(),
                    at: Some(*retry_at),
                    ..none()
                };
                (kind::ATTEMPT_FAILED, meta, None)
            }
            Event::TimerSet { step, due } => {
                (kind::TIMER_SET, Meta { step: Some(step.clone()), at: Some(*due), ..none() }, None)
            }
            Event::TimerFired { step } => (kind::TIMER_FIRED, Meta { number: *step, ..none() }, None),
            Event::Signal { name, inbox, payload } => {
                let meta = Meta { name: name.clone(), inbox: Some(*inbox), ..none() };
                (kind::SIGNAL, meta, Some(payload.clone()))
            }
            Event::CancelRequested { inbox, reason } => {
                let meta = Meta { inbox: Some(*inbox), error: reason.clone(), ..none() };
                (kind::CANCEL_REQUESTED, meta, None)
            }
            Event::RunTimedOut => (kind::RUN_TIMED_OUT, none(), None),
            Event::ChildStarted { step, run_id } => {
                (kind::CHILD_STARTED, Meta { step: Some(step.clone()), run: Some(*run_id), ..none() }, None)
            }
            Event::ChildDone { step, inbox, outcome } => {
                let (tag, failure, payload) = outcome.split();
                let meta = Meta { number: *step, inbox: Some(*inbox), outcome: Some(tag), failure, ..none() };
                (kind::CHILD_DONE, meta, payload)
            }
            Event::RetryRequested { inbox } => {
                (kind::RETRY_REQUESTED, Meta { inbox: Some(*inbox), ..none() }, None)
            }
            Event::Continued { generation, steps, workflow, input } => {
                let meta = Meta { generation: *generation, number: *steps, name: workflow.clone(), ..none() };
                (kind::CONTINUED, meta, Some(input.clone()))
            }
        };
        Record { kind, meta: json(&meta), payload }
    }

    /// The reverse of [`Event::to_record`].
    ///
    /// # Errors
    /// When the kind is not known to this version or a field of it is missing.
    pub fn from_record(kind: i16, meta: &str, payload: Option<Payload>) -> Result<Self, UnreadableRecord> {
        let unreadable = |why: &str| UnreadableRecord { kind, why: why.to_owned() };
        let meta: Meta = serde_json::from_str(meta).map_err(|e| unreadable(&e.to_string()))?;
        let step = || meta.step.clone().ok_or_else(|| unreadable("it names no step"));
        let at = || meta.at.ok_or_else(|| unreadable("it has no instant"));
        let inbox = || meta.inbox.ok_or_else(|| unreadable("it names no inbox row"));
        Ok(match kind {
            kind::STEP_DONE => Event::StepDone {
                step: step()?,
                attempt: meta.attempt,
                error: meta.error.clone(),
                gave_up: meta.gave_up,
                outcome: Outcome::join(meta.outcome, meta.failure.clone(), payload)
                    .ok_or_else(|| unreadable("its outcome is not complete"))?,
            },
            kind::ATTEMPT_FAILED => Event::AttemptFailed {
                step: step()?,
                attempt: meta.attempt,
                error: meta.error.clone(),
                retry_at: at()?,
            },
            kind::TIMER_SET => Event::TimerSet { step: step()?, due: at()? },
            kind::TIMER_FIRED => Event::TimerFired { step: meta.number },
            kind::SIGNAL => Event::Signal {
                name: meta.name.clone(),
                inbox: inbox()?,
                payload: payload.ok_or_else(|| unreadable("it has no value"))?,
            },
            kind::CANCEL_REQUESTED => Event::CancelRequested { inbox: inbox()?, reason: meta.error.clone() },
            kind::RUN_TIMED_OUT => Event::RunTimedOut,
            kind::CHILD_STARTED => Event::ChildStarted {
                step: step()?,
                run_id: meta.run.ok_or_else(|| unreadable("it names no run"))?,
            },
            kind::CHILD_DONE => Event::ChildDone {
                step: meta.number,
                inbox: inbox()?,
                outcome: Outcome::join(meta.outcome, meta.failure.clone(), payload)
                    .ok_or_else(|| unreadable("its outcome is not complete"))?,
            },
            kind::RETRY_REQUESTED => Event::RetryRequested { inbox: inbox()? },
            kind::CONTINUED => Event::Continued {
                generation: meta.generation,
                steps: meta.number,
                workflow: meta.name.clone(),
                input: payload.ok_or_else(|| unreadable("it has no arguments"))?,
            },
            _ => return Err(unreadable("this version does not know the kind")),
        })
    }
}

fn json(meta: &Meta) -> String {
    serde_json::to_string(meta).expect("invariant: numbers and strings are always JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FailureKind;

    fn step() -> Step {
        Step {
            number: 3,
            kind: StepKind::Activity,
            name: "charge".into(),
            digest: Digest::of(&Payload::from(b"[1]".to_vec())),
            line: "src/shop.rs:12".into(),
        }
    }

    #[test]
    fn every_event_reads_back_as_it_was_written() {
        let bytes = Payload::from(vec![0, 255, 1]);
        let failure = Failure::new(FailureKind::TimedOut, "too slow").attempts(2);
        for event in [
            Event::StepDone {
                step: step(),
                attempt: 1,
                error: String::new(),
                gave_up: None,
                outcome: Outcome::Ok(bytes.clone()),
            },
            Event::StepDone {
                step: step(),
                attempt: 4,
                error: "no: never".into(),
                gave_up: Some(GaveUp::Attempts),
                outcome: Outcome::Err(bytes.clone()),
            },
            Event::StepDone {
                step: step(),
                attempt: 2,
                error: "too slow".into(),
                gave_up: Some(GaveUp::Permanent),
                outcome: Outcome::Failed(failure),
            },
            Event::StepDone {
                step: Step { kind: StepKind::SideEffect, name: "side_effect".into(), ..step() },
                attempt: 0,
                error: String::new(),
                gave_up: None,
                outcome: Outcome::Ok(bytes.clone()),
            },
            Event::AttemptFailed {
                step: step(),
                attempt: 1,
                error: "no".into(),
                retry_at: Timestamp::from_micros(7),
            },
            Event::TimerSet { step: step(), due: Timestamp::MAX },
            Event::TimerFired { step: 3 },
            Event::Signal { name: "go".into(), inbox: 9, payload: bytes.clone() },
            Event::Continued { generation: 2, steps: 17, workflow: "poller".into(), input: bytes },
            Event::CancelRequested { inbox: 10, reason: "asked".into() },
            Event::RunTimedOut,
            Event::RetryRequested { inbox: 11 },
        ] {
            let record = event.to_record();
            assert_eq!(Event::from_record(record.kind, &record.meta, record.payload), Ok(event));
        }
    }

    #[test]
    fn kinds_of_steps_keep_their_stored_names() {
        let stored = [
            (StepKind::Activity, "activity"),
            (StepKind::Timer, "timer"),
            (StepKind::Child, "child"),
            (StepKind::SideEffect, "side_effect"),
            (StepKind::Undo, "undo"),
        ];
        for (kind, name) in stored {
            assert_eq!(serde_json::to_value(kind).unwrap(), name);
        }
    }

    #[test]
    fn a_value_of_a_side_effect_is_a_done_step_without_an_attempt() {
        let step = Step { kind: StepKind::SideEffect, name: "side_effect".into(), ..step() };
        let outcome = Outcome::Ok(Payload::from(b"7".to_vec()));
        let event = Event::StepDone { step, attempt: 0, error: String::new(), gave_up: None, outcome };
        let Record { kind, meta, payload } = event.to_record();
        assert_eq!((kind, payload), (1, Some(Payload::from(b"7".to_vec()))));
        let meta: serde_json::Value = serde_json::from_str(&meta).unwrap();
        assert_eq!(meta["step"]["kind"], "side_effect");
        assert_eq!((&meta["outcome"], meta.get("attempt")), (&serde_json::json!("ok"), None));
    }

    #[test]
    fn an_unknown_kind_is_an_error_that_names_it() {
        let error = Event::from_record(999, "{}", None).unwrap_err();
        assert!(error.to_string().contains("kind 999"), "{error}");
    }
}
