//! A run in the memory of a process: the engine's own driver, and all that the kit asks of it.
//!
//! What the run is replayed from is lent by [`memory`](super::memory); what it wants done is handed back.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use composer_sdk::{id::Timestamp, replay::Start};
use futures::task::AtomicWaker;

use super::memory::Stored;
use crate::task::{
    activity::AttemptEnd,
    driver::{Driver, Todo},
};

/// Rings when something outside the journals wakes a workflow, from whatever thread, and when a message comes.
#[derive(Default)]
pub(super) struct Alarm {
    rang: AtomicBool,
    pub(super) waker: AtomicWaker,
}

impl Alarm {
    /// Wakes whoever waits for an activity.
    pub(super) fn ring(&self) {
        self.rang.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Whether it has rung since the last look.
    pub(super) fn rang(&self) -> bool {
        self.rang.swap(false, Ordering::SeqCst)
    }
}

/// A run in memory.
pub(super) struct Hosted {
    driver: Driver,
    woken: Arc<AtomicBool>,
}

impl Hosted {
    /// Replays what is stored.
    pub(super) fn replay(stored: &Stored, now: Timestamp, alarm: &Arc<Alarm>) -> Self {
        let woken = Arc::new(AtomicBool::new(false));
        let (ring, rang) = (alarm.clone(), woken.clone());
        let start = Start {
            run_id: stored.run_id,
            seed: stored.run_id,
            workflow_id: stored.workflow_id.clone(),
            workflow: stored.workflow,
            input: stored.input.clone(),
            started_at: stored.started_at.unwrap_or(now),
            alarm: Arc::new(move || {
                rang.store(true, Ordering::SeqCst);
                ring.ring();
            }),
        };
        let driver = Driver::new(start, stored.generation(), 0, now, stored.deadline, "this test".into());
        Self { driver, woken }
    }

    /// Takes in what has happened, and says what is to be done.
    pub(super) fn turn(&mut self, stored: &Stored, now: Timestamp) -> Todo {
        if self.woken.swap(false, Ordering::SeqCst) {
            self.driver.alarm();
        }
        self.driver.tick(now);
        self.driver.mail(stored.inbox.clone(), now);
        self.driver.take(now)
    }

    /// Everything up to this entry is durable, and the write of that mark.
    pub(super) fn written(&mut self, upto: u32, mark: u64, now: Timestamp) {
        self.driver.written(upto, mark, now);
    }

    /// An attempt is over. `random` is in `0..1`.
    pub(super) fn attempt_ended(
        &mut self,
        step: u32,
        attempt: u32,
        end: AttemptEnd,
        now: Timestamp,
        random: f64,
    ) {
        self.driver.attempt_ended(step, attempt, end, now, random);
    }

    /// Nobody plays the activity of that attempt: reported as one that never began, and the run cannot go on.
    pub(super) fn give_up(&mut self, step: u32, attempt: u32, reason: String, now: Timestamp) {
        self.driver.give_up(reason);
        self.driver.attempt_ended(step, attempt, AttemptEnd::Interrupted, now, 0.0);
    }

    /// What became of a child's start: refused, in words, when it cannot be.
    pub(super) fn child_started(&mut self, step: u32, refused: Option<String>, now: Timestamp) {
        self.driver.child_started(step, refused, now);
    }

    /// A child that was to be cancelled is not there.
    pub(super) fn child_gone(&mut self, step: u32) {
        self.driver.child_ended(step);
    }

    /// The workflow of a child is not part of the test: the run cannot go on.
    pub(super) fn child_unknown(&mut self, step: u32, reason: String, now: Timestamp) {
        self.driver.give_up(reason.clone());
        self.driver.child_started(step, Some(reason), now);
    }

    /// When time alone changes something.
    pub(super) fn next_instant(&self) -> Option<Timestamp> {
        self.driver.next_instant()
    }

    /// Whether nothing is under way, so that a worker could forget it.
    pub(super) fn is_idle(&self) -> bool {
        self.driver.is_idle()
    }

    /// The signals that its workflow waits for.
    pub(super) fn awaited_signals(&self) -> Vec<String> {
        self.driver.awaited_signals()
    }
}
