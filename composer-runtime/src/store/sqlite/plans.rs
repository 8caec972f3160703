//! How SQLite carries out our statements: nothing that a worker or a client does often reads a whole table.

use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};

use super::{children, claim, forks, inbox, journal, orders, runs, sessions};

/// Every statement that runs while there is much in the tables, with what it may scan.
const STATEMENTS: &[(&str, &str, &[&str])] = &[
    ("start", runs::START, &[]),
    ("run", runs::RUN, &[]),
    ("find", runs::FIND, &[]),
    ("ends", runs::ENDS, &[]),
    ("delete", runs::DELETE, &[]),
    ("send", inbox::SEND, &[]),
    ("cancels of stuck", inbox::CANCELS_OF_STUCK, &["r USING INDEX composer_runs_stuck"]),
    ("inbox", inbox::INBOX, &[]),
    ("unconsumed", inbox::UNCONSUMED, &[]),
    ("append", journal::APPEND, &[]),
    ("published", journal::PUBLISHED, &[]),
    ("appended", journal::APPENDED, &[]),
    ("write", journal::WRITE, &[]),
    ("settle", journal::SETTLE, &[]),
    ("read", journal::READ, &[]),
    ("load", journal::LOAD, &[]),
    ("prune", journal::PRUNE, &[]),
    ("claim", claim::CLAIM, &["i USING INDEX composer_inbox_mail"]),
    ("release", claim::RELEASE, &[]),
    ("start child", children::START_CHILD, &[]),
    ("fork", forks::FORK, &[]),
    ("terminate", orders::TERMINATE, &[]),
    ("pause", orders::PAUSE, &[]),
    ("resume", orders::RESUME, &[]),
    ("owned", claim::OWNED, &[]),
    ("next due", claim::NEXT_DUE, &[]),
    ("unhosted", claim::UNHOSTED, &["i USING COVERING INDEX composer_inbox_mail"]),
    (
        "sweep",
        sessions::SWEEP,
        &["r USING COVERING INDEX composer_runs_owned", "i USING COVERING INDEX composer_inbox_mail"],
    ),
    ("close", sessions::CLOSE, &[]),
];

/// The tables that grow, and what our statements call them.
const BIG: &[&str] =
    &["composer_runs", "composer_journal", "composer_inbox", "composer_ids", "r", "d", "n", "j", "i"];

fn reads_all(line: &str, allowed: &[&str]) -> bool {
    let Some(scanned) = line.strip_prefix("SCAN ") else { return false };
    scanned.split(' ').next().is_some_and(|table| BIG.contains(&table)) && !allowed.contains(&scanned)
}

#[tokio::test]
async fn no_statement_reads_a_whole_table() {
    let mut conn = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    let schema =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/sqlite/0001_runs_and_journal.sql"));
    for sql in [schema, super::lane::OWN_TABLES] {
        sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
    }
    let mut much = Vec::new();
    for (name, script, allowed) in STATEMENTS {
        for statement in script.split(';').map(str::trim) {
            if statement.is_empty() || statement.starts_with("begin") || statement == "commit" {
                continue;
            }
            let explain = AssertSqlSafe(format!("explain query plan {statement}"));
            for row in sqlx::raw_sql(explain).fetch_all(&mut conn).await.unwrap() {
                let line: String = row.get(3);
                if reads_all(&line, allowed) {
                    much.push(format!("{name}: {line}"));
                }
            }
        }
    }
    assert!(much.is_empty(), "{much:#?}");
}
