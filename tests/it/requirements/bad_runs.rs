//! one bad run cannot take a worker down.

use std::{
    panic::{panic_any, set_hook, take_hook},
    sync::Once,
};

use composer_runtime::{Composer, RunHandle, Status, Worker};
use composer_sdk::prelude::*;
use futures::future::join_all;
use serde_json::json;

use super::{World, lines, scenario, stands};

/// How many of each kind of bad runs there are.
const BAD: u32 = 20;
const HEALTHY: u32 = 60;

#[activity]
async fn double(n: u32) -> Result<u32> {
    Ok(n * 2)
}

#[workflow]
async fn healthy(n: u32) -> Result<u32> {
    let twice = double(n).await?;
    sleep(Duration::from_millis(1)).await;
    double(double(twice).await?).await
}

#[workflow]
async fn panics(n: u32) -> Result<u32> {
    let twice = double(n).await?;
    panic!("half of {twice} is no number for us");
}

#[workflow]
async fn panics_without_text(n: u32) -> Result<u32> {
    panic_any(double(n).await?);
}

#[activity(retry(max_attempts = 2, first = "1ms"))]
async fn breaks(n: u32) -> Result<u32> {
    panic!("broken by {n}");
}

#[workflow]
async fn calls_what_breaks(n: u32) -> Result<u32> {
    breaks(n).await
}

#[activity(retry(max_attempts = 2, first = "1ms"))]
async fn breaks_without_text(n: u32) -> Result<u32> {
    panic_any(n);
}

#[workflow]
async fn calls_what_breaks_without_text(n: u32) -> Result<u32> {
    breaks_without_text(n).await
}

#[activity]
async fn nobody_has_it(n: u32) -> Result<u32> {
    Ok(n)
}

#[workflow]
async fn calls_what_nobody_has(n: u32) -> Result<u32> {
    nobody_has_it(n).await
}

static GO: Signal<()> = Signal::new("go");

mod before {
    use super::*;

    #[activity]
    pub(super) async fn measure() -> Result<String> {
        Ok("tall".into())
    }

    #[workflow]
    pub(super) async fn survey() -> Result<String> {
        let size = measure().await?;
        GO.recv().await;
        Ok(size)
    }
}

/// The same names in a build that has changed its mind about a type.
mod after {
    use super::*;

    #[activity]
    pub(super) async fn measure() -> Result<u32> {
        Ok(190)
    }

    #[workflow]
    pub(super) async fn survey() -> Result<u32> {
        let size = measure().await?;
        GO.recv().await;
        Ok(size)
    }
}

/// A worker of the old build.
async fn old_build(world: &World) -> Worker {
    let worker = world.composer().await.worker().workflow::<before::survey>().activity::<before::measure>();
    let worker = worker.poll(Duration::from_millis(50)).stuck_backoff(Duration::ZERO).build_id("before");
    worker.start().await.unwrap()
}

/// Runs that the old build has left with a value in their journal.
async fn surveyed(world: &World) -> Vec<RunHandle<before::survey>> {
    let composer = world.composer().await;
    let worker = old_build(world).await;
    let runs = join_all((0..BAD).map(|_| async { composer.start(before::survey()).await.unwrap() })).await;
    for run in &runs {
        lines(run, "step_completed", 1).await;
    }
    worker.shutdown().await.unwrap();
    runs
}

/// The panics that the code of this file is made for are not shown.
fn expect_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            let ours = panic.location().is_some_and(|at| at.file() == file!());
            if !ours || std::thread::current().name().is_none_or(|thread| thread.contains("r03_")) {
                usual(panic);
            }
        }));
    });
}

async fn started(
    composer: &Composer,
    workflow: &'static str,
    count: u32,
    input: impl Fn(u32) -> serde_json::Value,
) -> Vec<RunHandle> {
    let starts = (0..count).map(|n| composer.start_json(workflow, json!([input(n)])).into_future());
    join_all(starts).await.into_iter().map(|run| run.unwrap()).collect()
}

/// All of them end up so, for a reason that says all of that. `{n}` is the run's number.
async fn all_are<W>(runs: &[RunHandle<W>], status: Status, words: &[&str]) {
    for (n, run) in runs.iter().enumerate() {
        let reason = stands(run, status).await.reason.unwrap_or_default();
        for word in words {
            let word = word.replace("{n}", &n.to_string());
            assert!(reason.contains(&word), "`{word}` is not in: {reason}");
        }
    }
}

scenario! {
    async fn r03_bad_runs_of_every_kind_harm_nobody_else(world) {
        expect_panics();
        let surveyed = surveyed(world).await;
        let worker = world.worker().await;
        let worker = worker.workflow::<healthy>().activity::<double>();
        let worker = worker.workflow::<panics>().workflow::<panics_without_text>();
        let worker = worker.workflow::<calls_what_breaks>().activity::<breaks>();
        let worker = worker.workflow::<calls_what_breaks_without_text>().activity::<breaks_without_text>();
        let worker = worker.workflow::<calls_what_nobody_has>();
        let worker = worker.workflow::<after::survey>().activity::<after::measure>();
        let worker = worker.build_id("after").start().await.unwrap();
        let session = worker.session();
        let composer = &world.composer().await;

        let (good, panicking, speechless, breaking, breaking_speechless, lonely, illiterate, unknown) = futures::join!(
            started(composer, "healthy", HEALTHY, |n| json!(n)),
            started(composer, "panics", BAD, |n| json!(n)),
            started(composer, "panics_without_text", BAD, |n| json!(n)),
            started(composer, "calls_what_breaks", BAD, |n| json!(n)),
            started(composer, "calls_what_breaks_without_text", BAD, |n| json!(n)),
            started(composer, "calls_what_nobody_has", BAD, |n| json!(n)),
            started(composer, "healthy", BAD, |n| json!(format!("number {n}"))),
            started(composer, "nobody_knows", BAD, |n| json!(n)),
        );
        for run in &surveyed {
            run.signal(&GO, ()).await.unwrap();
        }

        for (n, run) in good.iter().enumerate() {
            assert_eq!(run.result().await.unwrap(), Ok(json!(n * 8)));
        }
        all_are(&panicking, Status::Stuck, &["panicked", "is no number for us", "bad_runs.rs:"]).await;
        all_are(&speechless, Status::Stuck, &["panicked", "no text"]).await;
        all_are(&breaking, Status::Failed, &["`breaks`", "2 attempts", "panicked", "broken by {n}"]).await;
        all_are(&breaking_speechless, Status::Failed, &["`breaks_without_text`", "2 attempts", "no text"]).await;
        all_are(&lonely, Status::Stuck, &["`nobody_has_it`", "not registered", "bad_runs.rs:"]).await;
        all_are(&illiterate, Status::Stuck, &["argument `n`", "number {n}", "u32", "bad_runs.rs:"]).await;
        all_are(&surveyed, Status::Stuck, &["`measure`", "bad_runs.rs:", "tall", "u32"]).await;

        // An unknown type waits, and says why.
        for run in &unknown {
            let row = run.status().await.unwrap();
            assert_eq!((row.status, row.hosted), (Status::Pending, false));
        }
        // The panic of an attempt is in the journal, with its text.
        let journal = breaking[3].journal().await.unwrap();
        let attempts: Vec<_> = journal.iter().filter(|line| line.attempt.is_some()).collect();
        assert_eq!(attempts.len(), 2, "{journal:#?}");
        assert!(attempts.iter().all(|line| line.detail.contains("broken by 3")), "{journal:#?}");

        // Nobody tries again and again what cannot be done.
        let claims = worker.counts().claims;
        tokio::time::sleep(10 * Duration::from_millis(world.setup.poll_ms)).await;
        assert_eq!(worker.counts().claims, claims);
        assert_eq!((worker.session(), worker.counts().sessions_lost), (session, 0));
        worker.shutdown().await.unwrap();

        // What one build cannot read another one can.
        let worker = old_build(world).await;
        for run in &surveyed {
            assert_eq!(run.result().await.unwrap().unwrap(), "tall");
        }
        worker.shutdown().await.unwrap();
    }
}
