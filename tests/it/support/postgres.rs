//! Postgres for tests: a migrated database for every test, emptied and used again after a test that passed.
//!
//! `COMPOSER_TEST_POSTGRES` is the URL of a private server, as a role that may create databases. They stay there
//! (`composer_test_…`): dropping one takes longer than most tests, and the server is thrown away anyway.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use composer_runtime::store::{Codec, Plain, Store, StoreOptions, postgres::PostgresStore};
use composer_sdk::id::RunId;
use futures::future::BoxFuture;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use tokio::sync::Mutex;

use super::{Database, block_on};

/// The schema of the tests: a name that only quoting makes usable.
pub(crate) const SCHEMA: &str = "the \"order\"";

/// [`SCHEMA`] as SQL writes it.
pub(crate) const QUOTED: &str = "\"the \"\"order\"\"\"";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Migrated databases that nobody uses.
static FREE: Mutex<Vec<String>> = Mutex::const_new(Vec::new());

/// One test's database on Postgres.
#[derive(Debug)]
pub(crate) struct Postgres {
    name: String,
    store: Arc<PostgresStore>,
    raw: Mutex<PgConnection>,
}

/// Runs a promise on a database of its own, if there is a server.
pub(crate) fn with_database(promise: impl FnOnce(Arc<Postgres>) -> BoxFuture<'static, ()>) {
    let Some(admin) = admin_url() else { return };
    block_on(async {
        let database = Arc::new(Postgres::create(&admin).await);
        promise(database.clone()).await;
        database.set_free().await;
    });
}

/// The private server's URL; `None` when the Postgres half is to be skipped.
pub(crate) fn admin_url() -> Option<String> {
    if let Ok(url) = std::env::var("COMPOSER_TEST_POSTGRES") {
        return Some(url);
    }
    assert!(
        std::env::var("COMPOSER_TEST_SKIP_POSTGRES").is_ok_and(|skip| skip == "1"),
        "no Postgres to test on: run `cargo xtask test`, or set COMPOSER_TEST_POSTGRES to the URL of a private server \
         whose role may create databases, or COMPOSER_TEST_SKIP_POSTGRES=1 to leave Postgres out"
    );
    None
}

/// The same server, another database.
pub(crate) fn url_of(admin: &str, database: &str) -> String {
    let (head, query) = admin.split_once('?').map_or((admin, None), |(head, query)| (head, Some(query)));
    let place = head.rfind('/').filter(|at| *at > "postgresql://".len()).map_or(head, |at| &head[..at]);
    match query {
        Some(query) => format!("{place}/{database}?{query}"),
        None => format!("{place}/{database}"),
    }
}

/// The store's options for a URL.
pub(crate) fn options(url: String) -> StoreOptions {
    StoreOptions { url, schema: SCHEMA.into(), codec: Arc::new(Plain), pool_size: 4 }
}

/// An empty database of a fresh name: its name and URL.
pub(crate) async fn empty_database(admin: &str) -> (String, String) {
    let name = fresh_name();
    let mut conn = PgConnection::connect(admin).await.expect("COMPOSER_TEST_POSTGRES can be reached");
    run(&mut conn, &format!("create database {name} template template1")).await;
    let url = url_of(admin, &name);
    (name, url)
}

/// Drops a database, whoever is connected.
pub(crate) async fn drop_database(admin: &str, name: &str) {
    if let Ok(mut conn) = PgConnection::connect(admin).await {
        let _ = conn.execute(AssertSqlSafe(format!("drop database if exists {name} with (force)"))).await;
    }
}

fn fresh_name() -> String {
    format!("composer_test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

async fn run(conn: &mut PgConnection, sql: &str) -> u64 {
    conn.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned())))
        .await
        .unwrap_or_else(|e| panic!("{e}\nin: {sql}"))
        .rows_affected()
}

impl Postgres {
    async fn create(admin: &str) -> Self {
        let free = FREE.lock().await.pop();
        let name = match free {
            Some(name) => name,
            None => migrated_database(admin).await,
        };
        let store =
            PostgresStore::connect(options(url_of(admin, &name))).await.expect("a new database can be used");
        let raw = PgConnection::connect(&url_of(admin, &name)).await.expect("a new database can be used");
        Self { name, store: Arc::new(store), raw: Mutex::new(raw) }
    }

    /// Leaves an empty database for the next test.
    async fn set_free(&self) {
        let mut raw = self.raw.lock().await;
        let others = "(select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity
                        where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid())";
        number(&mut raw, others).await;
        let tables =
            ["runs", "journal", "inbox", "ids", "sessions"].map(|table| format!("delete from {{s}}{table};"));
        run(&mut raw, &filled(&tables.concat())).await;
        FREE.lock().await.push(self.name.clone());
    }

    /// Another connection, to steer by hand.
    pub(crate) async fn connection(&self) -> Hand {
        let admin = admin_url().expect("there is a server, or this database would not be");
        Hand(
            PgConnection::connect(&url_of(&admin, &self.name))
                .await
                .expect("the test's database can be used"),
        )
    }

    /// The store, with what only Postgres has.
    pub(crate) fn postgres(&self) -> &PostgresStore {
        &self.store
    }

    /// The URL of the test's database, as another role.
    pub(crate) fn url_as(&self, role: &str, password: &str) -> String {
        let url = self.url();
        let (scheme, rest) = url.split_once("://").expect("a URL has a scheme");
        let rest = rest.split_once('@').map_or(rest, |(_, rest)| rest);
        format!("{scheme}://{role}:{password}@{rest}")
    }

    /// The URL of the test's database.
    pub(crate) fn url(&self) -> String {
        url_of(&admin_url().expect("there is a server"), &self.name)
    }
}

async fn migrated_database(admin: &str) -> String {
    let (name, url) = empty_database(admin).await;
    let store = PostgresStore::connect(options(url)).await.expect("an empty database can be used");
    store.migrate().await.expect("an empty database can be migrated");
    store.close().await;
    name
}

#[async_trait]
impl Database for Postgres {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn coded(&self, codec: Arc<dyn Codec>) -> Arc<dyn Store> {
        let options = StoreOptions { codec, ..options(self.url()) };
        Arc::new(PostgresStore::connect(options).await.expect("the test's database can be used"))
    }

    async fn execute(&self, sql: &str) -> u64 {
        run(&mut *self.raw.lock().await, &filled(sql)).await
    }

    async fn number(&self, sql: &str) -> Option<i64> {
        number(&mut *self.raw.lock().await, sql).await
    }

    fn literal(&self, run: RunId) -> String {
        format!("'{run}'::uuid")
    }
}

fn filled(sql: &str) -> String {
    sql.replace("{s}", &format!("{QUOTED}."))
}

async fn number(conn: &mut PgConnection, sql: &str) -> Option<i64> {
    let rows = sqlx::query(AssertSqlSafe(format!("select ({})::bigint", filled(sql))))
        .fetch_all(conn)
        .await
        .unwrap_or_else(|e| panic!("{e}\nin: {sql}"));
    rows.first().and_then(|row| row.get(0))
}

/// A raw connection that a test steers statement by statement.
pub(crate) struct Hand(PgConnection);

impl Hand {
    /// A connection to a database.
    pub(crate) async fn open(url: &str) -> Self {
        Self(PgConnection::connect(url).await.expect("the test's database can be used"))
    }

    /// Runs a statement. `{s}` stands for the schema and a dot.
    pub(crate) async fn execute(&mut self, sql: &str) -> u64 {
        run(&mut self.0, &filled(sql)).await
    }

    /// The result of a scalar expression.
    pub(crate) async fn number(&mut self, sql: &str) -> Option<i64> {
        number(&mut self.0, sql).await
    }

    /// How many rows a statement returns.
    pub(crate) async fn rows(&mut self, sql: &str) -> usize {
        self.0
            .fetch_all(sqlx::raw_sql(AssertSqlSafe(filled(sql))))
            .await
            .unwrap_or_else(|e| panic!("{e}\nin: {sql}"))
            .len()
    }

    /// All rows' first columns as text, such as a plan's lines.
    pub(crate) async fn lines(&mut self, sql: &str) -> Vec<String> {
        let rows =
            self.0.fetch_all(AssertSqlSafe(filled(sql))).await.unwrap_or_else(|e| panic!("{e}\nin: {sql}"));
        rows.iter().map(|row| row.get(0)).collect()
    }
}
