//! two workers, clients and a long reader on one database, which may be a file. R-24: starting up together.
//!
//! What a store alone can show of both is in `conformance` and in `sqlite`.

use composer_runtime::RunHandle;
use composer_sdk::prelude::*;
use composer_tests::kit::{self, Setup, step, workflow::interpret};
use futures::future::join_all;
use serde_json::json;

use super::scenario;
use crate::{
    scenarios::{Effects, Process},
    support::{
        block_on, eventually, postgres,
        sqlite::{self, Folder},
    },
};

const RUNS: usize = 60;

/// Starts runs of three steps each, from two clients at once, and waits for all of them.
async fn play(setup: &Setup, effects: &Effects) {
    let clients = [kit::composer(setup).await.unwrap(), kit::composer(setup).await.unwrap()];
    let name = |run: usize, n: usize| format!("s{run}-{n}");
    let runs = (0..RUNS).map(|run| {
        let steps = (0..3).map(|n| step(name(run, n)).into()).collect();
        clients[run % 2].start(interpret(steps)).into_future()
    });
    let runs: Vec<RunHandle<interpret>> = join_all(runs).await.into_iter().map(Result::unwrap).collect();
    for (run, handle) in runs.iter().enumerate() {
        let expected = [0, 1, 2].map(|n| json!(name(run, n)));
        assert_eq!(handle.result().await.unwrap().unwrap(), expected);
    }
    assert_eq!(effects.total(), 3 * RUNS);
}

scenario! {
    async fn r23_two_workers_two_clients_and_a_long_reader_share_a_database(world) {
        world.db().execute("begin; select count(*) from {s}runs").await;
        let mut workers = [world.process(), world.process()];
        play(&world.setup, &world.effects).await;
        for worker in &mut workers {
            assert!(worker.is_running());
            worker.signal("TERM");
            assert!(worker.ended().await.success());
        }
        world.db().execute("rollback").await;
    }
}

/// Eight workers make the schema together, and then work together. `at_work` says how many of them are.
async fn eight_workers(url: String, at_work: impl AsyncFn() -> Option<i64>) {
    let effects = Effects::start().await;
    let setup = Setup { url, effects: effects.url().into(), ..Setup::default() };
    let mut workers: Vec<Process> = (0..8).map(|_| Process::spawn(&setup)).collect();
    play(&setup, &effects).await;
    eventually("all workers are at work", async || (at_work().await == Some(8)).then_some(())).await;
    for worker in &mut workers {
        assert!(worker.is_running(), "none of them gave up");
        worker.signal("TERM");
    }
    for worker in &mut workers {
        let status = worker.ended().await;
        assert!(status.success(), "{status}");
    }
}

#[test]
fn r24_eight_workers_start_at_once_on_an_empty_database() {
    let Some(admin) = postgres::admin_url() else { return };
    block_on(async {
        let (name, url) = postgres::empty_database(&admin).await;
        let sessions = async || {
            let mut hand = postgres::Hand::open(&url).await;
            hand.number("select count(*) from composer.sessions").await
        };
        eight_workers(url.clone(), sessions).await;
        postgres::drop_database(&admin, &name).await;
    });
}

#[test]
fn r24_eight_workers_start_at_once_without_a_file() {
    let folder = Folder::new();
    block_on(async {
        let file = folder.file();
        let sessions = async || {
            let mut conn = sqlite::connection(&file).await;
            let count = sqlx::query_as("select count(*) from composer_sessions").fetch_one(&mut conn).await;
            count.ok().map(|(count,)| count)
        };
        eight_workers(format!("sqlite:{}", file.display()), sessions).await;
    });
}
