//! How Composer behaves where comparable systems have failed: a test a requirement, named after it (`r01_…`).
//!
//! They run on both stores, in the [`World`] of the scenarios. What depends on chance prints its seed.

mod bad_runs;
mod code_changes;
mod deadlines;
mod retries;
mod shutdown;
mod starts_and_signals;
mod stores;
mod values;

use composer_runtime::{RunHandle, RunRow, Status};
use composer_sdk::journal::Entry;

use crate::{
    scenarios::{World, projection, scenario},
    support::eventually,
};

/// Waits until a run stands so.
async fn stands<W>(run: &RunHandle<W>, wanted: Status) -> RunRow {
    eventually(&format!("run {} is {wanted:?}", run.run_id()), async || {
        run.status().await.ok().filter(|row| row.status == wanted)
    })
    .await
}

/// Waits until a run's journal has that many lines of a kind.
async fn lines<W>(run: &RunHandle<W>, kind: &str, count: usize) {
    eventually(&format!("run {} has {count} lines `{kind}`", run.run_id()), async || {
        let lines = run.journal().await.ok()?;
        (lines.iter().filter(|line| line.kind == kind).count() >= count).then_some(())
    })
    .await;
}

/// What is stored of a run.
async fn entries<W>(world: &World, run: &RunHandle<W>) -> Vec<Entry> {
    world.db().store().journal(run.run_id(), 0, 10_000).await.expect("a journal can be read")
}

/// Waits until a worker has put aside what closed runs did not read.
async fn swept(world: &World) {
    let unread = "select count(*) from {s}inbox where cast(shelved as integer) = 0";
    eventually("the inbox is empty", async || (world.db().number(unread).await == Some(0)).then_some(()))
        .await;
}

/// A seed for what depends on chance, shown so that a failure can be repeated.
fn seed() -> fastrand::Rng {
    let seed =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed}");
    fastrand::Rng::with_seed(seed)
}
