//! Takes due runs, in batches, never more than there is room for.

use std::{collections::HashMap, sync::Arc, time::Duration};

use composer_sdk::id::RunId;

use super::{Hints, ask};
use crate::{
    host::Host,
    store::{Claim, Claimed},
};

/// Runs taken at once.
const BATCH: usize = 256;
/// From how many deaths on a run is hosted alone: it may be what kills processes.
const SUSPECT: u32 = 2;

/// Claims until the host drains or its session is lost.
pub(super) async fn run(host: Arc<Host>, hints: Arc<Hints>) {
    let mut claim_id = 0;
    let workflows = host.registry.workflows();
    if workflows.is_empty() {
        return;
    }
    while !host.is_draining() && !host.session.is_lost() {
        claim_id += 1;
        let limit = host.room().min(BATCH);
        let claimed =
            if limit == 0 { Some(vec![]) } else { ask("claiming runs", claim(&host, claim_id, limit)).await };
        let full = claimed.as_ref().is_some_and(|claimed| claimed.len() == limit && limit > 0);
        if let Some(claimed) = claimed.filter(|claimed| !claimed.is_empty()) {
            take_in(&host, claimed).await;
        }
        if !full {
            rest(&host, &hints, &workflows, limit == 0).await;
        }
    }
}

async fn claim(host: &Host, claim_id: i64, limit: usize) -> crate::store::Result<Vec<Claimed>> {
    let claim = Claim {
        session: host.session.id(),
        claim_id,
        build: host.build.clone(),
        workflows: host.registry.workflows(),
        limit,
        stuck_backoff: host.limits.stuck_backoff,
        max_strikes: host.limits.max_strikes,
    };
    host.store.claim(&claim).await
}

/// Loads the journals of runs just taken, in a statement after the claim's commit (PROTOCOL 17), and hosts them.
async fn take_in(host: &Arc<Host>, claimed: Vec<Claimed>) {
    let taken_over = claimed.iter().filter(|run| run.taken_over).count();
    host.metrics.claims.add(claimed.len() as u64);
    host.metrics.take_overs.add(taken_over as u64);
    if taken_over > 0 {
        tracing::info!(runs = taken_over, "took over runs of a worker that died");
    }
    let runs: Vec<RunId> = claimed.iter().map(|run| run.run_id).collect();
    let Some(journals) = until_loaded(host, &runs).await else { return };
    let mut journals: HashMap<_, _> = journals.into_iter().collect();
    let (suspects, sound): (Vec<_>, Vec<_>) = claimed.into_iter().partition(|run| run.strikes >= SUSPECT);
    for run in sound {
        let journal = journals.remove(&run.run_id).unwrap_or_default();
        host.adopt(run, journal);
    }
    for run in suspects {
        let journal = journals.remove(&run.run_id).unwrap_or_default();
        tracing::warn!(run_id = %run.run_id, strikes = run.strikes, "workers died over this run; hosting it with care");
        host.adopt(run, journal);
    }
    // Once more after the runs are known here: a notification may have come in between.
    if let Some(mail) = ask("reading the inbox", host.store.inbox(&runs)).await {
        host.deliver(mail);
    }
}

async fn until_loaded(
    host: &Host,
    runs: &[RunId],
) -> Option<Vec<(RunId, Vec<composer_sdk::journal::Entry>)>> {
    while !host.session.is_lost() {
        if let Some(journals) = ask("loading journals", host.store.load(runs)).await {
            return Some(journals);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    None
}

/// Waits for a hint, for room, or for the next run that is due, at most for a poll.
async fn rest(host: &Host, hints: &Hints, workflows: &[String], no_room: bool) {
    let mut poll = host.limits.poll;
    if !no_room
        && let Some(Some(due)) = ask("looking for the next due run", host.store.next_due(workflows)).await
    {
        // The bound runs behind the database's clock: what it calls due is due.
        poll = poll.min(due.since(host.clock.now()).max(Duration::from_millis(1)));
    }
    tokio::select! {
        () = hints.work.notified(), if !no_room => {}
        () = host.vacated.notified(), if no_room => {}
        () = host.session.lost() => {}
        () = tokio::time::sleep(poll) => {}
    }
}
