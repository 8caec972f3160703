//! The passes that repair: dead sessions, runs owned but not hosted, runs that nobody here knows.

use std::{collections::HashSet, sync::Arc, time::Duration};

use composer_sdk::id::RunId;

use super::{Hints, ask};
use crate::{
    host::Host,
    store::{Release, Suspects, Until},
    task::Note,
};

/// How often workflows that nobody hosts are reported.
const REPORT: Duration = Duration::from_secs(30);

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

/// Gives back runs that the database says are ours and that nobody here knows (PROTOCOL 14): the answer to a claim
/// may have been lost. Only what is strange in two looks in a row is strange.
pub(super) async fn reconcile(host: Arc<Host>) {
    let mut strange: HashSet<RunId> = HashSet::new();
    loop {
        tokio::time::sleep(host.limits.lease / 2).await;
        let Some(owned) =
            ask(&host, "comparing what is owned failed; trying again", host.store.owned(host.session.id()))
                .await
        else {
            continue;
        };
        let unknown: Vec<_> = owned.into_iter().filter(|(run, _)| !host.knows(*run)).collect();
        let back: Vec<_> = unknown.iter().copied().filter(|(run, _)| strange.contains(run)).collect();
        if !back.is_empty() {
            tracing::warn!(runs = back.len(), "runs are owned here but not in memory; giving them back");
        }
        for (run_id, epoch) in back {
            host.release(Release { run_id, epoch, until: Until::Now }).await;
        }
        strange = unknown.into_iter().map(|(run, _)| run).collect();
    }
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
