//! I3 to I5: what an operator orders.

use std::time::Duration;

use composer_runtime::{Error, Status};
use composer_tests::kit::{Command, sleep as nap, step, wait, workflow::GO};
use serde_json::json;

use super::{
    Answer, projection, scenario,
    world::{parked, start, until_status},
};
use crate::support::eventually;

scenario! {
    async fn i3_a_terminated_run_runs_no_more_of_its_code(world) {
        let worker = world.at_work().await;
        world.effects.hold("held");
        let commands = [Command::Undo(step("undo")), step("held").into(), step("after").into()];
        let run = start(&world.composer().await, commands).await;
        world.effects.arrived("held", 1).await;
        run.terminate("enough").await.unwrap();
        let failure = run.result().await.unwrap().unwrap_err();
        assert!(failure.to_string().contains("enough"), "{failure}");
        world.effects.open("held");
        eventually("the worker has let go of it", async || (worker.hosted() == 0).then_some(())).await;
        assert_eq!(run.status().await.unwrap().status, Status::Terminated);
        assert_eq!(projection(&run).await, ["started interpret", "run_terminated"], "late results are refused");
        for never in ["undo", "after"] {
            assert_eq!(world.effects.calls(never).len(), 0, "{never}");
        }
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn i3_a_terminated_run_that_waits_or_rests_begins_nothing_more(world) {
        let worker = world.at_work().await;
        world.effects.always("fails", Answer::Status(503, "busy"));
        let rests = step("fails").first(Duration::from_millis(300));
        let run = start(&world.composer().await, [rests.into()]).await;
        world.effects.arrived("fails", 1).await;
        run.terminate("").await.unwrap();
        let made = world.effects.calls("fails").len();
        eventually("the worker has let go of it", async || (worker.hosted() == 0).then_some(())).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert!(world.effects.calls("fails").len() <= made + 1, "an attempt that was on its way, and no other");
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn i4_orders_and_cancels_of_a_run_that_has_ended_change_nothing(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        let run = start(&composer, [step("once").into()]).await;
        run.result().await.unwrap().unwrap();
        let before = run.journal().await.unwrap();
        let closed = |answer: Result<(), Error>| {
            assert!(matches!(answer, Err(Error::Closed { status: Status::Completed, .. })), "{answer:?}");
        };
        closed(run.cancel("").await);
        closed(run.cancel("").await);
        closed(run.terminate("").await);
        closed(run.pause("").await);
        closed(run.resume().await);
        assert_eq!(run.journal().await.unwrap(), before);
        let id = run.workflow_id().to_string();
        composer.delete(&id).await.unwrap();
        assert!(matches!(run.cancel("").await, Err(Error::NoRun { .. })));
        assert!(matches!(run.terminate("").await, Err(Error::NoRun { .. })));
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn i5_a_paused_run_starts_no_step_and_keeps_what_it_is_told(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        let run = start(&composer, [wait(), step("after").into()]).await;
        parked(&run).await;
        run.pause("a look first").await.unwrap();
        run.pause("again").await.unwrap();
        let row = run.status().await.unwrap();
        assert_eq!((row.status, row.reason.as_deref()), (Status::Paused, Some("a look first")));
        run.signal(&GO, json!("kept")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(world.effects.calls("after").len(), 0);
        run.resume().await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), [json!("kept"), json!("after")]);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn i5_a_step_that_a_pause_interrupted_is_made_again_with_its_key(world) {
        let worker = world.at_work().await;
        world.effects.hold("held");
        let run = start(&world.composer().await, [step("held").into(), nap(1)]).await;
        world.effects.arrived("held", 1).await;
        run.pause("").await.unwrap();
        eventually("the worker has let go of it", async || (worker.hosted() == 0).then_some(())).await;
        world.effects.open("held");
        run.resume().await.unwrap();
        run.result().await.unwrap().unwrap();
        assert_eq!(world.effects.keys("held").len(), 1);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn a_run_that_cannot_be_undone_is_closed_by_whoever_did_it_by_hand(world) {
        let worker = world.at_work().await;
        world.effects.script("refund", [Answer::Status(400, "the account is closed")]);
        let commands = [Command::Undo(step("refund")), Command::Fail("no stock".into())];
        let run = start(&world.composer().await, commands).await;
        until_status(&run, Status::Stuck).await;
        assert!(matches!(run.pause("").await, Err(Error::CannotNow { status: Status::Stuck, .. })));
        run.terminate("refunded by hand").await.unwrap();
        let row = run.status().await.unwrap();
        assert_eq!((row.status, row.reason.as_deref()), (Status::Terminated, Some("refunded by hand")));
        worker.shutdown().await.unwrap();
    }
}
