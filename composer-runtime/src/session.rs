//! One worker process's life: a row with a lease, renewed from a thread that user code cannot block.
//!
//! The thread has a runtime and a connection of its own, so that neither an activity that blocks every thread of the
//! user's runtime nor an exhausted pool can cost the lease. The session is *lost* when the database says so,
//! or when the lease could not be renewed for as long as it may be trusted; it never comes back: the worker drops
//! everything and opens a new one.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use futures::FutureExt;
use tokio::{sync::watch, time::timeout};

use crate::{
    clock::{Clock, LocalTime},
    lease::Lease,
    store::{CONNECT, NewSession, Renewed, SessionConn, SessionId, Store, StoreError, within},
    task::activity::panic_text,
};

/// Between two complaints about the same thing.
const COMPLAIN: Duration = Duration::from_secs(5);

/// A session of this process.
#[derive(Debug)]
pub(crate) struct Session {
    id: SessionId,
    lease: Mutex<Lease>,
    lost: watch::Sender<bool>,
    closed: watch::Sender<bool>,
    complaints: Mutex<HashMap<&'static str, Instant>>,
}

impl Session {
    /// Opens a session and keeps it alive until it is lost or dropped.
    pub(crate) async fn open(
        store: Arc<dyn Store>,
        new: NewSession,
        clock: Arc<Clock>,
    ) -> Result<Arc<Self>, StoreError> {
        let (opened, answer) = tokio::sync::oneshot::channel();
        let spawned = thread::Builder::new().name("composer-lease".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(live(store, new, clock, opened)),
                Err(error) => drop(opened.send(Err(no_thread(error)))),
            }
        });
        spawned.map_err(no_thread)?;
        answer.await.unwrap_or_else(|_| Err(no_thread("it ended at once")))
    }

    pub(crate) fn id(&self) -> SessionId {
        self.id
    }

    /// Whether this process may still act for the session's runs: asked right before every effect.
    pub(crate) fn holds(&self) -> bool {
        !self.is_lost() && self.lease().holds(LocalTime::now())
    }

    pub(crate) fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Waits until the session is lost.
    pub(crate) async fn lost(&self) {
        // The sender lives in `self`: the channel cannot close while somebody waits here.
        let _ = self.lost.subscribe().wait_for(|lost| *lost).await.map(drop);
    }

    /// Stops renewing: for a worker that has given everything back.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Runs a part of the worker that it cannot do without. A fault there would leave a worker that lives and does
    /// nothing: it ends the session, and the next one begins with all of its parts.
    pub(crate) async fn vital(self: Arc<Self>, part: &'static str, work: impl Future<Output = ()>) {
        if let Err(panic) = AssertUnwindSafe(work).catch_unwind().await {
            let text = panic_text(panic);
            tracing::error!(session = self.id.0, part, text, "a fault of the engine; ending the session");
            self.lost.send_replace(true);
            self.close();
        }
    }

    /// Logs what the database does not let the worker do: while it is away, once in a while for each thing.
    pub(crate) fn complain(&self, what: &'static str, error: &StoreError) {
        let now = Instant::now();
        let due = |last: &Instant| now.duration_since(*last) >= COMPLAIN;
        {
            let mut complaints = self.complaints.lock().expect("invariant: nothing panics under this lock");
            if !complaints.get(what).is_none_or(due) {
                return;
            }
            complaints.insert(what, now);
        }
        tracing::warn!(%error, "{what}");
    }

    fn lease(&self) -> Lease {
        *self.lease.lock().expect("invariant: nothing panics under this lock")
    }
}

fn no_thread(why: impl std::fmt::Display) -> StoreError {
    StoreError::Unavailable {
        message: format!("the thread that renews the lease cannot run: {why}"),
        maybe_committed: false,
    }
}

/// The thread's life.
async fn live(
    store: Arc<dyn Store>,
    new: NewSession,
    clock: Arc<Clock>,
    opened: tokio::sync::oneshot::Sender<Result<Arc<Session>, StoreError>>,
) {
    let asked = LocalTime::now();
    let (id, now, conn) = match within(CONNECT, store.open_session(&new)).await {
        Ok(session) => session,
        Err(error) => return drop(opened.send(Err(error))),
    };
    clock.learn(now);
    let (closed, stop) = watch::channel(false);
    let session = Arc::new(Session {
        id,
        lease: Mutex::new(Lease::renewed(asked, new.lease)),
        lost: watch::Sender::new(false),
        closed,
        complaints: Mutex::default(),
    });
    let weak = Arc::downgrade(&session);
    if opened.send(Ok(session)).is_ok() {
        keep_alive(weak, conn, new.lease, clock, stop).await;
    }
}

async fn keep_alive(
    session: std::sync::Weak<Session>,
    mut conn: Box<dyn SessionConn>,
    length: Duration,
    clock: Arc<Clock>,
    mut stop: watch::Receiver<bool>,
) {
    let interval = Lease::interval(length);
    let mut pause = interval;
    loop {
        // An error here means that the session was dropped.
        if timeout(pause, async { stop.wait_for(|closed| *closed).await.map(drop) }).await.is_ok() {
            return;
        }
        let asked = LocalTime::now();
        let Some(left) = session.upgrade().map(|session| session.lease().left(asked)) else { return };
        // A process that was frozen beyond its lease asks all the same: perhaps nobody has noticed.
        let patience = if left.is_zero() { interval } else { left.min(interval) };
        let renewed = timeout(patience, conn.renew()).await;
        let Some(session) = session.upgrade() else { return };
        pause = match renewed {
            Ok(Ok(Renewed::Alive { now })) => {
                clock.learn(now);
                *session.lease.lock().expect("invariant: nothing panics under this lock") =
                    Lease::renewed(asked, length);
                interval
            }
            Ok(Ok(Renewed::Dead)) => {
                tracing::warn!(session = session.id.0, "the session was declared dead; dropping its runs");
                session.lost.send_replace(true);
                return;
            }
            failed => {
                let error = match failed {
                    Ok(Err(error)) => error.to_string(),
                    _ => "no answer in time".into(),
                };
                let now = LocalTime::now();
                let left = session.lease().left(now);
                let pause = (interval / 4).min(left / 2);
                tracing::warn!(session = session.id.0, %error, ?left, "the lease could not be renewed");
                if pause < interval / 16 || !session.lease().holds(now) {
                    tracing::warn!(session = session.id.0, "the lease is over; dropping its runs");
                    session.lost.send_replace(true);
                    return;
                }
                pause
            }
        };
    }
}
