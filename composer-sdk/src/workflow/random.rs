//! Random numbers that a replay draws again.

use std::{ops::Range, sync::Arc};

use crate::replay::Run;

/// A named stream of random numbers; see [`random`](crate::workflow::random).
///
/// Two handles of one name draw from the same stream.
pub struct Random {
    run: Arc<Run>,
    stream: String,
}

impl Random {
    pub(super) fn new(run: Arc<Run>, stream: &str) -> Self {
        Self { run, stream: stream.to_owned() }
    }

    /// Any number.
    pub fn next_u64(&mut self) -> u64 {
        self.run.random(&self.stream)
    }

    /// A number from 0.0 to 1.0, without 1.0 itself.
    pub fn next_f64(&mut self) -> f64 {
        // The 53 bits that a float holds exactly.
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with that probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.next_f64() < probability
    }

    /// A number of the range, each as likely as the other.
    ///
    /// # Panics
    /// When the range is empty.
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        assert!(range.start < range.end, "`random(..).range({range:?})`: the range is empty");
        let width = u128::from(range.end - range.start);
        // The high half of the product: no division, and a bias below 2^-64 of the width.
        range.start + ((u128::from(self.next_u64()) * width) >> 64) as u64
    }

    /// Brings the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for n in (1..items.len()).rev() {
            let other = self.range(0..n as u64 + 1) as usize;
            items.swap(n, other);
        }
    }
}
