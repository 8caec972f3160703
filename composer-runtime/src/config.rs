//! Settings and their defaults.

use std::time::Duration;

/// What a worker allows itself. Every field has a documented default; see [`WorkerBuilder`](crate::WorkerBuilder).
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Runs held in memory at once.
    pub(crate) runs: usize,
    /// Attempts of activities under way at once.
    pub(crate) activities: usize,
    /// How long a waiting run stays in memory before it is parked.
    pub(crate) linger: Duration,
    /// How often the database is asked when no notification comes.
    pub(crate) poll: Duration,
    /// How long running activities may go on after a shutdown was asked for.
    pub(crate) grace: Duration,
    /// The session's lease.
    pub(crate) lease: Duration,
    /// How long a stuck run rests before it is offered to another build.
    pub(crate) stuck_backoff: Duration,
    /// From how many deaths over a run without progress it is set stuck.
    pub(crate) max_strikes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            runs: 1_000,
            activities: 500,
            linger: Duration::from_secs(5),
            poll: Duration::from_secs(1),
            grace: Duration::from_secs(20),
            lease: Duration::from_secs(10),
            stuck_backoff: Duration::from_secs(30),
            max_strikes: 5,
        }
    }
}
