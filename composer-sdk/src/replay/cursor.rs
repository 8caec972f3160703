//! Pairs the journal's entries with the steps that the code has asked for, and makes commands of what has no entry.

use super::{
    Command,
    report::Mismatch,
    run::{Asked, Slot, State, Work, line},
};
use crate::{
    id::Timestamp,
    journal::{Step, StepKind},
    payload::Digest,
    payload::Payload,
};

/// The step that an entry names, if the code has asked for just that by now.
pub(super) fn pair<'s>(
    state: &'s mut State,
    recorded: &Step,
    ended: bool,
) -> Result<&'s mut Asked, Box<Mismatch>> {
    let fits = state.asked(recorded.number).is_some_and(|asked| {
        let asked = &asked.step;
        asked.kind == recorded.kind && asked.name == recorded.name && asked.digest == recorded.digest
    });
    if !fits {
        return Err(mismatch(state, recorded.clone(), ended));
    }
    Ok(state.asked(recorded.number).expect("invariant: it was there a moment ago"))
}

/// The same for a fired timer, of which the journal repeats the number only.
pub(super) fn pair_timer(state: &mut State, number: u32, ended: bool) -> Result<(), Box<Mismatch>> {
    if state.asked(number).is_some_and(|asked| asked.step.kind == StepKind::Timer) {
        return Ok(());
    }
    let digest = Digest::of(&Payload::from(b"[]".as_slice()));
    let recorded = Step { number, kind: StepKind::Timer, name: "sleep".into(), digest, line: "".into() };
    Err(mismatch(state, recorded, ended))
}

/// The same for a child that has ended. One that has its result already keeps it: the first that was journaled counts.
pub(super) fn pair_child(state: &mut State, number: u32, ended: bool) -> Result<(), Box<Mismatch>> {
    let child = state.asked(number).is_some_and(|asked| asked.step.kind == StepKind::Child);
    if child || matches!(state.slot(number), Some(Slot::Settled)) {
        return Ok(());
    }
    let digest = Digest::of(&Payload::from(b"[]".as_slice()));
    let recorded = Step { number, kind: StepKind::Child, name: "".into(), digest, line: "".into() };
    Err(mismatch(state, recorded, ended))
}

fn mismatch(state: &mut State, recorded: Step, ended: bool) -> Box<Mismatch> {
    let asked = state.asked(recorded.number).map(|asked| asked.step.clone());
    let settled = matches!(state.slot(recorded.number), Some(Slot::Settled));
    let last_line = state.last.map(line).unwrap_or_default();
    let elsewhere = state.asked_elsewhere(&recorded);
    Box::new(Mismatch { recorded, asked, settled, ended, last_line, later: Vec::new(), elsewhere })
}

/// No open step rests any longer before its next attempt.
pub(super) fn end_rests(state: &mut State) {
    let open: Vec<u32> = state.open.iter().copied().collect();
    for number in open {
        if let Some(asked) = state.asked(number) {
            asked.retry_at = None;
        }
    }
}

/// What to do for the steps that were asked and dropped since the last time.
pub(super) fn commands(state: &mut State, asked: Vec<u32>, abandoned: Vec<u32>) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::with_capacity(asked.len() + abandoned.len());
    let round = state.round;
    for number in asked {
        let Some(step) = state.asked(number) else { continue };
        // A step that was asked and dropped within one poll is still asked. In a replay that holds for the last poll
        // only: whatever was dropped before that was dealt with in an earlier life.
        if step.is_settled() || (step.abandoned && step.round != round) {
            continue;
        }
        step.told = true;
        commands.extend(step.command());
    }
    commands
        .extend(abandoned.into_iter().filter_map(|number| state.asked(number).map(|asked| asked.abandon())));
    // Stable: what is asked and dropped at once is begun before it is stopped.
    commands.sort_by_key(Command::step);
    commands
}

/// What is left to do when the run has ended: stop what is open, and begin nothing that was not begun.
pub(super) fn stop_everything(state: &mut State, abandoned: Vec<u32>) -> Vec<Command> {
    let round = state.round;
    let mut open = std::mem::take(&mut state.open);
    open.extend(abandoned);
    let begun = |step: &&mut Asked| step.told || step.round != round;
    open.into_iter()
        .filter_map(|number| state.asked(number).filter(begun).map(|asked| asked.abandon()))
        .collect()
}

impl Asked {
    /// The journal holds the instant at which the timer is due.
    pub(super) fn arm(&mut self, at: Timestamp) {
        if let Work::Timer { due, .. } = &mut self.work {
            *due = at;
            self.armed = true;
        }
    }

    /// To stop the step. A detached child is left alone.
    fn abandon(&self) -> Command {
        let detached = matches!(self.work, Work::Child { detached: true, .. });
        Command::Abandon { step: self.step.number, child: self.child.filter(|_| !detached) }
    }

    fn command(&self) -> Option<Command> {
        Some(match &self.work {
            Work::Activity { input, options } => Command::RunActivity {
                step: self.step.clone(),
                input: input.clone(),
                options: options.clone(),
                attempts: self.attempts,
                retry_at: self.retry_at,
                scheduled_at: self.asked_at,
            },
            Work::Child { request, detached } => Command::StartChild {
                step: self.step.clone(),
                request: request.clone(),
                run_id: self.child,
                detached: *detached,
            },
            Work::Timer { due, after } => {
                Command::SetTimer { step: self.step.clone(), due: *due, after: *after, armed: self.armed }
            }
            Work::SideEffect(gave) => {
                let (outcome, error) = gave.clone()?;
                Command::Record { step: self.step.clone(), outcome, error }
            }
        })
    }
}
