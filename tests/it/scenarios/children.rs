//! F: child workflows.

use std::time::Duration;

use composer_runtime::{RunFilter, Status};
use composer_tests::kit::{Command, child, sleep as nap, step, wait, workflow::GO};
use serde_json::json;

use super::{
    World, projection, scenario,
    world::{details, parked, start, until_line, until_status},
};
use crate::support::eventually;

/// The only child of a run.
async fn only_child(
    world: &World,
    parent: &composer_runtime::RunHandle<composer_tests::kit::workflow::interpret>,
) -> composer_runtime::RunRow {
    let composer = world.composer().await;
    let filter = RunFilter { parent: Some(parent.run_id()), ..RunFilter::default() };
    eventually("the child is there", async || {
        let children = composer.list(&filter, None).await.unwrap();
        assert!(children.len() <= 1, "{children:?}");
        children.into_iter().next()
    })
    .await
}

scenario! {
    async fn f1_a_parent_gets_its_childs_result_and_the_two_know_of_each_other(world) {
        let worker = world.at_work().await;
        let run = start(&world.composer().await, [child([step("inner").into()]), step("outer").into()]).await;
        assert_eq!(run.result().await.unwrap().unwrap(), [json!(["inner"]), json!("outer")]);
        let row = only_child(world, &run).await;
        assert_eq!((row.status, row.parent), (Status::Completed, Some((run.run_id(), 1))));
        assert_ne!(row.run_id, run.run_id());
        assert!(details(&run, "child_started").await[0].starts_with(&row.run_id.to_string()));
        assert_eq!(
            projection(&run).await,
            [
                "started interpret",
                "child_started interpret",
                "child_completed",
                "step_scheduled effect",
                "step_completed effect #1",
                "run_completed"
            ]
        );
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn f1_a_parent_waits_for_its_child_as_a_row(world) {
        let worker = world.at_work().await;
        let run = start(&world.composer().await, [child([wait()])]).await;
        parked(&run).await;
        let row = only_child(world, &run).await;
        let inner = world.composer().await.get_json(row.workflow_id.as_str()).await.unwrap();
        inner.signal_json("go", &json!("from outside")).await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), [json!(["from outside"])]);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn f2_a_child_that_fails_is_its_parents_to_catch(world) {
        let worker = world.at_work().await;
        let failing = child([Command::Fail("no stock".into())]);
        let run = start(&world.composer().await, [Command::Scope(vec![failing]), step("fallback").into()]).await;
        assert_eq!(run.result().await.unwrap().unwrap(), [json!("no stock"), json!("fallback")]);
        assert_eq!(only_child(world, &run).await.status, Status::Failed);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn f5_a_cancelled_parent_cancels_its_child_and_both_are_undone_in_order(world) {
        let worker = world.at_work().await;
        let inner = child([Command::Undo(step("undo-child")), wait()]);
        let run = start(&world.composer().await, [Command::Undo(step("undo-parent")), inner]).await;
        let row = only_child(world, &run).await;
        let handle = world.composer().await.get_json(row.workflow_id.as_str()).await.unwrap();
        parked(&handle).await;
        world.effects.hold("undo-child");
        run.cancel("not wanted").await.unwrap();
        world.effects.arrived("undo-child", 1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(world.effects.calls("undo-parent").len(), 0, "its child is still being undone");
        world.effects.open("undo-child");
        until_status(&run, Status::Cancelled).await;
        assert_eq!(only_child(world, &run).await.status, Status::Cancelled);
        assert_eq!(world.effects.calls("undo-parent").len(), 1);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn f5_a_detached_child_goes_on_and_a_terminated_parents_child_does_not(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        let detached =
            Command::Child { commands: vec![wait(), step("after").into()], id: Some("child-of-its-own".into()), detached: true };
        let run = start(&composer, [detached]).await;
        only_child(world, &run).await;
        run.cancel("").await.unwrap();
        until_status(&run, Status::Cancelled).await;
        let own = composer.get_json("child-of-its-own").await.unwrap();
        own.signal_json(GO.name(), &json!(1)).await.unwrap();
        until_status(&own, Status::Completed).await;

        let run = start(&composer, [child([wait()])]).await;
        let row = only_child(world, &run).await;
        run.terminate("").await.unwrap();
        let own = composer.get_json(row.workflow_id.as_str()).await.unwrap();
        until_status(&own, Status::Cancelled).await;
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn f8_ten_levels_of_children_bring_their_result_up(world) {
        let worker = world.at_work().await;
        let tree = (0..10).rev().fold(step("leaf").into(), |inner, level| child([step(format!("level {level}")).into(), inner]));
        let run = start(&world.composer().await, [tree]).await;
        let mut value = run.result().await.unwrap().unwrap().remove(0);
        for level in 0..10 {
            assert_eq!(value[0], json!(format!("level {level}")));
            value = value[1].take();
        }
        assert_eq!(value, json!("leaf"));
        assert_eq!(world.composer().await.list(&RunFilter::default(), None).await.unwrap().len(), 11);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r02_a_child_of_a_race_that_is_lost_does_not_stay(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        for n in 0..10 {
            // Cancelled while its start is under way, or just after.
            let commands = [Command::Join(vec![vec![child([wait()])], vec![step(format!("s{n}")).into()]])];
            let run = start(&composer, commands).await;
            if n % 2 == 0 {
                until_line(&run, "child_started").await;
            }
            run.cancel("").await.unwrap();
            until_status(&run, Status::Cancelled).await;
            let filter = RunFilter { parent: Some(run.run_id()), ..RunFilter::default() };
            for row in composer.list(&filter, None).await.unwrap() {
                assert_eq!(row.status, Status::Cancelled, "{row:?}");
            }
        }
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn a_parent_whose_worker_dies_at_any_moment_has_one_child_and_one_result(world) {
        let run = start(&world.composer().await, [child([step("one").into(), nap(50), step("two").into()]), step("three").into()]).await;
        for name in ["one", "two", "three"] {
            world.effects.hold(name);
            let mut worker = world.process();
            world.effects.arrived(name, 1).await;
            worker.kill();
            world.effects.open(name);
        }
        let worker = world.at_work().await;
        run.result().await.unwrap().unwrap();
        only_child(world, &run).await;
        for name in ["one", "two", "three"] {
            assert_eq!(world.effects.keys(name).len(), 1, "{name}");
        }
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn a_child_whose_id_is_taken_is_refused_in_words(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        let other = composer.start(composer_tests::kit::workflow::interpret(vec![])).id("taken").await.unwrap();
        other.result().await.unwrap().unwrap();
        let taken = Command::Child { commands: vec![], id: Some("taken".into()), detached: false };
        let run = start(&composer, [taken]).await;
        let error = run.result().await.unwrap().unwrap_err().to_string();
        assert!(error.contains("`taken` belongs to another run") && error.contains(&other.run_id().to_string()), "{error}");
        worker.shutdown().await.unwrap();
    }
}
