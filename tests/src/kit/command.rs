//! The words of the generic workflow.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One thing to do. Each gives one value, and the run's result is the list of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// An effect at the server; gives what the server answers.
    Step(Step),
    /// A durable timer; gives null.
    Sleep {
        /// Its length.
        ms: u64,
    },
    /// The next signal `go`; gives its value, or `"nothing"` when the time is up.
    Wait {
        /// Not longer than that.
        ms: Option<u64>,
    },
    /// An effect against a timer; gives the effect's value or `"time"`.
    Race {
        /// The effect.
        step: Step,
        /// The timer's length.
        ms: u64,
    },
    /// Branches at the same time; gives the list of their lists.
    Join(Vec<Vec<Command>>),
    /// That many effects `name-0`, `name-1` … at the same time; gives the list of their values.
    JoinAll {
        /// The beginning of their names.
        name: String,
        /// How many.
        count: u32,
    },
    /// The effects `name-0`, `name-1` … as a `map`; gives the list of their values.
    Map {
        /// The beginning of their names.
        name: String,
        /// How many.
        count: u32,
        /// At most so many at a time.
        limit: Option<usize>,
        /// Puts up with so many errors, and gives the values and the words of the errors, each with its place.
        tolerate: Option<usize>,
    },
    /// An effect that is asked for again and again, with pauses, until it answers something else than `false`; gives
    /// that, or the words of giving up.
    PollUntil {
        /// Its name.
        name: String,
        /// The pauses' length.
        ms: u64,
        /// How often at most.
        times: Option<u32>,
    },
    /// A side effect whose value is another each time: this process's id, and a number that counts in it. Sent as an
    /// effect of this name, and given.
    Ask(String),
    /// A side effect that fails with this text; gives the text.
    AskInVain(String),
    /// Two lines for people, `logged` and `traced` with this text; gives null.
    Log(String),
    /// The same as `Join`, but spawned.
    Spawn(Vec<Vec<Command>>),
    /// Shows the value under the name `state`; gives null.
    Publish(Value),
    /// An effect that undoes what follows; gives null.
    Undo(Step),
    /// A child that does these things; gives the list of its values.
    Child {
        /// What it does.
        commands: Vec<Command>,
        /// Its workflow id, if it has one of its own.
        id: Option<String>,
        /// Whether it goes on without its parent.
        detached: bool,
    },
    /// A part that is undone by itself; gives the list of its values, or the words of its error.
    Scope(Vec<Command>),
    /// A part that a cancellation waits for; gives the list of its values.
    Shield(Vec<Command>),
    /// The run continues as new, and does these things.
    Continue(Vec<Command>),
    /// The run fails with this text.
    Fail(String),
    /// The workflow panics with this text.
    Panic(String),
    /// An effect of this name that sends `now()` in microseconds and a number from the run's own randomness; gives
    /// both, as the workflow sees them.
    Note(String),
    /// An activity that blocks its thread for as long.
    Block {
        /// How long.
        ms: u64,
    },
}

/// An effect and how it is carried out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its name at the server.
    pub name: String,
    /// What it sends; the server echoes it unless the test says otherwise.
    pub value: Value,
    /// How many attempts there may be, if not as many as an activity has by default.
    pub attempts: Option<u32>,
    /// The delay after the first failed attempt, without jitter.
    pub first_ms: Option<u64>,
    /// How long an attempt may take.
    pub timeout_ms: Option<u64>,
}

impl Step {
    /// At most that many attempts.
    #[must_use]
    pub fn attempts(self, attempts: u32) -> Self {
        Self { attempts: Some(attempts), ..self }
    }

    /// That delay after the first failed attempt.
    #[must_use]
    pub fn first(self, first: Duration) -> Self {
        Self { first_ms: Some(first.as_millis() as u64), ..self }
    }

    /// An attempt may take that long.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout_ms: Some(timeout.as_millis() as u64), ..self }
    }
}

impl From<Step> for Command {
    fn from(step: Step) -> Self {
        Self::Step(step)
    }
}

/// An effect that sends its own name.
pub fn step(name: impl Into<String>) -> Step {
    let name = name.into();
    Step { value: Value::from(name.clone()), name, attempts: None, first_ms: None, timeout_ms: None }
}

/// A durable timer.
pub fn sleep(ms: u64) -> Command {
    Command::Sleep { ms }
}

/// The next signal `go`.
pub fn wait() -> Command {
    Command::Wait { ms: None }
}

/// An effect against a timer.
pub fn race(step: Step, ms: u64) -> Command {
    Command::Race { step, ms }
}

/// That many effects at the same time.
pub fn join_all(name: impl Into<String>, count: u32) -> Command {
    Command::JoinAll { name: name.into(), count }
}

/// That many effects as a `map`, at most so many at a time.
pub fn map(name: impl Into<String>, count: u32, limit: usize) -> Command {
    Command::Map { name: name.into(), count, limit: Some(limit), tolerate: None }
}

/// An effect that sends what the run's own clock and randomness say.
pub fn note(name: impl Into<String>) -> Command {
    Command::Note(name.into())
}

/// A child that does these things.
pub fn child(commands: impl IntoIterator<Item = Command>) -> Command {
    Command::Child { commands: commands.into_iter().collect(), id: None, detached: false }
}
