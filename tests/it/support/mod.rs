//! A database for every test, and a raw hand on it.
//!
//! A promise is written once, over [`Database`], with [`promise!`]; it becomes one test for each store. A test steers
//! time by moving what the database holds (`lapse`, `make_due`), never by waiting.

pub(crate) mod hooked;
pub(crate) mod postgres;
pub(crate) mod sqlite;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use composer_runtime::store::{Codec, Plain, SessionId, Store};
use composer_sdk::id::RunId;

/// One test's database.
#[async_trait]
pub(crate) trait Database: Send + Sync + fmt::Debug {
    /// The store on it, migrated.
    fn store(&self) -> Arc<dyn Store>;

    /// Another one on the same database, as another process would have.
    async fn another(&self) -> Arc<dyn Store> {
        self.coded(Arc::new(Plain)).await
    }

    /// Another one, with a codec.
    async fn coded(&self, codec: Arc<dyn Codec>) -> Arc<dyn Store>;

    /// Runs a statement of ours. `{s}` stands for the schema's prefix, dot included (`composer_` on SQLite).
    async fn execute(&self, sql: &str) -> u64;

    /// The first column of the first row as a number, `None` for null or no row. `{s}` as in `execute`.
    async fn number(&self, sql: &str) -> Option<i64>;

    /// A run's id as the database writes it in SQL.
    fn literal(&self, run: RunId) -> String;

    /// A session's lease is over.
    async fn lapse(&self, session: SessionId) {
        self.execute(&format!("update {{s}}sessions set lease_until = 1 where id = {}", session.0)).await;
    }

    /// A session's lease never ends by itself.
    async fn outlive(&self, session: SessionId) {
        let never = i64::MAX / 2;
        self.execute(&format!("update {{s}}sessions set lease_until = {never} where id = {}", session.0))
            .await;
    }

    /// A pending or parked run's time has come, just now.
    async fn make_due(&self, run: RunId) {
        let now = self.store().now().await.expect("the database tells the time").as_micros();
        let run = self.literal(run);
        let sql = format!("update {{s}}runs set due_at = {now} where run_id = {run} and due_at is not null");
        self.execute(&sql).await;
    }

    /// A stuck run has rested long enough to be offered again.
    async fn rest(&self, run: RunId) {
        let run = self.literal(run);
        self.execute(&format!("update {{s}}runs set stuck_at = 1 where run_id = {run}")).await;
    }
}

/// Runs a test's body to its end on a runtime of its own; a hang is a failure.
pub(crate) fn block_on<F: Future>(body: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    let output = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), body).await });
    runtime.shutdown_background();
    output.expect("the test hung for 120 s")
}

/// Waits for a condition by asking again; panics with `what` after ten seconds.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let began = std::time::Instant::now();
    loop {
        if let Some(value) = ask().await {
            return value;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A promise of every store: the body, over a `&dyn Database`, becomes one test a store.
macro_rules! promise {
    ($(#[$doc:meta])* async fn $name:ident($db:ident) $body:block) => {
        $(#[$doc])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            async fn promise($db: &dyn $crate::support::Database) $body

            #[test]
            fn postgres() {
                $crate::support::postgres::with_database(|db| Box::pin(async move { promise(&*db).await }));
            }

            #[test]
            fn sqlite() {
                $crate::support::sqlite::with_database(|db| Box::pin(async move { promise(&*db).await }));
            }
        }
    };
}
pub(crate) use promise;
