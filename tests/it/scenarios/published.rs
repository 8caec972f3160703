//! R-28, for published state: readers only look, and see what is durable.

use composer_runtime::Status;
use composer_sdk::Published;
use composer_tests::kit::{
    Command, step, wait,
    workflow::{GO, STATE},
};
use serde_json::json;

use super::{
    scenario,
    world::{parked, start, until_status},
};
use crate::support::eventually;

fn show(value: &str) -> Command {
    Command::Publish(json!(value))
}

scenario! {
    async fn r28_a_run_shows_its_state_with_and_without_a_worker_and_after_its_end(world) {
        let composer = world.composer().await;
        let run = start(&composer, [show("begun"), show("waiting"), wait(), show("done")]).await;
        assert_eq!(run.published(&STATE).await.unwrap(), None, "nothing before the first poll");
        let worker = world.at_work().await;
        parked(&run).await;
        assert_eq!(run.published(&STATE).await.unwrap(), Some(json!("waiting")));
        worker.shutdown().await.unwrap();
        let before = run.status().await.unwrap();
        for _ in 0..20 {
            assert_eq!(run.published(&STATE).await.unwrap(), Some(json!("waiting")));
        }
        assert_eq!(run.status().await.unwrap(), before, "who looks changes nothing");
        static WRONG: Published<Vec<u8>> = Published::new("state");
        assert!(run.published(&WRONG).await.unwrap_err().to_string().contains("expected"));
        static OTHER: Published<u32> = Published::new("nothing of that name");
        assert_eq!(run.published(&OTHER).await.unwrap(), None);

        run.signal(&GO, json!(1)).await.unwrap();
        let worker = world.at_work().await;
        run.result().await.unwrap().unwrap();
        assert_eq!(run.published(&STATE).await.unwrap(), Some(json!("done")));
        assert_eq!(run.published_json().await.unwrap()["state"], json!("done"));
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r28_what_a_run_shows_survives_a_kill_and_is_not_shown_again_by_a_replay(world) {
        let composer = world.composer().await;
        world.effects.hold("held");
        let run = start(&composer, [show("one"), step("s").into(), show("two"), step("held").into(), show("three")]).await;
        let mut worker = world.process();
        world.effects.arrived("held", 1).await;
        // The step behind it began, so what it depends on is durable.
        assert_eq!(run.published(&STATE).await.unwrap(), Some(json!("two")));
        worker.kill();
        let heir = world.at_work().await;
        world.effects.arrived("held", 2).await;
        assert_eq!(run.published(&STATE).await.unwrap(), Some(json!("two")));
        world.effects.open("held");
        until_status(&run, Status::Completed).await;
        assert_eq!(run.published(&STATE).await.unwrap(), Some(json!("three")));
        heir.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r28_a_run_that_only_shows_something_parks_when_that_is_written(world) {
        let worker = world.worker().await.linger(std::time::Duration::ZERO).start().await.unwrap();
        let run = start(&world.composer().await, [show("here"), wait()]).await;
        parked(&run).await;
        assert_eq!(run.published(&STATE).await.unwrap(), Some(json!("here")));
        run.signal(&GO, json!(1)).await.unwrap();
        run.result().await.unwrap().unwrap();
        eventually("it is let go", async || (worker.hosted() == 0).then_some(())).await;
        worker.shutdown().await.unwrap();
    }
}
