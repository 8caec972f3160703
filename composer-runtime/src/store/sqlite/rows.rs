//! Rows into and out of scripts.
//!
//! Many rows go in as one JSON array of arrays for `json_each`, beside one blob that holds their bytes: a row names
//! what is its own by offset and length, so neither text nor payload is escaped, and a statement's text is always the
//! same. Rows come out column by column.

use composer_sdk::{
    id::{RunId, Timestamp, WorkflowId},
    payload::Payload,
};
use sqlx::{Decode, Row, Sqlite, Type, sqlite::SqliteRow};
use uuid::Uuid;

use super::super::{Result, StoreError};

/// SQLite's clock in microseconds (it counts milliseconds), equal within one statement.
macro_rules! now {
    () => {
        "(cast(round(unixepoch('subsec') * 1000) as integer) * 1000)"
    };
}

/// The statements of a script, one text.
macro_rules! sql {
    ($($part:expr),+ $(,)?) => { concat!($($part),+) };
}

/// Column `$n` of a packed row as bytes from blob `$blob`; its offset and length are two places of the row.
macro_rules! packed {
    ($blob:literal, $row:literal, $n:literal, $len:literal) => {
        concat!("substr($", $blob, ", ", $row, ".value ->> ", $n, ", ", $row, ".value ->> ", $len, ")")
    };
}

/// The same as text.
macro_rules! packed_text {
    ($blob:literal, $row:literal, $n:literal, $len:literal) => {
        concat!("cast(", packed!($blob, $row, $n, $len), " as text)")
    };
}

/// The arguments of a script, `$1` first.
macro_rules! args {
    () => {
        sqlx::sqlite::SqliteArguments::default()
    };
    ($($value:expr),+ $(,)?) => {{
        let mut args = sqlx::sqlite::SqliteArguments::default();
        $( crate::store::sqlite::rows::bind(&mut args, $value)?; )+
        args
    }};
}

pub(super) use {args, now, packed, packed_text, sql};

/// Adds one argument.
pub(super) fn bind<'t, T>(args: &mut sqlx::sqlite::SqliteArguments, value: T) -> Result<()>
where
    T: sqlx::Encode<'t, Sqlite> + Type<Sqlite>,
{
    sqlx::Arguments::add(args, value).map_err(|e| StoreError::Rejected { message: e.to_string() })
}

/// Rows for `json_each`, and the blob that holds their bytes.
#[derive(Debug, Default)]
pub(super) struct Packed {
    json: String,
    bytes: Vec<u8>,
}

impl Packed {
    /// Adds a row.
    pub(super) fn row(&mut self, fill: impl FnOnce(&mut PackedRow<'_>)) {
        self.json.push(if self.json.is_empty() { '[' } else { ',' });
        self.json.push('[');
        let mut row = PackedRow { packed: self, first: true };
        fill(&mut row);
        self.json.push(']');
    }

    /// The array and the blob.
    pub(super) fn finish(mut self) -> (String, Vec<u8>) {
        self.json.push_str(if self.json.is_empty() { "[]" } else { "]" });
        (self.json, self.bytes)
    }
}

/// A row that is being filled.
pub(super) struct PackedRow<'a> {
    packed: &'a mut Packed,
    first: bool,
}

impl PackedRow<'_> {
    /// One place: a number or null.
    pub(super) fn int(&mut self, value: impl Into<Option<i64>>) -> &mut Self {
        match value.into() {
            Some(value) => self.push(&value.to_string()),
            None => self.push("null"),
        }
    }

    /// One place: a run id, for `unhex`.
    pub(super) fn id(&mut self, run: RunId) -> &mut Self {
        self.push(&format!("\"{}\"", run.as_uuid().simple()))
    }

    /// Two places: where the bytes begin, counted from 1, and how many they are; null and null for none.
    pub(super) fn bytes(&mut self, value: Option<&[u8]>) -> &mut Self {
        let Some(value) = value else { return self.push("null,null") };
        let place = format!("{},{}", self.packed.bytes.len() + 1, value.len());
        self.packed.bytes.extend_from_slice(value);
        self.push(&place)
    }

    /// Two places: the same for a text.
    pub(super) fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(Some(value.as_bytes()))
    }

    /// Two places: the same for a payload.
    pub(super) fn payload(&mut self, value: Option<&Payload>) -> &mut Self {
        self.bytes(value.map(Payload::as_bytes))
    }

    fn push(&mut self, place: &str) -> &mut Self {
        if !std::mem::take(&mut self.first) {
            self.packed.json.push(',');
        }
        self.packed.json.push_str(place);
        self
    }
}

/// Run ids as a JSON array of hex texts, for `json_each` and `unhex`.
pub(super) fn ids(runs: &[RunId]) -> String {
    let ids: Vec<String> = runs.iter().map(|run| run.as_uuid().simple().to_string()).collect();
    serde_json::to_string(&ids).expect("invariant: texts are always JSON")
}

/// Names as a JSON array.
pub(super) fn names(names: &[String]) -> String {
    serde_json::to_string(names).expect("invariant: texts are always JSON")
}

/// A duration in microseconds, as far as a column can hold it.
pub(super) fn micros(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX).min(Timestamp::MAX.as_micros())
}

/// A result row, read from its first column on.
pub(super) struct Columns<'r> {
    row: &'r SqliteRow,
    next: usize,
}

/// The first of the rows.
pub(super) fn only(rows: &[SqliteRow]) -> Result<Columns<'_>> {
    rows.first()
        .map(columns)
        .ok_or_else(|| StoreError::unreadable("a statement gave no row where it gives one"))
}

/// A result row, to be read from its first column on.
pub(super) fn columns(row: &SqliteRow) -> Columns<'_> {
    Columns { row, next: 0 }
}

impl<'r> Columns<'r> {
    /// The next column.
    pub(super) fn get<T: Decode<'r, Sqlite> + Type<Sqlite>>(&mut self) -> Result<T> {
        let value = self.row.try_get(self.next).map_err(|e| StoreError::unreadable(e.to_string()));
        self.next += 1;
        value
    }

    pub(super) fn int(&mut self) -> Result<i64> {
        self.get()
    }

    pub(super) fn small<T: TryFrom<i64>>(&mut self) -> Result<T> {
        let value = self.int()?;
        T::try_from(value).map_err(|_| StoreError::unreadable(format!("the number {value} is out of range")))
    }

    pub(super) fn text(&mut self) -> Result<String> {
        self.get()
    }

    pub(super) fn at(&mut self) -> Result<Timestamp> {
        self.int().map(Timestamp::from_micros)
    }

    pub(super) fn maybe_at(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.get::<Option<i64>>()?.map(Timestamp::from_micros))
    }

    pub(super) fn run_id(&mut self) -> Result<RunId> {
        self.get::<Uuid>().map(RunId::from)
    }

    pub(super) fn workflow_id(&mut self) -> Result<WorkflowId> {
        self.text()?.parse().map_err(|e| StoreError::unreadable(format!("a workflow id: {e}")))
    }

    pub(super) fn json<T: serde::de::DeserializeOwned>(&mut self) -> Result<T> {
        serde_json::from_str(&self.text()?).map_err(|e| StoreError::unreadable(e.to_string()))
    }
}
