//! Undo steps: recorded before the step that they undo, run in reverse when the run, or their scope, fails.
//!
//! An undo step stays here until its activity has succeeded, so whoever runs the stack, a scope or the machine at the
//! end of the run, goes on where the other was interrupted. It is not in the journal before it runs: a replay records
//! it again.

use std::{panic::Location, sync::Arc, task::Waker};

use super::{
    report::StuckReason,
    run::{Answer, Asked, Run, State, Work},
};
use crate::journal::{Outcome, Step, StepKind};

/// The steps to undo, in the order in which they were recorded.
#[derive(Default)]
pub(super) struct UndoStack {
    undos: Vec<Undo>,
    /// The scope whose future is being polled; 0 outside of all.
    scope: u32,
    scopes: u32,
}

/// One step to undo another.
struct Undo {
    scope: u32,
    step: Step,
    /// Until it is asked for.
    work: Option<Work>,
    at: &'static Location<'static>,
}

/// How far the undoing has come.
pub(crate) enum Undoing {
    /// An undo step is under way.
    Running,
    /// Nothing is left to undo.
    Done,
    /// An undo step has failed for good. It stays.
    Failed(Step),
}

impl UndoStack {
    pub(super) fn is_empty(&self) -> bool {
        self.undos.is_empty()
    }

    /// Records a step to undo what follows.
    pub(super) fn record(&mut self, step: Step, work: Work, at: &'static Location<'static>) {
        self.undos.push(Undo { scope: self.scope, step, work: Some(work), at });
    }

    /// Forgets what the current scope has recorded and not begun to undo.
    pub(super) fn commit(&mut self) {
        let scope = self.scope;
        self.undos.retain(|undo| undo.scope != scope || undo.work.is_none());
    }

    /// A number for a new scope.
    pub(super) fn open_scope(&mut self) -> u32 {
        self.scopes += 1;
        self.scopes
    }

    /// Makes a scope the current one; returns the one before.
    pub(super) fn enter_scope(&mut self, scope: u32) -> u32 {
        std::mem::replace(&mut self.scope, scope)
    }

    /// Whether a scope has something to undo.
    pub(super) fn has(&self, scope: u32) -> bool {
        self.undos.iter().any(|undo| undo.scope == scope)
    }

    /// Leaves a scope's undo steps to the scope around it.
    pub(super) fn hand_on(&mut self, scope: u32, to: u32) {
        self.undos.iter_mut().filter(|undo| undo.scope == scope).for_each(|undo| undo.scope = to);
    }
}

impl State {
    /// Goes on undoing a scope's steps, or all with `None`, the last one first and one at a time. The waker is kept while
    /// one is under way.
    pub(super) fn undo(&mut self, scope: Option<u32>, waker: &mut Option<Waker>) -> Undoing {
        loop {
            let mine = |undo: &Undo| scope.is_none_or(|scope| undo.scope == scope);
            let Some(place) = self.undos.undos.iter().rposition(mine) else { return Undoing::Done };
            let undo = &mut self.undos.undos[place];
            let step = undo.step.clone();
            if let Some(work) = undo.work.take() {
                let at = undo.at;
                self.ask(step, work, at, waker.take());
                return Undoing::Running;
            }
            match self.answer(step.number) {
                None => {
                    let old = self.swap_waker(step.number, waker.take());
                    *waker = old;
                    return Undoing::Running;
                }
                Some(Answer::Done(Outcome::Ok(_))) => drop(self.undos.undos.remove(place)),
                Some(_) => return Undoing::Failed(step),
            }
        }
    }

    /// The body is gone: what was asked for is stopped, and what only its last poll asked for is never begun. An undo
    /// step that is under way goes on.
    pub(super) fn abandon_body(&mut self) -> Vec<Waker> {
        let round = self.round;
        let mut wakers = vec![];
        for number in self.asked.clone() {
            let begun =
                |asked: &mut Asked| asked.told || asked.round != round || asked.step.kind == StepKind::Undo;
            if !self.asked(number).is_none_or(begun) {
                self.open.remove(&number);
                wakers.extend(self.forget(number));
            }
        }
        let open: Vec<u32> = self.open.iter().copied().collect();
        for number in open {
            if self.asked(number).is_some_and(|asked| asked.step.kind != StepKind::Undo) {
                wakers.extend(self.abandon(number));
            }
        }
        wakers
    }
}

impl Run {
    /// Records a step to undo what follows.
    pub(crate) fn compensate(&self, step: Step, work: Work, at: &'static Location<'static>) {
        let mut state = self.lock();
        state.moves += 1;
        state.undos.record(step, work, at);
    }

    /// Forgets what the current scope has recorded.
    pub(crate) fn commit(&self) {
        self.lock().undos.commit();
    }

    pub(crate) fn open_scope(&self) -> u32 {
        self.lock().undos.open_scope()
    }

    /// Around a poll of what a scope holds.
    pub(crate) fn inside_scope(self: &Arc<Self>, scope: u32) -> InsideScope {
        let before = self.lock().undos.enter_scope(scope);
        InsideScope { run: self.clone(), before }
    }

    pub(crate) fn has_undos(&self, scope: u32) -> bool {
        self.lock().undos.has(scope)
    }

    /// A scope is over: what it recorded belongs to the scope around it.
    pub(crate) fn close_scope(&self, scope: u32, around: Option<u32>) {
        if let Some(around) = around {
            self.lock().undos.hand_on(scope, around);
        }
    }

    /// Goes on undoing a scope's steps, or all with `None`. A waker is woken when there is more to do.
    pub(crate) fn undo(&self, scope: Option<u32>, waker: Option<Waker>) -> Undoing {
        let mut waker = waker;
        // A replaced waker is dropped outside the lock: it is somebody else's code.
        self.lock().undo(scope, &mut waker)
    }

    /// A scope cannot be undone.
    pub(crate) fn undo_failed(&self, step: &Step) {
        let failed = format!("step {} `{}` ({})", step.number, step.name, step.line);
        let reason = StuckReason::UndoFailed { failed, because: String::new() };
        self.lock().stuck.get_or_insert(reason);
    }
}

/// What is polled while this lives is inside a scope.
pub(crate) struct InsideScope {
    run: Arc<Run>,
    before: u32,
}

impl InsideScope {
    /// The scope around it.
    pub(crate) fn before(&self) -> u32 {
        self.before
    }
}

impl Drop for InsideScope {
    fn drop(&mut self) {
        self.run.lock().undos.enter_scope(self.before);
    }
}
