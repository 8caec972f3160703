//! A crash at any point converges.
//!
//! A run is executed by a worker that is struck at its n-th call to the database, for every n: its process dies, or
//! its connection breaks so that the outcome is unknown, before the call or after its commit. It goes on, or another
//! one takes over. Whatever n is, the run must come to the same result, with the same journal, and no step whose
//! result was journaled may run again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use composer_runtime::{
    Composer, Line, RunHandle, Status, Worker,
    store::{
        Batch, BatchWritten, ChildStarted, Claim, Claimed, Deleted, Epoch, Forked, IdPolicy, JournalConn,
        ListenConn, Message, MessageContent, NewFork, NewMessage, NewRun, NewSession, Order, Ordered, Parent,
        Release, Released, Result as StoreResult, RunEnd, RunFilter, RunRow, Sent, SessionConn, SessionId,
        Settled, Started, Store, StoreError, Suspects, Swept, Topic,
    },
};
use composer_sdk::{
    id::{RunId, Timestamp, WorkflowId},
    journal::Entry,
    payload::Payload,
    prelude::*,
    saga,
};
use tokio::sync::Notify;

use crate::support::{Database, promise};

// ------------------------------------------------------------------------------------------------- the workflow

/// How often each step's body ran, by its idempotency key.
#[derive(Debug, Clone, Default)]
struct Ledger(Arc<Mutex<BTreeMap<String, u32>>>);

#[activity]
async fn step(#[state] ledger: Ledger, n: u32) -> Result<u32> {
    *ledger.0.lock().unwrap().entry(composer_sdk::activity::idempotency_key()).or_default() += 1;
    Ok(n * 10)
}

#[activity(retry(first = "1ms", jitter = 0.0))]
async fn heals(#[state] ledger: Ledger, n: u32) -> Result<u32> {
    *ledger.0.lock().unwrap().entry(composer_sdk::activity::idempotency_key()).or_default() += 1;
    if composer_sdk::activity::attempt() == 1 { Err(Error::new("not yet")) } else { Ok(n) }
}

static GO: Signal<u32> = Signal::new("go");

#[workflow]
async fn mixed(n: u32) -> Result<Vec<u32>> {
    let a = step(n).await?;
    let (b, c) = join!(step(a), step(a + 1));
    let d = select! {
        d = step(4) => d?,
        () = sleep(Duration::from_secs(3600)) => 0,
    };
    sleep(Duration::from_millis(1)).await;
    let e = heals(5).await?;
    let undone = saga::scope(async {
        compensate(step(20));
        step(21).await?;
        Err::<(), _>(Error::new("undo it"))
    });
    assert!(undone.await.is_err());
    let f = GO.recv().await;
    Ok(vec![a, b?, c?, d, e, f, step(7).await?])
}

const RESULT: [u32; 7] = [10, 100, 110, 40, 5, 6, 70];

// ---------------------------------------------------------------------------------------------------- the crash

/// What happens at the call.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Blow {
    /// The process dies before it.
    DiesBefore,
    /// The process dies when it was committed, before the answer.
    DiesAfter,
    /// The connection breaks; nothing was committed, but nobody knows.
    BreaksBefore,
    /// The connection breaks after the commit.
    BreaksAfter,
}

/// Counts the calls that change a run, and strikes at one of them.
#[derive(Debug)]
struct Fate {
    calls: AtomicU64,
    strikes_at: u64,
    blow: Blow,
    dead: Notify,
}

impl Fate {
    fn new(strikes_at: u64, blow: Blow) -> Arc<Self> {
        Arc::new(Self { calls: AtomicU64::new(0), strikes_at, blow, dead: Notify::new() })
    }

    fn has_struck(&self) -> bool {
        self.calls.load(SeqCst) >= self.strikes_at
    }

    /// Makes the call, unless this is the one. After a death nothing ever returns.
    async fn call<T>(&self, call: impl Future<Output = StoreResult<T>> + Send) -> StoreResult<T> {
        let dies = matches!(self.blow, Blow::DiesBefore | Blow::DiesAfter);
        let this = self.calls.fetch_add(1, SeqCst) + 1;
        if this < self.strikes_at || (this > self.strikes_at && !dies) {
            return call.await;
        }
        if this == self.strikes_at && matches!(self.blow, Blow::DiesAfter | Blow::BreaksAfter) {
            call.await?;
        }
        if !dies {
            return Err(StoreError::Unavailable {
                message: "the connection broke".into(),
                maybe_committed: true,
            });
        }
        self.dead.notify_one();
        std::future::pending().await
    }
}

/// A store whose process dies.
#[derive(Debug)]
struct Mortal {
    store: Arc<dyn Store>,
    fate: Arc<Fate>,
}

struct MortalJournal {
    conn: Box<dyn JournalConn>,
    fate: Arc<Fate>,
}

#[async_trait]
impl JournalConn for MortalJournal {
    async fn write(&mut self, session: SessionId, batch: &Batch) -> StoreResult<BatchWritten> {
        self.fate.call(self.conn.write(session, batch)).await
    }
    async fn settle(&mut self, session: SessionId, runs: &[(RunId, Epoch)]) -> StoreResult<Vec<Settled>> {
        self.fate.call(self.conn.settle(session, runs)).await
    }
}

#[async_trait]
impl Store for Mortal {
    async fn claim(&self, claim: &Claim) -> StoreResult<Vec<Claimed>> {
        let claimed = self.store.claim(claim);
        // An empty claim changes nothing: it is no place to die.
        let next_due = self.store.next_due(&claim.workflows).await?;
        let idle = next_due.is_none_or(|due| due > Timestamp::from_micros(i64::MAX / 2));
        if idle { claimed.await } else { self.fate.call(claimed).await }
    }
    async fn release(&self, session: SessionId, runs: &[Release]) -> StoreResult<Vec<Released>> {
        self.fate.call(self.store.release(session, runs)).await
    }
    async fn open_journal(&self) -> StoreResult<Box<dyn JournalConn>> {
        Ok(Box::new(MortalJournal { conn: self.store.open_journal().await?, fate: self.fate.clone() }))
    }

    // The rest as it is.
    fn kind(&self) -> &'static str {
        self.store.kind()
    }
    fn location(&self) -> String {
        self.store.location()
    }
    async fn migrate(&self) -> StoreResult<()> {
        self.store.migrate().await
    }
    async fn check_schema(&self) -> StoreResult<()> {
        self.store.check_schema().await
    }
    async fn now(&self) -> StoreResult<Timestamp> {
        self.store.now().await
    }
    async fn start(&self, run: &NewRun, policy: IdPolicy, owner: Option<SessionId>) -> StoreResult<Started> {
        self.store.start(run, policy, owner).await
    }
    async fn send(&self, run: RunId, message: &NewMessage) -> StoreResult<Sent> {
        self.store.send(run, message).await
    }
    async fn start_child(&self, child: &NewRun, parent: &Parent) -> StoreResult<ChildStarted> {
        self.store.start_child(child, parent).await
    }
    async fn published(&self, run: RunId) -> StoreResult<Vec<(String, Timestamp, Payload)>> {
        self.store.published(run).await
    }
    async fn order(&self, run: RunId, order: &Order) -> StoreResult<Ordered> {
        self.store.order(run, order).await
    }
    async fn fork(&self, fork: &NewFork) -> StoreResult<Forked> {
        self.store.fork(fork).await
    }
    async fn find(&self, id: &WorkflowId) -> StoreResult<Option<RunRow>> {
        self.store.find(id).await
    }
    async fn run(&self, run: RunId) -> StoreResult<Option<RunRow>> {
        self.store.run(run).await
    }
    async fn input(&self, run: RunId) -> StoreResult<Option<Payload>> {
        self.store.input(run).await
    }
    async fn list(&self, filter: &RunFilter, before: Option<RunId>, limit: u32) -> StoreResult<Vec<RunRow>> {
        self.store.list(filter, before, limit).await
    }
    async fn ends(&self, runs: &[RunId]) -> StoreResult<Vec<(RunId, RunEnd)>> {
        self.store.ends(runs).await
    }
    async fn journal(&self, run: RunId, after: u32, limit: u32) -> StoreResult<Vec<Entry>> {
        self.store.journal(run, after, limit).await
    }
    async fn unconsumed(&self, run: RunId) -> StoreResult<Vec<MessageContent>> {
        self.store.unconsumed(run).await
    }
    async fn delete(&self, run: RunId) -> StoreResult<Deleted> {
        self.store.delete(run).await
    }
    async fn load(&self, runs: &[RunId]) -> StoreResult<Vec<(RunId, Vec<Entry>)>> {
        self.store.load(runs).await
    }
    async fn inbox(&self, runs: &[RunId]) -> StoreResult<Vec<Message>> {
        self.store.inbox(runs).await
    }
    async fn prune(&self, run: RunId, before: u32) -> StoreResult<u64> {
        self.store.prune(run, before).await
    }
    async fn owned(&self, session: SessionId) -> StoreResult<Vec<(RunId, Epoch)>> {
        self.store.owned(session).await
    }
    async fn next_due(&self, workflows: &[String]) -> StoreResult<Option<Timestamp>> {
        self.store.next_due(workflows).await
    }
    async fn unhosted(&self) -> StoreResult<Vec<(String, u64)>> {
        self.store.unhosted().await
    }
    async fn sweep(&self, seen: &mut Suspects) -> StoreResult<Swept> {
        self.store.sweep(seen).await
    }
    async fn close_session(&self, session: SessionId) -> StoreResult<()> {
        self.store.close_session(session).await
    }
    async fn open_session(
        &self,
        session: &NewSession,
    ) -> StoreResult<(SessionId, Timestamp, Box<dyn SessionConn>)> {
        self.store.open_session(session).await
    }
    async fn listen(&self, session: Option<SessionId>) -> StoreResult<Box<dyn ListenConn>> {
        self.store.listen(session).await
    }
    async fn notify(&self, topics: &[Topic]) -> StoreResult<()> {
        self.store.notify(topics).await
    }
}

// ---------------------------------------------------------------------------------------------------- the tests

async fn composer(store: Arc<dyn Store>) -> Composer {
    Composer::builder().store(store).poll(Duration::from_millis(20)).connect().await.unwrap()
}

async fn worker(composer: &Composer, ledger: &Ledger) -> Worker {
    let worker = composer.worker().workflow::<mixed>().activity::<step>().activity::<heals>();
    let quick = worker.lease(Duration::from_millis(300)).poll(Duration::from_millis(20));
    quick.linger(Duration::from_millis(10)).state(ledger.clone()).start().await.unwrap()
}

/// What must be equal, however often the run was interrupted: steps by number, since branches of a join end in any
/// order.
fn projection(lines: &[Line]) -> BTreeSet<(Option<u32>, &'static str, String, Option<u32>)> {
    lines.iter().map(|line| (line.step, line.kind, line.name.clone(), line.attempt)).collect()
}

/// Starts a run, lets a mortal worker at it, and another one finish if that one dies.
async fn survive(db: &dyn Database, fate: Arc<Fate>, ledger: &Ledger) -> RunHandle<mixed> {
    let client = composer(db.another().await).await;
    let run = client.start(mixed(1)).await.unwrap();
    run.signal(&GO, 6).await.unwrap();
    let mortal: Arc<dyn Store> = Arc::new(Mortal { store: db.another().await, fate: fate.clone() });
    let process = {
        let (ledger, run) = (ledger.clone(), run.clone());
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let died = runtime.block_on(async {
                let composer = composer(mortal).await;
                let worker = worker(&composer, &ledger).await;
                let died = tokio::select! {
                    () = fate.dead.notified() => true,
                    _ = run.result() => false,
                };
                if !died {
                    worker.shutdown().await.unwrap();
                }
                died
            });
            // Everything that the process held is gone, as after a kill.
            runtime.shutdown_timeout(Duration::ZERO);
            died
        })
    };
    if tokio::task::spawn_blocking(|| process.join().unwrap()).await.unwrap() {
        let heir = worker(&client, ledger).await;
        run.result().await.unwrap().unwrap();
        heir.shutdown().await.unwrap();
    }
    run
}

/// Strikes at every call in turn, until there is none left.
async fn strike_everywhere(db: &dyn Database, blow: Blow) {
    let calm = survive(db, Fate::new(u64::MAX, blow), &Ledger::default()).await;
    assert_eq!(calm.result().await.unwrap().unwrap(), RESULT);
    let expected = projection(&calm.journal().await.unwrap());
    for n in 1.. {
        let (fate, ledger) = (Fate::new(n, blow), Ledger::default());
        let run = survive(db, fate.clone(), &ledger).await;
        let what = format!("{blow:?}, call {n}");
        assert_eq!(run.result().await.unwrap().unwrap(), RESULT, "{what}");
        let lines = run.journal().await.unwrap();
        assert_eq!(projection(&lines), expected, "{what}: {lines:#?}");
        assert_eq!(run.status().await.unwrap().status, Status::Completed, "{what}");
        // Eight steps, one of which takes two attempts; what was under way at the blow may run once more.
        let ran: u32 = ledger.0.lock().unwrap().values().sum();
        assert!((9..=11).contains(&ran), "{what}: {:?}", ledger.0);
        if !fate.has_struck() {
            assert!(n > 8, "only {n} calls: they are not counted");
            return;
        }
    }
}

promise! {
    async fn a_worker_that_dies_before_any_call_to_the_store_is_made_good(db) {
        strike_everywhere(db, Blow::DiesBefore).await;
    }
}

promise! {
    async fn a_worker_that_dies_after_any_call_to_the_store_is_made_good(db) {
        strike_everywhere(db, Blow::DiesAfter).await;
    }
}

promise! {
    async fn a_call_whose_outcome_is_unknown_and_that_did_not_happen_is_made_good(db) {
        strike_everywhere(db, Blow::BreaksBefore).await;
    }
}

promise! {
    async fn a_call_whose_outcome_is_unknown_and_that_did_happen_is_made_good(db) {
        strike_everywhere(db, Blow::BreaksAfter).await;
    }
}
