//! I7, I10: what an operator repairs.

use std::time::Duration;

use composer_runtime::{Error, Status};
use composer_tests::kit::{Command, step};
use serde_json::json;

use super::{
    Answer, projection, scenario,
    world::{parked, start, until_line, until_status},
};

const HOUR: Duration = Duration::from_secs(3600);

scenario! {
    async fn i10_retry_now_makes_the_next_attempt_at_once(world) {
        // In memory all the time.
        let worker = world.worker().await.linger(HOUR).start().await.unwrap();
        world.effects.script("bank", [Answer::Status(503, "closed")]);
        let run = start(&world.composer().await, [step("bank").first(HOUR).attempts(5).into()]).await;
        until_line(&run, "attempt_failed").await;
        run.retry_now().await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), [json!("bank")]);
        assert_eq!(
            projection(&run).await,
            [
                "started interpret",
                "step_scheduled effect",
                "attempt_failed effect #1",
                "retry_requested",
                "step_completed effect #2",
                "run_completed",
            ]
        );
        let attempts: Vec<_> = world.effects.calls("bank").iter().map(|call| call.attempt).collect();
        assert_eq!((attempts, world.effects.keys("bank").len()), (vec![1, 2], 1));
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn i10_retry_now_wakes_a_parked_run_and_leaves_the_policy_as_it_is(world) {
        let worker = world.at_work().await;
        world.effects.always("bank", Answer::Status(503, "closed"));
        let run = start(&world.composer().await, [step("bank").first(HOUR).attempts(3).into()]).await;
        for made in 1..=2 {
            world.effects.arrived("bank", made).await;
            parked(&run).await;
            let row = run.status().await.unwrap();
            assert!(row.due_at.unwrap() > row.started_at.unwrap().saturating_add(HOUR / 2), "it rests again: {row:?}");
            run.retry_now().await.unwrap();
        }
        run.result().await.unwrap().unwrap_err();
        assert_eq!(world.effects.count("bank"), 3, "as many as the policy says");
        assert!(matches!(run.retry_now().await, Err(Error::Closed { status: Status::Failed, .. })));
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn i10_retry_now_changes_nothing_where_nothing_rests(world) {
        let worker = world.at_work().await;
        world.effects.script("refund", [Answer::Status(400, "no such account")]);
        let composer = world.composer().await;
        let waits = start(&composer, [Command::Wait { ms: Some(3_600_000) }, step("after").into()]).await;
        parked(&waits).await;
        waits.retry_now().await.unwrap();
        until_line(&waits, "retry_requested").await;
        parked(&waits).await;
        assert_eq!(world.effects.count("after"), 0, "a timer is no rest between attempts");
        waits.terminate("").await.unwrap();
        assert_eq!(waits.unconsumed().await.unwrap(), []);
        let stuck = start(&composer, [Command::Undo(step("refund")), Command::Fail("no stock".into())]).await;
        until_status(&stuck, Status::Stuck).await;
        let refused = stuck.retry_now().await.unwrap_err();
        assert!(matches!(refused, Error::CannotNow { status: Status::Stuck, .. }), "{refused:?}");
        stuck.terminate("").await.unwrap();
        worker.shutdown().await.unwrap();
    }
}
