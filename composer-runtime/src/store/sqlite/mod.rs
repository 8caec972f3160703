//! The embedded store: one SQLite file, shared by any number of processes on one machine.
//!
//! It keeps the same promises as Postgres by simpler means: SQLite has one write lock, so whoever holds it sees
//! everything that was committed before and nothing changes beside it. Hence no row is ever `Busy`, and no snapshot
//! is older than the lock.
//!
//! * **Durable.** WAL with `synchronous = full`: an answer means that the bytes were synced.
//! * **No "database is locked".** Every write takes the write lock at its beginning and waits for it in line
//!   (`lane`); a stranger who holds the lock longer than ten seconds gives a transient error.
//! * **Nothing waits for user code.** A write is one script, handed to a thread of the store's own and run there
//!   from `begin` to `commit`: a runtime that user code blocks cannot hold the lock, and a dropped future cannot
//!   leave half a transaction.
//! * **Clock.** SQLite's own, read inside the statement, in milliseconds.
//! * **Liveness.** Lease rows decide; a lock file for each session says early that a process is gone (`live`).
//!
//! Three things the file does not bear: a network file system, whose locks are not to be trusted; a second copy of
//! SQLite linked into the program; and other code of the process that opens it, a backup by copying, say. Closing it
//! there drops SQLite's own locks. `vacuum into 'copy.db'` is the way to back up.

mod children;
mod claim;
mod forks;
mod inbox;
mod journal;
mod lane;
mod live;
mod location;
mod migrate;
mod orders;
#[cfg(test)]
mod plans;
mod rows;
mod runs;
mod sessions;

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use composer_sdk::{
    id::{RunId, Timestamp, WorkflowId},
    journal::Entry,
    payload::Payload,
};

use self::{
    lane::Lane,
    live::Live,
    rows::{now, sql},
};
use super::{
    ChildStarted, Claim, Claimed, Codec, Deleted, Epoch, Forked, IdPolicy, JournalConn, ListenConn, Message,
    MessageContent, NewFork, NewMessage, NewRun, NewSession, Order, Ordered, Parent, Release, Released,
    Result, RunEnd, RunFilter, RunRow, Sent, SessionConn, SessionId, Started, Store, StoreError,
    StoreOptions, Suspects, Swept, Topic,
};

/// A SQLite file as the store.
#[derive(Debug)]
pub struct SqliteStore {
    file: Arc<Path>,
    codec: Arc<dyn Codec>,
    write: Arc<Lane>,
    read: Arc<Lane>,
    live: Arc<Live>,
}

/// Connections that only read; more would not help on a file that is in memory anyway.
const MAX_READERS: u32 = 4;

impl SqliteStore {
    /// Opens the file that `options.url` names (`sqlite:path`), and creates it and its folder when they are missing.
    ///
    /// # Errors
    /// `Config` when the URL names no file or the file is no SQLite database; `Unavailable` when it cannot be opened.
    pub async fn connect(options: StoreOptions) -> Result<Self> {
        let file = location::file_of(&options.url)?;
        location::create_parent(&file)?;
        let file: Arc<Path> = file.into();
        let store = Self {
            write: Arc::new(Lane::write(file.clone())),
            read: Arc::new(Lane::read(file.clone(), options.pool_size.clamp(1, MAX_READERS))),
            live: Arc::new(Live::beside(&file)),
            codec: options.codec,
            file,
        };
        store.write.script("select 1", Default::default()).await?;
        Ok(store)
    }

    fn encode(&self, payload: &Payload) -> Payload {
        self.codec.encode(payload.clone())
    }

    fn decode(&self, stored: Vec<u8>) -> Result<Payload> {
        self.codec.decode(Payload::from(stored)).map_err(StoreError::unreadable)
    }

    fn decode_some(&self, stored: Option<Vec<u8>>) -> Result<Option<Payload>> {
        stored.map(|bytes| self.decode(bytes)).transpose()
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn kind(&self) -> &'static str {
        "sqlite"
    }

    fn location(&self) -> String {
        self.file.display().to_string()
    }

    async fn migrate(&self) -> Result<()> {
        migrate::migrate(&self.write).await
    }

    async fn check_schema(&self) -> Result<()> {
        migrate::check(&self.read).await
    }

    async fn now(&self) -> Result<Timestamp> {
        let rows = self.read.script(sql!("select ", now!()), Default::default()).await?;
        rows::only(&rows)?.at()
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
        self.read_journal(run, after, limit).await
    }

    async fn unconsumed(&self, run: RunId) -> Result<Vec<MessageContent>> {
        self.read_unconsumed(run).await
    }

    async fn delete(&self, run: RunId) -> Result<Deleted> {
        self.delete_run(run).await
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
        self.read_inbox(runs).await
    }

    async fn release(&self, session: SessionId, runs: &[Release]) -> Result<Vec<Released>> {
        self.release_runs(session, runs).await
    }

    async fn owned(&self, session: SessionId) -> Result<Vec<(RunId, Epoch)>> {
        self.owned_runs(session).await
    }

    async fn next_due(&self, workflows: &[String]) -> Result<Option<Timestamp>> {
        self.next_due_at(workflows).await
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

    async fn unhosted(&self) -> Result<Vec<(String, u64)>> {
        self.unhosted_workflows().await
    }

    async fn sweep(&self, seen: &mut Suspects) -> Result<Swept> {
        self.sweep_sessions(seen).await
    }

    async fn close_session(&self, session: SessionId) -> Result<()> {
        self.end_session(session).await
    }

    async fn open_journal(&self) -> Result<Box<dyn JournalConn>> {
        Ok(Box::new(journal::Writer { write: self.write.clone(), codec: self.codec.clone() }))
    }

    async fn open_session(
        &self,
        session: &NewSession,
    ) -> Result<(SessionId, Timestamp, Box<dyn SessionConn>)> {
        self.begin_session(session).await
    }

    async fn listen(&self, session: Option<SessionId>) -> Result<Box<dyn ListenConn>> {
        self.begin_listening(session).await
    }

    async fn notify(&self, topics: &[Topic]) -> Result<()> {
        self.live.notify(topics);
        Ok(())
    }
}
