//! The strict encoder: one pass, straight into the buffer.
//!
//! It writes the same compact JSON as `serde_json`, and refuses what JSON would change without a word:
//!
//! * NaN and the infinities, which `serde_json` writes as `null`;
//! * `Some(x)` where `x` itself is written as `null` (`Some(None)`, `Some(())`), which would come back as `None`;
//! * nesting over [`Payload::MAX_DEPTH`], which could not be read back;
//! * more than [`Payload::MAX_BYTES`].
//!
//! Integers are exact in all widths. Map keys may be texts, numbers, characters, booleans and unit variants.
//! The path to a fault is put together on the way out, so that good values pay nothing for it.

use std::fmt;

use serde::{Serialize, ser};

use super::{Payload, key::Key};
use crate::error::{Failure, FailureKind};

/// The bytes of a value.
pub(super) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Payload, Fault> {
    let mut encoder = Encoder::new();
    value.serialize(&mut encoder)?;
    encoder.finish()
}

/// Why a value cannot be written, and where in it.
#[derive(Debug)]
pub(super) struct Fault(Box<Detail>);

#[derive(Debug)]
struct Detail {
    why: String,
    /// Innermost first.
    path: Vec<Place>,
}

/// One step of a path.
#[derive(Debug, Clone)]
pub(super) enum Place {
    Index(usize),
    Field(String),
}

impl Fault {
    pub(super) fn new(why: impl fmt::Display) -> Self {
        Self(Box::new(Detail { why: why.to_string(), path: Vec::new() }))
    }

    pub(super) fn within(mut self, place: Place) -> Self {
        self.0.path.push(place);
        self
    }

    /// The fault in words; `subject` is what the path starts from.
    pub(super) fn into_failure(self, subject: impl fmt::Display) -> Failure {
        let Detail { why, path } = *self.0;
        if path.is_empty() {
            return Failure::new(FailureKind::Encode, format_args!("{subject} cannot be journaled: {why}"));
        }
        let path = path.iter().rev().fold(String::new(), |path, place| match place {
            Place::Index(n) => format!("{path}[{n}]"),
            Place::Field(name) => format!("{path}.{name}"),
        });
        let path = path.trim_start_matches('.');
        Failure::new(FailureKind::Encode, format_args!("{subject} cannot be journaled: at `{path}`: {why}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.why)
    }
}

impl std::error::Error for Fault {}

impl ser::Error for Fault {
    fn custom<T: fmt::Display>(why: T) -> Self {
        Self::new(why)
    }
}

pub(super) type Encoded = Result<(), Fault>;

/// Writes compact JSON.
pub(super) struct Encoder {
    out: Vec<u8>,
    depth: usize,
    /// Whether the value that comes next stands directly in a `Some`.
    in_some: bool,
}

impl Encoder {
    pub(super) fn new() -> Self {
        Self { out: Vec::with_capacity(64), depth: 0, in_some: false }
    }

    pub(super) fn finish(self) -> Result<Payload, Fault> {
        self.check_size()?;
        Ok(Payload::from(self.out))
    }

    fn check_size(&self) -> Encoded {
        if self.out.len() <= Payload::MAX_BYTES {
            return Ok(());
        }
        Err(Fault::new(format_args!(
            "it has more than {} bytes; keep large values in a store of their own and pass their key",
            Payload::MAX_BYTES
        )))
    }

    /// A number, text, … by the well-trodden way; also the size check, so that an endless value ends.
    pub(super) fn scalar<T: Serialize + ?Sized>(&mut self, value: &T) -> Encoded {
        self.in_some = false;
        serde_json::to_writer(&mut self.out, value).map_err(Fault::new)?;
        self.check_size()
    }

    fn null(&mut self) -> Encoded {
        if std::mem::take(&mut self.in_some) {
            return Err(Fault::new(
                "`Some` of an empty value (`Some(None)`, `Some(())`) would be read back as `None`; use an enum of \
                 your own",
            ));
        }
        self.out.extend_from_slice(b"null");
        Ok(())
    }

    pub(super) fn open(&mut self, bracket: u8) -> Encoded {
        self.in_some = false;
        self.depth += 1;
        if self.depth > Payload::MAX_DEPTH {
            return Err(Fault::new(format_args!("it is nested deeper than {} levels", Payload::MAX_DEPTH)));
        }
        self.out.push(bracket);
        Ok(())
    }

    pub(super) fn close(&mut self, bracket: u8) -> Encoded {
        self.depth -= 1;
        self.out.push(bracket);
        self.check_size()
    }

    pub(super) fn push(&mut self, byte: u8) {
        self.out.push(byte);
    }

    fn compound(&mut self, close: &'static [u8]) -> Compound<'_> {
        Compound { encoder: self, index: 0, close, raw: false, key: None }
    }

    /// `{"variant":`, to be closed by one more `}`.
    fn open_variant(&mut self, variant: &'static str) -> Encoded {
        self.open(b'{')?;
        self.scalar(variant)?;
        self.out.push(b':');
        Ok(())
    }
}

/// The names under which `serde_json` passes text that is JSON already.
fn is_raw(name: &str) -> bool {
    name == "$serde_json::private::RawValue" || name == "$serde_json::private::Number"
}

macro_rules! scalars {
    ($($method:ident: $ty:ty),*) => { $(
        fn $method(self, value: $ty) -> Encoded {
            self.scalar(&value)
        }
    )* };
}

impl<'a> ser::Serializer for &'a mut Encoder {
    type Ok = ();
    type Error = Fault;
    type SerializeSeq = Compound<'a>;
    type SerializeTuple = Compound<'a>;
    type SerializeTupleStruct = Compound<'a>;
    type SerializeTupleVariant = Compound<'a>;
    type SerializeMap = Compound<'a>;
    type SerializeStruct = Compound<'a>;
    type SerializeStructVariant = Compound<'a>;

    scalars!(
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_i128: i128, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_u128: u128, serialize_char: char, serialize_str: &str
    );

    fn serialize_f32(self, value: f32) -> Encoded {
        finite(value.is_finite(), value)?;
        self.scalar(&value)
    }

    fn serialize_f64(self, value: f64) -> Encoded {
        finite(value.is_finite(), value)?;
        self.scalar(&value)
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Encoded {
        let mut seq = self.serialize_seq(Some(bytes.len()))?;
        bytes.iter().try_for_each(|byte| ser::SerializeSeq::serialize_element(&mut seq, byte))?;
        ser::SerializeSeq::end(seq)
    }

    fn serialize_none(self) -> Encoded {
        self.null()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Encoded {
        self.in_some = true;
        value.serialize(&mut *self)?;
        self.in_some = false;
        Ok(())
    }

    fn serialize_unit(self) -> Encoded {
        self.null()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Encoded {
        self.null()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Encoded {
        self.scalar(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Encoded {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Encoded {
        self.open_variant(variant)?;
        value.serialize(&mut *self).map_err(|fault| fault.within(Place::Field(variant.to_owned())))?;
        self.close(b'}')
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Compound<'a>, Fault> {
        self.open(b'[')?;
        Ok(self.compound(b"]"))
    }

    fn serialize_tuple(self, len: usize) -> Result<Compound<'a>, Fault> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<Compound<'a>, Fault> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Compound<'a>, Fault> {
        self.open_variant(variant)?;
        self.open(b'[')?;
        Ok(self.compound(b"]}"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Compound<'a>, Fault> {
        self.open(b'{')?;
        Ok(self.compound(b"}"))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Compound<'a>, Fault> {
        if is_raw(name) {
            return Ok(Compound { raw: true, ..self.compound(b"") });
        }
        self.open(b'{')?;
        Ok(self.compound(b"}"))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Compound<'a>, Fault> {
        self.open_variant(variant)?;
        self.open(b'{')?;
        Ok(self.compound(b"}}"))
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Encoded {
        self.scalar(&format_args!("{value}"))
    }
}

pub(super) fn finite(finite: bool, value: impl fmt::Display) -> Encoded {
    if finite { Ok(()) } else { Err(Fault::new(format_args!("{value} is no number that JSON can hold"))) }
}

/// An array or an object that is being written.
pub(super) struct Compound<'a> {
    encoder: &'a mut Encoder,
    index: usize,
    close: &'static [u8],
    /// Whether the only field is text that is JSON already.
    raw: bool,
    /// The key of the map's entry that comes next, where it is in the buffer.
    key: Option<usize>,
}

impl Compound<'_> {
    fn comma(&mut self) {
        if self.index > 0 {
            self.encoder.out.push(b',');
        }
        self.index += 1;
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Encoded {
        let index = self.index;
        self.comma();
        value.serialize(&mut *self.encoder).map_err(|fault| fault.within(Place::Index(index)))
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Encoded {
        if self.raw {
            let json: String =
                serde_json::to_value(value).and_then(serde_json::from_value).map_err(Fault::new)?;
            self.encoder.out.extend_from_slice(json.as_bytes());
            return self.encoder.check_size();
        }
        self.comma();
        self.encoder.scalar(name)?;
        self.encoder.out.push(b':');
        value.serialize(&mut *self.encoder).map_err(|fault| fault.within(Place::Field(name.to_owned())))
    }

    fn finish(self) -> Encoded {
        self.close.iter().try_for_each(|bracket| self.encoder.close(*bracket))
    }
}

macro_rules! elements {
    ($($trait:ident :: $method:ident),*) => { $(
        impl ser::$trait for Compound<'_> {
            type Ok = ();
            type Error = Fault;
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Encoded {
                self.element(value)
            }
            fn end(self) -> Encoded {
                self.finish()
            }
        }
    )* };
}

elements!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);

macro_rules! fields {
    ($($trait:ident),*) => { $(
        impl ser::$trait for Compound<'_> {
            type Ok = ();
            type Error = Fault;
            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Encoded {
                self.field(name, value)
            }
            fn end(self) -> Encoded {
                self.finish()
            }
        }
    )* };
}

fields!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Compound<'_> {
    type Ok = ();
    type Error = Fault;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Encoded {
        self.comma();
        self.key = Some(self.encoder.out.len());
        key.serialize(Key(self.encoder))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Encoded {
        let key = self.key.take().map(|from| from..self.encoder.out.len());
        self.encoder.out.push(b':');
        value.serialize(&mut *self.encoder).map_err(|fault| {
            let name = key.map(|key| String::from_utf8_lossy(&self.encoder.out[key]).into_owned());
            fault.within(Place::Field(name.unwrap_or_default().trim_matches('"').to_owned()))
        })
    }

    fn end(self) -> Encoded {
        self.finish()
    }
}
