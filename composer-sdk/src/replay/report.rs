//! Why a run is stuck, in words that say what to do.

use std::fmt;

use crate::journal::{Event, Step, StepKind};

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

/// Steps behind a mismatch that are looked at for a guess.
const LOOK_AHEAD: usize = 64;

/// The two sides of a nondeterminism.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
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
    /// The steps that the journal holds behind this one, as far as they were fed, up to a few.
    pub later: Vec<Step>,
    /// Under which other number the code has asked for just what the journal holds here.
    pub elsewhere: Option<u32>,
}

/// What may have become of the code since the journal was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Guess {
    /// What the code asks for is new.
    Inserted,
    /// What the journal holds is gone, or comes later: the code asks for what followed it.
    RemovedOrMoved,
    /// The code asks for both, the other way round.
    Swapped,
    /// It is the same under another name.
    Renamed,
    /// It is the same with other arguments.
    OtherArguments,
    /// The same calls come in another order.
    OtherOrder,
    /// It is another kind of step.
    OtherKind,
    /// The code ends before it.
    EndsEarlier,
    /// The code waits for something else, or for nothing, where it asked for this step.
    NotReached,
}

impl Mismatch {
    /// Takes note of what the journal holds behind the mismatch.
    pub(super) fn look_at(&mut self, event: &Event) {
        let known = |step: &Step| self.later.iter().any(|later| later.number == step.number);
        if let Some(step) = event.whole_step()
            && step.number != self.recorded.number
            && self.later.len() < LOOK_AHEAD
            && !known(step)
        {
            self.later.push(step.clone());
        }
    }

    /// What may have become of the code: a guess from what both sides show.
    pub fn guess(&self) -> Guess {
        let Some(asked) = &self.asked else {
            return if self.ended { Guess::EndsEarlier } else { Guess::NotReached };
        };
        let recorded = &self.recorded;
        let is_later = self.later.iter().any(|later| is_same(later, asked));
        let same_kind = asked.kind == recorded.kind;
        match () {
            () if self.only_arguments_differ() && is_later => Guess::OtherOrder,
            () if self.only_arguments_differ() => Guess::OtherArguments,
            () if is_later && self.elsewhere.is_some() => Guess::Swapped,
            () if is_later => Guess::RemovedOrMoved,
            () if self.elsewhere.is_some() => Guess::Inserted,
            () if same_kind && asked.digest == recorded.digest => Guess::Renamed,
            () if !same_kind => Guess::OtherKind,
            () => Guess::Inserted,
        }
    }

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
        if let Some(words) = self.guess_in_words() {
            write!(f, ". It looks as if {words}")?;
        }
        f.write_str(
            ". If the code has not changed, it depends on the clock, on random numbers, on the environment or on the \
             order of a `HashMap`. With the code that wrote the journal the run goes on",
        )
    }
}

impl Mismatch {
    /// What seems to have happened, and what helps. Nothing where a step has two results: that is no change of code.
    fn guess_in_words(&self) -> Option<String> {
        let was = Named(&self.recorded);
        let now = self.asked.as_ref().map_or_else(String::new, |asked| Named(asked).to_string());
        let behind = "a new step stands behind all that open runs have done";
        Some(match self.guess() {
            Guess::Inserted => format!("{now} was inserted before {was}: {behind}"),
            Guess::RemovedOrMoved => format!(
                "{was} was removed, or moved behind {now}: what open runs have done stays where it is until they have ended"
            ),
            Guess::Swapped => format!("{was} and {now} were swapped: put them back in their old order"),
            Guess::Renamed => match self.recorded.kind {
                StepKind::Child => format!(
                    "{was} was renamed: `#[workflow(name = \"{}\")]` keeps the old name. Or {now} was inserted before it: \
                     {behind}",
                    self.recorded.name
                ),
                _ => format!(
                    "{was} was renamed: `#[activity(name = \"{}\")]` keeps the old name. Or {now} was inserted before it: \
                     {behind}",
                    self.recorded.name
                ),
            },
            Guess::OtherArguments => format!("the arguments of {was} are made in another way than before"),
            Guess::OtherOrder => format!("calls of {was} come in another order than before"),
            Guess::OtherKind => {
                format!("{was} was replaced by {now}, or {now} was inserted before it: {behind}")
            }
            Guess::EndsEarlier => format!("{was} was removed, or the workflow returns before it by now"),
            Guess::NotReached if self.settled => return None,
            Guess::NotReached => {
                format!("{was} was removed, or something that is waited for was put before it")
            }
        })
    }
}

fn is_same(one: &Step, other: &Step) -> bool {
    one.kind == other.kind && one.name == other.name && one.digest == other.digest
}

/// A step by its kind and name.
struct Named<'a>(&'a Step);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { kind, name, .. } = self.0;
        match kind {
            StepKind::Activity => write!(f, "activity `{name}`"),
            StepKind::Timer => f.write_str("a timer"),
            StepKind::Child => write!(f, "child workflow `{name}`"),
            StepKind::SideEffect => f.write_str("a side effect"),
            StepKind::Undo => write!(f, "undo step `{name}`"),
        }
    }
}

/// One side of a mismatch.
struct Side<'a>(&'a Step);

impl fmt::Display for Side<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Named(self.0).fmt(f)?;
        let line = &self.0.line;
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
