//! What a worker does beside hosting: claim, hear, fetch mail, repair, compare.
//!
//! Each pass is bounded, safe on every worker at once, and repeated: nothing depends on a single one of them, a
//! notification only makes the next one come sooner (rule 8). All end with their host.

mod claims;
mod mail;
mod repair;

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{sync::Notify, task::JoinSet};

use crate::{host::Host, store::Topic};

/// What makes the next pass come sooner.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    pub(crate) work: Notify,
    pub(crate) mail: Notify,
}

/// Starts them all.
pub(crate) fn spawn(host: &Arc<Host>) -> JoinSet<()> {
    let hints = Arc::new(Hints::default());
    let mut tasks = JoinSet::new();
    // The claims are not aborted: a claim in flight is brought home first, also in a drain.
    tokio::spawn(claims::run(host.clone(), hints.clone()));
    tasks.spawn(listen(host.clone(), hints.clone()));
    tasks.spawn(mail::run(host.clone(), hints.clone()));
    tasks.spawn(repair::sweep(host.clone(), hints.clone()));
    tasks.spawn(repair::reconcile(host.clone()));
    tasks.spawn(repair::report_unhosted(host.clone()));
    tasks
}

/// Turns notifications into hints. While the connection is away the polls go on; when it is back, everything is
/// looked at once.
async fn listen(host: Arc<Host>, hints: Arc<Hints>) {
    let mut pause = Duration::from_millis(100);
    loop {
        match host.store.listen(Some(host.session.id())).await {
            Ok(mut conn) => {
                pause = Duration::from_millis(100);
                hints.work.notify_one();
                hints.mail.notify_one();
                let error = loop {
                    match conn.next().await {
                        Ok(Topic::Runs) => hints.work.notify_one(),
                        Ok(Topic::Inbox) => {
                            hints.mail.notify_one();
                            hints.work.notify_one();
                        }
                        Ok(_) => {}
                        Err(error) => break error,
                    }
                };
                tracing::warn!(%error, "the listening connection is lost; polling until it is back");
            }
            Err(error) => tracing::warn!(%error, "cannot listen; polling instead"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}

/// Waits for a hint, at most for `poll`.
async fn hint_or(hint: &Notify, poll: Duration) {
    let _ = tokio::time::timeout(poll, hint.notified()).await;
}

/// Calls the database; an error is logged, once per call, and the pass is repeated later.
async fn ask<T>(what: &str, call: impl Future<Output = crate::store::Result<T>>) -> Option<T> {
    match call.await {
        Ok(answer) => Some(answer),
        Err(error) => {
            tracing::warn!(%error, "{what} failed; trying again");
            None
        }
    }
}
