//! Values into and out of the journal.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// The bytes of one value: JSON.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload(Arc<[u8]>);

impl Payload {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.0))
    }
}

/// What tells one input from another: 64 bits over its canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(u64);

impl Digest {
    /// The digest of an argument list.
    pub fn of(input: &Payload) -> Self {
        // FNV-1a, 64 bits (draft-eastlake-fnv): stable for ever, and an input is no adversary here.
        let hash = input.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        Self(hash)
    }
}
