//! Bringing the schema up to date, finding it so, and making months ahead.
//!
//! A schema that is up to date needs no lock, no DDL and no right to create anything. Otherwise one process at a
//! time migrates, under an advisory lock, in one transaction: whoever is killed in the middle leaves the old schema.
//! Months are plain tables until they are attached, which takes no lock that an append waits for.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::{PostgresStore, Role, classify, not_sent, read, sql::query_scalar};
use crate::store::{Result, Store, StoreError};

/// The migrations, in order. A released one is never edited.
const MIGRATIONS: &[(i32, &str, &str)] =
    &[(1, "runs_and_journal", include_str!("../../../migrations/postgres/0001_runs_and_journal.sql"))];

/// The newest version, by every caller of `check_schema`.
pub(super) const VERSION: &str = "select max(version) from {s}.migrations";

/// The months from the previous one to three ahead, with their bounds as the first UUIDv7 of each, and whether each
/// big table has them. Called with the schema's name.
pub(super) const MONTHS: &str = "\
with m as (
    select generate_series(date_trunc('month', clock_timestamp() at time zone 'utc') - interval '1 month',
                           date_trunc('month', clock_timestamp() at time zone 'utc') + interval '3 months',
                           interval '1 month') as month
), b as (
    select to_char(month, 'YYYY_MM') as name,
           month = date_trunc('month', clock_timestamp() at time zone 'utc') as current,
           lpad(to_hex((extract(epoch from month) * 1000)::bigint), 12, '0') as low,
           lpad(to_hex((extract(epoch from month + interval '1 month') * 1000)::bigint), 12, '0') as high
      from m
)
select p.parent,
       p.parent || '_' || b.name as name,
       b.current,
       (b.low || '00000000000000000000')::uuid::text as low,
       (b.high || '00000000000000000000')::uuid::text as high
  from b cross join (values ('runs'), ('journal'), ('published')) p(parent)
 where not exists (select from pg_catalog.pg_inherits i
                     join pg_catalog.pg_class c on c.oid = i.inhrelid
                     join pg_catalog.pg_class t on t.oid = i.inhparent
                     join pg_catalog.pg_namespace n on n.oid = t.relnamespace
                    where n.nspname = $1 and t.relname = p.parent and c.relname = p.parent || '_' || b.name)
 order by b.name, p.parent";

/// How long a migrator waits for another one.
const MIGRATION_PATIENCE: Duration = Duration::from_secs(60);

/// How often the sweep looks for missing months.
const MONTHS_EVERY: Duration = Duration::from_secs(3600);

/// When this process last looked for missing months.
#[derive(Debug, Default)]
pub(super) struct MonthsChecked(Mutex<Option<Instant>>);

impl MonthsChecked {
    /// Whether it is time to look, and if so, that somebody does.
    fn due(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let due = last.is_none_or(|at| at.elapsed() >= MONTHS_EVERY);
        if due {
            *last = Some(Instant::now());
        }
        due
    }
}

/// A month that a big table lacks.
struct Month {
    parent: String,
    name: String,
    /// Whether runs are started in it now.
    current: bool,
    low: String,
    high: String,
}

/// The answer to statements that do not find the schema as this version knows it.
pub(super) fn missing(message: String) -> StoreError {
    StoreError::Schema {
        message: format!(
            "{message}; let a role that may create it connect with migrations on, or check that this role has been \
             granted its tables"
        ),
    }
}

impl PostgresStore {
    pub(super) async fn bring_up_to_date(&self) -> Result<()> {
        match self.version().await? {
            Some(version) => self.not_ahead(version)?,
            None => return self.migrate_alone().await,
        }
        if self.is_behind().await? {
            return self.migrate_alone().await;
        }
        self.make_months().await
    }

    pub(super) async fn require_schema(&self) -> Result<()> {
        let known = newest();
        match self.version().await? {
            None => Err(StoreError::Schema {
                message: format!(
                    "there is none in {}; connect once with migrations on, as a role that may create it",
                    self.location()
                ),
            }),
            Some(version) if version < known => Err(StoreError::Schema {
                message: format!(
                    "{} is at version {version}, this build needs {known}; connect once with migrations on",
                    self.location()
                ),
            }),
            Some(version) => self.not_ahead(version),
        }
    }

    fn not_ahead(&self, version: i32) -> Result<()> {
        let known = newest();
        if version <= known {
            return Ok(());
        }
        Err(StoreError::Schema {
            message: format!(
                "{} was migrated to version {version} by a newer build, this one knows {known}; deploy the newer build",
                self.location()
            ),
        })
    }

    async fn is_behind(&self) -> Result<bool> {
        Ok(self.version().await?.is_some_and(|version| version < newest()))
    }

    /// The version of the schema; `None` when there is no schema.
    async fn version(&self) -> Result<Option<i32>> {
        let exists: bool = read!(self, |conn| {
            sqlx::query_scalar(
            "select exists (select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                             where n.nspname = $1 and c.relname = 'migrations')"
        )
        .bind(&self.schema)
        .fetch_one(&mut *conn)
        })?;
        if !exists {
            return Ok(None);
        }
        read!(self, |conn| query_scalar(&self.sql.version).fetch_one(&mut *conn))
    }

    /// Waits for its turn, then migrates in one transaction.
    async fn migrate_alone(&self) -> Result<()> {
        let mut conn = self.open(Role::Migrator).await?;
        let mut tx = conn.begin().await.map_err(not_sent)?;
        self.take_turn(&mut tx).await?;
        let quoted = &self.sql.schema;
        let created: bool =
            sqlx::query_scalar("select exists (select from pg_catalog.pg_namespace where nspname = $1)")
                .bind(&self.schema)
                .fetch_one(&mut *tx)
                .await
                .map_err(not_sent)?;
        if !created {
            run_ddl(&mut tx, format!("create schema {quoted}")).await.map_err(|e| self.explain(e))?;
        }
        run_ddl(&mut tx, format!("set local search_path to {quoted}")).await.map_err(not_sent)?;
        let applied: bool = sqlx::query_scalar(
            "select exists (select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                             where n.nspname = $1 and c.relname = 'migrations')",
        )
        .bind(&self.schema)
        .fetch_one(&mut *tx)
        .await
        .map_err(not_sent)?;
        let version: i32 = match applied {
            true => query_scalar::<Option<i32>>(&self.sql.version)
                .fetch_one(&mut *tx)
                .await
                .map_err(not_sent)?
                .unwrap_or(0),
            false => 0,
        };
        for (number, name, script) in MIGRATIONS.iter().filter(|(number, ..)| *number > version) {
            tracing::info!(version = number, name, at = %self.location(), "migrating the schema");
            run_ddl(&mut tx, (*script).to_owned()).await.map_err(|e| self.explain(e))?;
            sqlx::query("insert into migrations (version, name) values ($1, $2)")
                .persistent(false)
                .bind(number)
                .bind(name)
                .execute(&mut *tx)
                .await
                .map_err(|e| self.explain(e))?;
        }
        for month in self.missing_months(&mut tx).await? {
            self.make_month(&mut tx, &month).await.map_err(|e| self.explain(e))?;
        }
        tx.commit().await.map_err(classify)?;
        let _ = conn.close().await;
        Ok(())
    }

    /// The migrators' lock, for this transaction. Polled, so that waiting is bounded and said.
    async fn take_turn(&self, conn: &mut PgConnection) -> Result<()> {
        let began = Instant::now();
        let mut said = began;
        loop {
            let mine: bool = sqlx::query_scalar("select pg_try_advisory_xact_lock(hashtextextended($1, 0))")
                .bind(format!("composer migrations of {}", self.schema))
                .fetch_one(&mut *conn)
                .await
                .map_err(not_sent)?;
            if mine {
                return Ok(());
            }
            if began.elapsed() > MIGRATION_PATIENCE {
                return Err(StoreError::Schema {
                    message: format!(
                        "another process has been migrating {} for over {} s; look for `composer migrator` in \
                         pg_stat_activity",
                        self.location(),
                        MIGRATION_PATIENCE.as_secs()
                    ),
                });
            }
            if said.elapsed() > Duration::from_secs(5) {
                said = Instant::now();
                tracing::info!(at = %self.location(), waited = ?began.elapsed(), "waiting for another process that migrates");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Makes the months that are missing, if this role may.
    ///
    /// # Errors
    /// When the current month is missing and cannot be made: nothing could be started.
    pub(super) async fn make_months(&self) -> Result<()> {
        self.months.due();
        let missing = {
            let mut conn = self.acquire().await?;
            self.missing_months(&mut conn).await?
        };
        if missing.is_empty() {
            return Ok(());
        }
        match self.attach_months().await {
            Ok(()) => Ok(()),
            Err(error) if missing.iter().any(|month| month.current) => Err(error),
            Err(error) => {
                tracing::warn!(%error, next = missing[0].name, "months ahead are missing; a role with the rights must make them");
                Ok(())
            }
        }
    }

    /// [`Self::make_months`] once in a while, for the sweep.
    pub(super) async fn make_months_sometimes(&self) {
        if self.months.due()
            && let Err(error) = self.make_months().await
        {
            tracing::error!(%error, "the current month has no partition: no run can be started");
        }
    }

    async fn attach_months(&self) -> Result<()> {
        let mut conn = self.open(Role::Migrator).await?;
        let mut tries = 0;
        loop {
            match self.attach_once(&mut conn).await {
                Ok(()) => break,
                // Somebody holds the parent for a moment (55P03): each try waited a second already.
                Err(StoreError::Unavailable { message, .. }) if tries < 10 => {
                    tries += 1;
                    tracing::info!(message, tries, "a month could not be attached yet");
                }
                Err(error) => return Err(error),
            }
        }
        let _ = conn.close().await;
        Ok(())
    }

    async fn attach_once(&self, conn: &mut PgConnection) -> Result<()> {
        let mut tx = conn.begin().await.map_err(not_sent)?;
        self.take_turn(&mut tx).await?;
        for month in self.missing_months(&mut tx).await? {
            self.make_month(&mut tx, &month).await.map_err(|e| self.explain(e))?;
        }
        tx.commit().await.map_err(classify)
    }

    async fn missing_months(&self, conn: &mut PgConnection) -> Result<Vec<Month>> {
        let rows: Vec<(String, String, bool, String, String)> =
            sqlx::query_as(AssertSqlSafe(self.sql.months.clone()))
                .bind(&self.schema)
                .fetch_all(conn)
                .await
                .map_err(not_sent)?;
        Ok(rows
            .into_iter()
            .map(|(parent, name, current, low, high)| Month { parent, name, current, low, high })
            .collect())
    }

    /// A plain table first, then `attach`: creating a partition in place would lock out every append.
    async fn make_month(&self, conn: &mut PgConnection, month: &Month) -> Result<(), sqlx::Error> {
        let (s, Month { parent, name, low, high, .. }) = (&self.sql.schema, month);
        // A run's row is updated a few times: room for these beside it. A journal is only appended to.
        let fill = if parent == "runs" { "with (fillfactor = 50)" } else { "" };
        run_ddl(
            conn,
            format!(
                "create table if not exists {s}.{name} (like {s}.{parent} including defaults including constraints \
                     including comments) {fill};
                 alter table {s}.{parent} attach partition {s}.{name} for values from ('{low}') to ('{high}');"
            ),
        )
        .await
    }

    /// Says what to do when DDL was refused.
    fn explain(&self, error: sqlx::Error) -> StoreError {
        match not_sent(error) {
            StoreError::Schema { message } | StoreError::Rejected { message } => StoreError::Schema {
                message: format!(
                    "migrating {} was refused: {message}; connect once as a role that may create and owns the schema",
                    self.location()
                ),
            },
            other => other,
        }
    }
}

fn newest() -> i32 {
    MIGRATIONS.last().map_or(0, |(number, ..)| *number)
}

/// Runs DDL: one of our scripts, with nothing put in but the quoted schema and our own names.
async fn run_ddl(conn: &mut PgConnection, script: String) -> Result<(), sqlx::Error> {
    conn.execute(sqlx::raw_sql(AssertSqlSafe(script))).await?;
    Ok(())
}
