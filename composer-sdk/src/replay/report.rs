//! Why a run is stuck, in words that say what to do.

use std::fmt;

use crate::journal::{Step, StepKind};

/// Why a run needs a person, a fix or another build. `Display` says it in words.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum StuckReason {
    /// The workflow's code panicked.
    Panicked {
        /// What the panic said.
        message: String,
        /// `file:line` of the last step that was asked for; empty before the first.
        line: String,
    },
    /// The code asks for something else than the journal holds.
    Nondeterminism(Box<Mismatch>),
    /// The code waits for something that no event of the journal can bring.
    NothingDurable {
        /// `file:line` of the last step that was asked for; empty before the first.
        line: String,
    },
    /// Something outside the journal woke the workflow.
    ForeignWake {
        /// `file:line` of the last step that was asked for; empty before the first.
        line: String,
    },
    /// The code wakes itself again and again and gets nowhere.
    Restless {
        /// `file:line` of the last step that was asked for; empty before the first.
        line: String,
    },
    /// An undo step failed for good: the run is not closed as if it had been undone.
    UndoFailed {
        /// Which one, and how it failed, in words.
        failed: String,
        /// Why the run, or the scope, was being undone.
        because: String,
    },
    /// Something was used in a way that cannot be durable.
    Refused(String),
    /// The run's input cannot be read by this build.
    Undecodable {
        /// What is wrong with it.
        why: String,
        /// `file:line` of the workflow.
        source: &'static str,
    },
}

/// The two sides of a nondeterminism.
#[derive(Debug, Clone, PartialEq)]
pub struct Mismatch {
    /// What the journal holds; of a fired timer only its number is known.
    pub recorded: Step,
    /// What the code of this build asked for under that number, if anything.
    pub asked: Option<Step>,
    /// Whether the step has its result already, so that this would be a second one.
    pub settled: bool,
    /// Whether the workflow had already ended.
    pub ended: bool,
    /// `file:line` of the last step that the code asked for.
    pub last_line: String,
}

impl Mismatch {
    /// Whether nothing but the arguments differs.
    pub fn only_arguments_differ(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| {
            asked.kind == self.recorded.kind
                && asked.name == self.recorded.name
                && asked.digest != self.recorded.digest
        })
    }
}

impl fmt::Display for StuckReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked { message, line } => {
                write!(f, "the workflow's code panicked: {message} ({})", After(line))
            }
            Self::Nondeterminism(mismatch) => mismatch.fmt(f),
            Self::NothingDurable { line } => write!(
                f,
                "the workflow waits for something that is not durable ({}). Only calls, `sleep` and `recv` survive a \
                 crash: do I/O, channels to other tasks, `tokio::time` and `tokio::spawn` in an activity",
                After(line)
            ),
            Self::ForeignWake { line } => write!(
                f,
                "the workflow was woken by something outside its journal ({}): a task, a thread or a timer of \
                 `tokio` that a replay would not see. Do such work in an activity; wait with the `sleep` of \
                 composer_sdk",
                After(line)
            ),
            Self::Restless { line } => {
                write!(f, "the workflow keeps waking itself without asking for anything ({})", After(line))
            }
            Self::UndoFailed { failed, because } => {
                write!(f, "an undo step failed, so what the run did is undone in part only: {failed}")?;
                if !because.is_empty() {
                    write!(f, ". It was being undone because: {because}")?;
                }
                Ok(())
            }
            Self::Refused(why) => f.write_str(why),
            Self::Undecodable { why, source } => {
                write!(f, "the run's input cannot be read by this build: {why} ({source})")
            }
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.recorded.number;
        write!(f, "the code does not fit the journal at step {number}: ")?;
        match &self.asked {
            Some(asked) if self.only_arguments_differ() => write!(
                f,
                "the journal holds {}, and the code asked for the same with other arguments ({})",
                Side(&self.recorded),
                asked.line
            )?,
            Some(asked) => {
                write!(f, "the journal holds {}, the code asked for {}", Side(&self.recorded), Side(asked))?
            }
            None if self.settled => {
                write!(
                    f,
                    "the journal holds another result of {}, which has one already",
                    Side(&self.recorded)
                )?;
            }
            None if self.ended => {
                write!(
                    f,
                    "the journal holds {}, but the workflow has ended by then ({})",
                    Side(&self.recorded),
                    After(&self.last_line)
                )?;
            }
            None => write!(
                f,
                "the journal holds {}, and the code has not asked for a step of that number ({})",
                Side(&self.recorded),
                After(&self.last_line)
            )?,
        }
        f.write_str(
            ". Usual causes: a step was inserted, removed, renamed or moved in a new build while this run was open; \
             the code depends on the clock, on random numbers, on the environment or on the order of a `HashMap`. \
             With the code that wrote the journal the run goes on",
        )
    }
}

/// One side of a mismatch.
struct Side<'a>(&'a Step);

impl fmt::Display for Side<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { kind, name, line, .. } = self.0;
        match kind {
            StepKind::Activity => write!(f, "activity `{name}`")?,
            StepKind::Timer => f.write_str("a timer")?,
            StepKind::Child => write!(f, "child workflow `{name}`")?,
            StepKind::SideEffect => f.write_str("a side effect")?,
            StepKind::Undo => write!(f, "undo step `{name}`")?,
        }
        if line.is_empty() { Ok(()) } else { write!(f, " ({line})") }
    }
}

/// Where the workflow was.
struct After<'a>(&'a str);

impl fmt::Display for After<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => f.write_str("before its first step"),
            line => write!(f, "the last step was asked for at {line}"),
        }
    }
}
