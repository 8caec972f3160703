//! Waking others: one channel a schema, constant small payloads, never in a transaction that writes.
//!
//! A worker's listener also holds what says that its process lives: a shared advisory lock of the session's number,
//! which goes with the connection. It is shared so that taking it again after a reconnect waits for nobody.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::{
    Executor,
    postgres::{PgListener, PgPoolOptions},
};

use super::{PostgresStore, Role, classify, configure, not_sent, sql::query};
use crate::store::{ListenConn, Result, SessionId, StoreError, Topic};

/// Takes the session's lock ($1: class, $2: session) and says in its row who holds it, and on which timeline.
pub(super) const HOLD: &str = "\
with l as materialized (
    select pg_advisory_lock_shared($1, ($2 % 2147483648)::int)
)
update {s}.sessions s
   set lock_holder = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) || ' ' || pg_backend_pid() || ' ' ||
                     clock_timestamp()
  from l
 where s.id = $2 and s.dead_at is null";

pub(super) const NOTIFY: &str = "select pg_notify($1, topic) from unnest($2::text[]) topic";

/// How long a listener trusts a silent connection.
const SILENCE: Duration = Duration::from_secs(30);

/// The lock's class: tells the sessions of one schema from anything else in this database.
pub(super) fn lock_class(schema: &str) -> i32 {
    (hash(schema) >> 33) as i32
}

/// The channel: of a fixed length, whatever the schema is called.
fn channel(schema: &str) -> String {
    format!("composer_{:016x}", hash(schema))
}

/// FNV-1a: the same in every build.
fn hash(schema: &str) -> u64 {
    schema
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn payload(topic: Topic) -> &'static str {
    match topic {
        Topic::Runs => "runs",
        Topic::Inbox => "inbox",
        Topic::Ends => "ends",
        Topic::Orders => "orders",
    }
}

fn topic(payload: &str) -> Option<Topic> {
    [Topic::Runs, Topic::Inbox, Topic::Ends, Topic::Orders]
        .into_iter()
        .find(|topic| self::payload(*topic) == payload)
}

struct PostgresListener(PgListener);

#[async_trait]
impl ListenConn for PostgresListener {
    async fn next(&mut self) -> Result<Topic> {
        loop {
            match tokio::time::timeout(SILENCE, self.0.try_recv()).await {
                Ok(Ok(Some(heard))) => {
                    // What a later version says is not for us.
                    if let Some(topic) = topic(heard.payload()) {
                        return Ok(topic);
                    }
                }
                Ok(Ok(None)) => return Err(lost("the listener's connection was lost")),
                Ok(Err(error)) => return Err(not_sent(error)),
                // A proxy may have dropped the connection without a word.
                Err(_) => {
                    let ping = self.0.execute("select 1");
                    if !matches!(tokio::time::timeout(Duration::from_secs(5), ping).await, Ok(Ok(_))) {
                        return Err(lost("the listener's connection does not answer"));
                    }
                }
            }
        }
    }
}

fn lost(message: &str) -> StoreError {
    StoreError::Unavailable { message: message.into(), maybe_committed: false }
}

impl PostgresStore {
    pub(super) async fn listener(&self, session: Option<SessionId>) -> Result<impl ListenConn + 'static> {
        // A pool of one, for this listener alone: `PgListener` takes its connection from a pool.
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .test_before_acquire(false)
            .after_connect(|conn, _| Box::pin(async move { configure(conn, Role::Listener).await }))
            .connect_lazy_with(self.options.clone());
        let mut listener = PgListener::connect_with(&pool).await.map_err(not_sent)?;
        // Another connection would not hold the lock: whoever owns the listener opens a new one.
        listener.eager_reconnect(false);
        if let Some(session) = session {
            let hold = query(&self.sql.hold).bind(lock_class(&self.schema)).bind(session.0);
            let held = listener.execute(hold).await.map_err(not_sent)?;
            if held.rows_affected() == 0 {
                return Err(lost("the session is dead"));
            }
        }
        listener.listen(&channel(&self.schema)).await.map_err(not_sent)?;
        Ok(PostgresListener(listener))
    }

    pub(super) async fn tell(&self, topics: &[Topic]) -> Result<()> {
        let mut payloads: Vec<&'static str> = topics.iter().map(|topic| payload(*topic)).collect();
        payloads.sort_unstable();
        payloads.dedup();
        if payloads.is_empty() {
            return Ok(());
        }
        let mut conn = self.acquire().await?;
        query(&self.sql.notify)
            .bind(channel(&self.schema))
            .bind(payloads)
            .execute(&mut *conn)
            .await
            .map_err(classify)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_fits_whatever_the_schema_is_called() {
        assert!(channel(&"x".repeat(63)).len() < 63);
        assert_ne!(channel("a"), channel("b"));
    }

    #[test]
    fn every_topic_is_heard_as_it_was_said() {
        for said in [Topic::Runs, Topic::Inbox, Topic::Ends, Topic::Orders] {
            assert_eq!(topic(payload(said)), Some(said));
        }
    }
}
