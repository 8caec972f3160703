//! The names by which runs, and moments, are known.
//!
//! A run has two: `RunId` is ours, time-ordered and unique for ever; `WorkflowId` is the user's own key.
//! `Timestamp` is the instant of the journal: microseconds, by the database's clock.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The identity of one run: a UUIDv7, so that runs sort by their start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(Uuid);

impl RunId {
    /// A new id that carries `at`, an instant by the database's clock, so that it lands in the right partition.
    pub fn new(at: Timestamp) -> Self {
        let micros = at.as_micros().max(0) as u64;
        let at = uuid::Timestamp::from_unix(
            uuid::NoContext,
            micros / 1_000_000,
            ((micros % 1_000_000) * 1_000) as u32,
        );
        Self(Uuid::new_v7(at))
    }

    /// The id of a child of this run, of the step of that number, asked for at that instant. It is derived, so that it is
    /// the same in every life of the run, also before it is journaled.
    pub fn child(self, step: u32, at: Timestamp) -> Self {
        let (high, low) = self.0.as_u64_pair();
        let first = mix(low ^ mix(high ^ mix(u64::from(step))));
        let second = mix(high.wrapping_add(first));
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&first.to_be_bytes());
        bytes[8..].copy_from_slice(&second.to_be_bytes()[..2]);
        let millis = u64::try_from(at.as_micros() / 1_000).unwrap_or(0);
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid())
    }

    /// The id as a UUID.
    pub const fn as_uuid(&self) -> Uuid {
        self.0
    }
}

/// The finisher of `SplitMix64`: each bit of the result depends on each bit of the input, and no two inputs meet.
fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl From<Uuid> for RunId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl FromStr for RunId {
    type Err = uuid::Error;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Uuid::parse_str(s).map(Self)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The user's own key for a run: 1 to 512 bytes of UTF-8 without NUL, compared as bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkflowId(String);

/// Why a text cannot be a workflow id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidWorkflowId {
    /// The text is empty.
    #[error("a workflow id is empty; use 1 to {} bytes, or leave the id out", WorkflowId::MAX_BYTES)]
    Empty,
    /// The text is longer than [`WorkflowId::MAX_BYTES`].
    #[error("a workflow id has {0} bytes; at most {max} are allowed", max = WorkflowId::MAX_BYTES)]
    TooLong(usize),
    /// The text contains a NUL byte.
    #[error("a workflow id contains a NUL byte at position {0}")]
    Nul(usize),
}

impl WorkflowId {
    /// The longest id, in bytes.
    pub const MAX_BYTES: usize = 512;

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for WorkflowId {
    type Error = InvalidWorkflowId;
    fn try_from(id: String) -> Result<Self, InvalidWorkflowId> {
        if id.is_empty() {
            Err(InvalidWorkflowId::Empty)
        } else if id.len() > Self::MAX_BYTES {
            Err(InvalidWorkflowId::TooLong(id.len()))
        } else if let Some(at) = id.find('\0') {
            Err(InvalidWorkflowId::Nul(at))
        } else {
            Ok(Self(id))
        }
    }
}

impl FromStr for WorkflowId {
    type Err = InvalidWorkflowId;
    fn from_str(id: &str) -> Result<Self, InvalidWorkflowId> {
        Self::try_from(id.to_owned())
    }
}

impl From<WorkflowId> for String {
    fn from(id: WorkflowId) -> String {
        id.0
    }
}

impl From<RunId> for WorkflowId {
    /// The id of a run that was started without one.
    fn from(run: RunId) -> Self {
        Self(run.to_string())
    }
}

impl fmt::Display for WorkflowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for WorkflowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An instant by the database's clock, in whole microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The last instant a timer may be set for: the end of the year 9999.
    pub const MAX: Self = Self(253_402_300_799_999_999);

    /// From microseconds since 1970.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// This instant moved by `by`, rounded up to a microsecond; `None` beyond [`Timestamp::MAX`].
    pub fn checked_add(self, by: Duration) -> Option<Self> {
        let micros = i64::try_from(by.as_nanos().div_ceil(1_000)).ok()?;
        self.0.checked_add(micros).map(Self).filter(|at| *at <= Self::MAX)
    }

    /// This instant moved by `by`, or [`Timestamp::MAX`].
    pub fn saturating_add(self, by: Duration) -> Self {
        self.checked_add(by).unwrap_or(Self::MAX)
    }

    /// How long after `earlier` this is; zero when it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl From<Timestamp> for SystemTime {
    fn from(at: Timestamp) -> SystemTime {
        let by = Duration::from_micros(at.0.unsigned_abs());
        if at.0 < 0 { UNIX_EPOCH - by } else { UNIX_EPOCH + by }
    }
}

impl From<SystemTime> for Timestamp {
    /// Rounded up to a microsecond; instants that do not fit become the nearest that does.
    fn from(at: SystemTime) -> Self {
        match at.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(0).saturating_add(after),
            Err(before) => {
                Self(i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |micros| -micros))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_to_512_bytes_without_nul() {
        assert_eq!("".parse::<WorkflowId>(), Err(InvalidWorkflowId::Empty));
        assert_eq!("a\0".parse::<WorkflowId>(), Err(InvalidWorkflowId::Nul(1)));
        assert_eq!("x".repeat(513).parse::<WorkflowId>(), Err(InvalidWorkflowId::TooLong(513)));
        assert!("é".repeat(256).parse::<WorkflowId>().is_ok());
    }

    #[test]
    fn instants_round_up_and_never_overflow() {
        let zero = Timestamp::from_micros(0);
        assert_eq!(zero.checked_add(Duration::from_nanos(1)), Some(Timestamp::from_micros(1)));
        assert_eq!(zero.checked_add(Duration::MAX), None);
        assert_eq!(Timestamp::from(SystemTime::from(Timestamp::from_micros(-5))), Timestamp::from_micros(-5));
    }

    #[test]
    fn a_run_id_carries_its_instant() {
        let early = RunId::new(Timestamp::from_micros(1_700_000_000_000_000));
        let late = RunId::new(Timestamp::from_micros(1_700_000_000_002_000));
        assert!(early < late);
    }

    #[test]
    fn the_id_of_a_child_is_its_parents_and_its_steps() {
        let at = Timestamp::from_micros(1_700_000_000_000_000);
        let (parent, other) = (RunId::new(at), RunId::new(at));
        let mut children: Vec<RunId> =
            (1..500).flat_map(|step| [parent.child(step, at), other.child(step, at)]).collect();
        assert_eq!(children[0], parent.child(1, at));
        assert!(children.iter().all(|child| child.as_uuid().get_version_num() == 7));
        assert!(parent.child(1, at) < parent.child(1, Timestamp::from_micros(1_700_000_000_002_000)));
        children.sort_unstable();
        children.dedup();
        assert_eq!(children.len(), 998);
    }
}
