//! With what of a journal a new run begins: decided without touching the world.
//!
//! What is taken over is a part from the journal's beginning: only of that it is certain that the code comes to the
//! same with it. Left out of it is what the new run begins afresh: attempts, armed timers and started children of the
//! steps that it makes anew, and of those that had not settled by then (but not their timers: an instant stays what it
//! is).

use std::{collections::HashSet, ops::RangeInclusive};

use composer_sdk::journal::{Entry, Event};

/// An entry, as far as a plan needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    seq: u32,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Something about a step that the workflow does not see.
    Beneath { step: u32, timer: bool },
    /// A step has its result.
    Settled { step: u32 },
    /// The run was asked to end, or ran out of time.
    Stop,
    /// A generation begins, before which so many step numbers were taken.
    Begins { taken: u32 },
    /// Of no step.
    Other,
}

/// What a new run begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prefix {
    /// The first step that is made anew.
    pub(super) step: u32,
    /// The first entry of the generation.
    pub(super) first: u32,
    /// The last entry that is copied.
    pub(super) upto: u32,
    /// Those up to there that are not.
    pub(super) without: Vec<u32>,
}

impl Mark {
    pub(super) fn of(entry: &Entry) -> Self {
        let what = match &entry.event {
            Event::CancelRequested { .. } | Event::RunTimedOut => What::Stop,
            Event::Continued { steps, .. } => What::Begins { taken: *steps },
            event => match (event.step(), event.is_delivered()) {
                (Some(step), true) => What::Settled { step },
                (Some(step), false) => What::Beneath { step, timer: matches!(event, Event::TimerSet { .. }) },
                (None, _) => What::Other,
            },
        };
        Self { seq: entry.seq, what }
    }

    /// Whether it is a result that a run does not take over which begins again at a step.
    pub(super) fn is_result_from(&self, step: u32) -> bool {
        matches!(self.what, What::Settled { step: settled } if settled >= step)
    }

    /// Of the begin of a generation: the step numbers that were taken before.
    pub(super) fn taken(&self) -> Option<u32> {
        match self.what {
            What::Begins { taken } => Some(taken),
            _ => None,
        }
    }

    fn step(&self) -> Option<u32> {
        match self.what {
            What::Beneath { step, .. } | What::Settled { step } => Some(step),
            _ => None,
        }
    }
}

/// The steps that a generation may begin again at: those that its journal knows, and the one that comes next.
pub(super) fn steps(marks: &[Mark]) -> RangeInclusive<u32> {
    let taken = marks.first().and_then(Mark::taken).unwrap_or(0);
    taken + 1..=marks.iter().filter_map(Mark::step).max().unwrap_or(taken) + 1
}

/// What a run begins with that begins again at a step. That the original was asked to end is not taken over: the new
/// run would end, too.
pub(super) fn before_step(marks: &[Mark], step: u32) -> Prefix {
    let end = marks.iter().position(|mark| mark.what == What::Stop || mark.is_result_from(step));
    prefix(&marks[..end.unwrap_or(marks.len())], step)
}

fn prefix(marks: &[Mark], step: u32) -> Prefix {
    let settled: HashSet<u32> = marks
        .iter()
        .filter_map(|mark| match mark.what {
            What::Settled { step } => Some(step),
            _ => None,
        })
        .collect();
    let afresh = |mark: &&Mark| match mark.what {
        What::Beneath { step: of, timer } => of >= step || (!timer && !settled.contains(&of)),
        _ => false,
    };
    let first = marks.first().filter(|mark| mark.taken().is_some()).map_or(1, |mark| mark.seq);
    Prefix {
        step,
        first,
        upto: marks.last().map_or(0, |mark| mark.seq),
        without: marks.iter().filter(afresh).map(|mark| mark.seq).collect(),
    }
}

#[cfg(test)]
mod tests {
    use composer_sdk::{
        id::Timestamp,
        journal::{Outcome, Step, StepKind},
        payload::{Digest, Payload},
    };

    use super::*;

    fn step(number: u32, kind: StepKind) -> Step {
        let digest = Digest::of(&Payload::from(b"[]".to_vec()));
        Step { number, kind, name: "step".into(), digest, line: "".into() }
    }

    /// A journal in short: `2` a value, `2!` an error, `2?` a failed attempt, `2t` a timer armed, `2T` it fired, `2c` a
    /// child started, `2C` it ended, `go` a signal, `stop` a request to cancel, `late` the run's timeout, `retry` a
    /// request to.
    fn journal(short: &str) -> Vec<Mark> {
        let value = || Outcome::Ok(Payload::from(b"1".to_vec()));
        let event = |word: &str| {
            let digits = word.chars().take_while(char::is_ascii_digit).count();
            let (number, rest) = (word[..digits].parse().unwrap_or(0), &word[digits..]);
            let run_id = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
            let step = step(number, StepKind::Activity);
            let (at, no) = (Timestamp::from_micros(1), String::from("no"));
            match rest {
                "" => Event::StepDone {
                    step,
                    attempt: 1,
                    error: String::new(),
                    gave_up: None,
                    outcome: value(),
                },
                "?" => Event::AttemptFailed { step, attempt: 1, error: no, retry_at: at },
                "t" => Event::TimerSet { step, due: at },
                "T" => Event::TimerFired { step: number },
                "c" => Event::ChildStarted { step, run_id },
                "C" => Event::ChildDone { step: number, inbox: 1, outcome: value() },
                "stop" => Event::CancelRequested { inbox: 1, reason: no },
                "late" => Event::RunTimedOut,
                "retry" => Event::RetryRequested { inbox: 1 },
                name => Event::Signal { name: name.into(), inbox: 1, payload: Payload::from(b"1".to_vec()) },
            }
        };
        let entry =
            |(n, word): (u32, &str)| Entry { seq: n + 1, at: Timestamp::from_micros(1), event: event(word) };
        (0..)
            .zip(short.split(' ').filter(|word| !word.is_empty()))
            .map(entry)
            .map(|entry| Mark::of(&entry))
            .collect()
    }

    #[track_caller]
    fn forks(short: &str, step: u32, upto: u32, without: &[u32]) {
        let prefix = before_step(&journal(short), step);
        assert_eq!(prefix, Prefix { step, first: 1, upto, without: without.to_vec() }, "{short}");
    }

    #[test]
    fn what_was_done_before_the_step_is_taken_over() {
        forks("1 2 3 4", 3, 2, &[]);
        forks("1 2 3 4", 1, 0, &[]);
        forks("1 2 3 4", 5, 4, &[]);
        forks("", 1, 0, &[]);
        forks("1 go 2 go 3", 3, 4, &[]);
    }

    #[test]
    fn a_result_behind_that_of_a_later_step_is_made_again() {
        forks("2 1 3", 2, 0, &[]);
        forks("1 3 2 4", 4, 3, &[]);
        forks("1 3 2 4", 3, 1, &[]);
    }

    #[test]
    fn the_step_begins_with_its_first_attempt_and_a_new_timer_and_a_new_child() {
        forks("1 2? 2? 2", 2, 3, &[2, 3]);
        forks("1 3? 2 3", 3, 3, &[2]);
        forks("1 3t 2 3T", 3, 3, &[2]);
        forks("1 3c 2 3C", 3, 3, &[2]);
    }

    #[test]
    fn what_had_not_settled_by_then_begins_afresh_but_a_timer_stays_due_when_it_was() {
        forks("1? 1? 2 3", 3, 3, &[1, 2]);
        forks("1c 2 3", 3, 2, &[1]);
        forks("1t 2 3", 3, 2, &[]);
        forks("1? 1 2 3", 3, 3, &[]);
        forks("1c 1C 2 retry 3", 3, 4, &[]);
    }

    #[test]
    fn that_the_original_was_to_end_is_not_taken_over() {
        forks("1 2 stop 3", 4, 2, &[]);
        forks("1 2 late", 3, 2, &[]);
        forks("1 2 stop 3", 2, 1, &[]);
    }

    #[test]
    fn a_journal_knows_the_steps_that_it_names() {
        assert_eq!(steps(&journal("1 go 3? 2")), 1..=4);
        assert_eq!(steps(&journal("go stop")), 1..=1);
    }

    #[test]
    fn a_later_generation_is_forked_at_one_of_its_own_steps() {
        let begins = Event::Continued {
            generation: 1,
            steps: 5,
            workflow: "w".into(),
            input: Payload::from(b"[]".to_vec()),
        };
        let begins = Mark::of(&Entry { seq: 9, at: Timestamp::from_micros(1), event: begins });
        let mut marks = vec![begins];
        marks.extend(journal("6 7").into_iter().map(|mark| Mark { seq: mark.seq + 9, ..mark }));
        assert_eq!(steps(&marks), 6..=8);
        assert_eq!(before_step(&marks, 7), Prefix { step: 7, first: 9, upto: 10, without: vec![] });
        assert_eq!(before_step(&marks, 6), Prefix { step: 6, first: 9, upto: 9, without: vec![] });
    }
}
