//! The run's own randomness: the same numbers in every life of a run.
//!
//! Each named stream is `SplitMix64` from a seed over a run's id (its own, or that of a fork's original), its generation and
//! the stream's name, so drawing from one never shifts another. The numbers are a promise of the journal: they never change
//! between versions. They are not secret.

use std::collections::HashMap;

use crate::id::RunId;

/// The streams of one run.
pub(super) struct Streams {
    run: RunId,
    generation: u32,
    by_name: HashMap<String, u64>,
}

impl Streams {
    pub(super) fn new(run: RunId, generation: u32) -> Self {
        Self { run, generation, by_name: HashMap::new() }
    }

    /// The next number of a stream.
    pub(super) fn next(&mut self, name: &str) -> u64 {
        if !self.by_name.contains_key(name) {
            self.by_name.insert(name.to_owned(), seed(self.run, self.generation, name));
        }
        let state = self.by_name.get_mut(name).expect("invariant: it was just put there");
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(*state)
    }
}

/// FNV-1a over the run's id, the generation unless it is the first, and the name; mixed, since similar ids make similar
/// sums.
fn seed(run: RunId, generation: u32, name: &str) -> u64 {
    let (run, generation_bytes) = (run.as_uuid().into_bytes(), generation.to_le_bytes());
    let generation_bytes = if generation == 0 { [].as_slice() } else { &generation_bytes };
    let sum = run
        .iter()
        .chain(generation_bytes)
        .chain(name.as_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
    mix(sum)
}

/// The output function of `SplitMix64`.
fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Timestamp;

    #[test]
    fn every_generation_draws_other_numbers() {
        let run: RunId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        let drawn: Vec<u64> = (0..3).map(|generation| Streams::new(run, generation).next("a")).collect();
        assert!(drawn[0] != drawn[1] && drawn[1] != drawn[2] && drawn[0] != drawn[2], "{drawn:?}");
    }

    #[test]
    fn streams_depend_on_run_and_name_alone() {
        let run: RunId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        let other = RunId::new(Timestamp::from_micros(1));
        let draw = |run, name| (0..3).map(|_| Streams::new(run, 0).next(name)).collect::<Vec<_>>();
        assert_eq!(draw(run, "a"), draw(run, "a"));
        assert_ne!(draw(run, "a"), draw(run, "b"));
        assert_ne!(draw(run, "a"), draw(other, "a"));
    }

    #[test]
    fn the_numbers_never_change_between_versions() {
        let mut streams = Streams::new("01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(), 0);
        let drawn = [streams.next("uuid"), streams.next("uuid"), streams.next("random")];
        assert_eq!(drawn, [8_745_404_733_115_073_695, 4_524_969_000_330_884_620, 8_018_071_675_219_234_786]);
    }
}
