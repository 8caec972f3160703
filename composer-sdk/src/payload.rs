//! Values into and out of the journal: JSON, strictly.
//!
//! What is written can be read back as it was, or it is refused at the call with the place of the fault: numbers that
//! JSON cannot hold, options that would change their meaning, nesting that no reader follows, values beyond a limit
//! (see [`Payload::encode`]). [`Digest`] tells one argument list from another.

mod args;
mod digest;
mod encode;
mod key;
mod scan;

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};

use crate::error::{Failure, FailureKind};

#[doc(hidden)]
pub use args::{Arg, Args, Given, arg, arg_ref};
pub use digest::Digest;

/// The bytes of one value: JSON.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload(Arc<[u8]>);

impl Payload {
    /// The longest value, in bytes. Longer ones belong into a store of their own, with their key in the journal.
    pub const MAX_BYTES: usize = 16 * 1024 * 1024;

    /// The deepest nesting of arrays and objects.
    pub const MAX_DEPTH: usize = 127;

    /// The bytes of a value.
    ///
    /// # Errors
    /// When the value could not be read back as it is, or is too large; with the place of the fault.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, Failure> {
        encode::encode(value).map_err(|fault| fault.into_failure("the value"))
    }

    /// The value of the bytes.
    ///
    /// # Errors
    /// When they are not a `T`, with the place of the fault.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.0).map_err(|why| {
            let name = std::any::type_name::<T>();
            Failure::new(
                FailureKind::Decode,
                format_args!("a journaled value cannot be read as `{name}`: {why}"),
            )
        })
    }

    /// The value for whoever has no type for it.
    ///
    /// # Errors
    /// When the bytes are no JSON, or hold an integer of more than 64 bits, which would be rounded.
    pub fn decode_json(&self) -> Result<serde_json::Value, Failure> {
        match scan::large_integer(&self.0) {
            Some(number) => Err(Failure::new(
                FailureKind::Decode,
                format_args!(
                    "the number {number} has more than 64 bits and would be rounded: read it as the type that wrote it"
                ),
            )),
            None => self.decode(),
        }
    }

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

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.0))
    }
}
