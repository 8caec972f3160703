//! Connecting, with settings.

use std::{sync::Arc, time::Duration};

use super::Composer;
use crate::{
    clock::Clock,
    error::Error,
    store::{self, Codec, Plain, Store, StoreOptions},
};

/// The embedded store of a process without `COMPOSER_URL`.
const EMBEDDED: &str = "sqlite:composer.db";

/// How to connect. Made by [`Composer::builder`].
#[derive(Debug)]
#[must_use = "nothing is connected until `.connect().await`"]
pub struct ComposerBuilder {
    url: Option<String>,
    schema: String,
    codec: Arc<dyn Codec>,
    pool_size: u32,
    migrate: bool,
    poll: Duration,
    #[cfg(feature = "postgres")]
    pool: Option<sqlx::PgPool>,
    store: Option<Arc<dyn Store>>,
}

impl Default for ComposerBuilder {
    fn default() -> Self {
        Self {
            url: None,
            schema: "composer".into(),
            codec: Arc::new(Plain),
            pool_size: 10,
            migrate: true,
            poll: Duration::from_secs(1),
            #[cfg(feature = "postgres")]
            pool: None,
            store: None,
        }
    }
}

impl ComposerBuilder {
    /// `postgres://…` or `sqlite:path`. Without it, `COMPOSER_URL`, or the embedded store in the current directory.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// The schema on Postgres, `composer` by default. Any name: it is quoted.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Compresses or encrypts payloads on their way into the database.
    pub fn codec(mut self, codec: impl Codec) -> Self {
        self.codec = Arc::new(codec);
        self
    }

    /// Connections for client calls and claims, 10 by default. The journal writer, the lease and the listener own
    /// theirs besides.
    pub fn pool_size(mut self, connections: u32) -> Self {
        self.pool_size = connections.max(1);
        self
    }

    /// Whether the schema is brought up to date when it is behind, `true` by default. With `false`, a schema that is
    /// behind is an error that says what to do.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// How often a client that waits for a result asks when no notification comes, 1 s by default.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = poll.max(Duration::from_millis(1));
        self
    }

    /// Shares an existing pool for client calls and claims, instead of a URL. The connections that the engine owns
    /// (journal writer, lease, listener) are opened besides, with the pool's options.
    #[cfg(feature = "postgres")]
    pub fn pool(mut self, pool: sqlx::PgPool) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Uses a store that is open already, instead of a URL: one that several parts of a program share, or one that a
    /// test has wrapped to make it fail.
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// [`Error::Store`]: the URL is wrong, the database cannot be reached, or its schema needs attention.
    pub async fn connect(mut self) -> Result<Composer, Error> {
        let (migrate, poll) = (self.migrate, self.poll);
        let store = self.open().await?;
        if migrate {
            store.migrate().await?;
        } else {
            store.check_schema().await?;
        }
        let clock = Clock::new(store.now().await?);
        Ok(Composer::assemble(store, clock, poll))
    }

    async fn open(&mut self) -> Result<Arc<dyn Store>, Error> {
        if let Some(store) = self.store.take() {
            return Ok(store);
        }
        let url =
            self.url.take().or_else(|| std::env::var("COMPOSER_URL").ok().filter(|url| !url.is_empty()));
        let embedded = url.is_none();
        let options = StoreOptions {
            url: url.unwrap_or_else(|| EMBEDDED.into()),
            schema: std::mem::take(&mut self.schema),
            codec: self.codec.clone(),
            pool_size: self.pool_size,
        };
        #[cfg(feature = "postgres")]
        if let Some(pool) = self.pool.take() {
            return Ok(Arc::new(store::postgres::PostgresStore::with_pool(pool, options).await?));
        }
        let store = store::connect(options).await?;
        if embedded {
            eprintln!("composer: COMPOSER_URL is not set; runs are kept in {}", store.location());
        }
        Ok(store)
    }
}
