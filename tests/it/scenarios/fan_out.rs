//! E: fan-out, join, race.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use composer_sdk::prelude::*;
use composer_tests::kit::{
    Command, Ledger, join_all, map, race, sleep as nap, step, wait,
    workflow::{GO, fruit},
};
use serde_json::{Value, json};

use super::{
    Answer, projection, scenario,
    world::{parked, start, until_line, until_lines},
};
use crate::support::eventually;

const FRUIT: [&str; 3] = ["pear", "apple", "plum"];

scenario! {
    async fn e1_joined_steps_keep_their_numbers_whatever_finishes_first_and_dies(world) {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let composer = world.composer().await;
        for round in 0..4 {
            for name in FRUIT {
                world.effects.always(name, Answer::Late(Duration::from_millis(random.u64(0..200))));
            }
            let before = world.effects.total();
            let mut first = world.process();
            let run = composer.start(fruit()).await.unwrap();
            let at = before + random.usize(1..=3);
            eventually("effects arrive", async || (world.effects.total() >= at).then_some(())).await;
            tokio::time::sleep(Duration::from_millis(random.u64(0..150))).await;
            first.kill();

            let mut second = world.process();
            let values = run.result().await.unwrap().unwrap();
            assert_eq!(values, ("pear".into(), "apple".into(), "plum".into()), "round {round}");
            let lines = run.journal().await.unwrap();
            let done = lines.iter().filter(|line| line.kind == "step_completed");
            let mut steps: Vec<_> = done.map(|line| (line.step.unwrap(), line.name.clone())).collect();
            steps.sort();
            assert_eq!(steps, [(1, "pear".into()), (2, "apple".into()), (3, "plum".into())]);
            second.kill();
        }
    }
}

scenario! {
    async fn e2_results_of_join_all_are_in_the_items_order(world) {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for n in 0..50 {
            world.effects.always(&format!("item-{n}"), Answer::Late(Duration::from_millis(random.u64(0..200))));
        }
        let worker = world.at_work().await;
        let run = start(&world.composer().await, [join_all("item", 50), wait()]).await;
        parked(&run).await;
        run.signal(&GO, json!(1)).await.unwrap();
        let items: Vec<_> = (0..50).map(|n| format!("item-{n}")).collect();
        assert_eq!(run.result().await.unwrap().unwrap()[0], json!(items));
        let lines = run.journal().await.unwrap();
        let finished: Vec<_> =
            lines.iter().filter(|line| line.kind == "step_completed").map(|line| line.step.unwrap()).collect();
        assert!(!finished.is_sorted(), "they finished in another order: {finished:?}");
        assert_eq!(world.effects.total(), 50, "none again in the replay");
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn e3_no_branches_are_an_empty_result_at_once(world) {
        let worker = world.at_work().await;
        let commands = [join_all("none", 0), Command::Join(vec![]), wait(), join_all("none", 0)];
        let run = start(&world.composer().await, commands).await;
        parked(&run).await;
        run.signal(&GO, json!("go")).await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), [json!([]), json!([]), json!("go"), json!([])]);
        assert_eq!(projection(&run).await, ["started interpret", "signal go", "run_completed"]);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn e3_a_map_over_nothing_leaves_no_trace(world) {
        let worker = world.at_work().await;
        let commands = [map("none", 0, 2), Command::Spawn(vec![]), wait(), map("none", 0, 2)];
        let run = start(&world.composer().await, commands).await;
        parked(&run).await;
        run.signal(&GO, json!("go")).await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), [json!([]), json!([]), json!("go"), json!([])]);
        assert_eq!(projection(&run).await, ["started interpret", "signal go", "run_completed"]);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn e5_one_error_in_five_is_tolerated_also_after_a_kill(world) {
        let mut first = world.process();
        world.effects.always("item-1", Answer::Status(400, "not this one"));
        world.effects.hold("item-4");
        let command = Command::Map { name: "item".into(), count: 5, limit: None, tolerate: Some(1) };
        let run = start(&world.composer().await, [command]).await;
        until_line(&run, "step_failed").await;
        until_lines(&run, "step_completed", 3).await;
        first.kill();
        world.effects.open("item-4");

        let mut second = world.process();
        let values = run.result().await.unwrap().unwrap();
        let expected = [(0, "item-0"), (2, "item-2"), (3, "item-3"), (4, "item-4")];
        assert_eq!(values[0]["values"], json!(expected));
        let errors = values[0]["errors"].as_array().unwrap();
        assert_eq!((errors.len(), &errors[0][0]), (1, &json!(1)));
        assert!(errors[0][1].as_str().unwrap().contains("not this one"), "{errors:?}");
        for n in 0..4 {
            assert_eq!(world.effects.count(&format!("item-{n}")), 1, "item {n}");
        }
        second.kill();
    }
}

scenario! {
    async fn e5_two_errors_in_five_are_too_many_for_one_that_is_tolerated(world) {
        let worker = world.at_work().await;
        for n in [1, 3] {
            world.effects.always(&format!("item-{n}"), Answer::Status(400, "no"));
        }
        let command = Command::Map { name: "item".into(), count: 5, limit: Some(2), tolerate: Some(1) };
        let run = start(&world.composer().await, [command]).await;
        let error = run.result().await.unwrap().unwrap_err().to_string();
        assert!(error.starts_with("2 of 5 items failed, and at most 1 may: item 1: "), "{error}");
        assert_eq!(world.effects.total(), 5, "all have run");
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn e10_never_more_than_two_of_ten_at_once_also_after_a_kill(world) {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for n in 0..10 {
            world.effects.always(&format!("item-{n}"), Answer::Late(Duration::from_millis(random.u64(10..60))));
        }
        let mut first = world.process();
        let run = start(&world.composer().await, [map("item", 10, 2)]).await;
        until_lines(&run, "step_completed", 4).await;
        first.kill();
        assert_eq!(world.effects.most_at_once(), 2);
        // What the dead process had begun ends at the server first: those calls are not a new worker's.
        eventually("nothing is under way", async || (world.effects.active() == 0).then_some(())).await;
        world.effects.forget_most();

        let mut second = world.process();
        let items: Vec<_> = (0..10).map(|n| format!("item-{n}")).collect();
        assert_eq!(run.result().await.unwrap().unwrap(), [json!(items)], "in the items' order");
        assert_eq!(world.effects.most_at_once(), 2);
        assert!(world.effects.total() <= 12, "only what was under way is repeated");
        second.kill();
    }
}

scenario! {
    async fn e7_a_decided_race_is_decided_for_ever(world) {
        let mut first = world.process();
        world.effects.hold("slow");
        world.effects.hold("after");
        let run = start(&world.composer().await, [race(step("slow"), 300), step("after").into()]).await;
        world.effects.arrived("after", 1).await;
        first.kill();
        world.effects.open("slow");
        world.effects.open("after");

        let mut second = world.process();
        assert_eq!(run.result().await.unwrap().unwrap(), [json!("time"), json!("after")]);
        assert_eq!(world.effects.count("slow"), 1, "the lost branch is not begun again");
        assert_eq!(
            projection(&run).await,
            [
                "started interpret",
                "timer_set sleep",
                "timer_fired",
                "step_scheduled effect",
                "step_completed effect #1",
                "run_completed",
            ]
        );
        second.kill();
    }
}

scenario! {
    async fn e7_a_race_that_the_activity_wins_leaves_no_timer(world) {
        let worker = world.at_work().await;
        let commands = [race(step("fast"), 3_600_000), wait()];
        let run = start(&world.composer().await, commands).await;
        parked(&run).await;
        assert_eq!(run.status().await.unwrap().due_at, None, "it waits for the signal alone");
        run.signal(&GO, json!(1)).await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), [json!("fast"), json!(1)]);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn e12_branches_that_are_done_are_not_repeated_after_a_kill(world) {
        let mut first = world.process();
        let branches = vec![vec![nap(1_500)], vec![step("a").into()], vec![step("b").into(), step("c").into()]];
        let run = start(&world.composer().await, [Command::Join(branches)]).await;
        until_line(&run, "timer_set").await;
        until_lines(&run, "step_completed", 3).await;
        first.kill();

        let mut second = world.process();
        assert_eq!(run.result().await.unwrap().unwrap(), [json!([[Value::Null], ["a"], ["b", "c"]])]);
        assert_eq!(world.effects.counts(), ["a", "b", "c"].map(|name| (name.to_owned(), 1)));
        second.kill();
    }
}

#[activity]
async fn told_to_stop(#[state] ledger: Ledger) -> Result<()> {
    ledger.effect("begun", &json!(null)).await?;
    let _settled = Settled;
    std::future::pending().await
}

static SETTLED: AtomicU32 = AtomicU32::new(0);

/// Takes a while to go away.
struct Settled;

impl Drop for Settled {
    fn drop(&mut self) {
        std::thread::sleep(Duration::from_millis(200));
        SETTLED.fetch_add(1, Ordering::SeqCst);
    }
}

#[workflow]
async fn gives_up() -> Result<String> {
    let won = select! {
        _ = told_to_stop() => "activity",
        _ = sleep(Duration::from_millis(100)) => "time",
    };
    Ok(won.into())
}

scenario! {
    async fn e7_a_run_does_not_end_before_its_lost_branch_has_stopped(world) {
        let worker = world.worker().await.workflow::<gives_up>().activity::<told_to_stop>();
        let worker = worker.start().await.unwrap();
        let before = SETTLED.load(Ordering::SeqCst);
        let run = world.composer().await.start(gives_up()).await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), "time");
        assert!(SETTLED.load(Ordering::SeqCst) > before, "the lost branch is still there");
        assert_eq!(world.effects.count("begun"), 1);
        assert_eq!(
            projection(&run).await,
            ["started gives_up", "timer_set sleep", "timer_fired", "run_completed"]
        );
        worker.shutdown().await.unwrap();
    }
}
