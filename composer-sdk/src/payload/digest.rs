//! What tells one argument list from another: 64 bits over its canonical form.
//!
//! The canonical form is compact JSON with the keys of every object sorted and the trailing nulls of the argument
//! list dropped, so neither the order of a `HashMap` nor a new last `Option` parameter is a difference. The encoder
//! writes compact JSON already, so a list without objects is hashed as it stands.

use serde::{Deserialize, Serialize};

use super::{
    Payload,
    scan::{text_len, value_len},
};

/// What tells one input from another: 64 bits over its canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(u64);

/// FNV-1a, 64 bits (draft-eastlake-fnv): stable for ever, and an input is no adversary here.
struct Fnv(u64);

impl Fnv {
    fn write(&mut self, bytes: &[u8]) {
        self.0 =
            bytes.iter().fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    }
}

impl Digest {
    /// The digest of an argument list.
    pub fn of(input: &Payload) -> Self {
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        let bytes = without_trailing_nulls(input.as_bytes());
        if bytes.contains(&b'{') {
            Canonical { rest: bytes, hash: &mut hash }.value();
        } else {
            hash.write(bytes);
        }
        if bytes.len() < input.as_bytes().len() {
            hash.write(b"]");
        }
        Self(hash.0)
    }
}

/// The list without its trailing nulls, and then without its closing bracket.
fn without_trailing_nulls(list: &[u8]) -> &[u8] {
    let Some(mut open) = list.strip_suffix(b"]") else { return list };
    if !open.ends_with(b"null") {
        return list;
    }
    // A text cannot end in `null` without a quote, so what stands here is the value.
    while let Some(shorter) = open.strip_suffix(b",null") {
        open = shorter;
    }
    if open == b"[null" { b"[" } else { open }
}

/// Walks JSON that we wrote and hashes it with sorted keys. Anything else is hashed in the order in which it stands.
struct Canonical<'a, 'h> {
    rest: &'a [u8],
    hash: &'h mut Fnv,
}

impl<'a> Canonical<'a, '_> {
    /// Hashes everything that is left, which is one value (or the open list of arguments).
    fn value(&mut self) {
        while let Some(byte) = self.rest.first() {
            match byte {
                b'{' => self.object(),
                b'"' => {
                    let text = self.take(text_len(self.rest));
                    self.hash.write(text);
                }
                _ => {
                    let len = self
                        .rest
                        .iter()
                        .position(|byte| matches!(byte, b'{' | b'"'))
                        .unwrap_or(self.rest.len());
                    let plain = self.take(len);
                    self.hash.write(plain);
                }
            }
        }
    }

    /// Hashes the object that starts here, its entries by key.
    fn object(&mut self) {
        let object = self.take(value_len(self.rest));
        let inside =
            object.strip_prefix(b"{").and_then(|object| object.strip_suffix(b"}")).unwrap_or_default();
        let mut entries = Vec::new();
        let mut left = inside;
        while !left.is_empty() {
            let (entry, next) = left.split_at(value_len(left));
            entries.push(entry);
            left = next.strip_prefix(b",").unwrap_or(next);
        }
        entries.sort_by_key(|entry| &entry[..text_len(entry)]);
        for (n, entry) in entries.into_iter().enumerate() {
            self.hash.write(if n == 0 { b"{" } else { b"," });
            Canonical { rest: entry, hash: self.hash }.value();
        }
        if inside.is_empty() {
            self.hash.write(b"{");
        }
        self.hash.write(b"}");
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }
}
