//! R-29, for runs: one that ended without a value goes on as a new one, without repeating what was done.

use std::time::Duration;

use composer_runtime::{Composer, Error, RunHandle, Status};
use composer_tests::kit::{
    Command, child, step, wait,
    workflow::{GO, interpret},
};
use serde_json::json;

use super::{
    Answer, World, projection, scenario,
    world::{parked, start, until_status},
};

const KEY: &str = "order-1";

/// A run with a key.
async fn order(composer: &Composer, commands: impl IntoIterator<Item = Command>) -> RunHandle<interpret> {
    composer.start(interpret(commands.into_iter().collect())).id(KEY).await.unwrap()
}

fn counts<const N: usize>(world: &World, names: [&str; N]) -> [usize; N] {
    names.map(|name| world.effects.count(name))
}

scenario! {
    async fn r29_a_failed_run_goes_on_with_the_step_that_failed_under_its_id(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        world.effects.script("pay", [(); 2].map(|()| Answer::Status(500, "no such card")));
        let pay = step("pay").attempts(2).first(Duration::from_millis(1));
        let run = order(&composer, [step("reserve").into(), pay.into(), step("send").into()]).await;
        run.result().await.unwrap().unwrap_err();
        let before = (run.status().await.unwrap(), run.journal().await.unwrap());

        world.effects.script("pay", [Answer::Status(500, "not yet")]);
        let again = run.redrive().await.unwrap();
        assert_eq!(again.result().await.unwrap().unwrap(), [json!("reserve"), json!("pay"), json!("send")]);
        assert_eq!(counts(world, ["reserve", "pay", "send"]), [1, 4, 1]);
        let attempts: Vec<_> = world.effects.calls("pay").iter().map(|call| call.attempt).collect();
        assert_eq!(attempts, [1, 2, 1, 2], "with attempts of its own, by the same policy");
        assert_eq!((run.status().await.unwrap(), run.journal().await.unwrap()), before);
        assert_eq!(again.status().await.unwrap().forked_from, Some((run.run_id(), 2)));
        let named = composer.get::<interpret>(KEY).await.unwrap();
        assert_eq!((named.run_id(), named.workflow_id(), again.workflow_id().as_str()), (again.run_id(), run.workflow_id(), KEY));
        assert_eq!(projection(&again).await[1..3], ["step_scheduled effect", "step_completed effect #1"]);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r29_a_run_can_fail_again_and_be_redriven_again(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        world.effects.always("pay", Answer::Status(400, "no"));
        // Without a key, the first run's id stays the key of them all.
        let first = start(&composer, [step("reserve").into(), step("pay").into()]).await;
        first.result().await.unwrap().unwrap_err();
        let second = first.redrive().await.unwrap();
        second.result().await.unwrap().unwrap_err();
        world.effects.always("pay", Answer::Value(json!("paid")));
        let third = second.redrive().await.unwrap();
        assert_eq!(third.result().await.unwrap().unwrap(), [json!("reserve"), json!("paid")]);
        assert_eq!(counts(world, ["reserve", "pay"]), [1, 3]);
        assert_eq!(third.workflow_id(), first.workflow_id());
        let named = composer.get_json(first.workflow_id().as_str()).await.unwrap();
        assert_eq!(named.run_id(), third.run_id());
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r29_of_two_redrives_at_once_one_succeeds(world) {
        let composer = world.composer().await;
        let worker = world.at_work().await;
        world.effects.script("pay", [Answer::Status(400, "no")]);
        let run = order(&composer, [step("pay").into()]).await;
        run.result().await.unwrap().unwrap_err();
        let answers = futures::future::join_all((0..6).map(|_| run.redrive())).await;
        let (winners, losers): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        let [Ok(winner)] = &winners[..] else { panic!("{winners:?}") };
        for lost in losers {
            let Err(Error::AlreadyExists { id, run_id, .. }) = lost else { panic!("{lost:?}") };
            assert_eq!((id.as_str(), run_id), (KEY, winner.run_id()));
        }
        winner.result().await.unwrap().unwrap();
        // Also when the new run has ended: what it did is not done once more.
        let late = run.redrive().await.unwrap_err();
        assert!(matches!(&late, Error::AlreadyExists { status: Status::Completed, .. }), "{late:?}");
        assert_eq!(world.effects.count("pay"), 2);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r29_what_was_undone_is_done_again(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        world.effects.script("pay", [Answer::Status(400, "no")]);
        let commands = [
            step("look").into(),
            Command::Undo(step("release")),
            step("reserve").into(),
            Command::Undo(step("refund")),
            step("pay").into(),
        ];
        let run = order(&composer, commands).await;
        run.result().await.unwrap().unwrap_err();
        assert_eq!(counts(world, ["look", "reserve", "pay", "refund", "release"]), [1, 1, 1, 1, 1]);
        run.redrive().await.unwrap().result().await.unwrap().unwrap();
        assert_eq!(counts(world, ["look", "reserve", "pay", "refund", "release"]), [1, 2, 2, 1, 1]);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r29_a_cancelled_run_goes_on_as_if_that_had_not_been(world) {
        let worker = world.at_work().await;
        let run = order(&world.composer().await, [step("first").into(), wait(), step("last").into()]).await;
        parked(&run).await;
        run.cancel("by mistake").await.unwrap();
        run.result().await.unwrap().unwrap_err();
        let again = run.redrive().await.unwrap();
        again.signal(&GO, json!("go")).await.unwrap();
        assert_eq!(again.result().await.unwrap().unwrap(), [json!("first"), json!("go"), json!("last")]);
        assert_eq!(counts(world, ["first", "last"]), [1, 1]);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r29_a_run_that_ran_out_of_time_has_as_much_of_it_again(world) {
        let worker = world.at_work().await;
        let timeout = Duration::from_secs(3);
        let call = interpret(vec![step("first").into(), wait(), step("last").into()]);
        let run = world.composer().await.start(call).id(KEY).timeout(timeout).await.unwrap();
        let failure = run.result().await.unwrap().unwrap_err();
        assert!(failure.to_string().contains("timeout"), "{failure}");
        let again = run.redrive().await.unwrap();
        again.signal(&GO, json!("go")).await.unwrap();
        again.result().await.unwrap().unwrap();
        let row = again.status().await.unwrap();
        assert_eq!(row.deadline, Some(row.created_at.saturating_add(timeout)));
        assert_eq!(counts(world, ["first", "last"]), [1, 1]);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r29_a_terminated_run_goes_on_where_it_was(world) {
        let worker = world.at_work().await;
        let run = order(&world.composer().await, [step("first").into(), wait(), step("last").into()]).await;
        parked(&run).await;
        run.terminate("by mistake").await.unwrap();
        let again = run.redrive().await.unwrap();
        again.signal(&GO, json!("go")).await.unwrap();
        again.result().await.unwrap().unwrap();
        assert_eq!(counts(world, ["first", "last"]), [1, 1]);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r29_a_run_that_could_not_be_undone_is_undone(world) {
        let worker = world.at_work().await;
        world.effects.script("refund", [Answer::Status(400, "the account is closed")]);
        let commands = [
            Command::Undo(step("refund")),
            step("pay").into(),
            Command::Undo(step("release")),
            Command::Fail("no stock".into()),
        ];
        let run = order(&world.composer().await, commands).await;
        until_status(&run, Status::Stuck).await;
        assert!(matches!(run.redrive().await, Err(Error::Open { status: Status::Stuck, .. })));
        run.terminate("the account is open again").await.unwrap();
        let again = run.redrive().await.unwrap();
        let failure = again.result().await.unwrap().unwrap_err();
        assert!(failure.to_string().contains("no stock"), "{failure}");
        assert_eq!(again.status().await.unwrap().status, Status::Failed);
        assert_eq!(counts(world, ["pay", "release", "refund"]), [1, 1, 2]);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r29_a_parent_whose_child_failed_has_another_child(world) {
        let worker = world.at_work().await;
        world.effects.script("pay", [Answer::Status(400, "no")]);
        let run = order(&world.composer().await, [step("first").into(), child([step("pay").into()])]).await;
        run.result().await.unwrap().unwrap_err();
        let again = run.redrive().await.unwrap();
        assert_eq!(again.result().await.unwrap().unwrap(), [json!("first"), json!([json!("pay")])]);
        assert_eq!(counts(world, ["first", "pay"]), [1, 2]);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r29_what_cannot_be_redriven_is_said_in_words(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        let run = order(&composer, [wait(), step("once").into()]).await;
        parked(&run).await;
        let refused = run.redrive().await.unwrap_err();
        assert!(matches!(refused, Error::Open { status: Status::Parked, .. }), "{refused:?}");
        run.signal(&GO, json!("go")).await.unwrap();
        run.result().await.unwrap().unwrap();
        let refused = run.redrive().await.unwrap_err();
        assert!(matches!(refused, Error::NothingToRedrive { .. }), "{refused:?}");
        assert!(refused.to_string().contains("nothing to redrive"), "{refused}");
        assert_eq!(composer.get_json(KEY).await.unwrap().run_id(), run.run_id());
        composer.delete(KEY).await.unwrap();
        assert!(matches!(run.redrive().await, Err(Error::NoRun { .. })));
        assert_eq!(world.effects.count("once"), 1);
        worker.shutdown().await.unwrap();
    }
}
