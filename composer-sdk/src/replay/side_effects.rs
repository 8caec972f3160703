//! Side effects: code that runs once, in the workflow's own poll, and whose value is journaled.
//!
//! Whether the journal holds the value is known when all of it was fed. So in a replay a side effect waits like any
//! other step; those that are still open when the workflow has caught up with its journal are woken, and then run.

use std::task::Waker;

use super::{
    future::Leaf,
    run::{State, Work},
};
use crate::journal::{Outcome, StepKind};

impl State {
    /// The side effects that have neither run nor a value, in step order: whom to wake.
    pub(super) fn due_side_effects(&mut self) -> Vec<Waker> {
        let open: Vec<u32> = self.open.iter().copied().collect();
        let due = open.into_iter().filter_map(|number| {
            let asked = self.asked(number)?;
            if asked.step.kind == StepKind::SideEffect { self.swap_waker(number, None) } else { None }
        });
        due.collect()
    }

    /// A side effect has run: what it gave is to be journaled.
    fn ran(&mut self, number: u32, outcome: Outcome, error: String) {
        if let Some(asked) = self.asked(number) {
            asked.work = Work::SideEffect(Some((outcome, error)));
            self.asked.push(number);
        }
    }
}

impl Leaf {
    /// The step is a side effect, and has run.
    pub(crate) fn ran(&self, outcome: Outcome, error: String) {
        self.run().lock().ran(self.number(), outcome, error);
    }
}
