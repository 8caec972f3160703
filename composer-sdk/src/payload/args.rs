//! Argument lists: a JSON array with one element an argument, written and read one by one.
//!
//! Elements that are missing at the end read as `null`, so a last `Option` parameter may be added while runs are
//! open. Faults name the argument. What needs a type's traits is in its [`Arg`], and the expansion gets those from
//! [`arg`] and [`arg_ref`] with the user's own tokens: so a type that cannot cross the journal is reported once.

use std::{any::type_name, fmt};

use super::{
    Payload,
    encode::{Encoder, Fault},
    scan,
};
use crate::{
    definition::{Journaled, JournaledRef},
    error::{Failure, FailureKind},
};

/// What takes one argument across the journal. Parameters that are references read back as boxes.
pub struct Arg<T: ?Sized, Owned> {
    write: fn(&T, &mut Encoder) -> Result<(), Fault>,
    read: fn(&[u8]) -> serde_json::Result<Owned>,
}

/// Of a parameter by value.
pub fn arg<T: Journaled>() -> Arg<T, T> {
    Arg { write: |value, encoder| value.serialize(encoder), read: |json| serde_json::from_slice(json) }
}

/// Of a parameter by reference.
pub fn arg_ref<T: JournaledRef + ?Sized>() -> Arg<T, Box<T>> {
    Arg { write: |value, encoder| value.serialize(encoder), read: T::read }
}

/// An argument list that is being written.
pub struct Args {
    encoder: Encoder,
    count: usize,
    failure: Option<Failure>,
}

impl Args {
    /// Before the first argument.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let mut encoder = Encoder::new();
        let opened = encoder.open(b'[');
        Self {
            encoder,
            count: 0,
            failure: opened.map_err(|fault| fault.into_failure("the argument list")).err(),
        }
    }

    /// Writes the next argument. The first fault is kept for [`Args::finish`].
    pub fn push<T: ?Sized, Owned>(&mut self, name: &'static str, arg: Arg<T, Owned>, value: &T) {
        if self.failure.is_some() {
            return;
        }
        if self.count > 0 {
            self.encoder.push(b',');
        }
        self.count += 1;
        let written = (arg.write)(value, &mut self.encoder);
        self.failure =
            written.map_err(|fault| fault.into_failure(format_args!("the argument `{name}`"))).err();
    }

    /// The list.
    ///
    /// # Errors
    /// When an argument cannot be journaled; names it.
    pub fn finish(mut self) -> Result<Payload, Failure> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let closed = self.encoder.close(b']').and_then(|()| self.encoder.finish());
        closed.map_err(|fault: Fault| fault.into_failure("the argument list"))
    }
}

/// An argument list that is being read.
pub struct Given<'a> {
    /// Without the brackets.
    rest: &'a [u8],
    count: usize,
}

impl<'a> Given<'a> {
    /// Before the first argument.
    ///
    /// # Errors
    /// When the bytes are no list.
    pub fn new(input: &'a Payload) -> Result<Self, Failure> {
        let list = input.as_bytes().trim_ascii();
        let rest = list.strip_prefix(b"[").and_then(|list| list.strip_suffix(b"]"));
        let rest = rest.ok_or_else(|| unreadable("the arguments are no JSON array"))?;
        Ok(Self { rest: rest.trim_ascii_start(), count: 0 })
    }

    /// Reads the next argument.
    ///
    /// # Errors
    /// When it is no `Owned`; names it and its type.
    pub fn next<T: ?Sized, Owned>(
        &mut self,
        name: &'static str,
        arg: Arg<T, Owned>,
    ) -> Result<Owned, Failure> {
        let element = self.element();
        (arg.read)(element.unwrap_or(b"null")).map_err(|why| {
            let ty = type_name::<Owned>();
            match element {
                Some(_) => unreadable(format_args!("the argument `{name}` cannot be read as `{ty}`: {why}")),
                None => unreadable(format_args!(
                    "the argument `{name}` is missing: the journal holds {} arguments. A parameter that is added at \
                     the end while runs are open must be an `Option`; this one is a `{ty}`",
                    self.count
                )),
            }
        })
    }

    /// After the last argument.
    ///
    /// # Errors
    /// When there are more.
    pub fn end(mut self) -> Result<(), Failure> {
        let known = self.count;
        while let Some(element) = self.element() {
            if element != b"null" {
                return Err(unreadable(format_args!(
                    "the journal holds more arguments than the {known} that the function takes"
                )));
            }
        }
        Ok(())
    }

    fn element(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let (element, rest) = self.rest.split_at(scan::value_len(self.rest));
        self.rest = rest.strip_prefix(b",").unwrap_or(rest).trim_ascii_start();
        self.count += 1;
        Some(element.trim_ascii_end())
    }
}

fn unreadable(words: impl fmt::Display) -> Failure {
    Failure::new(FailureKind::Decode, words)
}
