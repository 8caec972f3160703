//! The passes that repair: dead sessions, runs owned but not hosted, runs that nobody here knows.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use composer_sdk::id::RunId;

use super::{Hints, ask, hint_or};
use crate::{
    host::Host,
    store::{Epoch, Release, Suspects, Until},
    task::Note,
};

/// How often workflows that nobody hosts are reported.
const REPORT: Duration = Duration::from_secs(30);
/// Between two looks at runs that seem to be ours no more.
const AGAIN: Duration = Duration::from_millis(50);

/// Looks for sessions whose process is gone: twenty times a lease, so that two looks fit well below it.
pub(super) async fn sweep(host: Arc<Host>, hints: Arc<Hints>) {
    let interval = (host.limits.lease / 20).clamp(Duration::from_millis(20), Duration::from_millis(500));
    let mut suspects = Suspects::default();
    loop {
        tokio::time::sleep(interval.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
        let Some(swept) = ask(&host, "the sweep failed; trying again", host.store.sweep(&mut suspects)).await
        else {
            continue;
        };
        if swept.expired + swept.gone > 0 {
            tracing::info!(expired = swept.expired, gone = swept.gone, "sessions of dead workers were ended");
            hints.work.notify_one();
        }
        if swept.blocked > 0 {
            tracing::warn!(
                runs = swept.blocked,
                "runs of dead workers cannot be taken over: somebody locks their rows"
            );
        }
    }
}

/// Compares what the database says is ours with what is hosted here. What nobody here knows is given back (PROTOCOL 14):
/// the answer to a claim may have been lost. What is ours no more is dropped: an operator may have taken it over (22).
/// Only what is strange in two looks in a row is strange.
pub(super) async fn reconcile(host: Arc<Host>, hints: Arc<Hints>) {
    let mut before = Strange::default();
    loop {
        // An order is looked into at once, and again a moment later.
        let pause =
            if before.taken.is_empty() { host.limits.lease / 2 } else { AGAIN.min(host.limits.lease / 2) };
        hint_or(&hints.orders, pause).await;
        let hosted = host.hosted();
        let Some(owned) =
            ask(&host, "comparing what is owned failed; trying again", host.store.owned(host.session.id()))
                .await
        else {
            continue;
        };
        let ours: HashSet<RunId> = owned.iter().map(|(run, _)| *run).collect();
        let now = Strange {
            unknown: owned.into_iter().filter(|(run, _)| !host.knows(*run)).collect(),
            taken: hosted.into_iter().filter(|run| !ours.contains(run)).collect(),
        };
        let back: Vec<_> = now.unknown.iter().filter(|(run, _)| before.unknown.contains_key(run)).collect();
        if !back.is_empty() {
            tracing::warn!(runs = back.len(), "runs are owned here but not in memory; giving them back");
        }
        for (run_id, epoch) in back {
            host.release(Release { run_id: *run_id, epoch: *epoch, until: Until::Now }).await;
        }
        for run in now.taken.intersection(&before.taken) {
            host.tell_one(*run, Note::Lost);
        }
        before = now;
    }
}

/// Where memory and the database disagree.
#[derive(Default)]
struct Strange {
    /// Owned, and not hosted.
    unknown: HashMap<RunId, Epoch>,
    /// Hosted, and not owned.
    taken: HashSet<RunId>,
}

/// While there is no room, runs that only wait leave at once: others may be due.
pub(super) async fn make_room(host: Arc<Host>) {
    loop {
        tokio::time::sleep((host.limits.poll / 4).max(Duration::from_millis(10))).await;
        if host.room() == 0 {
            host.tell(|| Note::Crowded);
        }
    }
}

/// Says so when runs wait for a workflow that no live worker hosts.
pub(super) async fn report_unhosted(host: Arc<Host>) {
    loop {
        tokio::time::sleep(REPORT.min(host.limits.poll * 10)).await;
        for (workflow, runs) in
            ask(&host, "looking for unhosted runs failed; trying again", host.store.unhosted())
                .await
                .into_iter()
                .flatten()
        {
            tracing::warn!(%workflow, runs, "runs wait for a workflow that no live worker hosts");
        }
    }
}
