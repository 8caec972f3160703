//! The lease of a session, as a value: until when this process may trust that its runs are its own.
//!
//! Trust counts from *before* the renewal was sent and ends a margin before the database's expiry, so that whoever
//! is about to start an effect and looks here first is never later than the database. Two clocks are asked: the
//! steady one, and the wall clock, because the steady one stands still while a machine sleeps (PROTOCOL 29). The
//! epoch makes a wrong answer harmless for the journal; the lease keeps effects from being repeated for nothing.

use std::time::Duration;

use crate::clock::LocalTime;

/// Until when the session may be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    asked: LocalTime,
    trust: Duration,
}

impl Lease {
    /// How often a lease is renewed within its length.
    const RENEWALS: u32 = 3;
    /// The part of the length that is given away: for slow threads and clocks that do not run alike.
    const MARGIN: u32 = 10;

    /// The lease of `length` that a renewal sent at `asked` has brought.
    pub(crate) fn renewed(asked: LocalTime, length: Duration) -> Self {
        Self { asked, trust: length - length / Self::MARGIN }
    }

    /// How long to wait between renewals.
    pub(crate) fn interval(length: Duration) -> Duration {
        length / Self::RENEWALS
    }

    /// Whether it is certain that nobody has taken over.
    pub(crate) fn holds(&self, now: LocalTime) -> bool {
        let steady = now.steady.saturating_duration_since(self.asked.steady);
        // A wall clock that was set back says nothing; one that jumped ahead means sleep, or somebody set it: both
        // are reason enough to ask again.
        let wall = now.wall.duration_since(self.asked.wall).unwrap_or(Duration::ZERO);
        steady.max(wall) < self.trust
    }

    /// What is left of it.
    pub(crate) fn left(&self, now: LocalTime) -> Duration {
        self.trust.saturating_sub(now.steady.saturating_duration_since(self.asked.steady))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(10);

    fn later(from: LocalTime, steady: u64, wall: u64) -> LocalTime {
        LocalTime {
            steady: from.steady + Duration::from_millis(steady),
            wall: from.wall + Duration::from_millis(wall),
        }
    }

    #[test]
    fn trust_ends_a_margin_before_the_lease() {
        let asked = LocalTime::now();
        let lease = Lease::renewed(asked, LENGTH);
        assert!(lease.holds(later(asked, 8_999, 8_999)));
        assert!(!lease.holds(later(asked, 9_000, 9_000)));
    }

    #[test]
    fn a_machine_that_slept_does_not_trust_its_lease() {
        let asked = LocalTime::now();
        let lease = Lease::renewed(asked, LENGTH);
        assert!(!lease.holds(later(asked, 10, 3_600_000)));
    }

    #[test]
    fn a_wall_clock_that_was_set_back_changes_nothing() {
        let asked = LocalTime::now();
        let lease = Lease::renewed(asked, LENGTH);
        let now = LocalTime { wall: asked.wall - Duration::from_secs(600), ..later(asked, 100, 0) };
        assert!(lease.holds(now));
    }
}
