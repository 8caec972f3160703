//! The schema's versions.
//!
//! A migration and its record are one transaction under the write lock, so of several processes one migrates and the
//! others find it done, and a killed one leaves the old version or the new one.

use sqlx::sqlite::SqliteRow;

use super::{
    super::{Result, StoreError},
    lane::{Lane, Seat},
    rows::{args, columns, now, sql},
};

/// Each begins by recording itself, which fails when it was done meanwhile. Never edited once released.
const MIGRATIONS: &[(i64, &str)] = &[(
    1,
    sql!(
        "begin immediate;
        create table if not exists composer_migrations (
          version integer primary key,
          applied_at integer not null
        ) strict;
        insert into composer_migrations (version, applied_at) values (1, ",
        now!(),
        ");",
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/sqlite/0001_runs_and_journal.sql")),
        "commit;"
    ),
)];

const LATEST: i64 = MIGRATIONS[MIGRATIONS.len() - 1].0;

/// Brings the schema up to date; touches nothing when it is.
pub(super) async fn migrate(write: &Lane) -> Result<()> {
    write.run(migrate_on).await
}

fn migrate_on(seat: &mut Seat) -> Result<()> {
    loop {
        let version = version(seat)?;
        refuse_newer(version)?;
        let Some((next, script)) = MIGRATIONS.iter().find(|(next, _)| *next > version) else { return Ok(()) };
        match seat.script(script, args![]) {
            Ok(_) => tracing::info!(version = next, "migrated the SQLite schema"),
            // Somebody else was faster: look again.
            Err(StoreError::Conflict { .. }) if self::version(seat)? >= *next => {}
            Err(e) => return Err(e),
        }
    }
}

/// A typed error when the schema is not the one that this version works with.
pub(super) async fn check(read: &Lane) -> Result<()> {
    let version = read.run(version).await?;
    refuse_newer(version)?;
    if version < LATEST {
        return Err(StoreError::Schema {
            message: format!(
                "it is at version {version}, and this program needs {LATEST}; run the migrations"
            ),
        });
    }
    Ok(())
}

fn version(seat: &mut Seat) -> Result<i64> {
    let none = |rows: &[SqliteRow]| rows.is_empty();
    let table = "select 1 from sqlite_schema where type = 'table' and name = 'composer_migrations'";
    if none(&seat.script(table, args![])?) {
        return Ok(0);
    }
    let rows = seat.script("select coalesce(max(version), 0) from composer_migrations", args![])?;
    rows.first().map_or(Ok(0), |row| columns(row).int())
}

fn refuse_newer(version: i64) -> Result<()> {
    if version > LATEST {
        return Err(StoreError::Schema {
            message: format!(
                "it is at version {version}, newer than this program's {LATEST}; use a newer program"
            ),
        });
    }
    Ok(())
}
