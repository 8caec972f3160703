//! Postgres, the store of the product: schema, statements and connections.
//!
//! One file a concern: [`schema`] migrates and makes months, [`runs`] starts and finds, [`claims`] hands out and
//! takes back, [`journal`] is the group-commit writer, [`inbox`] carries messages, [`sessions`] keeps leases,
//! [`listen`] wakes. Each statement is written once, schema-qualified, beside the method that runs it; [`sql`] puts
//! the schema's name in. Nothing here decides: rows are compared, written and reported.
//!
//! Client calls and claims share a pool. The journal writer, the lease renewal and the listener own a connection
//! each, outside of it, so that no burst of calls can starve them.

mod batches;
mod children;
mod claims;
mod forks;
mod inbox;
mod journal;
mod listen;
mod orders;
mod runs;
mod schema;
mod sessions;
mod sql;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use composer_sdk::{
    id::{RunId, Timestamp, WorkflowId},
    journal::Entry,
    payload::Payload,
};
use sqlx::{
    ConnectOptions, Connection, Executor, PgConnection, Postgres, Row,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgPool, PgPoolOptions},
};

use self::{
    claims::Hints,
    sql::{Statements, query},
};
use super::{
    ChildStarted, Claim, Claimed, Codec, Deleted, Epoch, Forked, IdPolicy, JournalConn, ListenConn, Message,
    MessageContent, NewFork, NewMessage, NewRun, NewSession, Order, Ordered, Parent, Release, Released,
    Result, RunEnd, RunFilter, RunRow, Sent, SessionConn, SessionId, Started, Store, StoreError,
    StoreOptions, Suspects, Swept, Topic,
};

/// The store on Postgres.
#[derive(Debug)]
pub struct PostgresStore {
    pool: PgPool,
    options: PgConnectOptions,
    /// The schema as the user named it.
    schema: String,
    sql: Statements,
    codec: Arc<dyn Codec>,
    hints: Hints,
    months: schema::MonthsChecked,
}

/// What a connection is for: its name in `pg_stat_activity`, and how long it may wait.
#[derive(Debug, Clone, Copy)]
enum Role {
    /// Client calls and claims.
    Pool,
    /// The journal writer.
    Writer,
    /// The lease renewal.
    Session,
    /// The listener.
    Listener,
    /// DDL.
    Migrator,
}

/// How long a pooled call waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that rested longer than this are asked whether they still live before they are used.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

impl PostgresStore {
    /// Connects, without looking at the schema.
    ///
    /// # Errors
    /// `Config` when the URL or the schema's name cannot be used, or the server refuses the user or database;
    /// `Unavailable` when it cannot be reached.
    pub async fn connect(options: StoreOptions) -> Result<Self> {
        let schema = sql::quote_schema(&options.schema)?;
        let connect = connect_options(&options.url)?;
        let pool = PgPoolOptions::new()
            .max_connections(options.pool_size.max(2))
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .before_acquire(|conn, meta| {
                Box::pin(async move { Ok(meta.idle_for < TRUSTED_IDLE || conn.ping().await.is_ok()) })
            })
            .after_connect(|conn, _| Box::pin(async move { configure(conn, Role::Pool).await }))
            .connect_lazy_with(connect.clone());
        Self::assemble(pool, connect, &schema, options).await
    }

    /// Shares a pool that is there already for everything but the connections that the engine owns, which are opened
    /// with the pool's options. The URL of `options` is not looked at. The pool's connections keep the settings that
    /// they have; their isolation has to be `read committed`.
    ///
    /// # Errors
    /// As [`PostgresStore::connect`].
    pub async fn with_pool(pool: PgPool, options: StoreOptions) -> Result<Self> {
        let schema = sql::quote_schema(&options.schema)?;
        let connect = (*pool.connect_options()).clone();
        Self::assemble(pool, connect, &schema, options).await
    }

    async fn assemble(
        pool: PgPool,
        connect: PgConnectOptions,
        schema: &str,
        options: StoreOptions,
    ) -> Result<Self> {
        let store = Self {
            pool,
            options: connect,
            sql: Statements::new(schema),
            schema: options.schema,
            codec: options.codec,
            hints: Hints::default(),
            months: schema::MonthsChecked::default(),
        };
        store.check_server().await?;
        Ok(store)
    }

    /// Closes the pool; connections that were opened on their own stay.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// The text of a statement by its name, for `explain`. Not part of the public interface.
    #[doc(hidden)]
    pub fn statement(&self, name: &str) -> Option<&str> {
        match name {
            "planner_of_pool" => Some(PLANNER_OF_POOL),
            "planner_of_writer" => Some(PLANNER_OF_WRITER),
            name => self.sql.by_name(name),
        }
    }

    async fn check_server(&self) -> Result<()> {
        let mut conn = self.open(Role::Pool).await?;
        let version: i32 = sqlx::query_scalar("select current_setting('server_version_num')::int")
            .fetch_one(&mut conn)
            .await
            .map_err(classify)?;
        let _ = conn.close().await;
        if version < 140_000 {
            return Err(StoreError::Config {
                message: format!(
                    "{} runs PostgreSQL {}; Composer needs 14 or later",
                    self.location(),
                    version / 10_000
                ),
            });
        }
        Ok(())
    }

    async fn acquire(&self) -> Result<PoolConnection<Postgres>> {
        self.pool.acquire().await.map_err(not_sent)
    }

    /// A connection outside the pool.
    async fn open(&self, role: Role) -> Result<PgConnection> {
        open(&self.options, role).await
    }

    fn encode(&self, payload: &Payload) -> Payload {
        self.codec.encode(payload.clone())
    }

    fn decode(&self, stored: Vec<u8>, of: &dyn std::fmt::Display) -> Result<Payload> {
        self.codec
            .decode(Payload::from(stored))
            .map_err(|why| StoreError::unreadable(format!("a payload of {of}: {why}")))
    }
}

async fn open(options: &PgConnectOptions, role: Role) -> Result<PgConnection> {
    let mut conn = options.connect().await.map_err(not_sent)?;
    configure(&mut conn, role).await.map_err(not_sent)?;
    Ok(conn)
}

fn connect_options(url: &str) -> Result<PgConnectOptions> {
    let options: PgConnectOptions = url.parse().map_err(|e: sqlx::Error| StoreError::Config {
        message: format!(
            "the database URL cannot be read ({e}); expected postgres://user:password@host:5432/database"
        ),
    })?;
    Ok(options.application_name("composer").disable_statement_logging())
}

/// Settings that must not depend on the server's, the database's or the role's defaults.
async fn configure(conn: &mut PgConnection, role: Role) -> Result<(), sqlx::Error> {
    let (name, lock_ms, statement_ms) = match role {
        Role::Pool => ("composer", 5_000, 30_000),
        Role::Writer => ("composer writer", 5_000, 30_000),
        Role::Session => ("composer session", 2_000, 5_000),
        Role::Listener => ("composer listener", 2_000, 30_000),
        Role::Migrator => ("composer migrator", 1_000, 0),
    };
    sqlx::query(
        "select set_config('application_name', $1, false),
                set_config('lock_timeout', $2, false),
                set_config('statement_timeout', $3, false),
                set_config('idle_in_transaction_session_timeout', '10s', false),
                set_config('default_transaction_isolation', 'read committed', false),
                set_config('default_transaction_read_only', 'off', false),
                set_config('tcp_keepalives_idle', '10', false),
                set_config('tcp_keepalives_interval', '5', false),
                set_config('tcp_keepalives_count', '3', false),
                set_config('tcp_user_timeout', '30s', false),
                set_config('synchronous_commit', case when current_setting('synchronous_commit') in ('off', 'local')
                    then 'on' else current_setting('synchronous_commit') end, false)",
    )
    .persistent(false)
    .bind(name)
    .bind(lock_ms.to_string())
    .bind(statement_ms.to_string())
    .execute(&mut *conn)
    .await?;
    match role {
        Role::Writer => conn.execute(sqlx::raw_sql(PLANNER_OF_WRITER)).await?,
        _ => conn.execute(sqlx::raw_sql(PLANNER_OF_POOL)).await?,
    };
    Ok(())
}

/// Every statement knows its rows by an index; a plan that was made on empty tables must not scan full ones later.
/// Planning over all months costs more than most statements, so it is done once a connection.
const PLANNER_OF_POOL: &str =
    "set jit = off; set enable_seqscan = off; set plan_cache_mode = force_generic_plan";

/// The writer's rows are found by nested loops that are written so that nothing else is possible; its parts are
/// joined to each other by hash, never by nested loops, which are quadratic in the batch. Planned once: left to itself
/// the server plans small batches anew each time, which takes longer than they do.
const PLANNER_OF_WRITER: &str = "set jit = off; set enable_seqscan = off; set enable_mergejoin = off; \
     set enable_nestloop = off; set plan_cache_mode = force_generic_plan";

/// An error before anything that could commit was sent.
fn not_sent(error: sqlx::Error) -> StoreError {
    // What the TLS handshake says: a certificate that is not trusted will not be trusted at the next attempt.
    if let sqlx::Error::Io(refused) = &error
        && refused.kind() == std::io::ErrorKind::InvalidData
    {
        let message =
            format!("TLS to the database: {refused}; name the authority with `sslrootcert` in the URL");
        return StoreError::Config { message };
    }
    match classify(error) {
        StoreError::Unavailable { message, .. } => {
            StoreError::Unavailable { message, maybe_committed: false }
        }
        other => other,
    }
}

/// What to do about an error of the database: by SQLSTATE, never by text.
fn classify(error: sqlx::Error) -> StoreError {
    let unavailable = |message: String, maybe_committed| StoreError::Unavailable { message, maybe_committed };
    match error {
        sqlx::Error::Database(e) => {
            let code = e.code().unwrap_or_default().into_owned();
            let message = format!("{} ({code})", e.message());
            match (code.get(..2).unwrap_or_default(), code.as_str()) {
                // The server ended the connection: in the middle of a commit, for all we know.
                ("08", _) | (_, "57P01" | "57P02" | "57P05") => unavailable(message, true),
                ("40" | "53" | "55" | "57", _) | (_, "25006") => unavailable(message, false),
                ("42" | "3F", "42P01" | "42501" | "42703" | "42883" | "3F000") => schema::missing(message),
                ("28" | "3D", _) => StoreError::Config {
                    message: format!(
                        "{message}; check user, password and database of the URL, and pg_hba.conf"
                    ),
                },
                (_, "23505") => StoreError::Conflict { message },
                _ => StoreError::Rejected { message },
            }
        }
        sqlx::Error::Configuration(e) => StoreError::Config { message: e.to_string() },
        sqlx::Error::Tls(e) => StoreError::Config {
            message: format!(
                "TLS to the database: {e} (the feature `tls` and `sslmode` in the URL switch it on)"
            ),
        },
        sqlx::Error::PoolTimedOut => {
            let within = ACQUIRE_TIMEOUT.as_secs();
            unavailable(
                format!("no connection within {within} s: the server is away, or all of the pool are in use"),
                false,
            )
        }
        sqlx::Error::PoolClosed => unavailable("the store was closed".into(), false),
        sqlx::Error::Encode(e) => StoreError::Rejected { message: e.to_string() },
        e @ (sqlx::Error::Io(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed) => unavailable(e.to_string(), true),
        e => StoreError::unreadable(e.to_string()),
    }
}

/// Runs a read, and once more for each pooled connection that turns out to be dead.
macro_rules! read {
    ($store:expr, |$conn:ident| $body:expr) => {{
        let mut again = $store.pool.options().get_max_connections();
        loop {
            let mut $conn = $store.acquire().await?;
            match $body.await.map_err($crate::store::postgres::classify) {
                Err($crate::store::StoreError::Unavailable { maybe_committed: true, .. }) if again > 0 => {
                    again -= 1
                }
                result => break result,
            }
        }
    }};
}
use read;

fn epoch_of(row: &sqlx::postgres::PgRow, column: &str) -> Result<Epoch> {
    Ok(Epoch(row.try_get(column).map_err(classify)?))
}

#[async_trait]
impl Store for PostgresStore {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn location(&self) -> String {
        let place = match self.options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", self.options.get_host(), self.options.get_port()),
        };
        let database = self.options.get_database().unwrap_or(self.options.get_username());
        format!("postgres://{place}/{database}, schema {}", self.schema)
    }

    async fn migrate(&self) -> Result<()> {
        self.bring_up_to_date().await
    }

    async fn check_schema(&self) -> Result<()> {
        self.require_schema().await
    }

    async fn now(&self) -> Result<Timestamp> {
        let micros: i64 = read!(self, |conn| sqlx::query_scalar(sql::NOW_QUERY).fetch_one(&mut *conn))?;
        Ok(Timestamp::from_micros(micros))
    }

    async fn start(&self, run: &NewRun, policy: IdPolicy, owner: Option<SessionId>) -> Result<Started> {
        self.start_run(run, policy, owner).await
    }

    async fn send(&self, run: RunId, message: &NewMessage) -> Result<Sent> {
        self.send_message(run, message).await
    }

    async fn find(&self, id: &WorkflowId) -> Result<Option<RunRow>> {
        self.find_run(id).await
    }

    async fn run(&self, run: RunId) -> Result<Option<RunRow>> {
        self.run_row(run).await
    }

    async fn input(&self, run: RunId) -> Result<Option<Payload>> {
        self.run_input(run).await
    }

    async fn list(&self, filter: &RunFilter, before: Option<RunId>, limit: u32) -> Result<Vec<RunRow>> {
        self.list_runs(filter, before, limit).await
    }

    async fn ends(&self, runs: &[RunId]) -> Result<Vec<(RunId, RunEnd)>> {
        self.run_ends(runs).await
    }

    async fn journal(&self, run: RunId, after: u32, limit: u32) -> Result<Vec<Entry>> {
        self.journal_page(run, after, limit).await
    }

    async fn unconsumed(&self, run: RunId) -> Result<Vec<MessageContent>> {
        self.unconsumed_messages(run).await
    }

    async fn delete(&self, run: RunId) -> Result<Deleted> {
        self.delete_run(run).await
    }

    async fn start_child(&self, child: &NewRun, parent: &Parent) -> Result<ChildStarted> {
        self.begin_child(child, parent).await
    }

    async fn published(&self, run: RunId) -> Result<Vec<(String, Timestamp, Payload)>> {
        self.published_of(run).await
    }

    async fn fork(&self, fork: &NewFork) -> Result<Forked> {
        self.fork_run(fork).await
    }

    async fn order(&self, run: RunId, order: &Order) -> Result<Ordered> {
        self.obey(run, order).await
    }

    async fn claim(&self, claim: &Claim) -> Result<Vec<Claimed>> {
        self.claim_runs(claim).await
    }

    async fn load(&self, runs: &[RunId]) -> Result<Vec<(RunId, Vec<Entry>)>> {
        self.load_journals(runs).await
    }

    async fn prune(&self, run: RunId, before: u32) -> Result<u64> {
        self.prune_journal(run, before).await
    }

    async fn inbox(&self, runs: &[RunId]) -> Result<Vec<Message>> {
        self.inbox_of(runs).await
    }

    async fn release(&self, session: SessionId, runs: &[Release]) -> Result<Vec<Released>> {
        self.release_runs(session, runs).await
    }

    async fn owned(&self, session: SessionId) -> Result<Vec<(RunId, Epoch)>> {
        let rows = read!(self, |conn| query(&self.sql.owned).bind(session.0).fetch_all(&mut *conn))?;
        rows.iter()
            .map(|row| {
                Ok((
                    RunId::from(row.try_get::<uuid::Uuid, _>("run_id").map_err(classify)?),
                    epoch_of(row, "epoch")?,
                ))
            })
            .collect()
    }

    async fn next_due(&self, workflows: &[String]) -> Result<Option<Timestamp>> {
        self.next_due_of(workflows).await
    }

    async fn unhosted(&self) -> Result<Vec<(String, u64)>> {
        self.unhosted_workflows().await
    }

    async fn sweep(&self, seen: &mut Suspects) -> Result<Swept> {
        self.sweep_once(seen).await
    }

    async fn close_session(&self, session: SessionId) -> Result<()> {
        self.end_session(session).await
    }

    fn journal_lanes(&self) -> usize {
        2
    }

    async fn open_journal(&self) -> Result<Box<dyn JournalConn>> {
        Ok(Box::new(self.journal_conn().await?))
    }

    async fn open_session(
        &self,
        session: &NewSession,
    ) -> Result<(SessionId, Timestamp, Box<dyn SessionConn>)> {
        let (id, at, conn) = self.begin_session(session).await?;
        Ok((id, at, Box::new(conn)))
    }

    async fn listen(&self, session: Option<SessionId>) -> Result<Box<dyn ListenConn>> {
        Ok(Box::new(self.listener(session).await?))
    }

    async fn notify(&self, topics: &[Topic]) -> Result<()> {
        self.tell(topics).await
    }
}
