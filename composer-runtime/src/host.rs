//! What one session of a worker holds: the runs in memory, and all that their tasks share.
//!
//! A host lives as long as its session. When the session is lost, every run is told, and a new host begins with a new
//! session; nothing is carried over, because the journal has everything.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use composer_sdk::{id::RunId, journal::Entry};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};

use crate::{
    clock::Clock,
    config::Limits,
    hub::Hub,
    journal_writer::Writer,
    metrics::Metrics,
    registry::Registry,
    session::Session,
    store::{ANSWER, Claimed, End, Message, Release, Released, RunEnd, Store, Topic, within},
    task::{
        Mailbox, Note,
        workflow::{self, Hosting},
    },
};

/// How long a run that may be what kills processes is watched.
pub(crate) const PROBATION: Duration = Duration::from_secs(2);
/// Children that are started at once.
const CHILD_STARTS: usize = 4;
/// Releases that may wait for the database at once.
const RELEASES: usize = 1024;

/// A release, and whom to tell.
type Ask = (Release, oneshot::Sender<Released>);

/// See the module.
pub(crate) struct Host {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) session: Arc<Session>,
    pub(crate) writer: Writer,
    pub(crate) registry: Arc<Registry>,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) limits: Limits,
    pub(crate) build: String,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) hub: Arc<Hub>,
    /// Starts of children that are under way at once: each takes a connection.
    pub(crate) child_starts: Semaphore,
    runs: Mutex<Runs>,
    releases: mpsc::Sender<Ask>,
    draining: AtomicBool,
    /// A run was let go: there is room for another one.
    pub(crate) vacated: Notify,
}

/// The runs in memory.
#[derive(Default)]
struct Runs {
    hosted: HashMap<RunId, Mailbox>,
    /// Ours, or about to be, but not yet in memory: starts that are being written, runs whose journal is read.
    expected: HashSet<RunId>,
    /// The run hosted last of those that may be what kills processes.
    suspect: Option<(RunId, Instant)>,
}

/// What a worker is made of, whatever its session.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) registry: Arc<Registry>,
    /// A blocking activity keeps its slot also beyond its session.
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) limits: Limits,
    pub(crate) build: String,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) hub: Arc<Hub>,
}

impl Host {
    /// A host for a session; its writer and the task that lets runs go are started with it.
    pub(crate) fn start(parts: Parts, session: Arc<Session>) -> Arc<Self> {
        let Parts { store, clock, registry, slots, limits, build, metrics, hub } = parts;
        let (releases, asked) = mpsc::channel(RELEASES);
        let releasing = let_go(store.clone(), session.clone(), asked);
        tokio::spawn(session.clone().vital("releases", releasing));
        Arc::new(Self {
            writer: Writer::spawn(store.clone(), session.clone(), metrics.clone()),
            slots,
            store,
            clock,
            session,
            registry,
            limits,
            build,
            metrics,
            hub,
            child_starts: Semaphore::new(CHILD_STARTS),
            runs: Mutex::default(),
            releases,
            draining: AtomicBool::new(false),
            vacated: Notify::new(),
        })
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().expect("invariant: nothing panics under this lock")
    }

    /// How many more runs there is room for.
    pub(crate) fn room(&self) -> usize {
        let runs = self.runs();
        self.limits.runs.saturating_sub(runs.hosted.len() + runs.expected.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        let runs = self.runs();
        runs.hosted.is_empty() && runs.expected.is_empty()
    }

    pub(crate) fn hosts(&self, run: RunId) -> bool {
        self.runs().hosted.contains_key(&run)
    }

    pub(crate) fn hosted(&self) -> Vec<RunId> {
        self.runs().hosted.keys().copied().collect()
    }

    /// Whether memory knows of a run that the database says is ours.
    pub(crate) fn knows(&self, run: RunId) -> bool {
        let runs = self.runs();
        runs.hosted.contains_key(&run) || runs.expected.contains(&run)
    }

    /// Takes a place for a run that is about to be started here; `None` when there is no room or no will.
    pub(crate) fn expect(self: &Arc<Self>, run: RunId) -> Option<Expected> {
        if self.is_draining() || self.session.is_lost() || self.room() == 0 {
            return None;
        }
        Some(self.expect_claimed(run))
    }

    /// Takes a place for a run that was claimed.
    pub(crate) fn expect_claimed(self: &Arc<Self>, run: RunId) -> Expected {
        self.runs().expected.insert(run);
        Expected { host: self.clone(), run }
    }

    /// Whether a run that may be what kills processes can be hosted now: not beside another one, so that of many
    /// that were there when a worker died, the guilty one shows. One that has gone well for a while is no suspect.
    pub(crate) fn admits_suspect(&self, run: RunId) -> bool {
        let mut runs = self.runs();
        let taken = runs
            .suspect
            .is_some_and(|(other, since)| since.elapsed() < PROBATION && runs.hosted.contains_key(&other));
        if !taken {
            runs.suspect = Some((run, Instant::now()));
        }
        !taken
    }

    /// Hosts a run that is this session's. A journal that cannot be read makes it stuck, for the reason given.
    pub(crate) fn adopt(self: &Arc<Self>, claimed: Claimed, journal: Result<Vec<Entry>, String>) {
        let run_id = claimed.run_id;
        let Some(workflow) = self.registry.workflow(&claimed.workflow) else {
            return tracing::error!(%run_id, workflow = claimed.workflow, "claimed a run of an unknown workflow");
        };
        let (mailbox, notes) = mpsc::unbounded_channel();
        // Another life of the run is over: somebody took it, and we took it back.
        if let Some(other) = self.runs().hosted.insert(run_id, mailbox.clone()) {
            let _ = other.send(Note::Lost);
        }
        // Asked after it is there: a loss from here on is told to every run that is hosted.
        if self.session.is_lost() {
            return self.forget(run_id, &mailbox);
        }
        tokio::spawn(workflow::host(self.clone(), Hosting { claimed, workflow, journal, mailbox, notes }));
    }

    /// Hands messages to the runs they are for.
    pub(crate) fn deliver(&self, messages: Vec<Message>) {
        let runs = self.runs();
        let mut mail: HashMap<RunId, Vec<Message>> = HashMap::new();
        for message in messages {
            mail.entry(message.run_id).or_default().push(message);
        }
        for (run, messages) in mail {
            if let Some(mailbox) = runs.hosted.get(&run) {
                let _ = mailbox.send(Note::Mail(messages));
            }
        }
    }

    /// Tells one run, if it is here.
    pub(crate) fn tell_one(&self, run: RunId, note: Note) {
        if let Some(mailbox) = self.runs().hosted.get(&run) {
            let _ = mailbox.send(note);
        }
    }

    /// Tells every run.
    pub(crate) fn tell(&self, note: impl Fn() -> Note) {
        self.runs().hosted.values().for_each(|mailbox| drop(mailbox.send(note())));
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Begin nothing new: also no attempt that waits for a slot.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.tell(|| Note::Drain);
        self.slots.close();
    }

    /// Parks a run or gives it back; answers when the database has.
    pub(crate) async fn release(&self, release: Release) -> Released {
        let (reply, answer) = oneshot::channel();
        if self.releases.send((release, reply)).await.is_err() {
            return Released::Fenced;
        }
        answer.await.unwrap_or(Released::Fenced)
    }

    /// A run is in memory no more. One that was claimed again in the meantime stays.
    pub(crate) fn forget(&self, run: RunId, mailbox: &Mailbox) {
        let mut runs = self.runs();
        if runs.hosted.get(&run).is_some_and(|current| current.same_channel(mailbox)) {
            runs.hosted.remove(&run);
        }
        drop(runs);
        self.hub.left(run);
        self.vacated.notify_one();
    }

    /// A run's end is durable: whoever waits for it is told.
    pub(crate) fn ended(&self, run: RunId, end: End) {
        match end {
            End::Closed { status, outcome, reason, .. } => {
                self.metrics.ended.add(1);
                self.hub.ended(run, RunEnd { status, outcome, reason });
                self.hub.notify(Topic::Ends);
            }
            End::Continued { .. } => {}
            End::Stuck { reason, .. } => {
                tracing::error!(run_id = %run, %reason, "the run is stuck");
                self.metrics.stuck.add(1);
            }
        }
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("session", &self.session.id()).finish_non_exhaustive()
    }
}

/// A place for a run whose start is being written; given up when dropped.
#[derive(Debug)]
pub(crate) struct Expected {
    host: Arc<Host>,
    run: RunId,
}

impl Expected {
    /// The start is durable, and the run ours.
    pub(crate) fn arrived(self, claimed: Claimed) {
        self.host.metrics.eager_starts.add(1);
        self.host.adopt(claimed, Ok(vec![]));
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.host.runs().expected.remove(&self.run);
    }
}

/// Lets runs go, as many in one transaction as have asked, until the session is lost.
async fn let_go(store: Arc<dyn Store>, session: Arc<Session>, mut asked: mpsc::Receiver<Ask>) {
    let mut asks = Vec::with_capacity(RELEASES);
    while asked.recv_many(&mut asks, RELEASES).await > 0 {
        let releases: Vec<Release> = asks.iter().map(|(release, _)| release.clone()).collect();
        let mut pause = Duration::from_millis(20);
        let released = loop {
            if session.is_lost() {
                break vec![Released::Fenced; releases.len()];
            }
            match within(ANSWER, store.release(session.id(), &releases)).await {
                Ok(released) => break released,
                Err(error) => {
                    // Repeating is safe: a run that was let go by a lost answer is fenced now.
                    session.complain("runs cannot be let go; trying again", &error);
                    let _ = tokio::time::timeout(pause, session.lost()).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
            }
        };
        for ((_, reply), released) in asks.drain(..).zip(released) {
            let _ = reply.send(released);
        }
    }
}
