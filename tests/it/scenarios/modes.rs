//! One run in every mode: results and journal are the same, whatever happens to the workers.
//!
//! X1 nothing special, the measure of the others; X2 the run is evicted whenever it waits, so that everything is replayed
//! each time; X3 the worker dies again and again; X4 one activity and one run at a time; X5 three workers, of which one
//! or the other is killed now and then. (X6, the database restarted, is C8.)

use std::time::Duration;

use composer_runtime::{RunHandle, Status};
use composer_tests::kit::{
    self, Command, Setup, join_all, map, note, race, sleep as nap, step, wait,
    workflow::{GO, interpret},
};
use serde_json::{Value, json};

use super::{
    Answer, World, scenario,
    world::{start, until_status},
};

/// A bit of everything; not more than three effects at once.
fn commands(p: &str) -> Vec<Command> {
    let effect = |name: &str| step(format!("{p}-{name}"));
    vec![
        note(format!("{p}-noted")),
        Command::Join(vec![
            vec![nap(150)],
            // One branch alone goes on: what it asks for later has the same numbers in every order of events.
            vec![effect("b1").into(), effect("b2").into(), nap(10), effect("b3").into()],
            vec![effect("c1").into()],
            vec![],
        ]),
        // Here, too, one branch alone.
        Command::Spawn(vec![
            vec![effect("s1").into(), nap(20), effect("s2").into()],
            vec![effect("t1").into()],
        ]),
        race(effect("fast"), 3_600_000),
        race(effect("held"), 100),
        wait(),
        join_all(format!("{p}-all"), 3),
        map(format!("{p}-one"), 3, 1),
        Command::Wait { ms: Some(50) },
        effect("flaky").first(Duration::from_millis(20)).into(),
        note(format!("{p}-noted again")),
        Command::Ask(format!("{p}-asked")),
    ]
}

/// What it returns, but for what the run's own clock and randomness say, and the world.
fn expected(p: &str) -> Vec<Value> {
    let effect = |name: &str| json!(format!("{p}-{name}"));
    vec![
        effect("noted"),
        json!([[null], [effect("b1"), effect("b2"), null, effect("b3")], [effect("c1")], []]),
        json!([[effect("s1"), null, effect("s2")], [effect("t1")]]),
        effect("fast"),
        json!("time"),
        json!("early"),
        json!([effect("all-0"), effect("all-1"), effect("all-2")]),
        json!([effect("one-0"), effect("one-1"), effect("one-2")]),
        json!("nothing"),
        effect("flaky"),
        effect("noted again"),
        effect("asked"),
    ]
}

async fn begin(world: &World, p: &str) -> RunHandle<interpret> {
    world.effects.hold(&format!("{p}-held"));
    world.effects.script(&format!("{p}-flaky"), [Answer::Status(503, "once")]);
    let run = start(&world.composer().await, commands(p)).await;
    run.signal(&GO, json!("early")).await.unwrap();
    run
}

/// Checks the result and what happened at the server; returns the journal, in the order of the steps, without failed
/// attempts: which of them were noticed before a kill is chance.
async fn ended(world: &World, run: &RunHandle<interpret>, p: &str) -> Vec<String> {
    let mut values = run.result().await.unwrap().unwrap();
    for (place, name) in [(0, "noted"), (10, "noted again"), (11, "asked")] {
        let name = format!("{p}-{name}");
        let sent: Vec<_> = world.effects.calls(&name).into_iter().map(|call| call.body).collect();
        assert!(sent.iter().all(|sent| *sent == values[place]), "{name}: {sent:?} and {}", values[place]);
        values[place] = json!(name);
    }
    assert_eq!(values, expected(p));
    for (name, _) in world.effects.counts() {
        assert_eq!(world.effects.keys(&name).len(), 1, "{name}");
    }
    let lines = run.journal().await.unwrap();
    let mut lines: Vec<_> = lines.into_iter().filter(|line| line.kind != "attempt_failed").collect();
    lines.sort_by_key(|line| line.step);
    lines.iter().map(|line| format!("{:?} {} {}", line.step, line.kind, line.name)).collect()
}

/// The journal of a run to which nothing special happens.
async fn undisturbed(world: &World) -> Vec<String> {
    let worker = world.at_work().await;
    let run = begin(world, "x1").await;
    let journal = ended(world, &run, "x1").await;
    worker.shutdown().await.unwrap();
    journal
}

scenario! {
    async fn x2_a_run_that_is_evicted_whenever_it_waits_is_the_same(world) {
        let setup = Setup { linger_ms: 0, poll_ms: 1, ..world.setup.clone() };
        let worker = kit::worker(&world.composer().await, &setup).start().await.unwrap();
        let run = begin(world, "x2").await;
        let journal = ended(world, &run, "x2").await;
        assert!(worker.counts().parked >= 1, "{:?}", worker.counts());
        worker.shutdown().await.unwrap();
        assert_eq!(journal, undisturbed(world).await);
    }
}

scenario! {
    async fn x3_a_run_whose_workers_die_again_and_again_is_the_same(world) {
        let run = begin(world, "x3").await;
        let mut deaths = 0;
        while !run.status().await.unwrap().status.is_closed() {
            // More than there are at once: each life brings at least one of them home.
            let mut worker = world.process_with(|setup| setup.exit_at = Some("before_effect:5".into()));
            worker.ended_or(async || run.status().await.unwrap().status.is_closed()).await;
            deaths += u32::from(!worker.is_running());
            assert!(deaths < 20, "there is progress in each life");
        }
        assert!(deaths >= 2, "{deaths} deaths");
        assert_eq!(ended(world, &run, "x3").await, undisturbed(world).await);
    }
}

scenario! {
    async fn x4_a_run_with_one_slot_is_the_same(world) {
        let worker = world.worker().await.max_activities(1).max_runs(1).start().await.unwrap();
        let run = begin(world, "x4").await;
        let journal = ended(world, &run, "x4").await;
        worker.shutdown().await.unwrap();
        assert_eq!(journal, undisturbed(world).await);
    }
}

scenario! {
    async fn x5_runs_of_three_workers_that_are_killed_at_random_are_the_same(world) {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut workers = vec![world.process(), world.process(), world.process()];
        let names: Vec<_> = (0..12).map(|n| format!("x5-{n}")).collect();
        let mut runs = vec![];
        for name in &names {
            runs.push(begin(world, name).await);
        }
        for _ in 0..6 {
            tokio::time::sleep(Duration::from_millis(random.u64(50..300))).await;
            workers.remove(random.usize(0..workers.len())).kill();
            workers.push(world.process());
        }
        let mut journals = vec![];
        for (name, run) in names.iter().zip(&runs) {
            journals.push(ended(world, run, name).await);
        }
        drop(workers);
        let wanted = undisturbed(world).await;
        journals.into_iter().for_each(|journal| assert_eq!(journal, wanted));
    }
}

scenario! {
    async fn r03_a_step_that_kills_its_process_makes_its_run_stuck_and_no_other(world) {
        let run = start(&world.composer().await, [step("fine").into(), step("deadly").into()]).await;
        let mut lives = 0;
        while run.status().await.unwrap().status != Status::Stuck {
            lives += 1;
            assert!(lives <= 8, "it is not given up");
            // Every life but the first begins with the deadly step.
            let exit_at = format!("after_effect:{}", if lives == 1 { 2 } else { 1 });
            let mut worker = world.process_with(|setup| setup.exit_at = Some(exit_at));
            worker.ended_or(async || run.status().await.unwrap().status == Status::Stuck).await;
        }
        let reason = run.status().await.unwrap().reason.unwrap();
        assert!(reason.contains("died"), "{reason}");
        assert_eq!(world.effects.count("fine"), 1);
        assert_eq!(world.effects.keys("deadly").len(), 1);

        let worker = world.at_work().await;
        let other = start(&world.composer().await, [step("other").into()]).await;
        other.result().await.unwrap().unwrap();
        until_status(&run, Status::Stuck).await;
        run.cancel("it kills").await.unwrap();
        until_status(&run, Status::Cancelled).await;
        worker.shutdown().await.unwrap();
    }
}
