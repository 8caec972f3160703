//! Who waits for which end, in this process.
//!
//! A waiter hears of an end from a worker in the same process at once, and of all others from the database: when a
//! notification says that runs have ended, and by the poll. Notifications are hints: sent after the commit,
//! coalesced, never waited for.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use composer_sdk::{
    error::{Failure, FailureKind},
    id::RunId,
    journal::Outcome,
};
use tokio::sync::{Notify, oneshot};

use crate::{
    host::Host,
    store::{CONNECT, RunEnd, Status, Store, Topic, read_each, within},
};

/// The shortest time between two rounds of notifications.
const COALESCE: Duration = Duration::from_millis(10);
/// Runs asked about in one query.
const ASK: usize = 1_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    waiters: Mutex<HashMap<RunId, Vec<oneshot::Sender<RunEnd>>>>,
    /// Somebody began to wait.
    waiting: Notify,
    topics: Mutex<Vec<Topic>>,
    topical: Notify,
    started: AtomicBool,
    host: Mutex<Weak<Host>>,
}

impl Hub {
    fn waiters(&self) -> MutexGuard<'_, HashMap<RunId, Vec<oneshot::Sender<RunEnd>>>> {
        self.waiters.lock().expect("invariant: nothing panics under this lock")
    }

    /// The worker of this process that may be handed new runs.
    pub(crate) fn host(&self) -> Option<Arc<Host>> {
        self.host.lock().expect("invariant: nothing panics under this lock").upgrade()
    }

    pub(crate) fn set_host(&self, host: &Arc<Host>) {
        *self.host.lock().expect("invariant: nothing panics under this lock") = Arc::downgrade(host);
    }

    /// A run ended here.
    pub(crate) fn ended(&self, run: RunId, end: RunEnd) {
        let waiters = self.waiters().remove(&run);
        for waiter in waiters.into_iter().flatten() {
            let _ = waiter.send(end.clone());
        }
    }

    /// This process holds a run no more: whoever still waits for it has to ask.
    pub(crate) fn left(&self, run: RunId) {
        if self.waiters().contains_key(&run) {
            self.waiting.notify_one();
        }
    }

    /// The end of a run, when it comes.
    pub(crate) fn wait(
        self: &Arc<Self>,
        store: &Arc<dyn Store>,
        run: RunId,
        poll: Duration,
    ) -> oneshot::Receiver<RunEnd> {
        let (waiter, end) = oneshot::channel();
        {
            let mut waiters = self.waiters();
            waiters.entry(run).or_default().push(waiter);
        }
        self.start(store, poll);
        // A run that this process hosts is reported by its host; all others are asked about.
        if !self.host().is_some_and(|host| host.hosts(run)) {
            self.waiting.notify_one();
        }
        end
    }

    /// Tells other processes, soon.
    pub(crate) fn notify(&self, topic: Topic) {
        let mut topics = self.topics.lock().expect("invariant: nothing panics under this lock");
        if !topics.contains(&topic) {
            topics.push(topic);
            self.topical.notify_one();
        }
    }

    /// Starts the two tasks, once.
    pub(crate) fn start(self: &Arc<Self>, store: &Arc<dyn Store>, poll: Duration) {
        if !self.started.swap(true, Ordering::AcqRel) {
            tokio::spawn(tell(Arc::downgrade(self), store.clone()));
            tokio::spawn(watch(Arc::downgrade(self), store.clone(), poll));
        }
    }

    /// The runs that somebody waits for and that this process does not host. Waiters that are gone are forgotten.
    fn asked_for(&self) -> Vec<RunId> {
        let host = self.host();
        let mut waiters = self.waiters();
        waiters.retain(|_, waiters| {
            waiters.retain(|waiter| !waiter.is_closed());
            !waiters.is_empty()
        });
        waiters.keys().copied().filter(|run| !host.as_ref().is_some_and(|host| host.hosts(*run))).collect()
    }
}

/// Sends notifications, coalesced.
async fn tell(hub: Weak<Hub>, store: Arc<dyn Store>) {
    loop {
        let topics = {
            let Some(hub) = hub.upgrade() else { return };
            let _ = tokio::time::timeout(Duration::from_secs(1), hub.topical.notified()).await;
            std::mem::take(&mut *hub.topics.lock().expect("invariant: nothing panics under this lock"))
        };
        if topics.is_empty() {
            continue;
        }
        if let Err(error) = within(CONNECT, store.notify(&topics)).await {
            tracing::debug!(%error, "a notification was not sent; others find out by polling");
        }
        tokio::time::sleep(COALESCE).await;
    }
}

/// Hears that runs have ended, and asks which.
async fn watch(hub: Weak<Hub>, store: Arc<dyn Store>, poll: Duration) {
    let mut ears = None;
    loop {
        let Some(strong) = hub.upgrade() else { return };
        // Subscribe first, then read: what changes in between is heard.
        if ears.is_none() {
            match tokio::time::timeout(poll, store.listen(None)).await {
                Ok(Ok(conn)) => ears = Some(conn),
                Ok(Err(error)) => tracing::debug!(%error, "cannot listen; polling instead"),
                Err(_) => tracing::debug!("no connection to listen on in time; polling instead"),
            }
        }
        let asked_for = strong.asked_for();
        for runs in asked_for.chunks(ASK) {
            match read_each(runs, |runs| store.ends(runs)).await {
                Ok((ends, unreadable)) => {
                    ends.into_iter().for_each(|(run, end)| strong.ended(run, end));
                    unreadable.into_iter().for_each(|(run, why)| strong.ended(run, unreadable_end(why)));
                }
                Err(error) => tracing::debug!(%error, "cannot ask for results; trying again"),
            }
        }
        let heard = async {
            match &mut ears {
                Some(conn) => loop {
                    match conn.next().await {
                        Ok(Topic::Ends) => return true,
                        Ok(_) => {}
                        Err(_) => return false,
                    }
                },
                None => std::future::pending().await,
            }
        };
        let alive = tokio::select! {
            alive = heard => alive,
            () = strong.waiting.notified() => true,
            () = tokio::time::sleep(poll) => true,
        };
        if !alive {
            ears = None;
            tokio::time::sleep(poll.min(Duration::from_millis(200))).await;
        }
    }
}

/// What a waiter is told of an end that cannot be read.
fn unreadable_end(why: String) -> RunEnd {
    let outcome = Outcome::Failed(Failure::new(FailureKind::Decode, &why));
    RunEnd { status: Status::Failed, outcome, reason: Some(why) }
}
