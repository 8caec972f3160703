//! C: crashes and recovery; K: leases. R-26: who is slow is not dead.

use std::time::Duration;

use composer_runtime::{Composer, RunHandle, Status};
use composer_tests::kit::{self, Command, Setup, Start, step, workflow::interpret};
use futures::future::join_all;
use serde_json::{Value, json};
use xtask::postgres;

use super::{
    Answer, Effects, projection, scenario,
    world::{check_journal, start},
};
use crate::support::{block_on, eventually, postgres::admin_url};

/// The effects `s1` … `sN`, one after the other.
fn in_turn(count: u32) -> impl Iterator<Item = Command> {
    (1..=count).map(|n| step(format!("s{n}")).into())
}

/// The values of [`in_turn`].
fn names(count: u32) -> Vec<Value> {
    (1..=count).map(|n| Value::from(format!("s{n}"))).collect()
}

scenario! {
    async fn c1_after_a_kill_another_worker_goes_on_from_the_next_step(world) {
        let mut first = world.process();
        world.effects.hold("s4");
        let run = start(&world.composer().await, in_turn(10)).await;
        world.effects.arrived("s4", 1).await;
        first.kill();
        world.effects.open("s4");

        let mut second = world.process();
        assert_eq!(run.result().await.unwrap().unwrap(), names(10));
        for n in 1..=10 {
            let name = format!("s{n}");
            assert_eq!(world.effects.keys(&name).len(), 1, "{name} has one key, however often it happened");
            assert_eq!(world.effects.count(&name), if n == 4 { 2 } else { 1 }, "{name}");
        }
        second.kill();
    }
}

scenario! {
    async fn c1_a_death_between_the_effect_and_its_record_repeats_it_under_one_key(world) {
        let mut first = world.process_with(|setup| setup.exit_at = Some("after_effect:3".into()));
        let run = start(&world.composer().await, in_turn(5)).await;
        assert!(!first.ended().await.success());

        let mut second = world.process();
        assert_eq!(run.result().await.unwrap().unwrap(), names(5));
        let calls = world.effects.calls("s3");
        assert_eq!(calls.iter().map(|call| call.attempt).collect::<Vec<_>>(), [1, 1], "a death is no attempt");
        assert_eq!(world.effects.keys("s3").len(), 1);
        assert_eq!(world.effects.total(), 6);
        second.kill();
    }
}

scenario! {
    async fn c6_an_acknowledged_start_is_carried_out_whoever_dies(world) {
        let starts: Vec<_> = (0..8)
            .map(|n| Start {
                // Ids of the user's and of the engine's own take different ways into the database.
                id: (n % 2 == 0).then(|| format!("order-{n}")),
                commands: vec![step("ship").into()],
            })
            .collect();
        world.effects.hold("ship");
        let mut first = world.process_with(|setup| setup.start = starts);
        let mut acknowledged = vec![first.line().await];
        acknowledged.extend(first.killed().await);
        world.effects.open("ship");

        let mut second = world.process();
        let composer = world.composer().await;
        for line in &acknowledged {
            let id = line.split(' ').nth(2).expect("the third word is the workflow id");
            let run = composer.get::<interpret>(id).await.expect("an acknowledged start is there");
            assert_eq!(run.result().await.unwrap().unwrap(), [json!("ship")]);
        }
        // What was not acknowledged may have begun, too.
        eventually("all runs have ended", async || {
            let open = "select count(*) from {s}runs where status < 5";
            (world.db().number(open).await == Some(0)).then_some(())
        })
        .await;
        second.kill();
    }
}

mod c8_a_restart_of_the_server_in_mid_run_loses_and_doubles_nothing {
    use super::*;

    const RUNS: u32 = 10;
    const STEPS: u32 = 12;

    #[test]
    fn postgres() {
        if admin_url().is_none() {
            return;
        }
        let bin = postgres::find().unwrap().expect("a machine with a test server has its programs");
        let mut server = postgres::Postgres::start(&bin, &[]).unwrap();
        block_on(async {
            let effects = Effects::start().await;
            let setup = Setup { url: server.url(), effects: effects.url().into(), ..Setup::default() };
            let composer = kit::composer(&setup).await.unwrap();
            let worker = kit::worker(&composer, &setup).start().await.unwrap();
            let client = kit::composer(&setup).await.unwrap();
            let runs = begin(&client, &effects).await;
            let results: Vec<_> = runs.iter().map(|run| tokio::spawn(waiting(run.clone()))).collect();
            for (effects_until_then, how) in [(40, "INT"), (80, "QUIT")] {
                eventually("the runs go on", async || (effects.total() >= effects_until_then).then_some(()))
                    .await;
                server = tokio::task::spawn_blocking(move || {
                    server.restart(how).unwrap();
                    server
                })
                .await
                .unwrap();
            }
            for (n, result) in results.into_iter().enumerate() {
                let names: Vec<_> = (0..STEPS).map(|step| json!(format!("r{n}s{step}"))).collect();
                assert_eq!(result.await.unwrap(), names);
            }
            look(&runs, &effects).await;
            worker.shutdown().await.unwrap();
        });
    }

    async fn begin(client: &Composer, effects: &Effects) -> Vec<RunHandle<interpret>> {
        let mut runs = vec![];
        for n in 0..RUNS {
            let steps: Vec<_> = (0..STEPS).map(|step| format!("r{n}s{step}")).collect();
            steps.iter().for_each(|name| effects.always(name, Answer::Late(Duration::from_millis(20))));
            runs.push(start(client, steps.into_iter().map(|name| step(name).into())).await);
        }
        runs
    }

    async fn waiting(run: RunHandle<interpret>) -> Vec<Value> {
        run.result().await.expect("a client waits through a restart").expect("no run fails because of it")
    }

    async fn look(runs: &[RunHandle<interpret>], effects: &Effects) {
        for run in runs {
            check_journal(run, Status::Completed).await;
            let lines = projection(run).await;
            assert_eq!(lines.len() as u32, 2 + 2 * STEPS, "each step once: {lines:#?}");
        }
        for (name, _) in effects.counts() {
            assert_eq!(effects.keys(&name).len(), 1, "{name}");
        }
    }
}

scenario! {
    async fn c11_fifty_runs_of_dead_workers_go_on_within_the_limits_of_one(world) {
        let mut workers = [world.process(), world.process()];
        let composer = world.composer().await;
        let runs = join_all((0..50).map(|n| {
            world.effects.hold(&format!("b{n}"));
            start(&composer, ["a", "b", "c"].map(|name| step(format!("{name}{n}")).into()))
        }))
        .await;
        eventually("all are under way", async || (world.effects.total() >= 100).then_some(())).await;
        workers.iter_mut().for_each(|worker| worker.kill());
        eventually("the server has noticed", async || (world.effects.active() == 0).then_some(())).await;
        world.effects.forget_most();
        (0..50).for_each(|n| {
            world.effects.always(&format!("b{n}"), Answer::Late(Duration::from_millis(10)));
            world.effects.open(&format!("b{n}"));
        });

        let mut one = world.process_with(|setup| setup.max_activities = 5);
        for (n, run) in runs.iter().enumerate() {
            let values = run.result().await.unwrap().unwrap();
            assert_eq!(values, ["a", "b", "c"].map(|name| json!(format!("{name}{n}"))));
        }
        assert!(world.effects.most_at_once() <= 5, "{} at once", world.effects.most_at_once());
        for (name, count) in world.effects.counts() {
            assert_eq!(world.effects.keys(&name).len(), 1, "{name}");
            assert_eq!(count, if name.starts_with('b') { 2 } else { 1 }, "{name}");
        }
        one.kill();
    }
}

scenario! {
    async fn k1_a_frozen_worker_that_wakes_up_is_fenced_and_goes_on_with_other_work(world) {
        let mut frozen = world.process_with(|setup| setup.lease_ms = 800);
        world.effects.hold("s2");
        let composer = world.composer().await;
        let run = start(&composer, in_turn(3)).await;
        world.effects.arrived("s2", 1).await;
        frozen.signal("STOP");

        // Alive as it is, only its lease says that it may be replaced.
        let mut other = world.process_with(|setup| setup.lease_ms = 800);
        world.effects.arrived("s2", 2).await;
        world.effects.open("s2");
        // The frozen one's answer lies in its socket when it wakes up.
        frozen.signal("CONT");
        assert_eq!(run.result().await.unwrap().unwrap(), names(3));
        assert_eq!(world.effects.count("s3"), 1);
        assert_eq!(projection(&run).await.len(), 8, "one completion");

        other.kill();
        assert!(frozen.is_running());
        let next = start(&composer, [step("next").into()]).await;
        assert_eq!(next.result().await.unwrap().unwrap(), [json!("next")]);
        frozen.kill();
    }
}

scenario! {
    async fn k3_an_activity_of_five_leases_is_not_carried_out_a_second_time(world) {
        let mut workers =
            [(); 2].map(|()| world.process_with(|setup| setup.lease_ms = 600));
        world.effects.always("long", Answer::Late(Duration::from_millis(3_000)));
        let run = start(&world.composer().await, [step("long").into()]).await;
        assert_eq!(run.result().await.unwrap().unwrap(), [json!("long")]);
        assert_eq!(world.effects.count("long"), 1);
        workers.iter_mut().for_each(|worker| worker.kill());
    }
}

scenario! {
    async fn r26_code_that_blocks_every_thread_does_not_cost_the_lease(world) {
        let slow = world.process_with(|setup| setup.lease_ms = 600);
        let composer = world.composer().await;
        // More of them than the process has threads for async code.
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let blocking = (0..threads + 1).map(|_| start(&composer, [Command::Block { ms: 3_000 }]));
        let runs = join_all(blocking).await;
        world.effects.arrived("block", threads).await;
        let other = world.process_with(|setup| setup.lease_ms = 600);
        for run in &runs {
            assert_eq!(run.result().await.unwrap().unwrap(), [json!(3_000)]);
        }
        assert_eq!(world.effects.count("block"), runs.len(), "no second execution");
        drop((slow, other));
    }
}
