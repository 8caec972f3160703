//! A run and its journal as a JSON text: to be kept, shown, and replayed with other code.
//!
//! The text holds what the store holds. Entries are in their stored form, so a file of any released version is read by
//! every later one. Values are embedded as they are, so that people can read them and no digit is lost; what is no JSON
//! is base64. What cannot be read is told with its place, and never guessed.

use base64::{Engine, prelude::BASE64_STANDARD};
use composer_sdk::{
    id::{RunId, Timestamp, WorkflowId},
    journal::{Entry, Event, Outcome, UnreadableRecord},
    payload::Payload,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::store::Status;

/// What the text says that it is.
const FORMAT: &str = "composer-journal";
/// The version that is written. Fields are added with a default; a version follows only what cannot be read as before.
const VERSION: u32 = 1;

/// A run and its journal, as [`RunHandle::export`](crate::RunHandle::export) gives it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct JournalFile {
    /// The run.
    pub run_id: RunId,
    /// The run whose random numbers it draws: itself, unless it is a fork.
    pub seed: RunId,
    /// The user's key of it.
    pub workflow_id: WorkflowId,
    /// The workflow's name.
    pub workflow: String,
    /// When a worker first took it.
    pub started_at: Timestamp,
    /// The argument list.
    pub input: Payload,
    /// Where the run stood.
    pub status: Status,
    /// With what it had ended, if it had.
    pub end: Option<Outcome>,
    /// Its journal.
    pub entries: Vec<Entry>,
}

/// Why a text is no journal that can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalFileError {
    /// The text is not what [`JournalFile::to_json`] writes.
    #[error("this is no exported journal: {0}")]
    Form(String),
    /// A newer version has written it.
    #[error("the exported journal is of version {0}, and this build reads up to {VERSION}: use a newer one")]
    Version(u32),
    /// Something in it cannot be read.
    #[error("{place}: {why}")]
    Value {
        /// Where.
        place: String,
        /// What is wrong.
        why: String,
    },
}

impl JournalFile {
    /// The text.
    pub fn to_json(&self) -> String {
        let end = self.end.as_ref().map(|outcome| {
            let (meta, payload) = outcome.to_record();
            End { meta: raw(meta), payload: payload.as_ref().map(Bytes::of) }
        });
        let entries = self.entries.iter().map(|entry| {
            let record = entry.event.to_record();
            Row {
                seq: entry.seq,
                at: entry.at,
                kind: record.kind,
                event: entry.event.name().into(),
                meta: raw(record.meta),
                payload: record.payload.as_ref().map(Bytes::of),
            }
        });
        let file = File {
            format: FORMAT.into(),
            version: VERSION,
            workflow: self.workflow.clone(),
            workflow_id: self.workflow_id.clone(),
            run_id: self.run_id,
            seed: Some(self.seed).filter(|seed| *seed != self.run_id),
            started_at: self.started_at,
            status: self.status,
            input: Bytes::of(&self.input),
            end,
            entries: entries.collect(),
        };
        serde_json::to_string_pretty(&file).expect("invariant: texts, numbers and JSON are JSON") + "\n"
    }

    /// The reverse of [`JournalFile::to_json`].
    ///
    /// # Errors
    /// What cannot be read, and where.
    pub fn from_json(text: &str) -> Result<Self, JournalFileError> {
        let form = |error: serde_json::Error| JournalFileError::Form(error.to_string());
        let head: Head = serde_json::from_str(text).map_err(form)?;
        if head.format != FORMAT {
            return Err(JournalFileError::Form(format!("its format is {:?}, not {FORMAT:?}", head.format)));
        }
        if head.version > VERSION {
            return Err(JournalFileError::Version(head.version));
        }
        let file: File = serde_json::from_str(text).map_err(form)?;
        let end = file.end.map(|End { meta, payload }| {
            let payload = payload.map(|payload| payload.read("the end")).transpose()?;
            Outcome::from_record(meta.get(), payload).map_err(unreadable("the end"))
        });
        let mut entries = Vec::with_capacity(file.entries.len());
        for row in file.entries {
            let place = format!("entry {}", row.seq);
            let payload = row.payload.map(|payload| payload.read(&place)).transpose()?;
            let event = Event::from_record(row.kind, row.meta.get(), payload).map_err(unreadable(&place))?;
            let entry = Entry { seq: row.seq, at: row.at, event };
            let expected = entries.last().map_or_else(|| first_number(&entry), |last: &Entry| last.seq + 1);
            if row.seq != expected {
                return Err(JournalFileError::Value {
                    place,
                    why: format!("entry {expected} should stand here"),
                });
            }
            entries.push(entry);
        }
        Ok(Self {
            run_id: file.run_id,
            seed: file.seed.unwrap_or(file.run_id),
            workflow_id: file.workflow_id,
            workflow: file.workflow,
            started_at: file.started_at,
            input: file.input.read("the input")?,
            status: file.status,
            end: end.transpose()?,
            entries,
        })
    }
}

fn unreadable(place: &str) -> impl Fn(UnreadableRecord) -> JournalFileError {
    let place = place.to_owned();
    move |error| JournalFileError::Value { place: place.clone(), why: error.to_string() }
}

fn raw(json: String) -> Box<RawValue> {
    RawValue::from_string(json).expect("invariant: a record's meta is JSON")
}

/// What every version has.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
}

/// Version 1.
#[derive(Serialize, Deserialize)]
struct File {
    format: String,
    version: u32,
    workflow: String,
    workflow_id: WorkflowId,
    run_id: RunId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seed: Option<RunId>,
    /// Microseconds since 1970, as all instants.
    started_at: Timestamp,
    status: Status,
    input: Bytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<End>,
    entries: Vec<Row>,
}

#[derive(Serialize, Deserialize)]
struct End {
    meta: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<Bytes>,
}

#[derive(Serialize, Deserialize)]
struct Row {
    seq: u32,
    at: Timestamp,
    kind: i16,
    /// For people; the kind says the same.
    #[serde(default)]
    event: String,
    meta: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<Bytes>,
}

/// A value: JSON as it stands, or base64.
#[derive(Serialize, Deserialize)]
struct Bytes {
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    json: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// `null` is a value like any other.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

impl Bytes {
    fn of(payload: &Payload) -> Self {
        let bytes = payload.as_bytes();
        // What JSON does not count, spaces at the ends, would be lost.
        let json =
            serde_json::from_slice::<&RawValue>(bytes).ok().filter(|raw| raw.get().as_bytes() == bytes);
        match json {
            Some(raw) => Self { json: to_raw_value(raw).ok(), base64: None },
            None => Self { json: None, base64: Some(BASE64_STANDARD.encode(bytes)) },
        }
    }

    fn read(&self, place: &str) -> Result<Payload, JournalFileError> {
        let wrong = |why: String| JournalFileError::Value { place: place.to_owned(), why };
        match (&self.json, &self.base64) {
            (Some(json), None) => Ok(Payload::from(json.get().as_bytes())),
            (None, Some(text)) => {
                let bytes =
                    BASE64_STANDARD.decode(text).map_err(|error| wrong(format!("its base64: {error}")))?;
                Ok(Payload::from(bytes))
            }
            _ => Err(wrong("a value is either `json` or `base64`".into())),
        }
    }
}

/// With which number a journal may begin: that of a later generation goes on counting.
fn first_number(entry: &Entry) -> u32 {
    if matches!(entry.event, Event::Continued { .. }) { entry.seq } else { 1 }
}

/// The entries of the last generation: all that a replay needs.
pub(crate) fn generation(mut entries: Vec<Entry>) -> Vec<Entry> {
    let begins = entries.iter().rposition(|entry| matches!(entry.event, Event::Continued { .. }));
    entries.drain(..begins.unwrap_or(0));
    entries
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use composer_sdk::{
        error::{Failure, FailureKind},
        journal::{GaveUp, Step, StepKind},
        payload::Digest,
    };

    use super::*;

    fn payload(bytes: &[u8]) -> Payload {
        Payload::from(bytes)
    }

    fn step(number: u32, kind: StepKind) -> Step {
        let input = payload(b"[]");
        Step { number, kind, name: "charge".into(), digest: Digest::of(&input), line: "shop.rs:7".into() }
    }

    /// Every kind of entry, and values that are hard to keep.
    fn file() -> JournalFile {
        let at = |seconds| {
            Timestamp::from_micros(1_700_000_000_000_000).saturating_add(Duration::from_secs(seconds))
        };
        let run_id = RunId::new(at(0));
        let failure = Failure::new(FailureKind::TimedOut, "it took \"too\" long\n").attempts(3);
        let done = |number, outcome, gave_up| Event::StepDone {
            step: step(number, StepKind::Activity),
            attempt: 2,
            error: "é".into(),
            gave_up,
            outcome,
        };
        let events = [
            done(1, Outcome::Ok(payload(b"null")), None),
            done(2, Outcome::Ok(payload(br#"{"b":340282366920938463463374607431768211455,"a":1.10}"#)), None),
            done(3, Outcome::Err(payload(b" \"spaces at the ends\" ")), Some(GaveUp::Permanent)),
            done(4, Outcome::Failed(failure.clone()), Some(GaveUp::Time)),
            done(5, Outcome::Ok(payload(&[0xff, 0x00, 0x80])), None),
            Event::AttemptFailed {
                step: step(6, StepKind::Undo),
                attempt: 1,
                error: "no".into(),
                retry_at: at(9),
            },
            Event::TimerSet { step: step(7, StepKind::Timer), due: at(99) },
            Event::TimerFired { step: 7 },
            Event::Signal { name: "go".into(), inbox: 5, payload: payload(b"\"\\u00e9\"") },
            Event::ChildStarted { step: step(8, StepKind::Child), run_id },
            Event::ChildDone { step: 8, inbox: 6, outcome: Outcome::Failed(failure) },
            Event::CancelRequested { inbox: 7, reason: "enough".into() },
            Event::RunTimedOut,
        ];
        let entries =
            events.into_iter().zip(1..).map(|(event, seq)| Entry { seq, at: at(seq.into()), event });
        JournalFile {
            run_id,
            seed: RunId::new(at(1)),
            workflow_id: "order-102".parse().unwrap(),
            workflow: "buy".into(),
            started_at: at(0),
            input: payload(br#"[{"number":"102"},null]"#),
            status: Status::Failed,
            end: Some(Outcome::Err(payload(b"\"declined\""))),
            entries: entries.collect(),
        }
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let file = file();
        assert_eq!(JournalFile::from_json(&file.to_json()), Ok(file.clone()));
        let open = JournalFile { end: None, entries: vec![], status: Status::Parked, ..file };
        assert_eq!(JournalFile::from_json(&open.to_json()), Ok(open));
    }

    #[test]
    fn people_can_read_what_is_json() {
        let text = file().to_json();
        for part in [
            r#""format": "composer-journal""#,
            r#""version": 1"#,
            r#""status": "failed""#,
            r#""json": [{"number":"102"},null]"#,
            r#""json": null"#,
            r#""json": {"b":340282366920938463463374607431768211455,"a":1.10}"#,
            r#""base64": "/wCA""#,
            r#""event": "timer_set""#,
            r#""name":"charge""#,
        ] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    }

    #[test]
    fn a_text_that_was_formatted_anew_says_the_same() {
        let pretty: serde_json::Value =
            serde_json::from_str(&JournalFile { entries: vec![], ..file() }.to_json()).unwrap();
        let read = JournalFile::from_json(&serde_json::to_string_pretty(&pretty).unwrap()).unwrap();
        assert_eq!(read.input.decode_json(), file().input.decode_json());
    }

    #[track_caller]
    fn refused(text: &str, words: &str) {
        let why = JournalFile::from_json(text).unwrap_err().to_string();
        assert!(why.contains(words), "{why}");
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_place() {
        let text = file().to_json();
        refused("{}", "this is no exported journal: missing field `format`");
        refused(&text.replace("composer-journal", "diary"), "its format is \"diary\"");
        refused(&text.replace("\"version\": 1", "\"version\": 2"), "is of version 2");
        refused(
            &text.replace("\"kind\": 4", "\"kind\": 99"),
            "entry 8: a journal entry of kind 99 cannot be read",
        );
        refused(&text.replace("\"seq\": 3,", "\"seq\": 4,"), "entry 4: entry 3 should stand here");
        refused(&text.replace("/wCA", "/wC"), "entry 5: its base64");
        refused(
            &text.replace("\"base64\": \"/wCA\"", "\"json\": 1, \"base64\": \"/wCA\""),
            "entry 5: a value is either",
        );
        refused(&text.replace("\"json\": null", "\"text\": 1"), "entry 1: a value is either");
    }
}
