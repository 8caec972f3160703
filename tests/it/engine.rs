//! The worker and the client where it hurts: the database goes away, code panics where it should not, places run out.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use composer_runtime::{
    Composer, Error as EngineError, Status, Worker, WorkerBuilder,
    store::{Codec, Store, StoreError},
};
use composer_sdk::{payload::Payload, prelude::*};
use tokio::sync::Notify;

use crate::support::{eventually, hooked::Hooked, promise};

const QUICK: Duration = Duration::from_millis(20);

#[activity]
async fn double(n: u32) -> Result<u32> {
    Ok(n * 2)
}

#[workflow]
async fn quick(n: u32) -> Result<u32> {
    double(n).await
}

#[workflow]
async fn twice(n: u32) -> Result<u32> {
    double(double(n).await?).await
}

static GO: Signal<u32> = Signal::new("go");

#[workflow]
async fn waits() -> u32 {
    GO.recv().await
}

/// Says when it has begun, and ends when it is told.
#[derive(Debug, Clone, Default)]
struct Gate {
    begun: Arc<AtomicU32>,
    open: Arc<Notify>,
    shut: Arc<AtomicBool>,
}

#[activity]
async fn gated(#[state] gate: Gate, n: u32) -> Result<u32> {
    gate.begun.fetch_add(1, SeqCst);
    gate.open.notified().await;
    Ok(n)
}

#[workflow]
async fn through(n: u32) -> Result<u32> {
    gated(n).await
}

#[activity(blocking)]
fn blocks(#[state] gate: Gate) -> Result<u32> {
    gate.begun.fetch_add(1, SeqCst);
    while gate.shut.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(1)
}

#[workflow]
async fn blocked() -> Result<u32> {
    blocks().await
}

async fn composer(store: Arc<dyn Store>) -> Composer {
    Composer::builder().store(store).poll(QUICK).connect().await.unwrap()
}

fn worker(composer: &Composer, gate: &Gate) -> WorkerBuilder {
    composer
        .worker()
        .workflow::<quick>()
        .workflow::<twice>()
        .workflow::<waits>()
        .workflow::<through>()
        .workflow::<blocked>()
        .activity::<double>()
        .activity::<gated>()
        .activity::<blocks>()
        .state(gate.clone())
        .lease(Duration::from_millis(500))
        .poll(QUICK)
        .grace(Duration::from_millis(300))
}

async fn begun(gate: &Gate, n: u32) {
    eventually("the attempt begins", async || (gate.begun.load(SeqCst) == n).then_some(())).await;
}

async fn ends_soon(worker: Worker) {
    let began = Instant::now();
    worker.shutdown().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(2) + Duration::from_millis(300), "{:?}", began.elapsed());
}

fn away() -> StoreError {
    StoreError::Unavailable { message: "away".into(), maybe_committed: false }
}

promise! {
    async fn a_database_that_is_away_for_longer_than_the_lease_delays_runs_and_loses_none(db) {
        let gone = Arc::new(AtomicBool::new(false));
        let switch = gone.clone();
        let store = Hooked::new(db.another().await, move |_| {
            let gone = switch.load(SeqCst);
            async move { if gone { Err(away()) } else { Ok(()) } }
        });
        let composer = composer(store).await;
        let gate = Gate::default();
        let worker = worker(&composer, &gate).start().await.unwrap();
        let session = worker.session();
        let waiting = composer.start(waits()).await.unwrap();
        let under_way = composer.start(through(3)).await.unwrap();
        begun(&gate, 1).await;
        gone.store(true, SeqCst);
        eventually("the session is lost", async || (worker.counts().sessions_lost == 1).then_some(())).await;
        gone.store(false, SeqCst);
        begun(&gate, 2).await;
        assert_ne!(worker.session(), session);
        gate.open.notify_one();
        assert_eq!(under_way.result().await.unwrap().unwrap(), 3);
        waiting.signal(&GO, 5).await.unwrap();
        assert_eq!(waiting.result().await.unwrap(), 5);
        worker.shutdown().await.unwrap();
    }
}

promise! {
    async fn a_worker_that_cannot_open_a_session_is_stopped_all_the_same(db) {
        let hangs = Arc::new(AtomicBool::new(false));
        let switch = hangs.clone();
        let store = Hooked::new(db.another().await, move |call| {
            let hangs = switch.load(SeqCst);
            async move {
                match call {
                    "renew" if hangs => Err(away()),
                    "open_session" if hangs => std::future::pending().await,
                    _ => Ok(()),
                }
            }
        });
        let composer = composer(store).await;
        let worker = worker(&composer, &Gate::default()).start().await.unwrap();
        hangs.store(true, SeqCst);
        eventually("the session is lost", async || (worker.counts().sessions_lost == 1).then_some(())).await;
        ends_soon(worker).await;
    }
}

promise! {
    async fn a_part_of_the_worker_that_panics_is_replaced(db) {
        for part in ["claim", "write", "release", "inbox", "sweep", "owned"] {
            let panics = Arc::new(AtomicBool::new(false));
            let switch = panics.clone();
            let store = Hooked::new(db.another().await, move |call| {
                let panics = call == part && switch.swap(false, SeqCst);
                async move {
                    assert!(!panics, "a fault in {part}");
                    Ok(())
                }
            });
            let client = self::composer(db.another().await).await;
            let composer = composer(store).await;
            let worker = worker(&composer, &Gate::default()).linger(QUICK).start().await.unwrap();
            let waiting = composer.start(waits()).await.unwrap();
            panics.store(true, SeqCst);
            // Something to claim, to write, and to let go.
            let run = client.start(quick(4)).await.unwrap();
            assert_eq!(run.result().await.unwrap().unwrap(), 8, "{part}");
            waiting.signal(&GO, 1).await.unwrap();
            assert_eq!(waiting.result().await.unwrap(), 1, "{part}");
            eventually(part, async || (worker.counts().sessions_lost == 1).then_some(())).await;
            let run = client.start(quick(5)).await.unwrap();
            assert_eq!(run.result().await.unwrap().unwrap(), 10, "{part}");
            worker.shutdown().await.unwrap();
        }
    }
}

promise! {
    async fn a_worker_that_shuts_down_begins_no_attempt_that_waited_for_a_slot(db) {
        let composer = composer(db.another().await).await;
        let gate = Gate::default();
        let worker = worker(&composer, &gate).max_activities(1).grace(Duration::from_secs(10)).start().await.unwrap();
        let first = composer.start(through(1)).await.unwrap();
        begun(&gate, 1).await;
        let second = composer.start(through(2)).await.unwrap();
        eventually("it is asked for", async || (worker.counts().attempts == 2).then_some(())).await;
        let end = tokio::spawn(worker.shutdown());
        eventually("it is given back", async || {
            (second.status().await.unwrap().status == Status::Pending).then_some(())
        })
        .await;
        gate.open.notify_one();
        end.await.unwrap().unwrap();
        assert_eq!(first.result().await.unwrap().unwrap(), 1);
        assert_eq!(gate.begun.load(SeqCst), 1);
    }
}

promise! {
    async fn a_blocking_activity_that_goes_on_keeps_nobody_from_ending_and_does_not_count_as_a_death(db) {
        let gate = Gate::default();
        gate.shut.store(true, SeqCst);
        let (store, at_work) = (db.another().await, gate.clone());
        let process = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            let run = runtime.block_on(async {
                let composer = composer(store).await;
                let worker = worker(&composer, &at_work).start().await.unwrap();
                let run = composer.start(blocked()).await.unwrap();
                begun(&at_work, 1).await;
                ends_soon(worker).await;
                run.run_id()
            });
            // As at the end of `main`: waits for whatever the runtime waits for.
            drop(runtime);
            run
        });
        let run = tokio::task::spawn_blocking(|| process.join().unwrap()).await.unwrap();
        let row = db.store().run(run).await.unwrap().unwrap();
        assert_eq!((row.status, row.strikes), (Status::Pending, 0));
        gate.shut.store(false, SeqCst);
        let composer = composer(db.another().await).await;
        let heir = worker(&composer, &gate).start().await.unwrap();
        let run = composer.get::<blocked>(row.workflow_id.as_str()).await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), 1);
        heir.shutdown().await.unwrap();
    }
}

promise! {
    async fn a_journal_that_cannot_be_read_makes_its_run_stuck_and_no_other(db) {
        let client = composer(db.another().await).await;
        let gate = Gate::default();
        let mut runs = vec![];
        for n in 0..5 {
            runs.push(client.start(twice(n)).await.unwrap());
        }
        // The first one has a journal that no version can read.
        let run = db.literal(runs[0].run_id());
        let columns = "run_id, seq, at, kind, meta, payload, epoch";
        let sql = format!("insert into {{s}}journal ({columns}) select {run}, 1, 1, 1, '\"nonsense\"', null, 0");
        db.execute(&sql).await;
        let worker = worker(&client, &gate).start().await.unwrap();
        for (n, run) in (0..).zip(&runs).skip(1) {
            assert_eq!(run.result().await.unwrap().unwrap(), n * 4);
        }
        let row = eventually("it is stuck", async || {
            let row = runs[0].status().await.unwrap();
            (row.status == Status::Stuck).then_some(row)
        })
        .await;
        assert!(row.reason.as_deref().is_some_and(|reason| reason.contains("entry 1")), "{row:?}");
        worker.shutdown().await.unwrap();
    }
}

/// Refuses to read what says so.
#[derive(Debug)]
struct Picky;

impl Codec for Picky {
    fn encode(&self, payload: Payload) -> Payload {
        payload
    }
    fn decode(&self, stored: Payload) -> Result<Payload, String> {
        let text = String::from_utf8_lossy(stored.as_bytes()).into_owned();
        if text.contains("666") { Err("the key for 666 is lost".into()) } else { Ok(stored) }
    }
}

promise! {
    async fn a_payload_that_cannot_be_read_is_the_problem_of_its_run_alone(db) {
        let composer = composer(db.coded(Arc::new(Picky)).await).await;
        let worker = worker(&composer, &Gate::default()).linger(Duration::ZERO).start().await.unwrap();
        let client = self::composer(db.another().await).await;
        let input = client.start(quick(666)).await.unwrap();
        let message = client.start(waits()).await.unwrap();
        let journal = client.start(twice(333)).await.unwrap();
        message.signal(&GO, 666).await.unwrap();
        for run in [input.run_id(), message.run_id()] {
            let row = eventually("it is stuck", async || {
                let row = db.store().run(run).await.unwrap().unwrap();
                (row.status == Status::Stuck).then_some(row)
            })
            .await;
            assert!(row.reason.as_deref().is_some_and(|reason| reason.contains("the key for 666")), "{row:?}");
        }
        // What a worker wrote itself it never reads back; its client does.
        assert_eq!(journal.result().await.unwrap().unwrap(), 1332);
        let end = client.start(quick(333)).await.unwrap();
        assert_eq!(end.result().await.unwrap().unwrap(), 666);
        let other = composer.start(quick(2)).await.unwrap();
        let picky = self::composer(db.coded(Arc::new(Picky)).await).await;
        let unreadable = picky.get::<quick>(end.workflow_id().as_str()).await.unwrap();
        let other = picky.get::<quick>(other.workflow_id().as_str()).await.unwrap();
        let (unreadable, other) = futures::join!(unreadable.result(), other.result());
        assert!(unreadable.unwrap().is_err_and(|error| error.to_string().contains("the key for 666")));
        assert_eq!(other.unwrap().unwrap(), 4);
        worker.shutdown().await.unwrap();
    }
}

promise! {
    async fn runs_that_only_wait_make_room_for_those_that_are_due(db) {
        let composer = composer(db.another().await).await;
        let gate = Gate::default();
        let hour = Duration::from_secs(3600);
        let worker = worker(&composer, &gate).max_runs(2).linger(hour).start().await.unwrap();
        let mut waiting = vec![];
        for _ in 0..5 {
            waiting.push(composer.start(waits()).await.unwrap());
        }
        let due = composer.start(quick(1)).await.unwrap();
        assert_eq!(due.result().await.unwrap().unwrap(), 2);
        for (n, run) in (0..).zip(&waiting) {
            run.signal(&GO, n).await.unwrap();
            assert_eq!(run.result().await.unwrap(), n);
        }
        worker.shutdown().await.unwrap();
    }
}

promise! {
    async fn runs_over_which_workers_died_are_hosted_one_at_a_time(db) {
        let composer = composer(db.another().await).await;
        let gate = Gate::default();
        let mut runs = vec![];
        for n in 0..3 {
            runs.push(composer.start(through(n)).await.unwrap());
        }
        db.execute("update {s}runs set strikes = 2, seen = 0").await;
        let worker = worker(&composer, &gate).start().await.unwrap();
        begun(&gate, 1).await;
        eventually("the others are put off", async || {
            (db.number("select count(*) from {s}runs where status = 3").await == Some(2)).then_some(())
        })
        .await;
        assert_eq!(gate.begun.load(SeqCst), 1);
        for n in 1..=3 {
            begun(&gate, n).await;
            gate.open.notify_one();
        }
        for (n, run) in (0..).zip(&runs) {
            assert_eq!(run.result().await.unwrap().unwrap(), n);
        }
        worker.shutdown().await.unwrap();
    }
}

promise! {
    async fn whoever_waits_for_a_run_that_is_deleted_is_told(db) {
        let composer = composer(db.another().await).await;
        let worker = worker(&composer, &Gate::default()).start().await.unwrap();
        let run = composer.start(quick(1)).id("gone").await.unwrap();
        run.result().await.unwrap().unwrap();
        worker.shutdown().await.unwrap();
        composer.delete("gone").await.unwrap();
        assert!(matches!(run.result().await, Err(EngineError::NoRun { .. })));
    }
}

promise! {
    async fn a_start_over_which_the_worker_loses_its_session_happens_once(db) {
        let dead = Arc::new(AtomicBool::new(false));
        let switch = dead.clone();
        let store = Hooked::new(db.another().await, move |call| {
            let dead = switch.load(SeqCst);
            async move {
                match call {
                    "write" | "settle" | "renew" | "open_session" if dead => Err(away()),
                    _ => Ok(()),
                }
            }
        });
        let composer = composer(store).await;
        let worker = worker(&composer, &Gate::default()).start().await.unwrap();
        eventually("starts are handed to the worker", async || {
            composer.start(quick(1)).await.unwrap().result().await.unwrap().unwrap();
            (worker.counts().eager_starts > 0).then_some(())
        })
        .await;
        let before = db.number("select count(*) from {s}runs").await.unwrap();
        dead.store(true, SeqCst);
        let run = composer.start(quick(2)).await.unwrap();
        dead.store(false, SeqCst);
        assert_eq!(run.result().await.unwrap().unwrap(), 4);
        assert_eq!(db.number("select count(*) from {s}runs").await, Some(before + 1));
        worker.shutdown().await.unwrap();
    }
}

#[activity]
async fn elsewhere() -> Result<u32> {
    Ok(7)
}

#[workflow]
async fn asks_elsewhere() -> Result<u32> {
    elsewhere().await
}

promise! {
    async fn a_run_whose_activity_is_unknown_here_goes_to_a_worker_of_the_same_program_that_knows_it(db) {
        let composer = composer(db.another().await).await;
        let build = || composer.worker().workflow::<asks_elsewhere>().build_id("v1").poll(QUICK);
        let without = build().start().await.unwrap();
        let run = composer.start(asks_elsewhere()).await.unwrap();
        eventually("it is stuck", async || {
            (run.status().await.unwrap().status == Status::Stuck).then_some(())
        })
        .await;
        let with = build().activity::<elsewhere>().stuck_backoff(Duration::ZERO).start().await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), 7);
        without.shutdown().await.unwrap();
        with.shutdown().await.unwrap();
    }
}
