//! Takes due runs, in batches, never more than there is room for.

use std::{collections::HashMap, sync::Arc, time::Duration};

use composer_sdk::{id::RunId, journal::Entry};

use super::{Hints, ask, mail};
use crate::{
    host::{Expected, Host, PROBATION},
    store::{Claim, Claimed, Release, Released, Until, read_each},
};

/// Runs taken at once.
const BATCH: usize = 256;
/// From how many deaths on a run may be what kills processes: of these one is hosted at a time.
const SUSPECT: u32 = 2;
/// How long a due run that somebody locks is left alone.
const LOCKED: Duration = Duration::from_millis(50);

/// Claims until the host drains or its session is lost.
pub(super) async fn run(host: Arc<Host>, hints: Arc<Hints>) {
    let workflows = host.registry.workflows();
    if workflows.is_empty() {
        return;
    }
    while !host.is_draining() && !host.session.is_lost() {
        let limit = host.room().min(BATCH);
        let claimed = if limit == 0 {
            Some(vec![])
        } else {
            ask(&host, "claiming runs failed; trying again", claim(&host, limit)).await
        };
        let full = claimed.as_ref().is_some_and(|claimed| claimed.len() == limit && limit > 0);
        if let Some(claimed) = claimed.filter(|claimed| !claimed.is_empty()) {
            take_in(&host, claimed).await;
        }
        if !full {
            rest(&host, &hints, &workflows, limit == 0).await;
        }
    }
}

async fn claim(host: &Host, limit: usize) -> crate::store::Result<Vec<Claimed>> {
    let claim = Claim {
        session: host.session.id(),
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
    // Known here from now on: however long the journals take, nobody gives the runs back meanwhile.
    let _places: Vec<Expected> = runs.iter().map(|run| host.expect_claimed(*run)).collect();
    let Some(mut journals) = load(host, &runs).await else { return };
    let (suspects, sound): (Vec<_>, Vec<_>) = claimed.into_iter().partition(|run| run.strikes >= SUSPECT);
    let mut adopt = |run: Claimed| {
        let journal = journals.remove(&run.run_id).unwrap_or_else(|| Ok(vec![]));
        host.adopt(run, journal);
    };
    sound.into_iter().for_each(&mut adopt);
    let mut later = PROBATION;
    for run in suspects {
        let (run_id, strikes) = (run.run_id, run.strikes);
        if host.admits_suspect(run_id) {
            tracing::warn!(%run_id, strikes, "workers died over this run; hosting it with care");
            adopt(run);
        } else {
            put_off(host, &run, later).await;
            later += PROBATION;
        }
    }
    // Once more after the runs are known here: a notification may have come in between.
    mail::fetch(host, &runs).await;
}

/// Parks a run that cannot be hosted now; one with mail goes to whoever asks next.
async fn put_off(host: &Host, run: &Claimed, pause: Duration) {
    let (run_id, epoch) = (run.run_id, run.epoch);
    let until = Until::Due(Some(host.clock.now().saturating_add(pause)));
    if host.release(Release { run_id, epoch, until }).await == Released::Mail {
        host.release(Release { run_id, epoch, until: Until::Now }).await;
    }
}

/// Runs, each with its journal, or why that cannot be read.
type Journals = HashMap<RunId, Result<Vec<Entry>, String>>;

/// Loads journals, until it succeeds or the session is lost.
async fn load(host: &Host, runs: &[RunId]) -> Option<Journals> {
    while !host.session.is_lost() {
        match read_each(runs, |runs| host.store.load(runs)).await {
            Ok((journals, unreadable)) => {
                let unreadable = unreadable.into_iter().map(|(run, why)| (run, Err(why)));
                return Some(
                    journals.into_iter().map(|(run, journal)| (run, Ok(journal))).chain(unreadable).collect(),
                );
            }
            Err(error) => host.session.complain("loading journals failed; trying again", &error),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    None
}

/// Waits for a hint, for room, or for the next run that is due, at most for a poll.
async fn rest(host: &Host, hints: &Hints, workflows: &[String], no_room: bool) {
    let mut poll = host.limits.poll;
    if !no_room
        && let Some(Some(due)) =
            ask(host, "looking for the next due run failed; trying again", host.store.next_due(workflows))
                .await
    {
        // The bound runs behind the database's clock: what it calls due is due.
        // What is due already and was not taken is locked by somebody, or has just come.
        let wait = due.since(host.clock.now());
        poll = poll.min(if wait.is_zero() { LOCKED } else { wait });
    }
    tokio::select! {
        () = hints.work.notified(), if !no_room => {}
        () = host.vacated.notified(), if no_room => {}
        () = host.session.lost() => {}
        () = tokio::time::sleep(poll) => {}
    }
}
