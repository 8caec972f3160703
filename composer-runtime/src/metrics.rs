//! Counters of what a process did, from the start: plain numbers that any exporter can read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The live counters of a process.
        #[derive(Debug, Default)]
        pub(crate) struct Metrics { $(pub(crate) $name: Counter,)* }

        /// What the counters of a process say at one moment. They only grow.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        impl Metrics {
            /// All of them at once (each by itself exact).
            pub(crate) fn counts(&self) -> Counts {
                Counts { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Steps whose outcome became durable.
    steps,
    /// Statements of the journal writer that were accepted.
    batches,
    /// Runs taken from the database.
    claims,
    /// Of these, taken over from a session that died.
    take_overs,
    /// Runs started and hosted without a claim.
    eager_starts,
    /// Runs that ended here, in whatever way.
    ended,
    /// Runs set stuck here.
    stuck,
    /// Runs parked here.
    parked,
    /// Attempts of activities that began here.
    attempts,
    /// Attempts that failed and were retried.
    retries,
    /// Writes refused because the run belonged to somebody else by then.
    fenced,
    /// Writes sent again because somebody locked the run's row.
    busy,
    /// Batches whose outcome was unknown and had to be settled.
    settled,
    /// Sessions lost by this process.
    sessions_lost,
}

/// One counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
