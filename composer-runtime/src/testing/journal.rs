//! What a journal says, without what differs from one execution to the next.
//!
//! A line has what happened, to what, in which attempt, and with what outcome. Instants, step numbers, source lines and
//! values are left out, so the same workflow has the same lines with another clock, after a crash, and when its code
//! has moved.

use std::{collections::HashMap, fmt};

use composer_sdk::journal::{Entry, Event, GaveUp, Outcome, Step, StepKind};

use crate::store::Status;

/// A journal as lines for people: compare it with an array of them.
///
/// ```
/// # use composer_runtime::testing::Testing;
/// # use composer_sdk::prelude::*;
/// #[workflow]
/// async fn nap() {
///     sleep(Duration::days(30)).await;
/// }
///
/// let env = Testing::new();
/// let run = env.start(nap()).unwrap();
/// run.result().wait().unwrap();
/// assert_eq!(run.journal(), ["sleep: set", "sleep: over", "completed"]);
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Journal {
    lines: Vec<Line>,
}

/// One line of a [`Journal`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// What happened: the event's name (`step_done`, `attempt_failed`, `timer_set`, `timer_fired`,
    /// `child_started`, `child_done`, `signal`, `cancel_requested`, `run_timed_out`), or how the run ended (`completed`, `failed`, `cancelled`, `stuck`).
    pub kind: &'static str,
    /// To what: the activity, the signal, `sleep`; with `undo` or `child` in front.
    pub name: String,
    /// In which attempt, from 1.
    pub attempt: Option<u32>,
    /// The error's chain, and why no other attempt follows; empty for a value.
    pub outcome: String,
}

impl Journal {
    /// Of entries, and of an end.
    pub(crate) fn of(entries: &[Entry], end: Option<Status>) -> Self {
        let mut names = HashMap::new();
        let lines = entries.iter().map(|entry| line(entry, &mut names));
        Self { lines: lines.chain(end.map(end_line)).collect() }
    }

    /// The lines.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Whether one of the lines reads like this.
    pub fn contains(&self, line: &str) -> bool {
        self.lines.iter().any(|own| own.to_string() == line)
    }
}

/// `names` are those of timers and children that are open, by their step.
fn line(entry: &Entry, names: &mut HashMap<u32, String>) -> Line {
    let kind = entry.event.name();
    let plain = |name: &str, outcome: &str| Line {
        kind,
        name: name.to_owned(),
        attempt: None,
        outcome: outcome.to_owned(),
    };
    let of_step = |step: &Step| match step.kind {
        StepKind::Undo => format!("undo {}", step.name),
        StepKind::Child => format!("child {}", step.name),
        _ => step.name.to_string(),
    };
    match &entry.event {
        Event::StepDone { step, attempt, error, gave_up, .. } => {
            let why = match gave_up {
                Some(GaveUp::Permanent) => " (not retryable)",
                Some(GaveUp::Attempts) => " (attempts used up)",
                Some(GaveUp::Time) => " (out of time)",
                _ => "",
            };
            Line {
                kind,
                name: of_step(step),
                // A side effect has none.
                attempt: (*attempt > 0).then_some(*attempt),
                outcome: if error.is_empty() { String::new() } else { format!("{error}{why}") },
            }
        }
        Event::AttemptFailed { step, attempt, error, .. } => {
            Line { kind, name: of_step(step), attempt: Some(*attempt), outcome: error.clone() }
        }
        Event::TimerSet { step, .. } => {
            names.insert(step.number, of_step(step));
            plain(&of_step(step), "")
        }
        Event::TimerFired { step } => plain(&names.remove(step).unwrap_or_default(), ""),
        Event::ChildStarted { step, .. } => {
            names.insert(step.number, of_step(step));
            plain(&of_step(step), "")
        }
        Event::ChildDone { step, outcome, .. } => {
            let why = match outcome {
                Outcome::Ok(_) => String::new(),
                Outcome::Err(error) => format!("{error:?}"),
                Outcome::Failed(failure) => failure.to_string(),
            };
            plain(&names.remove(step).unwrap_or_default(), &why)
        }
        Event::Signal { name, .. } => plain(name, ""),
        Event::Continued { workflow, .. } => plain(workflow, ""),
        Event::CancelRequested { reason, .. } => plain("", reason),
        _ => plain("", ""),
    }
}

fn end_line(status: Status) -> Line {
    let kind = match status {
        Status::Completed => "completed",
        Status::Failed => "failed",
        Status::Cancelled => "cancelled",
        _ => "stuck",
    };
    Line { kind, name: String::new(), attempt: None, outcome: String::new() }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, attempt, outcome } = self;
        let attempt = attempt.unwrap_or(1);
        match (*kind, attempt, outcome.as_str()) {
            ("step_done", 1, "") => write!(f, "{name}: ok"),
            ("step_done", _, "") => write!(f, "{name}: ok in attempt {attempt}"),
            ("step_done", 0 | 1, _) => write!(f, "{name}: failed: {outcome}"),
            ("step_done", ..) => write!(f, "{name}: failed in attempt {attempt}: {outcome}"),
            ("attempt_failed", ..) => write!(f, "{name}: attempt {attempt} failed: {outcome}"),
            ("child_started", ..) => write!(f, "{name}: started"),
            ("child_done", _, "") => write!(f, "{name}: ok"),
            ("child_done", ..) => write!(f, "{name}: failed: {outcome}"),
            ("timer_set", ..) => write!(f, "{name}: set"),
            ("timer_fired", ..) => write!(f, "{name}: over"),
            ("signal", ..) => write!(f, "signal {name}"),
            ("cancel_requested", _, "") => f.write_str("cancel requested"),
            ("cancel_requested", ..) => write!(f, "cancel requested: {outcome}"),
            ("run_timed_out", ..) => f.write_str("run timed out"),
            (kind, ..) => f.write_str(kind),
        }
    }
}

impl fmt::Display for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// As the lines read, so that a failed comparison with an array shows two lists of the same kind.
impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lines.iter().map(ToString::to_string)).finish()
    }
}

impl<S: AsRef<str>> PartialEq<[S]> for Journal {
    fn eq(&self, lines: &[S]) -> bool {
        self.lines.iter().map(ToString::to_string).eq(lines.iter().map(|line| line.as_ref()))
    }
}

impl<S: AsRef<str>, const N: usize> PartialEq<[S; N]> for Journal {
    fn eq(&self, lines: &[S; N]) -> bool {
        *self == lines[..]
    }
}

impl<S: AsRef<str>> PartialEq<Vec<S>> for Journal {
    fn eq(&self, lines: &Vec<S>) -> bool {
        *self == lines[..]
    }
}
