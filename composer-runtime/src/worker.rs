//! A worker: hosts workflows, runs their activities, and is somebody's to start and stop.
//!
//! A worker lives through sessions. It opens one, hosts runs until it is lost, drops everything, opens the next. What
//! it does in a session is in [`background`](crate::background); this module is its outside: what it is built from,
//! how it starts, and how it ends without leaving anything behind.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use composer_sdk::{
    Activity, Workflow,
    activity::{ActivityEntry, States},
    workflow::WorkflowEntry,
};
use tokio::{
    sync::{Semaphore, watch},
    task::{JoinHandle, JoinSet},
};

use crate::{
    background,
    client::Composer,
    config::Limits,
    error::Error,
    host::{Host, Parts},
    lists::{Activities, Workflows},
    metrics::Counts,
    registry::Registry,
    session::Session,
    store::{NewSession, Release, SessionId, Store, StoreError, Until, within},
    task::Note,
};

/// How long the stopped rest may take to let go, after the grace time, and how long the session to end.
const LAST_MOMENTS: Duration = Duration::from_millis(900);
/// A database that is back so soon is not worth a line.
const QUIET: Duration = Duration::from_millis(300);

/// What a worker will be. Made by [`Composer::worker`].
#[derive(Debug)]
#[must_use = "a worker does nothing until `.start().await`"]
pub struct WorkerBuilder {
    composer: Composer,
    workflows: Vec<WorkflowEntry>,
    activities: Vec<ActivityEntry>,
    states: States,
    limits: Limits,
    build: Option<String>,
}

impl WorkerBuilder {
    pub(crate) fn new(composer: Composer) -> Self {
        Self {
            composer,
            workflows: vec![],
            activities: vec![],
            states: States::default(),
            limits: Limits::default(),
            build: None,
        }
    }

    /// Hosts a workflow.
    pub fn workflow<W: Workflow>(mut self) -> Self {
        self.workflows.push(WorkflowEntry::of::<W>());
        self
    }

    /// Runs an activity.
    pub fn activity<A: Activity>(mut self) -> Self {
        self.activities.push(ActivityEntry::of::<A>());
        self
    }

    /// Hosts several workflows, given as a tuple: `.workflows::<(buy, cancel_order)>()`.
    pub fn workflows<W: Workflows>(mut self) -> Self {
        self.workflows.extend(W::entries());
        self
    }

    /// Runs several activities, given as a tuple: `.activities::<(charge_card, refund)>()`.
    pub fn activities<A: Activities>(mut self) -> Self {
        self.activities.extend(A::entries());
        self
    }

    /// A value for the `#[state]` parameters of its type. The last one of a type wins.
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        self.states.insert(state);
        self
    }

    /// Runs held in memory at once, 1,000 by default. Parked runs do not count: they are rows.
    pub fn max_runs(mut self, runs: usize) -> Self {
        self.limits.runs = runs.max(1);
        self
    }

    /// Attempts of activities under way at once, 500 by default.
    pub fn max_activities(mut self, activities: usize) -> Self {
        self.limits.activities = activities.clamp(1, tokio::sync::Semaphore::MAX_PERMITS);
        self
    }

    /// How long a waiting run stays in memory before it is parked, 5 s by default.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.limits.linger = linger;
        self
    }

    /// How often the database is asked for work when no notification comes, 1 s by default.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.limits.poll = poll.max(Duration::from_millis(1));
        self
    }

    /// How long running activities may go on after a shutdown was asked for, 20 s by default. What is not done by
    /// then is told to stop, and begins again elsewhere; it does not count as an attempt.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.limits.grace = grace;
        self
    }

    /// The lease of the worker's session, 10 s by default, renewed every third of it: a worker that can be reached
    /// no more is replaced after this time. Not below 100 ms.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.limits.lease = lease.max(Duration::from_millis(100));
        self
    }

    /// How long a stuck run rests before it is offered to another build again, 30 s by default.
    pub fn stuck_backoff(mut self, backoff: Duration) -> Self {
        self.limits.stuck_backoff = backoff;
        self
    }

    /// What tells this build of the program from others: a run that got stuck in one is offered to others. By
    /// default the `COMPOSER_BUILD` variable, or else the executable's size and time. What is registered is always
    /// part of it: a worker with other activities counts as another build.
    pub fn build_id(mut self, build: impl Into<String>) -> Self {
        self.build = Some(build.into());
        self
    }

    /// Starts the worker. It works until [`Worker::shutdown`], or until it is dropped.
    ///
    /// # Errors
    /// [`Error::Worker`] names everything that is wrong with what was registered; [`Error::Store`] says why the
    /// database does not let it in.
    pub async fn start(self) -> Result<Worker, Error> {
        let Self { composer, workflows, activities, states, limits, build } = self;
        let registry = Registry::build(workflows, activities, states)
            .map_err(|faults| Error::Worker { faults: faults.0.join("\n") })?;
        let build = this_build(build, &registry);
        let parts = Parts {
            store: composer.store().clone(),
            clock: composer.clock().clone(),
            registry: Arc::new(registry),
            slots: Arc::new(Semaphore::new(limits.activities)),
            limits,
            build,
            metrics: composer.metrics().clone(),
            hub: composer.hub().clone(),
        };
        parts.hub.start(&parts.store, parts.limits.poll);
        let session = open_session(&parts).await?;
        let (stop, stopping) = watch::channel(false);
        let current = watch::Sender::new(session.id());
        let task = tokio::spawn(live(parts, session, stopping, current.clone()));
        Ok(Worker { stop, task: Some(task), current, composer })
    }

    /// Starts the worker and works until SIGTERM or SIGINT: then nothing new is begun, what is under way may end
    /// within the grace time, everything is given back, and this returns. A second signal ends the process at once.
    ///
    /// # Errors
    /// As [`WorkerBuilder::start`].
    pub async fn run(self) -> Result<(), Error> {
        let mut signals = Signals::new()
            .map_err(|error| Error::Worker { faults: format!("the process cannot hear SIGTERM: {error}") })?;
        let worker = tokio::select! {
            worker = self.start() => worker?,
            // What has begun by then ends with its lease.
            _ = signals.next() => return Ok(()),
        };
        let signal = signals.next().await;
        tracing::info!(signal, "shutting down; once more to end at once");
        tokio::select! {
            done = worker.shutdown() => done,
            _ = signals.next() => std::process::exit(130),
        }
    }
}

/// A worker at work.
#[derive(Debug)]
pub struct Worker {
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
    current: watch::Sender<SessionId>,
    composer: Composer,
}

impl Worker {
    /// The session under which the worker owns runs at present.
    pub fn session(&self) -> SessionId {
        *self.current.borrow()
    }

    /// How many runs it holds in memory now. Parked runs are rows, and do not count.
    pub fn hosted(&self) -> usize {
        self.composer.hub().host().map_or(0, |host| host.hosted().len())
    }

    /// What this process has done so far.
    pub fn counts(&self) -> Counts {
        self.composer.metrics().counts()
    }

    /// Begins nothing new, lets running activities end within the grace time, gives everything back.
    ///
    /// # Errors
    /// [`Error::Worker`] when the worker's task had died: nothing is lost, others take over when its lease is over.
    pub async fn shutdown(mut self) -> Result<(), Error> {
        self.stop.send_replace(true);
        match self.task.take() {
            Some(task) => task
                .await
                .map_err(|error| Error::Worker { faults: format!("the worker's task ended early: {error}") }),
            None => Ok(()),
        }
    }
}

impl Drop for Worker {
    /// A worker that is dropped without [`Worker::shutdown`] shuts down by itself as long as its runtime lives.
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// The worker's life, session after session.
async fn live(
    parts: Parts,
    first: Arc<Session>,
    mut stopping: watch::Receiver<bool>,
    current: watch::Sender<SessionId>,
) {
    let mut session = first;
    loop {
        current.send_replace(session.id());
        tracing::info!(
            session = session.id().0,
            store = parts.store.kind(),
            workflows = ?parts.registry.workflows(),
            "the worker is at work"
        );
        let host = Host::start(parts.clone(), session.clone());
        parts.hub.set_host(&host);
        let mut tasks = background::spawn(&host);
        tokio::select! {
            () = session.lost() => {}
            () = asked_to_stop(&mut stopping) => return end(host, &mut tasks).await,
        }
        parts.metrics.sessions_lost.add(1);
        host.tell(|| Note::Lost);
        tasks.abort_all();
        session = match next_session(&parts, &mut stopping).await {
            Some(session) => session,
            None => return,
        };
    }
}

/// Waits for the word, or for the worker's handle to be gone.
async fn asked_to_stop(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await.map(drop);
}

/// A new session after one was lost: tried until it succeeds or the worker is stopped.
async fn next_session(parts: &Parts, stopping: &mut watch::Receiver<bool>) -> Option<Arc<Session>> {
    let mut pause = Duration::from_millis(50);
    let opened = async {
        loop {
            match open_session(parts).await {
                Ok(session) => return session,
                Err(error) if pause > QUIET => tracing::warn!(%error, ?pause, "no session yet; trying again"),
                Err(error) => tracing::debug!(%error, ?pause, "no session yet; trying again"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(2));
        }
    };
    tokio::select! {
        session = opened => Some(session),
        () = asked_to_stop(stopping) => None,
    }
}

async fn open_session(parts: &Parts) -> Result<Arc<Session>, Error> {
    let new = NewSession {
        name: format!("{} pid {}", host_name(), std::process::id()),
        build: parts.build.clone(),
        workflows: parts.registry.workflows(),
        lease: parts.limits.lease,
    };
    Ok(Session::open(parts.store.clone(), new, parts.clock.clone()).await?)
}

/// The orderly end: R-25.
async fn end(host: Arc<Host>, tasks: &mut JoinSet<()>) {
    host.drain();
    let deadline = Instant::now() + host.limits.grace;
    if !emptied(&host, deadline).await {
        host.tell(|| Note::Stop);
        emptied(&host, Instant::now() + LAST_MOMENTS).await;
    }
    tasks.abort_all();
    host.session.close();
    let session = host.session.id();
    match within(LAST_MOMENTS, give_back(&*host.store, session)).await {
        Ok(()) => tracing::info!(session = session.0, "the worker has ended"),
        Err(error) => tracing::warn!(%error, "the session could not be closed; its lease will end it"),
    }
    // A process that goes on keeps nothing of it.
    host.tell(|| Note::Lost);
}

/// Gives back what could not be let go, a blocking activity that goes on, say, and ends the session. What a session
/// still owns when it ends would count as held by a worker that died.
async fn give_back(store: &dyn Store, session: SessionId) -> Result<(), StoreError> {
    let owned = store.owned(session).await?;
    let back = |(run_id, epoch)| Release { run_id, epoch, until: Until::Now };
    let left: Vec<_> = owned.into_iter().map(back).collect();
    store.release(session, &left).await?;
    store.close_session(session).await
}

/// Waits until no run is in memory; `false` at the deadline.
async fn emptied(host: &Host, deadline: Instant) -> bool {
    while !host.is_empty() && !host.session.is_lost() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let _ = tokio::time::timeout(left.min(Duration::from_millis(50)), host.vacated.notified()).await;
    }
    true
}

/// Names this build, also by what is registered: what is unknown to one worker is to be offered to the others, be
/// they of the same program.
fn this_build(named: Option<String>, registry: &Registry) -> String {
    let build = named.or_else(|| std::env::var("COMPOSER_BUILD").ok()).unwrap_or_else(|| {
        let meta = std::env::current_exe().and_then(std::fs::metadata);
        meta.map_or_else(
            |_| "unknown".to_owned(),
            |meta| {
                let modified = meta.modified().ok().map(composer_sdk::id::Timestamp::from);
                format!("{:x}-{:x}", meta.len(), modified.map_or(0, |at| at.as_micros()))
            },
        )
    });
    let names = composer_sdk::payload::Payload::from(registry.names().join(",").into_bytes());
    let digest = serde_json::to_string(&composer_sdk::payload::Digest::of(&names)).unwrap_or_default();
    format!("{build}-{digest}")
}

fn host_name() -> String {
    std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/etc/hostname").ok().map(|name| name.trim().to_owned()))
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".into())
}

/// SIGTERM and SIGINT.
struct Signals {
    #[cfg(unix)]
    term: tokio::signal::unix::Signal,
    /// Heard from the beginning to the end: between two `ctrl_c()` a signal would be lost.
    #[cfg(unix)]
    int: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }
    #[cfg(not(unix))]
    fn new() -> std::io::Result<Self> {
        Ok(Self {})
    }

    async fn next(&mut self) -> &'static str {
        #[cfg(unix)]
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
        #[cfg(not(unix))]
        {
            let _ = tokio::signal::ctrl_c().await;
            "ctrl-c"
        }
    }
}
