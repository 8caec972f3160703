//! Group commit: what all runs of a worker decided, in one statement after another.
//!
//! Runs never talk to the database. Each sends what it decided into one queue; the writer owns its connections,
//! drains whatever is queued into one statement, and tells every run what became of its part. While a statement is
//! under way the next batch gathers by itself, so throughput grows with concurrency and a lone run pays one commit.
//! A second statement goes out beside it only when what waits is a batch worth its fixed cost: then the worker
//! computes while the database does, and with less it would only make both batches dearer.
//!
//! Guarantees, per run and epoch: parts are written in the order in which they were sent; after the first refusal
//! nothing later is written (PROTOCOL 4); an unknown outcome is settled before anything else happens (6); a run
//! whose row is locked by a stranger waits alone (8); a part that can never be written is found by halving and
//! refused alone (11). What to do after a refusal is the run's business: its memory is disposable.

mod lane;
mod queue;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
};

use composer_sdk::{id::RunId, journal::Entry, payload::Payload};
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::{Instant, sleep_until},
};

use self::{
    lane::Lane,
    queue::{Part, Queue},
};
use crate::{
    metrics::Metrics,
    session::Session,
    store::{End, Epoch, NewRun, Started, Store, StoreError},
    task::Mailbox,
};

/// Operations that may wait in the channel before senders wait.
const CHANNEL: usize = 16 * 1024;
/// Operations that are worth a statement while another is under way.
const WORTHWHILE: usize = 96;

/// A run's ownership, as the writer and the run share it.
#[derive(Debug)]
pub(crate) struct Tenure {
    pub(crate) run_id: RunId,
    epoch: AtomicI64,
    /// Set at the first refusal: whatever of this tenure is still queued is dropped.
    broken: AtomicBool,
    /// A part of it is in a statement that has no answer yet.
    in_flight: AtomicBool,
}

impl Tenure {
    pub(crate) fn new(run_id: RunId, epoch: Epoch) -> Arc<Self> {
        Arc::new(Self {
            run_id,
            epoch: AtomicI64::new(epoch.0),
            broken: AtomicBool::new(false),
            in_flight: AtomicBool::new(false),
        })
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
    /// What it shows from now on, each name at most once.
    pub(crate) published: Vec<(String, Payload)>,
    /// Comes back with the answer: the last of those that one answer covers.
    pub(crate) mark: u64,
    pub(crate) reply: Mailbox,
}

/// A start that this worker hosts at once.
#[derive(Debug)]
struct StartOp {
    run: NewRun,
    reply: oneshot::Sender<Result<Started, StoreError>>,
}

#[derive(Debug)]
enum Op {
    Run(RunOp),
    Start(StartOp),
}

/// How much is in the channel, and a bell for the writer.
#[derive(Debug, Default)]
struct Backlog {
    ops: AtomicUsize,
    worthwhile: Notify,
}

impl Backlog {
    fn grew(&self) {
        if self.ops.fetch_add(1, Ordering::Relaxed) + 1 == WORTHWHILE {
            self.worthwhile.notify_one();
        }
    }
    fn shrank(&self, by: usize) {
        self.ops.fetch_sub(by, Ordering::Relaxed);
    }
}

/// The sending side.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    ops: mpsc::Sender<Op>,
    backlog: Arc<Backlog>,
}

impl Writer {
    /// Starts the writer of a session. It ends when the last sender is gone and everything was written.
    pub(crate) fn spawn(store: Arc<dyn Store>, session: Arc<Session>, metrics: Arc<Metrics>) -> Self {
        let (ops, rx) = mpsc::channel(CHANNEL);
        let backlog = Arc::<Backlog>::default();
        let lane = || Lane::new(store.clone(), session.clone(), metrics.clone());
        let task = Task {
            rx,
            open: true,
            backlog: backlog.clone(),
            queue: Queue::default(),
            idle: (0..store.journal_lanes()).map(|_| lane()).collect(),
            busy: FuturesUnordered::new(),
        };
        tokio::spawn(session.vital("journal writer", task.run()));
        Self { ops, backlog }
    }

    /// Queues what a run decided. The answer comes as a note into its mailbox.
    pub(crate) async fn write(&self, op: RunOp) {
        // A writer that is gone belongs to a lost session: the run is told by its host.
        let _ = self.send(Op::Run(op)).await;
    }

    /// Starts a run that this session owns from its first row on.
    pub(crate) async fn start(&self, run: NewRun) -> Result<Started, StoreError> {
        let (reply, answer) = oneshot::channel();
        let gone = || StoreError::Unavailable {
            message: "the worker lost its session; start again".into(),
            maybe_committed: true,
        };
        self.send(Op::Start(StartOp { run, reply })).await.map_err(|()| gone())?;
        answer.await.map_err(|_| gone())?
    }

    async fn send(&self, op: Op) -> Result<(), ()> {
        let place = self.ops.reserve().await.map_err(|_| ())?;
        self.backlog.grew();
        place.send(op);
        Ok(())
    }
}

/// The writer's task: hands what is queued to its lanes.
struct Task {
    rx: mpsc::Receiver<Op>,
    open: bool,
    backlog: Arc<Backlog>,
    queue: Queue,
    idle: Vec<Lane>,
    busy: FuturesUnordered<BoxFuture<'static, (Lane, Vec<Part>)>>,
}

impl Task {
    async fn run(mut self) {
        while self.open || !self.queue.is_empty() || !self.busy.is_empty() {
            self.dispatch();
            tokio::select! {
                biased;
                Some((lane, locked)) = self.busy.next(), if !self.busy.is_empty() => {
                    self.idle.push(lane);
                    locked.into_iter().for_each(|part| self.queue.wait(part, Instant::now()));
                    // Whoever has its answer may have the next thing to write already.
                    self.gather().await;
                }
                first = self.rx.recv(), if self.open && self.busy.is_empty() => {
                    match first {
                        Some(op) => self.receive(op),
                        None => self.open = false,
                    }
                    self.gather().await;
                }
                () = self.backlog.worthwhile.notified(), if !self.busy.is_empty() && !self.idle.is_empty() => {
                    self.drain();
                }
                () = until(self.queue.due()) => {}
            }
        }
    }

    /// Gives idle lanes what they may write now.
    fn dispatch(&mut self) {
        while let Some(mut lane) = self.idle.pop() {
            let worthwhile = self.busy.is_empty() || self.queue.ready() >= WORTHWHILE;
            let chunk = self.queue.take_due(Instant::now());
            let Some(chunk) = chunk.or_else(|| worthwhile.then(|| self.queue.take()).flatten()) else {
                return self.idle.push(lane);
            };
            self.busy.push(Box::pin(async move {
                let locked = lane.write_all(chunk).await;
                (lane, locked)
            }));
        }
    }

    /// Lets every run that is ready send what it has, then takes it all. No timer: waiting costs more than it gathers.
    async fn gather(&mut self) {
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
        self.drain();
    }

    /// Takes what is in the channel.
    fn drain(&mut self) {
        while !self.queue.is_full() {
            match self.rx.try_recv() {
                Ok(op) => self.receive(op),
                Err(_) => break,
            }
        }
    }

    fn receive(&mut self, op: Op) {
        self.backlog.shrank(1);
        self.queue.push(op);
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
