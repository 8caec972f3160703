//! SQLite for tests: a file in a folder of its own for every test, removed at its end.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use async_trait::async_trait;
use composer_runtime::store::{self, Codec, Plain, Store, StoreOptions};
use composer_sdk::id::RunId;
use futures::future::BoxFuture;
use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};
use tokio::sync::Mutex;

use super::{Database, block_on};

/// What stands in SQLite for the schema: the beginning of each table's name.
const PREFIX: &str = "composer_";

/// A folder that goes with the test.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A new, empty one.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("composer-sqlite-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        Self(folder)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The database file in it.
    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("composer.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Opens the store on a file, as a process would, without looking at the schema.
pub(crate) async fn open(file: &Path) -> Arc<dyn Store> {
    open_with(file, Arc::new(Plain)).await
}

async fn open_with(file: &Path, codec: Arc<dyn Codec>) -> Arc<dyn Store> {
    let options = StoreOptions {
        url: format!("sqlite:{}", file.display()),
        schema: "composer".into(),
        codec,
        pool_size: 4,
    };
    store::connect(options).await.expect("the test's file can be opened")
}

/// The same, migrated.
pub(crate) async fn ready(file: &Path) -> Arc<dyn Store> {
    let store = open(file).await;
    store.migrate().await.expect("the test's file can be migrated");
    store
}

/// A connection of the test's own.
pub(crate) async fn connection(file: &Path) -> SqliteConnection {
    SqliteConnection::connect(&format!("sqlite:{}", file.display()))
        .await
        .expect("the test's file can be opened")
}

/// One test's file.
#[derive(Debug)]
pub(crate) struct Sqlite {
    folder: Folder,
    store: Arc<dyn Store>,
    raw: Mutex<SqliteConnection>,
}

/// Runs a promise on a file of its own.
pub(crate) fn with_database(promise: impl FnOnce(Arc<Sqlite>) -> BoxFuture<'static, ()>) {
    block_on(async {
        let folder = Folder::new();
        let store = ready(&folder.file()).await;
        let raw = Mutex::new(connection(&folder.file()).await);
        promise(Arc::new(Sqlite { folder, store, raw })).await;
    });
}

impl Sqlite {
    /// The URL of the test's file.
    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.folder.file().display())
    }
}

#[async_trait]
impl Database for Sqlite {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn coded(&self, codec: Arc<dyn Codec>) -> Arc<dyn Store> {
        open_with(&self.folder.file(), codec).await
    }

    async fn execute(&self, sql: &str) -> u64 {
        let sql = sql.replace("{s}", PREFIX);
        sqlx::raw_sql(AssertSqlSafe(sql.clone()))
            .execute(&mut *self.raw.lock().await)
            .await
            .unwrap_or_else(|e| panic!("{e}\nin: {sql}"))
            .rows_affected()
    }

    async fn number(&self, sql: &str) -> Option<i64> {
        let sql = format!("select cast(({}) as integer)", sql.replace("{s}", PREFIX));
        let rows = sqlx::query(AssertSqlSafe(sql.clone()))
            .fetch_all(&mut *self.raw.lock().await)
            .await
            .unwrap_or_else(|e| panic!("{e}\nin: {sql}"));
        rows.first().and_then(|row| row.get(0))
    }

    fn literal(&self, run: RunId) -> String {
        format!("x'{}'", run.as_uuid().simple())
    }
}
