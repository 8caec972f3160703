//! The statements of a store: templates with the schema's name and the database's clock put in, once.
//!
//! Where a run is known by its id, its status is compared as `status + 0`: the planner must not think of the partial
//! indexes by status. On tables that were never analysed it takes the one by session for as good as the key, and
//! reads all runs of a session for each of them.

use std::sync::Arc;

use sqlx::{
    AssertSqlSafe, Postgres,
    postgres::PgArguments,
    query::{Query, QueryScalar},
};

use super::{children, claims, forks, inbox, journal, listen, orders, runs, schema, sessions};
use crate::store::{Result, StoreError};

/// A statement's text.
pub(super) type Sql = Arc<str>;

/// The database's clock in microseconds, read when it is evaluated: not when the transaction began.
const NOW: &str = "(extract(epoch from clock_timestamp()) * 1000000)::bigint";

/// [`NOW`], by itself.
pub(super) const NOW_QUERY: &str = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";

/// A prepared statement to bind to.
pub(super) fn query(sql: &Sql) -> Query<'static, Postgres, PgArguments> {
    // The text is one of our templates; the only thing put in is the quoted schema.
    sqlx::query(AssertSqlSafe(sql.clone()))
}

/// A prepared statement with one column.
pub(super) fn query_scalar<'q, T>(sql: &Sql) -> QueryScalar<'q, Postgres, T, PgArguments>
where
    (T,): for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow>,
{
    sqlx::query_scalar(AssertSqlSafe(sql.clone()))
}

/// Puts the quoted schema and the clock into a template.
pub(super) fn fill(template: &str, schema: &str) -> Sql {
    template.replace("{now}", NOW).replace("{s}", schema).into()
}

/// A schema's name as an identifier.
///
/// # Errors
/// When Postgres would refuse or silently shorten it.
pub(super) fn quote_schema(name: &str) -> Result<String> {
    let refuse = |why: &str| StoreError::Config { message: format!("the schema name {name:?} {why}") };
    if name.is_empty() {
        return Err(refuse("is empty; leave it out for `composer`"));
    }
    if name.len() > 63 {
        return Err(refuse("is longer than the 63 bytes that Postgres allows"));
    }
    if name.contains('\0') {
        return Err(refuse("contains a NUL byte"));
    }
    if name.starts_with("pg_") {
        return Err(refuse("begins with pg_, which Postgres keeps for itself"));
    }
    Ok(format!("\"{}\"", name.replace('"', "\"\"")))
}

macro_rules! statements {
    ($($name:ident = $template:expr),* $(,)?) => {
        /// Every statement of a store.
        #[derive(Debug)]
        pub(super) struct Statements {
            /// The quoted schema.
            pub(super) schema: String,
            $(pub(super) $name: Sql,)*
        }

        impl Statements {
            pub(super) fn new(schema: &str) -> Self {
                Self { schema: schema.to_owned(), $($name: fill(&$template, schema),)* }
            }

            pub(super) fn by_name(&self, name: &str) -> Option<&str> {
                match name {
                    $(stringify!($name) => Some(&self.$name),)*
                    _ => None,
                }
            }

            #[cfg(test)]
            fn all(&self) -> Vec<&str> {
                vec![$(&self.$name),*]
            }
        }
    };
}

statements! {
    version = schema::VERSION,
    months = schema::MONTHS,
    start = runs::start(""),
    start_with_id = runs::start(runs::TAKE_ID),
    start_again = runs::start(runs::REPLACE_ID),
    by_id = runs::BY_ID,
    row = runs::row("r.run_id = $1"),
    row_by_id = runs::row("r.run_id = (select i.run_id from {s}.ids i where i.workflow_id = $1)"),
    row_without_id = runs::row("r.run_id = $1 and r.workflow_id is null"),
    input = runs::INPUT,
    ends = runs::ENDS,
    lock_for_delete = runs::LOCK_FOR_DELETE,
    delete = runs::DELETE,
    start_child = children::START_CHILD,
    child_row = children::CHILD_ROW,
    send = inbox::SEND,
    cancel_idle = inbox::CANCEL_IDLE,
    fork = forks::FORK,
    terminate = orders::terminate(),
    pause = orders::pause(),
    resume = orders::resume(),
    inbox = inbox::INBOX,
    unconsumed_entries = inbox::UNCONSUMED_ENTRIES,
    unconsumed_rows = inbox::UNCONSUMED_ROWS,
    claim = claims::CLAIM,
    load = claims::LOAD,
    lock_for_park = claims::LOCK_FOR_PARK,
    park = claims::PARK,
    give_back = claims::GIVE_BACK,
    still_mine = claims::STILL_MINE,
    owned = claims::OWNED,
    next_due = claims::NEXT_DUE,
    unhosted = claims::UNHOSTED,
    page = journal::PAGE,
    prune = journal::PRUNE,
    write_step = journal::WRITE_STEP,
    write_steps = journal::WRITE_STEPS,
    write_mixed = journal::write_mixed(journal::Extra::Mail),
    write_mailless = journal::write_mixed(journal::Extra::None),
    write_published = journal::write_mixed(journal::Extra::Published),
    published_of = journal::PUBLISHED_OF,
    write_starts = journal::write_starts(),
    busy = journal::BUSY,
    raise = journal::RAISE,
    settled = journal::SETTLED,
    open_session = sessions::OPEN,
    renew = sessions::RENEW,
    expire = sessions::EXPIRE,
    looks = sessions::LOOKS,
    declare_gone = sessions::DECLARE_GONE,
    bury = sessions::BURY,
    forget = sessions::FORGET,
    shelve = sessions::SHELVE,
    cancels_of_stuck = sessions::CANCELS_OF_STUCK,
    blocked = sessions::BLOCKED,
    close_session = sessions::CLOSE,
    hold = listen::HOLD,
    notify = listen::NOTIFY,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_name_is_quoted_whatever_it_contains() {
        assert_eq!(quote_schema("order").unwrap(), r#""order""#);
        assert_eq!(quote_schema(r#"a"b;--"#).unwrap(), r#""a""b;--""#);
        assert!(quote_schema("").is_err());
        assert!(quote_schema(&"x".repeat(64)).is_err());
        assert!(quote_schema("pg_mine").is_err());
    }

    #[test]
    fn every_statement_is_filled_in() {
        for text in Statements::new("\"composer\"").all() {
            assert!(!text.contains("{s}") && !text.contains("{now}"), "{text}");
        }
    }

    #[test]
    fn p51_no_statement_takes_the_beginning_of_its_transaction_for_the_present() {
        for text in Statements::new("\"composer\"").all() {
            for stale in ["now()", "current_timestamp", "transaction_timestamp", "statement_timestamp"] {
                assert!(!text.contains(stale), "{stale} in {text}");
            }
        }
    }

    #[test]
    fn every_table_is_named_with_its_schema() {
        for text in Statements::new("\"composer\"").all() {
            for table in ["runs", "journal", "inbox", "ids", "sessions", "migrations"] {
                for before in ["from ", "join ", "into ", "update ", "using "] {
                    assert!(!text.contains(&format!("{before}{table} ")), "{table} in {text}");
                }
            }
        }
    }
}
