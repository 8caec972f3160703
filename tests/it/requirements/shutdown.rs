//! shutting down. R-26: live but slow workers keep their lease, dead ones are replaced.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use composer_runtime::{Composer, Worker};
use composer_sdk::prelude::*;
use composer_tests::kit::{self, Setup, step};
use futures::future::join_all;
use serde_json::json;

use super::{World, lines, scenario};
use crate::{
    scenarios::{Process, start},
    support::eventually,
};

const GRACE: Duration = Duration::from_millis(1_500);

scenario! {
    /// The lease is long: whoever waited for it would be seen.
    async fn r25_at_a_signal_quick_work_ends_long_work_is_given_back_and_nothing_begins(world) {
        let mut worker = world.process_with(|setup| {
            setup.lease_ms = 60_000;
            setup.grace_ms = GRACE.as_millis() as u64;
        });
        let composer = &world.composer().await;
        let names = |kind: &str, count| (0..count).map(|n| format!("{kind}-{n}")).collect::<Vec<_>>();
        let (quick, long) = (names("quick", 2), names("long", 8));
        let two_steps = |name: &String| [step(name).into(), step(format!("after-{name}")).into()];
        for name in quick.iter().chain(&long) {
            world.effects.hold(name);
        }
        let quick_runs = join_all(quick.iter().map(|name| start(composer, two_steps(name)))).await;
        let long_runs = join_all(long.iter().map(|name| start(composer, two_steps(name)))).await;
        for name in quick.iter().chain(&long) {
            world.effects.arrived(name, 1).await;
        }

        worker.signal("TERM");
        let told = Instant::now();
        // It may take until the signal is heard: from the first quick result on, nothing may begin.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let late = start(composer, [step("late").into()]).await;
        for (name, run) in quick.iter().zip(&quick_runs) {
            world.effects.open(name);
            lines(run, "step_completed", 1).await;
        }
        let status = worker.ended().await;
        assert_eq!(status.code(), Some(0), "{status}");
        assert!(told.elapsed() < GRACE + Duration::from_secs(2), "{:?}", told.elapsed());
        assert!(told.elapsed() >= GRACE, "the long ones had their grace time: {:?}", told.elapsed());
        let begun: Vec<_> = world.effects.counts().into_iter().map(|(name, _)| name).collect();
        assert!(begun.iter().all(|name| quick.contains(name) || long.contains(name)), "{begun:?}");

        // Another worker has them at once, and an attempt that was stopped does not count.
        let given_back = Instant::now();
        let heir = world.at_work().await;
        for name in &long {
            world.effects.arrived(name, 2).await;
        }
        assert!(given_back.elapsed() < Duration::from_secs(5), "{:?}", given_back.elapsed());
        for name in &long {
            world.effects.open(name);
        }
        for (name, run) in quick.iter().zip(&quick_runs).chain(long.iter().zip(&long_runs)) {
            assert_eq!(run.result().await.unwrap().unwrap(), [json!(name), json!(format!("after-{name}"))]);
            let calls = world.effects.calls(name);
            assert!(calls.iter().all(|call| call.attempt == 1 && call.key == calls[0].key), "{calls:?}");
            assert_eq!(calls.len(), if long.contains(name) { 2 } else { 1 }, "{name}");
        }
        late.result().await.unwrap().unwrap();
        heir.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r25_a_second_signal_ends_at_once(world) {
        let mut worker = world.process_with(|setup| setup.grace_ms = 60_000);
        world.effects.hold("long");
        let run = start(&world.composer().await, [step("long").into()]).await;
        world.effects.arrived("long", 1).await;
        // Two that come before the process looks are one: so once more until it ends.
        let began = Instant::now();
        let mut count = 0;
        while worker.is_running() {
            assert!(began.elapsed() < Duration::from_secs(2), "{count} signals");
            worker.signal("TERM");
            count += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(count >= 2, "the first one lets running activities end");
        assert_eq!(worker.ended().await.code(), Some(130));

        world.effects.open("long");
        let heir = world.at_work().await;
        run.result().await.unwrap().unwrap();
        heir.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r25_an_idle_worker_ends_at_once(world) {
        let mut worker = world.process_with(|setup| {
            setup.grace_ms = 60_000;
            // A run that waits in memory is given back, too.
            setup.linger_ms = 60_000;
        });
        let composer = world.composer().await;
        start(&composer, [step("up").into()]).await.result().await.unwrap().unwrap();
        let waiting = start(&composer, [step("waits").into(), kit::wait()]).await;
        lines(&waiting, "step_completed", 1).await;
        worker.signal("TERM");
        let told = Instant::now();
        let status = worker.ended().await;
        assert_eq!(status.code(), Some(0), "{status}");
        assert!(told.elapsed() < Duration::from_secs(1), "{:?}", told.elapsed());
        waiting.cancel("").await.unwrap();
        let heir = world.at_work().await;
        waiting.result().await.unwrap().unwrap_err();
        heir.shutdown().await.unwrap();
    }
}

const LEASE: Duration = Duration::from_millis(800);

/// How often the blocking step has begun.
#[derive(Debug, Clone, Default)]
struct Begun(Arc<AtomicU32>);

/// Holds its thread for five leases, and all other tasks of that thread with it.
#[activity]
async fn hold_the_thread(#[state] begun: Begun) -> Result<u32> {
    begun.0.fetch_add(1, Ordering::SeqCst);
    std::thread::sleep(5 * LEASE);
    Ok(7)
}

#[workflow]
async fn blocked() -> Result<u32> {
    hold_the_thread().await
}

async fn holder(composer: &Composer, setup: &Setup, begun: &Begun) -> Worker {
    let worker = kit::worker(composer, setup).workflow::<blocked>().activity::<hold_the_thread>();
    worker.state(begun.clone()).lease(LEASE).start().await.unwrap()
}

scenario! {
    async fn r26_a_worker_whose_only_thread_is_blocked_keeps_its_runs(world) {
        let begun = Begun::default();
        let slow = {
            let (setup, begun) = (world.setup.clone(), begun.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async move {
                    let composer = kit::composer(&setup).await.unwrap();
                    let worker = holder(&composer, &setup, &begun).await;
                    let result = composer.start(blocked()).await.unwrap().result().await.unwrap().unwrap();
                    let lost = worker.counts().sessions_lost;
                    worker.shutdown().await.unwrap();
                    (result, lost)
                })
            })
        };
        eventually("the step begins", async || (begun.0.load(Ordering::SeqCst) > 0).then_some(())).await;
        let composer = world.composer().await;
        let other = holder(&composer, &world.setup, &begun).await;
        let slow = tokio::task::spawn_blocking(|| slow.join().unwrap()).await.unwrap();
        assert_eq!(slow, (7, 0));
        assert_eq!(begun.0.load(Ordering::SeqCst), 1, "no second execution");
        assert_eq!(other.counts().take_overs, 0);
        other.shutdown().await.unwrap();
    }
}

/// Stops a process between two writes. One that is stopped in the middle of a write keeps the lock of a SQLite file,
/// and with it everybody else, until it goes on or is killed: no lease helps against that.
async fn freeze(world: &World, process: &Process) {
    loop {
        process.signal("STOP");
        let write = world.db().execute("update {s}runs set strikes = strikes where strikes < 0");
        if tokio::time::timeout(LEASE / 4, write).await.is_ok() {
            return;
        }
        process.signal("CONT");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

scenario! {
    /// Killed, its process is noticed to be gone; frozen, its lease ends. The bound is the same.
    async fn r26_a_dead_worker_is_replaced_within_its_lease(world) {
        for name in ["killed", "frozen"] {
            let mut dead = world.process_with(|setup| setup.lease_ms = LEASE.as_millis() as u64);
            world.effects.hold(name);
            let run = start(&world.composer().await, [step(name).into()]).await;
            world.effects.arrived(name, 1).await;
            let heir = world.at_work().await;
            let gone = Instant::now();
            match name {
                "killed" => dead.kill(),
                _ => freeze(world, &dead).await,
            }
            world.effects.arrived(name, 2).await;
            assert!(gone.elapsed() < LEASE + Duration::from_secs(5), "{name}: {:?}", gone.elapsed());
            world.effects.open(name);
            run.result().await.unwrap().unwrap();
            assert_eq!(world.effects.keys(name).len(), 1);
            heir.shutdown().await.unwrap();
        }
    }
}
