//! I7, I10: what an operator repairs.

use std::time::Duration;

use composer_runtime::{Error, RunHandle, Status};
use composer_tests::kit::{
    Command, child, note, step, wait,
    workflow::{GO, STATE, interpret},
};
use serde_json::json;

use super::{
    Answer, World, projection, scenario,
    world::{details, parked, start, until_line, until_status},
};
use crate::support::eventually;

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

fn steps(count: u32) -> Vec<Command> {
    (1..=count).map(|n| step(format!("s{n}")).into()).collect()
}

/// How often each of the steps `s1` … was made.
fn made(world: &World, count: u32) -> Vec<usize> {
    (1..=count).map(|n| world.effects.count(&format!("s{n}"))).collect()
}

/// Everything about a run that a reader can see.
async fn seen(run: &RunHandle<interpret>) -> String {
    format!("{:?} {:?}", run.status().await.unwrap(), run.journal().await.unwrap())
}

scenario! {
    async fn i7_a_fork_from_step_4_of_7_makes_4_to_7_and_leaves_the_old_run_alone(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        let run = start(&composer, steps(7)).await;
        let value = run.result().await.unwrap().unwrap();
        let before = seen(&run).await;
        let fork = run.fork(4).id("again").await.unwrap();
        assert!(fork.run_id() != run.run_id() && !fork.already());
        assert_eq!(fork.workflow_id().as_str(), "again");
        assert_eq!(fork.result().await.unwrap().unwrap(), value);
        assert_eq!(made(world, 7), [1, 1, 1, 2, 2, 2, 2]);
        assert_eq!(world.effects.keys("s4").len(), 2, "it is another run's step");
        assert_eq!(projection(&fork).await, projection(&run).await);
        assert_eq!(seen(&run).await, before);
        assert_eq!(fork.status().await.unwrap().forked_from, Some((run.run_id(), 4)));
        let from = details(&fork, "started").await.remove(0);
        assert_eq!(from, format!("forked from run {} before step 4", run.run_id()));
        assert_eq!(details(&run, "started").await, [""]);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn i7_a_fork_of_an_open_run_goes_its_own_way(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        let run = start(&composer, [step("s1").into(), wait(), step("s2").into(), wait(), step("s3").into()]).await;
        run.signal(&GO, json!("first")).await.unwrap();
        until_line(&run, "step_completed").await;
        world.effects.arrived("s2", 1).await;
        parked(&run).await;
        // The signal before step 2 is taken over, with the step.
        let fork = run.fork(3).await.unwrap();
        assert_eq!(fork.workflow_id().as_str(), fork.run_id().to_string());
        parked(&fork).await;
        fork.signal(&GO, json!("of the fork")).await.unwrap();
        let values = fork.result().await.unwrap().unwrap();
        assert_eq!(values, [json!("s1"), json!("first"), json!("s2"), json!("of the fork"), json!("s3")]);
        assert_eq!(made(world, 3), [1, 1, 1]);
        assert_eq!(run.status().await.unwrap().status, Status::Parked, "it still waits for its own");
        run.signal(&GO, json!("of the old run")).await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap()[3], json!("of the old run"));
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn i7_the_time_and_the_randomness_of_a_fork_are_those_of_its_original_as_far_as_it_repeats_it(world) {
        let worker = world.at_work().await;
        let run = start(&world.composer().await, [note("first"), step("s1").into(), note("second"), step("s2").into()]).await;
        let values = run.result().await.unwrap().unwrap();
        // Of a fork, and of a fork of that.
        let fork = run.fork(4).await.unwrap();
        let forks = [fork.fork(4).await.unwrap(), fork];
        for fork in forks {
            until_status(&fork, Status::Completed).await;
            assert_eq!(fork.result().await.unwrap().unwrap(), values);
        }
        let counts = ["first", "s1", "second", "s2"].map(|name| world.effects.count(name));
        assert_eq!(counts, [1, 1, 1, 3], "what they send is what was journaled, or they would be stuck");
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn i7_a_fork_with_other_arguments_makes_other_steps(world) {
        let worker = world.at_work().await;
        let run = start(&world.composer().await, steps(3)).await;
        run.result().await.unwrap().unwrap();
        let other = |names: &[&str]| interpret(names.iter().map(|name| step(*name).into()).collect());
        let fork = run.fork(3).input(other(&["s1", "s2", "other"])).await.unwrap();
        assert_eq!(fork.result().await.unwrap().unwrap(), [json!("s1"), json!("s2"), json!("other")]);
        let whole = run.fork(1).input_json(&json!([[{ "step": step("new") }]])).await.unwrap();
        assert_eq!(whole.result().await.unwrap().unwrap(), [json!("new")]);
        assert_eq!((made(world, 3), world.effects.count("other"), world.effects.count("new")), (vec![1, 1, 1], 1, 1));
        // Steps that are taken over have to be those that were made.
        let wrong = run.fork(3).input(other(&["s1", "s3"])).await.unwrap();
        until_status(&wrong, Status::Stuck).await;
        wrong.terminate("").await.unwrap();
        for refused in [run.fork(3).input(other(&["s1"]).id("x")).await, run.fork(3).input_json(&json!({})).await] {
            assert!(matches!(refused, Err(Error::Start(_))), "{refused:?}");
        }
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn i7_a_fork_begins_its_step_with_the_first_attempt(world) {
        let worker = world.at_work().await;
        world.effects.script("down", [(); 2].map(|()| Answer::Status(500, "down")));
        let down = step("down").attempts(2).first(Duration::from_millis(1));
        let run = start(&world.composer().await, [step("s1").into(), down.into()]).await;
        run.result().await.unwrap().unwrap_err();
        world.effects.script("down", [Answer::Status(500, "not yet")]);
        let fork = run.fork(2).await.unwrap();
        fork.result().await.unwrap().unwrap();
        let attempts: Vec<_> = world.effects.calls("down").iter().map(|call| call.attempt).collect();
        assert_eq!((attempts, world.effects.count("s1")), (vec![1, 2, 1, 2], 1));
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn i7_a_fork_shows_state_and_takes_over_what_children_came_to(world) {
        let worker = world.at_work().await;
        world.effects.hold("held");
        let composer = world.composer().await;
        let commands = [child(steps(1)), Command::Publish(json!("waits")), step("held").into(), child([step("s2").into()])];
        let run = start(&composer, commands).await;
        world.effects.arrived("held", 1).await;
        let fork = run.fork(2).await.unwrap();
        world.effects.arrived("held", 2).await;
        eventually("the fork shows what was shown by then", async || {
            (fork.published(&STATE).await.unwrap() == Some(json!("waits"))).then_some(())
        })
        .await;
        // While the child is on its way, a fork has one of its own.
        world.effects.hold("s2");
        world.effects.open("held");
        world.effects.arrived("s2", 2).await;
        let third = fork.fork(3).await.unwrap();
        world.effects.arrived("s2", 3).await;
        world.effects.open("s2");
        for run in [run, fork, third] {
            run.result().await.unwrap().unwrap();
        }
        assert_eq!(made(world, 2), [1, 3]);
        assert_eq!(world.effects.count("held"), 2);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn i7_what_cannot_be_forked_is_said_in_words(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        let run = composer.start(interpret(steps(3))).id("order-1").await.unwrap();
        run.result().await.unwrap().unwrap();
        for unknown in [0, 5, u32::MAX] {
            let refused = run.fork(unknown).await.unwrap_err();
            assert!(matches!(&refused, Error::NoStep { step, last: 3, .. } if *step == unknown), "{refused:?}");
            assert!(refused.to_string().contains("1 to 4"), "{refused}");
        }
        let refused = run.fork(2).id("order-1").await.unwrap_err();
        assert!(matches!(&refused, Error::AlreadyExists { run_id, .. } if *run_id == run.run_id()), "{refused:?}");
        assert!(matches!(run.fork(2).id("").await, Err(Error::Id(_))));
        composer.delete("order-1").await.unwrap();
        for step in [1, 2] {
            assert!(matches!(run.fork(step).await, Err(Error::NoRun { .. })));
        }
        assert_eq!(made(world, 3), [1, 1, 1]);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn i7_a_journal_that_cannot_be_read_any_more_is_forked_before_that(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        let run = composer.start(interpret(steps(4))).id("order-1").await.unwrap();
        let value = run.result().await.unwrap().unwrap();
        let spoilt = world.db().literal(run.run_id());
        world.db().execute(&format!("update {{s}}journal set kind = 999 where run_id = {spoilt} and seq = 3")).await;
        assert!(matches!(run.fork(4).await, Err(Error::Store(_))));
        let fork = run.fork(2).await.unwrap();
        assert_eq!(fork.result().await.unwrap().unwrap(), value);
        assert_eq!(made(world, 4), [1, 2, 2, 2]);
        composer.delete("order-1").await.unwrap();
        worker.shutdown().await.unwrap();
    }
}
