//! Time: the only place that asks a system clock.
//!
//! The database's clock decides. A process keeps a *lower bound* of it: the last answer plus what has passed by its
//! own monotonic clock since that answer arrived. The database's clock can only be ahead of this bound, so a timer
//! that is due by the bound is due by the database, however slow the network (no timer ever fires early).

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, Instant, SystemTime},
};

use composer_sdk::id::Timestamp;

/// A lower bound of the database's clock.
#[derive(Debug)]
pub(crate) struct Clock {
    /// Where its steady clock begins.
    origin: Instant,
    /// The bound at the origin, in microseconds.
    offset: AtomicI64,
}

impl Clock {
    /// From an answer that has just arrived.
    pub(crate) fn new(answer: Timestamp) -> Self {
        Self { origin: Instant::now(), offset: AtomicI64::new(answer.as_micros()) }
    }

    /// The database's clock is at least here.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.offset.load(Ordering::Relaxed)).saturating_add(self.origin.elapsed())
    }

    /// Takes a newer answer. The better bound wins, unless the database's clock was set back.
    pub(crate) fn learn(&self, answer: Timestamp) {
        const SET_BACK: Duration = Duration::from_secs(1);
        // Rounded up: the bound must stay one.
        let passed = self.origin.elapsed().as_micros() as i64 + 1;
        let offset = answer.as_micros().saturating_sub(passed);
        let bound = self.offset.fetch_max(offset, Ordering::Relaxed);
        if bound.saturating_sub(offset) > SET_BACK.as_micros() as i64 {
            self.offset.store(offset, Ordering::Relaxed);
        }
    }
}

/// This process's two clocks: one that never steps but may stand still in a suspended machine, and one that does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalTime {
    pub(crate) steady: Instant,
    pub(crate) wall: SystemTime,
}

impl LocalTime {
    pub(crate) fn now() -> Self {
        Self { steady: Instant::now(), wall: SystemTime::now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn a_late_answer_does_not_move_the_bound_back() {
        let clock = Clock::new(at(100));
        clock.learn(Timestamp::from_micros(99_999_000));
        assert!(clock.now() >= at(100));
    }

    #[test]
    fn a_clock_that_was_set_back_is_followed() {
        let clock = Clock::new(at(100));
        clock.learn(at(40));
        assert!(clock.now() < at(41));
    }
}
