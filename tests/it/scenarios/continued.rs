//! Runs that continue as new: always the same run, whatever happens between two generations.

use std::time::Duration;

use composer_runtime::Status;
use composer_tests::kit::{
    self, Command, Setup, child, sleep as nap, step, wait,
    workflow::{GO, STATE},
};
use serde_json::json;

use super::{
    Answer, World, projection, scenario,
    world::{start, until_line, until_lines},
};
use crate::support::eventually;

/// As many generations as there are lists.
fn generations(lists: impl DoubleEndedIterator<Item = Vec<Command>>) -> Vec<Command> {
    let mut lists = lists.rev();
    let last = lists.next().expect("there is one");
    lists.fold(last, |next, mut list| {
        list.push(Command::Continue(next));
        list
    })
}

scenario! {
    async fn a_run_that_continues_as_new_is_one_run_with_one_result(world) {
        let worker = world.at_work().await;
        let run = start(
            &world.composer().await,
            generations((0..3).map(|n| vec![step(format!("g{n}")).into(), Command::Publish(json!(n))])),
        )
        .await;
        assert_eq!(run.result().await.unwrap().unwrap(), [json!("g2"), json!(null)]);
        assert_eq!(run.published(&STATE).await.unwrap(), Some(json!(2)));
        let keys: Vec<_> = (0..3).flat_map(|n| world.effects.keys(&format!("g{n}"))).collect();
        assert_eq!(keys.len(), 3);
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2], "{keys:?}");
        // The journal of the last generation is kept, and that of the one before.
        eventually("past generations are pruned", async || {
            let lines = projection(&run).await;
            (lines.iter().filter(|line| line.starts_with("step_completed")).count() == 2).then_some(())
        })
        .await;
        assert_eq!(
            projection(&run).await,
            [
                "started interpret",
                "continued interpret",
                "step_scheduled effect",
                "step_completed effect #1",
                "continued interpret",
                "step_scheduled effect",
                "step_completed effect #1",
                "run_completed"
            ]
        );
        worker.shutdown().await.unwrap();
    }
}

/// Each generation waits for a signal, and calls somebody.
async fn signals_survive(world: &World, lives: impl AsyncFnOnce(&World)) {
    let p = fastrand::u32(..);
    let count = 8;
    let of = |n: u32| vec![wait(), nap(20), step(format!("{p}-{n}")).into()];
    let mut lists: Vec<_> = (0..count).map(of).collect();
    lists.push(vec![wait(), Command::Wait { ms: Some(100) }]);
    let run = start(&world.composer().await, generations(lists.into_iter())).await;
    let sender = run.clone();
    let sending = tokio::spawn(async move {
        for n in 0..=count {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..40))).await;
            sender.signal(&GO, json!(n)).await.unwrap();
        }
    });
    lives(world).await;
    sending.await.unwrap();
    // In the order in which they were sent, none twice and none lost.
    assert_eq!(run.result().await.unwrap().unwrap(), [json!(count), json!("nothing")]);
    for n in 0..count {
        assert_eq!(world.effects.keys(&format!("{p}-{n}")).len(), 1, "{n}");
    }
    assert!(run.unconsumed().await.unwrap().is_empty());
}

scenario! {
    async fn r06_signals_survive_continue_as_new(world) {
        let worker = world.at_work().await;
        signals_survive(world, async |_| {}).await;
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn x2_generations_of_an_evicted_run_are_the_same(world) {
        let setup = Setup { linger_ms: 0, poll_ms: 1, ..world.setup.clone() };
        let worker = kit::worker(&world.composer().await, &setup).start().await.unwrap();
        signals_survive(world, async |_| {}).await;
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn x3_generations_of_a_run_whose_workers_die_are_the_same(world) {
        let mut last = None;
        signals_survive(world, async |world| {
            for _ in 0..4 {
                let mut worker = world.process();
                tokio::time::sleep(Duration::from_millis(fastrand::u64(50..400))).await;
                worker.kill();
            }
            last = Some(world.process());
        })
        .await;
        drop(last);
    }
}

scenario! {
    async fn a_parent_gets_the_result_of_its_childs_last_generation(world) {
        let worker = world.at_work().await;
        let run = start(
            &world.composer().await,
            [child(generations((0..3).map(|n| vec![step(format!("c{n}")).into()])))],
        )
        .await;
        assert_eq!(run.result().await.unwrap().unwrap(), [json!(["c2"])]);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn a_later_generation_can_be_cancelled_and_is_undone_alone(world) {
        let worker = world.at_work().await;
        let run = start(
            &world.composer().await,
            generations([vec![step("first").into()], vec![Command::Undo(step("undo")), wait()]].into_iter()),
        )
        .await;
        until_line(&run, "continued").await;
        run.cancel("enough").await.unwrap();
        run.result().await.unwrap().unwrap_err();
        assert_eq!(run.status().await.unwrap().status, Status::Cancelled);
        assert_eq!((world.effects.count("first"), world.effects.count("undo")), (1, 1));
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn an_exported_later_generation_replays(world) {
        let worker = world.at_work().await;
        let run = start(
            &world.composer().await,
            generations([vec![step("first").into()], vec![step("second").into(), wait()]].into_iter()),
        )
        .await;
        until_lines(&run, "step_completed", 2).await;
        let text = run.export().await.unwrap().to_json();
        let file = composer_runtime::JournalFile::from_json(&text).unwrap();
        assert_eq!(file.entries.len(), 2, "{text}");
        let replayed = composer_runtime::testing::replay::<kit::workflow::interpret>(&file).unwrap();
        assert_eq!(replayed.signals, ["go"]);
        run.signal(&GO, json!("on")).await.unwrap();
        run.result().await.unwrap().unwrap();
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn i7_a_later_generation_is_forked_and_redriven(world) {
        let worker = world.at_work().await;
        world.effects.script("third", [Answer::Status(503, "not now")]);
        let lists = [vec![step("first").into()], vec![step("second").into(), step("third").attempts(1).into()]];
        let run = start(&world.composer().await, generations(lists.into_iter())).await;
        run.result().await.unwrap().unwrap_err();
        let both = [json!("second"), json!("third")];
        assert_eq!(run.redrive().await.unwrap().result().await.unwrap().unwrap(), both);
        let counts = |names: [&str; 3]| names.map(|name| world.effects.keys(name).len());
        assert_eq!(counts(["first", "second", "third"]), [1, 1, 2]);
        // Its numbers go on behind those of the generation before.
        let second = run.journal().await.unwrap().iter().rfind(|line| line.step.is_some()).unwrap().step.unwrap() - 1;
        assert_eq!(run.fork(second).await.unwrap().result().await.unwrap().unwrap(), both);
        assert_eq!(counts(["first", "second", "third"]), [1, 2, 3]);
        let other = json!([[kit::Command::from(step("other"))]]);
        let fork = run.fork(second).input_json(&other).await.unwrap();
        assert_eq!(fork.result().await.unwrap().unwrap(), [json!("other")]);
        let beyond = run.fork(second + 3).await.unwrap_err().to_string();
        assert!(beyond.contains(&format!("so {second} to {} can be made anew", second + 2)), "{beyond}");
        worker.shutdown().await.unwrap();
    }
}
