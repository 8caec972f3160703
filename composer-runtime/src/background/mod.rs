//! What a worker does beside hosting: claim, hear, fetch mail, repair, compare.
//!
//! Each pass is bounded, safe on every worker at once, and repeated: nothing depends on a single one of them, a
//! notification only makes the next one come sooner (rule 8). All end with their host.

mod claims;
pub(crate) mod mail;
mod repair;

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::Notify, task::JoinSet};

use crate::{
    host::Host,
    store::{ANSWER, CONNECT, Topic, within},
};

/// Between two attempts to listen. Others take a worker that does not listen for dead after half a second.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What makes the next pass come sooner.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    pub(crate) work: Notify,
    pub(crate) mail: Notify,
    pub(crate) orders: Notify,
}

/// Starts them all.
pub(crate) fn spawn(host: &Arc<Host>) -> JoinSet<()> {
    let hints = Arc::new(Hints::default());
    let mut tasks = JoinSet::new();
    let session = || host.session.clone();
    // The claims are not aborted: a claim in flight is brought home first, also in a drain.
    tokio::spawn(session().vital("claims", claims::run(host.clone(), hints.clone())));
    tasks.spawn(session().vital("listener", listen(host.clone(), hints.clone())));
    tasks.spawn(session().vital("mail", mail::run(host.clone(), hints.clone())));
    tasks.spawn(session().vital("sweep", repair::sweep(host.clone(), hints.clone())));
    tasks.spawn(session().vital("comparison", repair::reconcile(host.clone(), hints.clone())));
    tasks.spawn(session().vital("room", repair::make_room(host.clone())));
    tasks.spawn(session().vital("report", repair::report_unhosted(host.clone())));
    tasks
}

/// Turns notifications into hints. While the connection is away the polls go on; when it is back, everything is
/// looked at once.
async fn listen(host: Arc<Host>, hints: Arc<Hints>) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        match within(CONNECT, host.store.listen(Some(host.session.id()))).await {
            Ok(mut conn) => {
                let began = Instant::now();
                hints.work.notify_one();
                hints.mail.notify_one();
                hints.orders.notify_one();
                let error = loop {
                    match conn.next().await {
                        Ok(Topic::Runs) => hints.work.notify_one(),
                        Ok(Topic::Inbox) => {
                            hints.mail.notify_one();
                            hints.work.notify_one();
                        }
                        Ok(Topic::Orders) => hints.orders.notify_one(),
                        Ok(_) => {}
                        Err(error) => break error,
                    }
                };
                if began.elapsed() > LONGEST_PAUSE {
                    pause = SHORTEST_PAUSE;
                }
                host.session.complain("the listening connection is lost; polling until it is back", &error);
            }
            Err(error) => host.session.complain("cannot listen; polling instead", &error),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Waits for a hint, at most for `poll`.
async fn hint_or(hint: &Notify, poll: Duration) {
    let _ = tokio::time::timeout(poll, hint.notified()).await;
}

/// Calls the database; an error is logged, and the pass is repeated later.
async fn ask<T>(
    host: &Host,
    what: &'static str,
    call: impl Future<Output = crate::store::Result<T>>,
) -> Option<T> {
    within(ANSWER, call).await.inspect_err(|error| host.session.complain(what, error)).ok()
}
