//! The keys of maps, as `serde_json` reads them back: always a quoted text.

use serde::{
    Serialize,
    ser::{Impossible, Serializer},
};

use super::encode::{Encoded, Encoder, Fault, finite};

/// Writes a map's key.
pub(super) struct Key<'a>(pub(super) &'a mut Encoder);

fn refused<T>() -> Result<T, Fault> {
    Err(Fault::new("a map's key must be a text, a number, a character, a `bool` or a unit variant"))
}

macro_rules! quoted {
    ($($method:ident: $ty:ty),*) => { $(
        fn $method(self, value: $ty) -> Encoded {
            self.0.push(b'"');
            self.0.scalar(&value)?;
            self.0.push(b'"');
            Ok(())
        }
    )* };
}

impl Serializer for Key<'_> {
    type Ok = ();
    type Error = Fault;
    type SerializeSeq = Impossible<(), Fault>;
    type SerializeTuple = Impossible<(), Fault>;
    type SerializeTupleStruct = Impossible<(), Fault>;
    type SerializeTupleVariant = Impossible<(), Fault>;
    type SerializeMap = Impossible<(), Fault>;
    type SerializeStruct = Impossible<(), Fault>;
    type SerializeStructVariant = Impossible<(), Fault>;

    quoted!(
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_i128: i128, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_u128: u128
    );

    fn serialize_f32(self, value: f32) -> Encoded {
        finite(value.is_finite(), value)?;
        self.quote(&value)
    }

    fn serialize_f64(self, value: f64) -> Encoded {
        finite(value.is_finite(), value)?;
        self.quote(&value)
    }

    fn serialize_char(self, value: char) -> Encoded {
        self.0.scalar(&value)
    }

    fn serialize_str(self, value: &str) -> Encoded {
        self.0.scalar(value)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Encoded {
        self.0.scalar(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Encoded {
        value.serialize(self)
    }

    fn serialize_bytes(self, _: &[u8]) -> Encoded {
        refused()
    }

    fn serialize_none(self) -> Encoded {
        refused()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Encoded {
        refused()
    }

    fn serialize_unit(self) -> Encoded {
        refused()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Encoded {
        refused()
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Encoded {
        refused()
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, Fault> {
        refused()
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Fault> {
        refused()
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, Fault> {
        refused()
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Fault> {
        refused()
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Fault> {
        refused()
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeStruct, Fault> {
        refused()
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Fault> {
        refused()
    }
}

impl Key<'_> {
    fn quote<T: Serialize>(self, value: &T) -> Encoded {
        self.0.push(b'"');
        self.0.scalar(value)?;
        self.0.push(b'"');
        Ok(())
    }
}
