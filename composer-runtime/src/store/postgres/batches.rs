//! The writer's statements, once for all months and once for each month that a batch lies in as a whole.
//!
//! Nearly every batch lies in one month. A statement that names the month's own tables is spared the search for the
//! partition of each row, and the preparation of all the other months' tables and indexes: it takes half the time.
//! A batch over a month's end, or of a month that is not attached, takes the statements on the parents.

use composer_sdk::id::RunId;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::{
    classify,
    journal::{self, Extra},
    sql::{Sql, fill},
};
use crate::store::{Batch, Result};

/// Months that are remembered.
const MONTHS: usize = 24;

/// The statements that write a batch.
#[derive(Debug, Clone)]
pub(super) struct Writes {
    pub(super) step: Sql,
    pub(super) steps: Sql,
    pub(super) mixed: Sql,
    pub(super) mailless: Sql,
    pub(super) published: Sql,
    pub(super) starts: Sql,
}

impl Writes {
    fn of_month(name: &str, schema: &str) -> Self {
        let of = |template: &str| {
            let tables = template.replace("{s}.runs", &format!("{{s}}.runs_{name}"));
            fill(&tables.replace("{s}.journal", &format!("{{s}}.journal_{name}")), schema)
        };
        Self {
            step: of(journal::WRITE_STEP),
            steps: of(journal::WRITE_STEPS),
            mixed: of(&journal::write_mixed(Extra::Mail)),
            mailless: of(&journal::write_mixed(Extra::None)),
            published: of(&journal::write_mixed(Extra::Published)),
            starts: of(&journal::write_starts()),
        }
    }
}

/// A month's run ids, and its statements when both of its tables are attached.
#[derive(Debug)]
struct Month {
    low: Uuid,
    high: Uuid,
    writes: Option<Writes>,
}

/// The statements of a connection.
#[derive(Debug)]
pub(super) struct Batches {
    all: Writes,
    months: Vec<Month>,
    /// The schema's name, and the same quoted.
    name: String,
    schema: String,
}

/// The month of an instant in milliseconds, its first id and the next month's, and whether it is attached.
const MONTH: &str = "\
with m as (
    select date_trunc('month', to_timestamp($1::bigint / 1000) at time zone 'utc') as month
), b as (
    select to_char(month, 'YYYY_MM') as name,
           lpad(to_hex((extract(epoch from month) * 1000)::bigint), 12, '0') as low,
           lpad(to_hex((extract(epoch from month + interval '1 month') * 1000)::bigint), 12, '0') as high
      from m
)
select b.name,
       (b.low || '00000000000000000000')::uuid as low,
       (b.high || '00000000000000000000')::uuid as high,
       2 = (select count(*)
              from pg_catalog.pg_inherits i
              join pg_catalog.pg_class c on c.oid = i.inhrelid
              join pg_catalog.pg_class t on t.oid = i.inhparent
              join pg_catalog.pg_namespace n on n.oid = t.relnamespace
             where n.nspname = $2 and t.relname in ('runs', 'journal')
               and c.relnamespace = n.oid and c.relname = t.relname || '_' || b.name) as attached
  from b";

impl Batches {
    pub(super) fn new(all: Writes, name: String, schema: String) -> Self {
        Self { all, months: Vec::new(), name, schema }
    }

    /// The statements for a batch.
    pub(super) async fn of(&mut self, conn: &mut PgConnection, batch: &Batch) -> Result<Writes> {
        let ids = batch.runs.iter().map(|run| run.run_id).chain(batch.starts.iter().map(|run| run.run_id));
        let (Some(first), Some(last)) = (ids.clone().min(), ids.max()) else { return Ok(self.all.clone()) };
        let holds = |month: &Month, run: RunId| (month.low..month.high).contains(&run.as_uuid());
        if !self.months.iter().any(|month| holds(month, first)) {
            let month = self.look_up(conn, first).await?;
            self.months.truncate(MONTHS - 1);
            self.months.insert(0, month);
        }
        let month = self.months.iter().find(|month| holds(month, first) && holds(month, last));
        let writes = month.and_then(|month| month.writes.clone());
        // A month that is not attached yet may be the next time.
        self.months.retain(|month| month.writes.is_some());
        Ok(writes.unwrap_or_else(|| self.all.clone()))
    }

    async fn look_up(&self, conn: &mut PgConnection, run: RunId) -> Result<Month> {
        let (millis, _) = run.as_uuid().as_u64_pair();
        let row = sqlx::query(MONTH)
            .bind((millis >> 16) as i64)
            .bind(&self.name)
            .fetch_one(conn)
            .await
            .map_err(classify)?;
        let attached: bool = row.try_get("attached").map_err(classify)?;
        let name: String = row.try_get("name").map_err(classify)?;
        Ok(Month {
            low: row.try_get("low").map_err(classify)?,
            high: row.try_get("high").map_err(classify)?,
            writes: attached.then(|| Writes::of_month(&name, &self.schema)),
        })
    }
}
