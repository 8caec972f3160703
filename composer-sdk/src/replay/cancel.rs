//! That a run is to end early, and what holds that up: shields.

use std::{collections::BTreeMap, sync::Arc, task::Waker};

use super::run::Run;

/// What a run's futures know of its cancellation.
#[derive(Default)]
pub(super) struct Cancels {
    /// A cancellation or the run's timeout was delivered.
    requested: bool,
    /// Shields that were polled and are neither done nor dropped: while there are any, the body lives on.
    shields: usize,
    /// Shields around the code that is being polled.
    depth: usize,
    waiting: BTreeMap<u64, Option<Waker>>,
    next: u64,
}

impl Cancels {
    pub(super) fn has_waiters(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn is_shielded(&self) -> bool {
        self.shields > 0
    }

    /// The run is to end; returns whom to wake.
    pub(super) fn request(&mut self) -> Vec<Waker> {
        self.requested = true;
        std::mem::take(&mut self.waiting).into_values().flatten().collect()
    }

    /// A poll of a wait for the cancellation: true when it is there. Gives the waker that was there before back.
    pub(super) fn wait(&mut self, ticket: &mut Option<u64>, waker: &mut Option<Waker>) -> bool {
        if self.requested {
            *ticket = None;
            return true;
        }
        let ticket = *ticket.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        *waker = self.waiting.insert(ticket, waker.take()).flatten();
        false
    }

    /// A wait was dropped; returns its waker, to be dropped outside the lock.
    pub(super) fn leave(&mut self, ticket: u64) -> Option<Waker> {
        self.waiting.remove(&ticket).flatten()
    }

    /// The wakers of all waits.
    pub(super) fn take_wakers(&mut self) -> impl Iterator<Item = Waker> {
        self.waiting.values_mut().filter_map(Option::take)
    }

    pub(super) fn raise_shield(&mut self) {
        self.shields += 1;
    }

    pub(super) fn lower_shield(&mut self) {
        self.shields -= 1;
    }

    /// Around each poll of what a shield holds.
    pub(super) fn enter_shield(&mut self) {
        self.depth += 1;
    }

    pub(super) fn exit_shield(&mut self) {
        self.depth -= 1;
    }

    /// Whether what comes after the shield that is being polled runs at all: not in a run that is to end, unless
    /// another shield holds that, too.
    pub(super) fn goes_on(&self) -> bool {
        !self.requested || self.depth > 0
    }
}

impl Run {
    /// A shield was polled for the first time.
    pub(crate) fn raise_shield(&self) {
        self.lock().cancels.raise_shield();
    }

    /// A shield is done, or dropped. Whether what comes after the shield that is being polled runs at all.
    pub(crate) fn lower_shield(&self) -> bool {
        let mut state = self.lock();
        state.cancels.lower_shield();
        state.cancels.goes_on()
    }

    /// Around a poll of what a shield holds.
    pub(crate) fn inside_shield(self: &Arc<Self>) -> InsideShield {
        self.lock().cancels.enter_shield();
        InsideShield(self.clone())
    }

    /// A poll of a wait for the cancellation: true when it is there.
    pub(crate) fn wait_for_cancel(&self, ticket: &mut Option<u64>, waker: Waker) -> bool {
        let mut waker = Some(waker);
        // The replaced waker is dropped outside the lock: it is somebody else's code.
        self.lock().cancels.wait(ticket, &mut waker)
    }

    /// A wait for the cancellation was dropped.
    pub(crate) fn leave_cancel(&self, ticket: u64) {
        let waker = self.lock().cancels.leave(ticket);
        drop(waker);
    }
}

/// What is polled while this lives is inside a shield.
pub(crate) struct InsideShield(Arc<Run>);

impl Drop for InsideShield {
    fn drop(&mut self) {
        self.0.lock().cancels.exit_shield();
    }
}
