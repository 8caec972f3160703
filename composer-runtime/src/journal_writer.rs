//! Group commit: what all runs of a worker decided, in one statement after another.
//!
//! Runs never talk to the database. Each sends what it decided into one queue; the writer owns its connection,
//! drains whatever is queued into one statement, and tells every run what became of its part. While a statement is
//! under way the next batch gathers by itself, so throughput grows with concurrency and a lone run pays one commit.
//!
//! Guarantees, per run and epoch: parts are written in the order in which they were sent; after the first refusal
//! nothing later is written (PROTOCOL 4); an unknown outcome is settled before anything else happens (6); a run
//! whose row is locked by a stranger waits alone (8); a part that can never be written is found by halving and
//! refused alone (11). What to do after a refusal is the run's business: its memory is disposable.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use composer_sdk::{
    id::RunId,
    journal::{Entry, Event},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    metrics::Metrics,
    session::Session,
    store::{
        ANSWER, Batch, BatchWritten, CONNECT, End, Epoch, IdPolicy, JournalConn, NewRun, RunBatch, Settled,
        Started, Store, StoreError, Written, within,
    },
    task::{Mailbox, Note, Refusal},
};

/// Operations in one statement, at most.
const MAX_OPS: usize = 4096;
/// Bytes of one statement, about; a single larger part goes alone.
const MAX_BYTES: usize = 8 << 20;
/// Operations that may wait in the queue before senders wait.
const QUEUE: usize = 16 * 1024;
/// The first and the longest pause after a refusal that may heal.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// A run's ownership, as the writer and the run share it.
#[derive(Debug)]
pub(crate) struct Tenure {
    pub(crate) run_id: RunId,
    epoch: AtomicI64,
    /// Set at the first refusal: whatever of this tenure is still queued is dropped.
    broken: AtomicBool,
}

impl Tenure {
    pub(crate) fn new(run_id: RunId, epoch: Epoch) -> Arc<Self> {
        Arc::new(Self { run_id, epoch: AtomicI64::new(epoch.0), broken: AtomicBool::new(false) })
    }
    /// The epoch at which the run is owned now: raised by the writer after an unknown outcome.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }
}

/// What a run sends: its next entries, and how it ends if it does.
#[derive(Debug)]
pub(crate) struct RunOp {
    pub(crate) tenure: Arc<Tenure>,
    pub(crate) entries: Vec<Entry>,
    /// The last entry before these, durable or on its way.
    pub(crate) prev: u32,
    pub(crate) end: Option<End>,
    pub(crate) reply: Mailbox,
}

/// A start that this worker hosts at once.
#[derive(Debug)]
pub(crate) struct StartOp {
    pub(crate) run: NewRun,
    pub(crate) reply: oneshot::Sender<Result<Started, StoreError>>,
}

#[derive(Debug)]
enum Op {
    Run(RunOp),
    Start(StartOp),
}

/// The sending side.
#[derive(Debug, Clone)]
pub(crate) struct Writer(mpsc::Sender<Op>);

impl Writer {
    /// Starts the writer of a session. It ends when the last sender is gone and everything was written.
    pub(crate) fn spawn(store: Arc<dyn Store>, session: Arc<Session>, metrics: Arc<Metrics>) -> Self {
        let (tx, rx) = mpsc::channel(QUEUE);
        let task = Task { store, session: session.clone(), metrics, conn: None, deferred: HashMap::new() };
        tokio::spawn(session.vital("journal writer", task.run(rx)));
        Self(tx)
    }

    /// Queues what a run decided. The answer comes as a [`Note`] into its mailbox.
    pub(crate) async fn write(&self, op: RunOp) {
        // A writer that is gone belongs to a lost session: the run is told by its host.
        let _ = self.0.send(Op::Run(op)).await;
    }

    /// Starts a run that this session owns from its first row on.
    pub(crate) async fn start(&self, run: NewRun) -> Result<Started, StoreError> {
        let (reply, answer) = oneshot::channel();
        let gone = || StoreError::Unavailable {
            message: "the worker lost its session; start again".into(),
            maybe_committed: true,
        };
        self.0.send(Op::Start(StartOp { run, reply })).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

/// One run's share of a statement, and whom to tell.
#[derive(Debug)]
struct Part {
    tenure: Arc<Tenure>,
    reply: Mailbox,
    prev: u32,
    entries: Vec<Entry>,
    end: Option<End>,
}

impl Part {
    fn last(&self) -> u32 {
        self.prev + self.entries.len() as u32
    }
    fn refuse(&self, refusal: Refusal) {
        self.tenure.broken.store(true, Ordering::Release);
        let _ = self.reply.send(Note::Refused(refusal));
    }
    fn accept(&self) {
        let _ = self.reply.send(Note::Written { upto: self.last(), ended: self.end.is_some() });
    }
    fn join(&mut self, op: RunOp) {
        debug_assert_eq!(self.last(), op.prev, "a run's parts follow one another");
        self.entries.extend(op.entries);
        self.end = op.end.or(self.end.take());
    }
}

impl From<RunOp> for Part {
    fn from(op: RunOp) -> Self {
        Self { tenure: op.tenure, reply: op.reply, prev: op.prev, entries: op.entries, end: op.end }
    }
}

fn entry_bytes(entry: &Entry) -> usize {
    /// The columns beside the payload, about.
    const ROW: usize = 256;
    let payload = match &entry.event {
        Event::StepDone { outcome, error, .. } => {
            error.len()
                + match outcome {
                    composer_sdk::journal::Outcome::Ok(bytes)
                    | composer_sdk::journal::Outcome::Err(bytes) => bytes.as_bytes().len(),
                    composer_sdk::journal::Outcome::Failed(failure) => failure.message.len(),
                }
        }
        Event::Signal { payload, .. } => payload.as_bytes().len(),
        Event::AttemptFailed { error, .. } => error.len(),
        _ => 0,
    };
    ROW + payload
}

/// What goes into one statement.
#[derive(Debug, Default)]
struct Chunk {
    parts: Vec<Part>,
    starts: Vec<StartOp>,
}

impl Chunk {
    fn len(&self) -> usize {
        self.parts.len() + self.starts.len()
    }

    /// The statement's rows. Entries are lent to it and given back by [`Chunk::restore`], so nothing is copied.
    fn batch(&mut self) -> Batch {
        self.parts.sort_by_key(|part| part.tenure.run_id);
        let runs = self.parts.iter_mut().map(|part| RunBatch {
            run_id: part.tenure.run_id,
            epoch: part.tenure.epoch(),
            prev: part.prev,
            entries: std::mem::take(&mut part.entries),
            end: part.end.clone(),
        });
        Batch { runs: runs.collect(), starts: self.starts.iter().map(|start| start.run.clone()).collect() }
    }

    fn restore(&mut self, batch: Batch) {
        for (part, run) in self.parts.iter_mut().zip(batch.runs) {
            part.entries = run.entries;
        }
    }

    /// Two halves, to find what the database refuses.
    fn halve(mut self) -> (Self, Self) {
        let parts = self.parts.split_off(self.parts.len() / 2);
        let starts = self.starts.split_off(self.starts.len() - self.starts.len() / 2);
        (self, Self { parts, starts })
    }
}

/// Takes queued operations for one statement: order is kept within a run, the size is bounded, and a run that waits
/// for a locked row keeps waiting. What is left over is looked at after this statement has its answer.
fn assemble(ops: &mut impl Iterator<Item = Op>, deferred: &mut HashMap<RunId, Deferred>) -> Chunk {
    let mut chunk = Chunk::default();
    let mut bytes = 0;
    let mut places: HashMap<RunId, usize> = HashMap::new();
    for op in ops {
        match op {
            Op::Start(start) => {
                bytes += start.run.input.as_bytes().len();
                chunk.starts.push(start);
            }
            Op::Run(op) if op.tenure.broken.load(Ordering::Acquire) => drop(op),
            Op::Run(op) => {
                let run_id = op.tenure.run_id;
                bytes += op.entries.iter().map(entry_bytes).sum::<usize>();
                if let Some(waiting) = deferred.get_mut(&run_id)
                    && Arc::ptr_eq(&waiting.part.tenure, &op.tenure)
                {
                    waiting.part.join(op);
                } else if let Some(place) = places.get(&run_id) {
                    chunk.parts[*place].join(op);
                } else {
                    places.insert(run_id, chunk.parts.len());
                    chunk.parts.push(op.into());
                }
            }
        }
        if bytes >= MAX_BYTES {
            break;
        }
    }
    chunk
}

/// A part whose run's row a stranger locks.
#[derive(Debug)]
struct Deferred {
    part: Part,
    at: Instant,
    pause: Duration,
}

/// The writer's task.
struct Task {
    store: Arc<dyn Store>,
    session: Arc<Session>,
    metrics: Arc<Metrics>,
    conn: Option<Box<dyn JournalConn>>,
    deferred: HashMap<RunId, Deferred>,
}

impl Task {
    async fn run(mut self, mut rx: mpsc::Receiver<Op>) {
        let mut ops = Vec::with_capacity(MAX_OPS);
        let mut open = true;
        while open || !self.deferred.is_empty() {
            let due = self.deferred.values().map(|waiting| waiting.at).min();
            tokio::select! {
                n = rx.recv_many(&mut ops, MAX_OPS), if open => open = n > 0,
                () = until(due) => {}
            }
            gather(&mut rx, &mut ops).await;
            let mut ops = ops.drain(..);
            while ops.len() > 0 {
                let chunk = assemble(&mut ops, &mut self.deferred);
                if chunk.len() > 0 {
                    self.write_all(chunk).await;
                }
            }
            self.write_due().await;
        }
    }

    /// Runs whose row was locked, each alone.
    async fn write_due(&mut self) {
        let now = Instant::now();
        let due: Vec<RunId> =
            self.deferred.iter().filter(|(_, waiting)| waiting.at <= now).map(|(run, _)| *run).collect();
        for run in due {
            let Some(waiting) = self.deferred.remove(&run) else { continue };
            let pause = waiting.pause;
            self.write_all(Chunk { parts: vec![waiting.part], starts: vec![] }).await;
            if let Some(again) = self.deferred.get_mut(&run) {
                again.pause = (pause * 2).min(BACKOFF.1);
                again.at = now + again.pause;
            }
        }
    }

    /// Writes a chunk, whatever it takes, until each of its parts has an answer or waits for a locked row.
    async fn write_all(&mut self, chunk: Chunk) {
        let mut todo = vec![chunk];
        let mut pause = BACKOFF.0;
        while let Some(mut chunk) = todo.pop() {
            if self.session.is_lost() {
                return self.refuse_all(chunk, todo);
            }
            let batch = chunk.batch();
            let written = self.send(&batch).await;
            chunk.restore(batch);
            match written {
                Ok(written) => {
                    pause = BACKOFF.0;
                    self.answer(chunk, written);
                }
                Err(StoreError::Rejected { message }) if chunk.len() == 1 => reject(chunk, &message),
                Err(StoreError::Rejected { .. }) => {
                    let (left, right) = chunk.halve();
                    todo.extend([right, left]);
                }
                Err(StoreError::Unavailable { maybe_committed: true, message }) => {
                    tracing::warn!(%message, "the outcome of a batch is unknown; settling it");
                    todo.extend(self.settle(chunk, false).await);
                    rest(&self.session, &mut pause).await;
                }
                Err(StoreError::Conflict { message }) => {
                    tracing::warn!(%message, "a batch contradicts rows that are there; settling it");
                    todo.extend(self.settle(chunk, true).await);
                    rest(&self.session, &mut pause).await;
                }
                Err(error) => {
                    self.session.complain("the journal cannot be written; trying again", &error);
                    self.conn = None;
                    rest(&self.session, &mut pause).await;
                    todo.push(chunk);
                }
            }
        }
    }

    /// One statement, on a connection that is opened when there is none.
    async fn send(&mut self, batch: &Batch) -> Result<BatchWritten, StoreError> {
        let session = self.session.id();
        let conn = match &mut self.conn {
            Some(conn) => conn,
            none => none.insert(open(&*self.store).await?),
        };
        within(ANSWER, conn.write(session, batch)).await
    }

    fn answer(&mut self, chunk: Chunk, written: BatchWritten) {
        self.metrics.batches.add(1);
        for (part, outcome) in chunk.parts.into_iter().zip(written.runs) {
            match outcome {
                Written::Accepted => {
                    let steps =
                        part.entries.iter().filter(|e| matches!(e.event, Event::StepDone { .. })).count();
                    self.metrics.steps.add(steps as u64);
                    part.accept();
                }
                Written::Fenced => {
                    self.metrics.fenced.add(1);
                    part.refuse(Refusal::Fenced);
                }
                Written::Busy => self.defer(part),
            }
        }
        for start in chunk.starts {
            let answer = if written.started {
                Ok(Started::New { owned: Some(Epoch(1)), at: written.started_at })
            } else {
                Err(StoreError::Unavailable {
                    message: "the worker's session is over; start again".into(),
                    maybe_committed: false,
                })
            };
            let _ = start.reply.send(answer);
        }
    }

    fn defer(&mut self, part: Part) {
        self.metrics.busy.add(1);
        tracing::debug!(run_id = %part.tenure.run_id, "the run's row is locked by somebody else; trying again");
        let pause = BACKOFF.0;
        self.deferred.insert(part.tenure.run_id, Deferred { part, at: Instant::now() + pause, pause });
    }

    /// Finds out what became of a chunk; returns what has to be sent again, under new epochs.
    async fn settle(&mut self, chunk: Chunk, conflict: bool) -> Option<Chunk> {
        self.metrics.settled.add(1);
        let runs: Vec<_> = chunk.parts.iter().map(|part| (part.tenure.run_id, part.tenure.epoch())).collect();
        let mut pause = BACKOFF.0;
        let settled = loop {
            if self.session.is_lost() {
                self.refuse_all(chunk, vec![]);
                return None;
            }
            // The old connection is never used again: what it may still commit is what settling waits for.
            self.conn = None;
            let attempt = async {
                let conn = self.conn.insert(open(&*self.store).await?);
                within(ANSWER, conn.settle(self.session.id(), &runs)).await
            };
            match attempt.await {
                Ok(settled) => break settled,
                Err(error) => {
                    self.session.complain("an unknown outcome cannot be settled yet; trying again", &error);
                    rest(&self.session, &mut pause).await;
                }
            }
        };
        for start in chunk.starts {
            let answer = within(ANSWER, start_again(&*self.store, &self.session, &start.run)).await;
            let _ = start.reply.send(answer);
        }
        let parts: Vec<_> = chunk
            .parts
            .into_iter()
            .zip(settled)
            .filter_map(|(part, settled)| self.resume(part, settled, conflict))
            .collect();
        (!parts.is_empty()).then_some(Chunk { parts, starts: vec![] })
    }

    /// What a settled part needs: nothing, or to be sent again.
    fn resume(&self, part: Part, settled: Settled, conflict: bool) -> Option<Part> {
        match settled {
            Settled::Owned { epoch, last } => {
                part.tenure.epoch.store(epoch.0, Ordering::Release);
                if last == part.prev {
                    return Some(part);
                }
                if last == part.last() && part.end.is_none() && !conflict {
                    part.accept();
                } else {
                    part.refuse(Refusal::Rebuild);
                }
            }
            Settled::Ended(_) if part.end.is_some() => part.accept(),
            Settled::Ended(_) | Settled::Lost => {
                self.metrics.fenced.add(1);
                part.refuse(Refusal::Fenced);
            }
        }
        None
    }

    fn refuse_all(&mut self, chunk: Chunk, rest: Vec<Chunk>) {
        for chunk in std::iter::once(chunk).chain(rest) {
            chunk.parts.iter().for_each(|part| part.refuse(Refusal::Fenced));
        }
        self.deferred.drain().for_each(|(_, waiting)| waiting.part.refuse(Refusal::Fenced));
    }
}

/// Waits before a repetition, longer each time, and no longer than the session lives.
async fn rest(session: &Session, pause: &mut Duration) {
    let jittered = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
    let _ = timeout(jittered, session.lost()).await;
    *pause = (*pause * 2).min(BACKOFF.1);
}

/// A start whose outcome is unknown: the id decides, and it is ours alone.
async fn start_again(store: &dyn Store, session: &Session, run: &NewRun) -> Result<Started, StoreError> {
    match store.start(run, IdPolicy::UseExisting, Some(session.id())).await? {
        Started::Exists { .. } => {
            let row = store.run(run.run_id).await?;
            let owned = row.filter(|row| row.session == Some(session.id()));
            Ok(Started::New {
                owned: owned.as_ref().map(|row| row.epoch),
                at: owned.and_then(|row| row.started_at).unwrap_or(store.now().await?),
            })
        }
        new => Ok(new),
    }
}

async fn open(store: &dyn Store) -> Result<Box<dyn JournalConn>, StoreError> {
    within(CONNECT, store.open_journal()).await
}

/// One part or start that can never be written.
fn reject(chunk: Chunk, message: &str) {
    for part in chunk.parts {
        part.refuse(Refusal::Rejected(message.to_owned()));
    }
    for start in chunk.starts {
        let _ = start.reply.send(Err(StoreError::Rejected { message: message.to_owned() }));
    }
}

/// Lets every run that is ready queue what it has, then takes it all. No timer: waiting costs more than it gathers.
async fn gather(rx: &mut mpsc::Receiver<Op>, ops: &mut Vec<Op>) {
    for _ in 0..2 {
        tokio::task::yield_now().await;
    }
    while ops.len() < MAX_OPS {
        match rx.try_recv() {
            Ok(op) => ops.push(op),
            Err(_) => break,
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use composer_sdk::id::Timestamp;

    use super::*;

    fn run(n: i64) -> RunId {
        RunId::new(Timestamp::from_micros(n * 1_000_000))
    }

    fn op(tenure: &Arc<Tenure>, prev: u32, n: u32) -> (Op, mpsc::UnboundedReceiver<Note>) {
        let (reply, notes) = mpsc::unbounded_channel();
        let entries = (prev + 1..=prev + n).map(|seq| Entry {
            seq,
            at: Timestamp::from_micros(0),
            event: Event::TimerFired { step: seq },
        });
        let op = RunOp { tenure: tenure.clone(), entries: entries.collect(), prev, end: None, reply };
        (Op::Run(op), notes)
    }

    #[test]
    fn a_runs_operations_become_one_part_in_order_and_runs_are_sorted() {
        let (late, early) = (Tenure::new(run(9), Epoch(1)), Tenure::new(run(1), Epoch(4)));
        let ops = [op(&late, 0, 2).0, op(&early, 5, 1).0, op(&late, 2, 1).0];
        let batch = assemble(&mut ops.into_iter(), &mut HashMap::new()).batch();
        assert_eq!(batch.runs.iter().map(|r| r.run_id).collect::<Vec<_>>(), [early.run_id, late.run_id]);
        assert_eq!(batch.runs[1].entries.iter().map(|e| e.seq).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!((batch.runs[0].prev, batch.runs[0].epoch), (5, Epoch(4)));
    }

    #[test]
    fn after_a_refusal_nothing_later_of_that_tenure_is_written() {
        let tenure = Tenure::new(run(1), Epoch(1));
        let (first, mut notes) = op(&tenure, 0, 1);
        let chunk = assemble(&mut [first].into_iter(), &mut HashMap::new());
        chunk.parts[0].refuse(Refusal::Fenced);
        assert!(matches!(notes.try_recv(), Ok(Note::Refused(Refusal::Fenced))));
        assert_eq!(assemble(&mut [op(&tenure, 1, 1).0].into_iter(), &mut HashMap::new()).len(), 0);
    }

    #[test]
    fn what_follows_a_locked_run_waits_with_it() {
        let tenure = Tenure::new(run(1), Epoch(1));
        let (Op::Run(first), _notes) = op(&tenure, 0, 1) else { unreachable!() };
        let waiting = Deferred { part: first.into(), at: Instant::now(), pause: BACKOFF.0 };
        let mut deferred = HashMap::from([(tenure.run_id, waiting)]);
        assert_eq!(assemble(&mut [op(&tenure, 1, 1).0].into_iter(), &mut deferred).len(), 0);
        assert_eq!(deferred[&tenure.run_id].part.last(), 2);
    }

    #[test]
    fn a_new_tenure_does_not_wait_with_what_an_old_one_left_behind() {
        let (old, new) = (Tenure::new(run(1), Epoch(1)), Tenure::new(run(1), Epoch(2)));
        let (Op::Run(first), _notes) = op(&old, 0, 1) else { unreachable!() };
        let waiting = Deferred { part: first.into(), at: Instant::now(), pause: BACKOFF.0 };
        let mut deferred = HashMap::from([(old.run_id, waiting)]);
        let chunk = assemble(&mut [op(&new, 0, 1).0].into_iter(), &mut deferred);
        assert_eq!(chunk.parts[0].tenure.epoch(), Epoch(2));
    }

    #[test]
    fn what_does_not_fit_into_a_statement_is_looked_at_again_after_its_answer() {
        let (tenure, other) = (Tenure::new(run(1), Epoch(1)), Tenure::new(run(2), Epoch(1)));
        let (mut big, _notes) = op(&tenure, 0, 1);
        let Op::Run(first) = &mut big else { unreachable!() };
        let payload = composer_sdk::payload::Payload::from(vec![b'1'; MAX_BYTES]);
        first.entries[0].event = Event::Signal { name: "s".into(), inbox: 1, payload };
        let mut ops = [big, op(&tenure, 1, 1).0, op(&other, 0, 1).0].into_iter();
        let chunk = assemble(&mut ops, &mut HashMap::new());
        assert_eq!((chunk.len(), ops.len()), (1, 2));
        // The run's row is locked: its next entry waits with it, the other run does not.
        let Chunk { mut parts, .. } = chunk;
        let part = parts.remove(0);
        let mut deferred =
            HashMap::from([(tenure.run_id, Deferred { part, at: Instant::now(), pause: BACKOFF.0 })]);
        let chunk = assemble(&mut ops, &mut deferred);
        assert_eq!((chunk.len(), chunk.parts[0].tenure.run_id), (1, other.run_id));
        assert_eq!(deferred[&tenure.run_id].part.last(), 2);
    }

    #[test]
    fn halving_finds_every_part_and_start() {
        let tenures: Vec<_> = (0..5).map(|n| Tenure::new(run(n), Epoch(1))).collect();
        let ops = tenures.iter().map(|tenure| op(tenure, 0, 1).0);
        let mut todo = vec![assemble(&mut ops.into_iter(), &mut HashMap::new())];
        let mut found = 0;
        while let Some(chunk) = todo.pop() {
            if chunk.len() == 1 {
                found += 1;
            } else {
                let (left, right) = chunk.halve();
                assert!(left.len() > 0 && right.len() > 0, "halving must get smaller");
                todo.extend([left, right]);
            }
        }
        assert_eq!(found, 5);
    }
}
