//! Connections, each in the care of a thread of its own.
//!
//! A *script* is one text of one or more statements with one set of arguments (`$1`, `$2`, … mean the same in each of
//! them; not `?1`, whose gaps sqlx counts as arguments). sqlx runs it on the connection's thread in one go, so a transaction costs one hand-over instead of one for
//! each statement. The lane's thread waits for it, never a caller's: the write lock is never held while user code
//! blocks a runtime, and what a caller drops is finished all the same.
//!
//! All writes of a process go through one lane, in the order in which they were asked for. Between processes SQLite's
//! busy handler waits for the lock. A queue is as long as there are callers that wait for their answer.
//!
//! After any error the connection is closed, which rolls back what was open, and the next script opens another.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::{Duration, Instant},
};

use futures::{channel::oneshot, executor::block_on};
use sqlx::{
    ConnectOptions, Connection, Row, SqliteConnection,
    error::DatabaseError,
    sqlite::{SqliteArguments, SqliteConnectOptions, SqliteRow, SqliteSynchronous},
};

use super::super::{Result, StoreError};

/// How long a write waits for the lock that another process holds.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Tables of the writing connection's own: empty between two scripts.
pub(super) const OWN_TABLES: &str = "
    create temp table composer_fence (part integer primary key, run_id blob, epoch integer);
    create temp table composer_obstacle (run_id blob, workflow text, status integer, owned integer, at integer)";

/// One or more connections with one queue.
#[derive(Debug)]
pub(super) struct Lane {
    jobs: mpsc::Sender<Job>,
}

type Job = Box<dyn FnOnce(&mut Seat) + Send>;

impl Lane {
    /// The one lane for writes.
    pub(super) fn write(file: Arc<Path>) -> Self {
        Self::open(file, Mode::Write, 1)
    }

    /// Lanes for reads: each sees what was committed when its script began.
    pub(super) fn read(file: Arc<Path>, readers: u32) -> Self {
        Self::open(file, Mode::Read, readers)
    }

    fn open(file: Arc<Path>, mode: Mode, seats: u32) -> Self {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..seats {
            let seat = Seat { file: file.clone(), mode, conn: None };
            let queue = queue.clone();
            std::thread::Builder::new()
                .name(format!("composer-sqlite-{}", if mode == Mode::Write { "write" } else { "read" }))
                .spawn(move || seat.serve(&queue))
                .expect("the system has a thread for the store");
        }
        Self { jobs }
    }

    /// Runs a script and gives the rows of all its statements, in order.
    pub(super) async fn script(&self, sql: &'static str, args: SqliteArguments) -> Result<Vec<SqliteRow>> {
        self.run(move |seat| seat.script(sql, args)).await
    }

    /// Runs one statement and says how many rows it changed.
    pub(super) async fn execute(&self, sql: &'static str, args: SqliteArguments) -> Result<u64> {
        self.run(move |seat| seat.execute(sql, args)).await
    }

    /// Runs `work` with a connection to itself.
    pub(super) async fn run<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Seat) -> Result<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |seat| {
            // Nobody may be waiting any more; the work counts all the same.
            let _ = reply.send(work(seat));
        });
        let gone = |maybe_committed| StoreError::Unavailable {
            message: "the thread of the SQLite connection has ended".into(),
            maybe_committed,
        };
        self.jobs.send(job).map_err(|_| gone(false))?;
        answer.await.map_err(|_| gone(true))?
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Read,
    Write,
}

/// A connection, or the place for one.
pub(super) struct Seat {
    file: Arc<Path>,
    mode: Mode,
    conn: Option<SqliteConnection>,
}

impl Seat {
    fn serve(mut self, queue: &Mutex<mpsc::Receiver<Job>>) {
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(job) = next else { break };
            if catch_unwind(AssertUnwindSafe(|| job(&mut self))).is_err() {
                self.close();
            }
        }
        self.close();
    }

    /// Runs a script and gives the rows of all its statements, in order.
    pub(super) fn script(&mut self, sql: &'static str, args: SqliteArguments) -> Result<Vec<SqliteRow>> {
        let done = block_on(sqlx::query_with(sql, args).fetch_all(self.conn()?));
        done.map_err(|e| self.give_up(&e))
    }

    /// Runs one statement and says how many rows it changed.
    pub(super) fn execute(&mut self, sql: &'static str, args: SqliteArguments) -> Result<u64> {
        let done = block_on(sqlx::query_with(sql, args).execute(self.conn()?));
        done.map(|done| done.rows_affected()).map_err(|e| self.give_up(&e))
    }

    fn conn(&mut self) -> Result<&mut SqliteConnection> {
        if self.conn.is_none() {
            self.conn = Some(open(&self.file, self.mode)?);
        }
        Ok(self.conn.as_mut().expect("invariant: just opened"))
    }

    fn give_up(&mut self, error: &sqlx::Error) -> StoreError {
        self.close();
        failed(&self.file, error)
    }

    fn close(&mut self) {
        if let Some(conn) = self.conn.take() {
            // It is given up either way; the next one will say what is wrong.
            let _ = block_on(conn.close());
        }
    }
}

fn open(file: &Path, mode: Mode) -> Result<SqliteConnection> {
    let options = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .busy_timeout(BUSY_TIMEOUT)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(false)
        .pragma("temp_store", "memory")
        .pragma("cache_size", "-16000")
        .pragma("journal_size_limit", "67108864")
        .row_buffer_size(1024)
        .disable_statement_logging();
    let mut conn = block_on(options.connect()).map_err(|e| failed(file, &e))?;
    enter_wal(file, &mut conn)?;
    let prepare = match mode {
        Mode::Read => "pragma query_only = on",
        Mode::Write => OWN_TABLES,
    };
    block_on(sqlx::raw_sql(prepare).execute(&mut conn)).map_err(|e| failed(file, &e))?;
    Ok(conn)
}

/// Switches the file to WAL, which SQLite remembers. The busy handler does not wait for that switch, so several
/// processes that open a new file at once are kept apart here.
fn enter_wal(file: &Path, conn: &mut SqliteConnection) -> Result<()> {
    let until = Instant::now() + BUSY_TIMEOUT;
    loop {
        match block_on(sqlx::query("pragma journal_mode = wal").fetch_one(&mut *conn)) {
            Ok(row) if row.try_get::<String, _>(0).is_ok_and(|mode| mode == "wal") => return Ok(()),
            Ok(_) => {
                return Err(StoreError::Config {
                    message: format!(
                        "{} cannot be used in WAL mode; put it on a local disk, not on a network file system",
                        file.display()
                    ),
                });
            }
            Err(e) if is_busy(&e) && Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            Err(e) => return Err(failed(file, &e)),
        }
    }
}

/// SQLite's primary result codes that we tell apart.
mod code {
    pub(super) const ERROR: u32 = 1;
    pub(super) const BUSY: u32 = 5;
    pub(super) const LOCKED: u32 = 6;
    pub(super) const CORRUPT: u32 = 11;
    pub(super) const TOO_BIG: u32 = 18;
    pub(super) const CONSTRAINT: u32 = 19;
    pub(super) const MISMATCH: u32 = 20;
    pub(super) const NOT_A_DATABASE: u32 = 26;
}

fn code_of(error: &dyn DatabaseError) -> Option<u32> {
    error.code()?.parse::<u32>().ok().map(|extended| extended & 0xff)
}

fn is_busy(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(code_of);
    matches!(code, Some(code::BUSY | code::LOCKED))
}

fn failed(file: &Path, error: &sqlx::Error) -> StoreError {
    let file = file.display();
    let message = format!("{file}: {error}");
    let Some(database) = error.as_database_error() else {
        return StoreError::Unavailable { message, maybe_committed: true };
    };
    match code_of(database) {
        Some(code::BUSY | code::LOCKED) => StoreError::Unavailable {
            message: format!("another process has held the write lock of {file} for {BUSY_TIMEOUT:?}"),
            maybe_committed: false,
        },
        Some(code::CONSTRAINT) => StoreError::Conflict { message },
        Some(code::TOO_BIG | code::MISMATCH) => StoreError::Rejected { message },
        Some(code::ERROR) if database.message().contains("no such") => StoreError::Schema {
            message: format!("{message}; run the migrations (`migrate`), which create what is missing"),
        },
        Some(code::ERROR) => StoreError::Rejected { message },
        Some(code::CORRUPT) => StoreError::Unreadable { message },
        Some(code::NOT_A_DATABASE) => StoreError::Config {
            message: format!("{file} exists and is no SQLite database; name another file"),
        },
        _ => StoreError::Unavailable { message, maybe_committed: true },
    }
}
