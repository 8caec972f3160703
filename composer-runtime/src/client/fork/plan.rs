//! With what of a journal a new run begins: decided without touching the world.
//!
//! What is taken over is a part from the journal's beginning: only of that it is certain that the code comes to the
//! same with it. Left out of it is what only steps without a result in it have: failed attempts, armed timers and
//! started children. These steps begin afresh, and a replay does not notice.

use std::{collections::HashSet, ops::RangeInclusive};

use composer_sdk::journal::{Entry, Event, Outcome, StepKind};

use crate::store::Status;

/// An entry, as far as a plan needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    seq: u32,
    what: What,
    /// Whether it is of an undo step.
    undo: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Something about a step that the workflow does not see.
    Beneath { step: u32 },
    /// A step has its result.
    Settled { step: u32, failed: bool },
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
                (Some(step), true) => What::Settled { step, failed: is_error(event) },
                (Some(step), false) => What::Beneath { step },
                (None, _) => What::Other,
            },
        };
        let undo = match &entry.event {
            Event::StepDone { step, .. } | Event::AttemptFailed { step, .. } => step.kind == StepKind::Undo,
            _ => false,
        };
        Self { seq: entry.seq, what, undo }
    }

    /// Whether it is a result that a run does not take over which begins again at a step.
    pub(super) fn is_result_from(&self, step: u32) -> bool {
        matches!(self.what, What::Settled { step: settled, .. } if settled >= step)
    }

    fn is_result(&self) -> bool {
        self.is_result_from(0)
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
            What::Beneath { step } | What::Settled { step, .. } => Some(step),
            _ => None,
        }
    }
}

fn is_error(event: &Event) -> bool {
    match event {
        Event::StepDone { outcome, .. } | Event::ChildDone { outcome, .. } => {
            !matches!(outcome, Outcome::Ok(_))
        }
        _ => false,
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

/// What a run begins with that goes on where another one has ended without a value.
///
/// * An undo step failed, so that the run was stuck, and somebody closed it by hand: it is made again.
/// * The run was closed by hand while it went on: nothing is.
/// * It was cancelled, or ran out of time: it goes on as if that had not been.
/// * It failed: the last step that ended with an error is made again. Without such a step the error is the workflow's
///   own, and whether it comes again, its code says.
///
/// What was undone when the run ended is done again: the steps from the first one that an undo step belongs to.
pub(super) fn after_end(marks: &[Mark], status: Status) -> Prefix {
    let error = marks.iter().rposition(|mark| matches!(mark.what, What::Settled { failed: true, .. }));
    let failed = error.and_then(|error| marks[error].step());
    if let (Some(error), Some(step)) = (error.filter(|error| marks[*error].undo), failed) {
        return prefix(&marks[..error], step);
    }
    let stop = marks.iter().position(|mark| mark.what == What::Stop);
    if status == Status::Terminated || (status == Status::Cancelled && stop.is_none()) {
        return goes_on(marks);
    }
    let (end, step) = match (stop, error) {
        (Some(stop), _) => (stop, None),
        (None, Some(error)) => (error, failed),
        (None, None) => (end_of_body(marks), None),
    };
    let undone = marks[end..].iter().filter(|mark| mark.undo).filter_map(Mark::step).min();
    match (undone, step) {
        (None, None) => goes_on(&marks[..end]),
        (None, Some(step)) => prefix(&marks[..end], step),
        (Some(undone), step) => {
            let kept = marks[..end].iter().position(|mark| mark.is_result_from(undone)).unwrap_or(end);
            let step = step.map_or(undone, |step| step.min(undone));
            prefix(&marks[..kept], step)
        }
    }
}

/// Where the entries begin of what undid the run at its end.
fn end_of_body(marks: &[Mark]) -> usize {
    let body = marks.iter().rposition(|mark| mark.step().is_some() && !mark.undo).map_or(0, |last| last + 1);
    marks[body..].iter().position(|mark| mark.undo).map_or(marks.len(), |undo| body + undo)
}

/// All of it.
fn goes_on(marks: &[Mark]) -> Prefix {
    let settled = marks.iter().filter(|mark| mark.is_result()).filter_map(Mark::step).max();
    let taken = marks.first().and_then(Mark::taken);
    prefix(marks, settled.or(taken).unwrap_or(0) + 1)
}

/// All of it, but for what the workflow does not see of steps that have no result in it.
fn prefix(marks: &[Mark], step: u32) -> Prefix {
    let results: HashSet<u32> = marks.iter().filter(|mark| mark.is_result()).filter_map(Mark::step).collect();
    let afresh = |mark: &&Mark| matches!(mark.what, What::Beneath { step } if !results.contains(&step));
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
    /// child started, `2C` it ended, `2u`, `2u!`, `2u?` an undo step, `go` a signal, `stop` a request to cancel, `late`
    /// the run's timeout, `retry` a request to.
    fn journal(short: &str) -> Vec<Mark> {
        let value = || Outcome::Ok(Payload::from(b"1".to_vec()));
        let event = |word: &str| {
            let digits = word.chars().take_while(char::is_ascii_digit).count();
            let (number, rest) = (word[..digits].parse().unwrap_or(0), &word[digits..]);
            let run_id = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
            let undo = rest.starts_with('u');
            let step = step(number, if undo { StepKind::Undo } else { StepKind::Activity });
            let (at, no) = (Timestamp::from_micros(1), String::from("no"));
            let done = |error: &str, outcome| Event::StepDone {
                step: step.clone(),
                attempt: 1,
                error: error.into(),
                gave_up: None,
                outcome,
            };
            match rest {
                "" | "u" => done("", value()),
                "!" | "u!" => done("no", Outcome::Err(Payload::from(b"1".to_vec()))),
                "?" | "u?" => Event::AttemptFailed { step, attempt: 1, error: no, retry_at: at },
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
    fn what_had_no_result_by_then_begins_afresh() {
        forks("1? 1? 2 3", 3, 3, &[1, 2]);
        forks("1c 2 3", 3, 2, &[1]);
        forks("1t 2 3", 3, 2, &[1]);
        forks("1t 2 1T 3", 3, 3, &[]);
        forks("1? 1 2 3", 3, 3, &[]);
        forks("1c 1C 2 retry 3", 3, 4, &[]);
    }

    #[test]
    fn that_the_original_was_to_end_is_not_taken_over() {
        forks("1 2 stop 3", 4, 2, &[]);
        forks("1 2 late", 3, 2, &[]);
        forks("1 2 stop 3", 2, 1, &[]);
    }

    #[track_caller]
    fn redrives(short: &str, status: Status, step: u32, upto: u32, without: &[u32]) {
        let prefix = after_end(&journal(short), status);
        assert_eq!(prefix, Prefix { step, first: 1, upto, without: without.to_vec() }, "{short}, {status:?}");
    }

    #[test]
    fn a_failed_run_makes_the_step_again_whose_error_was_the_last() {
        redrives("1 2 3? 3? 3!", Status::Failed, 3, 4, &[3, 4]);
        redrives("1! 2 3!", Status::Failed, 3, 2, &[]);
        redrives("1 2! 3", Status::Failed, 2, 1, &[]);
        // Side by side: what has its result keeps it, what has none begins afresh.
        redrives("2? 1 3? 2!", Status::Failed, 2, 3, &[1, 3]);
        redrives("3 1!", Status::Failed, 1, 1, &[]);
    }

    #[test]
    fn a_run_that_failed_by_itself_takes_all_that_it_did_to_other_code() {
        redrives("1 2 go", Status::Failed, 3, 3, &[]);
        redrives("", Status::Failed, 1, 0, &[]);
        redrives("1 2t 2T", Status::Failed, 3, 3, &[]);
    }

    #[test]
    fn a_cancelled_run_goes_on_as_if_that_had_not_been() {
        redrives("1 2? stop", Status::Cancelled, 2, 2, &[2]);
        redrives("1 2t late", Status::Failed, 2, 2, &[2]);
        redrives("1! 2 stop", Status::Cancelled, 3, 2, &[]);
        redrives("1 stop 2 stop", Status::Cancelled, 2, 1, &[]);
    }

    #[test]
    fn what_was_undone_at_the_end_is_done_again() {
        redrives("2 4! 3u 1u", Status::Failed, 1, 0, &[]);
        redrives("1 3 5! 4u 2u", Status::Failed, 2, 1, &[]);
        redrives("1 3 stop 4u? 4u", Status::Cancelled, 4, 2, &[]);
        redrives("1 3 go 2u", Status::Failed, 2, 1, &[]);
        // A scope that was undone on the way is another matter.
        redrives("2! 1u 3 4!", Status::Failed, 4, 3, &[]);
        // What failed and was done nevertheless comes before what was undone.
        redrives("1 2! 4 3u", Status::Failed, 2, 1, &[]);
    }

    #[test]
    fn a_run_that_was_closed_by_hand_goes_on_where_it_was() {
        redrives("1 2! 3 4t 5? 6c", Status::Terminated, 4, 6, &[4, 5, 6]);
        redrives("2? 1 2 3", Status::Terminated, 4, 4, &[]);
        redrives("1 2 stop 1u", Status::Terminated, 3, 4, &[]);
        redrives("1 2! 3", Status::Cancelled, 4, 3, &[]);
    }

    #[test]
    fn an_undo_step_that_failed_is_made_again_and_nothing_before_it() {
        redrives("2 4! 3u 1u? 1u!", Status::Terminated, 1, 4, &[4]);
        redrives("2 4! 1u! go 3C", Status::Cancelled, 1, 2, &[]);
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
