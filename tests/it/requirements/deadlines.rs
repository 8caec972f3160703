//! deadlines are absolute. R-09: timers at the edges.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use composer_runtime::{Composer, RunHandle, Status};
use composer_sdk::{
    Failure,
    error::FailureKind,
    id::Timestamp,
    journal::Event,
    prelude::*,
    workflow::{now, sleep_until},
};
use composer_tests::kit::{Command, sleep as nap, step, wait};
use futures::future::join_all;
use serde_json::json;

use super::{World, entries, lines, scenario, stands};
use crate::{
    scenarios::{Answer, start},
    support::eventually,
};

/// How late something may be on a busy machine. Far below what an error of a whole delay would look like.
const SLACK: Duration = Duration::from_millis(1_000);

/// Waits until the database's clock is past that instant.
async fn passed(world: &World, instant: Timestamp) {
    let store = world.db().store();
    eventually("time passes", async || (store.now().await.ok()? > instant).then_some(())).await;
}

/// A timer of a run: when it was set, is due, and has fired.
#[derive(Debug, Clone, Copy)]
struct Timer {
    step: u32,
    set: Timestamp,
    due: Timestamp,
    fired: Option<Timestamp>,
}

/// A run's timers, in the order in which they were set.
async fn timers<W>(world: &World, run: &RunHandle<W>) -> Vec<Timer> {
    let mut timers: Vec<Timer> = vec![];
    for entry in entries(world, run).await {
        match entry.event {
            Event::TimerSet { step, due } => {
                timers.push(Timer { step: step.number, set: entry.at, due, fired: None });
            }
            Event::TimerFired { step } => {
                let timer = timers.iter_mut().find(|timer| timer.step == step).unwrap();
                assert!(timer.fired.replace(entry.at).is_none(), "a timer fires once");
                assert!(entry.at >= timer.due, "a timer never fires early: {timer:?}");
            }
            _ => {}
        }
    }
    timers
}

scenario! {
    async fn r08_a_timer_that_came_due_without_a_worker_fires_at_once(world) {
        let worker = world.at_work().await;
        let run = start(&world.composer().await, [nap(400)]).await;
        lines(&run, "timer_set", 1).await;
        worker.shutdown().await.unwrap();
        let due = timers(world, &run).await[0].due;
        passed(world, due.saturating_add(Duration::from_millis(300))).await;

        let begun = Instant::now();
        let worker = world.at_work().await;
        run.result().await.unwrap().unwrap();
        assert!(begun.elapsed() < SLACK, "{:?}", begun.elapsed());
        let timers = timers(world, &run).await;
        assert_eq!((timers.len(), timers[0].due), (1, due));
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    /// A kill and a new start in the middle do not make it any longer.
    async fn r08_a_wait_with_a_timeout_ends_when_it_was_to_end_at_first(world) {
        let mut first = world.process();
        let run = start(&world.composer().await, [Command::Wait { ms: Some(1_500) }]).await;
        lines(&run, "timer_set", 1).await;
        first.kill();
        let worker = world.at_work().await;
        assert_eq!(run.result().await.unwrap().unwrap(), [json!("nothing")]);
        let timers = timers(world, &run).await;
        assert_eq!(timers.len(), 1, "it was set once: {timers:?}");
        let Timer { set, due, fired, .. } = timers[0];
        let length = due.since(set);
        assert!((1_400..=1_500).contains(&length.as_millis()), "{length:?}");
        assert!(fired.unwrap().since(due) < SLACK, "{timers:?}");
        worker.shutdown().await.unwrap();
    }
}

/// An effect that fails once, with that delay before the next attempt.
async fn fails_once(world: &World, name: &'static str, delay: Duration) -> RunHandle<impl Sized> {
    world.effects.script(name, [Answer::Status(500, "not now")]);
    let worker = world.at_work().await;
    let run = start(&world.composer().await, [step(name).first(delay).into()]).await;
    lines(&run, "attempt_failed", 1).await;
    worker.shutdown().await.unwrap();
    run
}

scenario! {
    async fn r08_a_retry_delay_goes_on_while_no_worker_is_there(world) {
        let delay = Duration::from_millis(700);
        // A worker is back before the delay is over: it waits for the rest, and not for the whole.
        let early = fails_once(world, "early", delay).await;
        let worker = world.at_work().await;
        stands(&early, Status::Completed).await;
        worker.shutdown().await.unwrap();
        let calls = world.effects.calls("early");
        let pause = calls[1].at - calls[0].at;
        assert!(pause >= delay && pause < delay + SLACK, "{pause:?}");

        // The delay is over when a worker is back: nothing to wait for.
        let late = fails_once(world, "late", delay).await;
        let retry_at = entries(world, &late).await.into_iter().find_map(|entry| match entry.event {
            Event::AttemptFailed { retry_at, .. } => Some(retry_at),
            _ => None,
        });
        passed(world, retry_at.unwrap()).await;
        let worker = world.at_work().await;
        let begun = Instant::now();
        stands(&late, Status::Completed).await;
        assert!(begun.elapsed() < delay, "{:?}", begun.elapsed());
        worker.shutdown().await.unwrap();
        for name in ["early", "late"] {
            let attempts: Vec<_> = world.effects.calls(name).iter().map(|call| call.attempt).collect();
            assert_eq!(attempts, [1, 2], "{name}");
        }
    }
}

scenario! {
    /// Neither a run that waits nor one that no worker has seen begins anything after its time.
    async fn r08_the_timeout_of_a_run_passes_while_no_worker_is_there(world) {
        let composer = world.composer().await;
        let timed = |commands| composer.start(composer_tests::kit::workflow::interpret(commands));
        let worker = world.at_work().await;
        let waiting = timed(vec![wait(), step("too-late").into()]).timeout(Duration::from_millis(500)).await.unwrap();
        stands(&waiting, Status::Parked).await;
        worker.shutdown().await.unwrap();
        let unseen = timed(vec![step("too-late").into()]).timeout(Duration::from_millis(200)).await.unwrap();
        for run in [&waiting, &unseen] {
            passed(world, run.status().await.unwrap().deadline.unwrap()).await;
        }

        let worker = world.at_work().await;
        let begun = Instant::now();
        for run in [&waiting, &unseen] {
            let error = run.result().await.unwrap().unwrap_err();
            assert_eq!(error.failure().map(|failure| failure.kind), Some(FailureKind::TimedOut), "{error:#}");
            assert_eq!(run.status().await.unwrap().status, Status::Failed);
            lines(run, "run_timed_out", 1).await;
        }
        assert!(begun.elapsed() < SLACK, "{:?}", begun.elapsed());
        assert_eq!(world.effects.total(), 0);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r08_overdue_timers_fire_in_the_order_in_which_they_were_due(world) {
        let worker = world.at_work().await;
        let lengths = [500, 300, 100, 400, 200];
        let branches = lengths.iter().map(|ms| vec![nap(*ms)]).collect();
        let run = start(&world.composer().await, [Command::Join(branches)]).await;
        lines(&run, "timer_set", lengths.len()).await;
        worker.shutdown().await.unwrap();
        let last = timers(world, &run).await.into_iter().map(|timer| timer.due).max().unwrap();
        passed(world, last).await;

        let worker = world.at_work().await;
        run.result().await.unwrap().unwrap();
        let fired: Vec<u32> = entries(world, &run)
            .await
            .iter()
            .filter_map(|entry| match entry.event {
                Event::TimerFired { step } => Some(step),
                _ => None,
            })
            .collect();
        let mut by_due = timers(world, &run).await;
        by_due.sort_by_key(|timer| timer.due);
        let by_due: Vec<u32> = by_due.into_iter().map(|timer| timer.step).collect();
        // What had fired before the worker stopped was due before all others.
        assert_eq!(fired, by_due);
        worker.shutdown().await.unwrap();
    }
}

static GO: Signal<()> = Signal::new("go");

/// Microseconds since the run's beginning, after each timer.
#[workflow]
async fn no_time_at_all() -> Result<Vec<u128>> {
    let begun = now();
    let mut passed = vec![];
    sleep(Duration::ZERO).await;
    passed.push(now());
    sleep(Duration::from_nanos(1)).await;
    passed.push(now());
    sleep_until(begun - Duration::from_secs(3_600)).await;
    passed.push(now());
    sleep_until(UNIX_EPOCH).await;
    passed.push(now());
    GO.recv().await;
    sleep(Duration::from_millis(500)).await;
    passed.push(now());
    Ok(passed.into_iter().map(|at| at.duration_since(begun).unwrap_or_default().as_micros()).collect())
}

scenario! {
    async fn r09_timers_without_length_are_ready_at_once_and_journaled_and_others_are_not(world) {
        let worker = world.worker().await.workflow::<no_time_at_all>().linger(Duration::ZERO);
        let worker = worker.start().await.unwrap();
        let run = world.composer().await.start(no_time_at_all()).await.unwrap();
        stands(&run, Status::Parked).await;
        let before = timers(world, &run).await;
        assert_eq!(before.iter().filter(|timer| timer.fired.is_some()).count(), 4, "{before:?}");
        for timer in &before {
            assert!(timer.fired.unwrap().since(timer.set) < SLACK, "{timer:?}");
        }
        // The smallest unit there is: a timer of a nanosecond waits for a microsecond.
        assert_eq!(before[1].due.since(before[0].fired.unwrap()), Duration::from_micros(1));

        // From here on the run is replayed.
        run.signal(&GO, ()).await.unwrap();
        let passed = run.result().await.unwrap().unwrap();
        let after = timers(world, &run).await;
        for (before, after) in before.iter().zip(&after) {
            assert_eq!((before.due, before.fired), (after.due, after.fired));
        }
        let half_a_second = after[4];
        assert!(half_a_second.due.since(half_a_second.set) >= Duration::from_millis(400));
        assert!(passed[4] - passed[3] >= 500_000, "{passed:?}");
        worker.shutdown().await.unwrap();
    }
}

#[workflow]
async fn sleeps(length: Duration) -> Result<()> {
    select! {
        () = sleep(length) => {},
        () = GO.recv() => {},
    }
    Ok(())
}

#[workflow]
async fn sleeps_until(instant: SystemTime) -> Result<()> {
    sleep_until(instant).await;
    Ok(())
}

async fn sleeper(world: &World) -> (Composer, composer_runtime::Worker) {
    let worker = world.worker().await.workflow::<sleeps>().workflow::<sleeps_until>();
    (world.composer().await, worker.linger(Duration::ZERO).start().await.unwrap())
}

scenario! {
    async fn r09_ten_years_are_stored_exactly(world) {
        let (composer, worker) = sleeper(world).await;
        let ten_years = Duration::days(3_653);
        let run = composer.start(sleeps(ten_years)).await.unwrap();
        let row = stands(&run, Status::Parked).await;
        let due = row.started_at.unwrap().saturating_add(ten_years);
        assert_eq!(row.due_at, Some(due));
        // A replay changes nothing about it.
        run.signal_json("gossip", &json!("psst")).await.unwrap();
        lines(&run, "signal", 1).await;
        assert_eq!(stands(&run, Status::Parked).await.due_at, Some(due));
        assert_eq!(timers(world, &run).await[0].due, due);
        run.signal(&GO, ()).await.unwrap();
        run.result().await.unwrap().unwrap();

        let last = Timestamp::from_micros(Timestamp::MAX.as_micros() - 1);
        let run = composer.start(sleeps_until(last.into())).await.unwrap();
        assert_eq!(stands(&run, Status::Parked).await.due_at, Some(last));
        run.cancel("nobody waits for so long").await.unwrap();
        assert!(run.result().await.unwrap().is_err());
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r09_beyond_the_last_instant_is_a_typed_error_that_names_the_call(world) {
        let (composer, worker) = sleeper(world).await;
        let too_long = composer.start(sleeps(Duration::MAX)).await.unwrap();
        let too_late = UNIX_EPOCH + Duration::from_secs(300_000_000_000);
        let too_late = composer.start(sleeps_until(too_late)).await.unwrap();
        for (error, run_id) in [
            (too_long.result().await.unwrap().unwrap_err(), too_long.run_id()),
            (too_late.result().await.unwrap().unwrap_err(), too_late.run_id()),
        ] {
            let failure: &Failure = error.failure().unwrap();
            assert_eq!(failure.kind, FailureKind::Refused, "{error:#}");
            assert!(failure.message.contains("9999") && failure.message.contains("deadlines.rs:"), "{failure}");
            assert!(world.db().store().journal(run_id, 0, 10).await.unwrap().is_empty());
        }
        worker.shutdown().await.unwrap();
    }
}

#[activity]
async fn quick() -> Result<String> {
    Ok("quick".into())
}

#[workflow]
async fn drops_timers() -> Result<String> {
    drop(sleep(Duration::days(1)));
    let won = select! {
        () = sleep(Duration::days(1)) => "slow".to_owned(),
        answer = quick() => answer?,
    };
    GO.recv().await;
    Ok(won)
}

scenario! {
    async fn r09_a_timer_that_was_dropped_holds_nothing_up(world) {
        let worker = world.worker().await.workflow::<drops_timers>().activity::<quick>();
        let worker = worker.linger(Duration::ZERO).start().await.unwrap();
        let run = world.composer().await.start(drops_timers()).await.unwrap();
        // What was dropped does not wake a parked run.
        assert_eq!(stands(&run, Status::Parked).await.due_at, None);
        let timers = timers(world, &run).await;
        assert_eq!(timers.len(), 1, "one that nobody has waited for was never set: {timers:?}");
        assert_eq!(timers[0].fired, None);
        run.signal(&GO, ()).await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), "quick");
        worker.shutdown().await.unwrap();
    }
}

#[workflow]
async fn sleeps_often(instant: SystemTime, times: u32) -> Result<u32> {
    let timers = (0..times).map(|_| sleep_until(instant));
    Ok(join_all(timers).await.len() as u32)
}

scenario! {
    async fn r09_thousands_of_timers_are_due_at_one_instant(world) {
        let worker = world.worker().await.workflow::<sleeps_until>().workflow::<sleeps_often>();
        let worker = worker.start().await.unwrap();
        let composer = world.composer().await;
        let due = world.db().store().now().await.unwrap().saturating_add(Duration::from_millis(2_500));
        let one = composer.start(sleeps_often(due.into(), 2_000)).await.unwrap();
        let many = join_all((0..300).map(|_| composer.start(sleeps_until(due.into())).into_future())).await;
        passed(world, due).await;

        let begun = Instant::now();
        assert_eq!(one.result().await.unwrap().unwrap(), 2_000);
        for run in many {
            let run = run.unwrap();
            run.result().await.unwrap().unwrap();
            assert_eq!(timers(world, &run).await.len(), 1);
        }
        // A fifth of what there may be at most.
        assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
        assert_eq!(timers(world, &one).await.len(), 2_000);
        worker.shutdown().await.unwrap();
    }
}
