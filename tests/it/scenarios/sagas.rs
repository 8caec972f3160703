//! I1, F: cancelling and failing, and what is undone then.

use std::time::Duration;

use composer_runtime::Status;
use composer_tests::kit::{Command, sleep as nap, step, wait};

use super::{
    Answer, projection, scenario,
    world::{parked, start, until_status},
};

fn undo(name: &str) -> Command {
    Command::Undo(step(name))
}

scenario! {
    async fn i1_a_cancelled_run_is_undone_wherever_it_waits(world) {
        let worker = world.at_work().await;
        world.effects.hold("charge");
        let waits = [nap(3_600_000), wait(), step("charge").into()];
        for (n, last) in waits.into_iter().enumerate() {
            let (release, refund) = (format!("release-{n}"), format!("refund-{n}"));
            let commands = [undo(&release), step(format!("reserve-{n}")).into(), undo(&refund), last];
            let run = start(&world.composer().await, commands).await;
            if n == 2 {
                world.effects.arrived("charge", 1).await;
            } else {
                parked(&run).await;
            }
            run.cancel("not wanted").await.unwrap();
            until_status(&run, Status::Cancelled).await;
            for undone in [release, refund] {
                assert_eq!(world.effects.calls(&undone).len(), 1, "{undone}");
            }
            let lines = projection(&run).await;
            let end = &lines[lines.len() - 5..];
            let undone = ["step_scheduled effect", "undo_completed effect #1"];
            assert_eq!(end, [undone[0], undone[1], undone[0], undone[1], "run_cancelled"], "{lines:#?}");
        }
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn a_run_whose_worker_dies_while_it_is_undone_is_undone_once(world) {
        let run = start(
            &world.composer().await,
            [undo("first"), undo("second"), step("charge").into(), undo("third"), Command::Fail("no stock".into())],
        )
        .await;
        world.effects.hold("second");
        let mut worker = world.process();
        world.effects.arrived("second", 1).await;
        worker.kill();
        let heir = world.at_work().await;
        world.effects.open("second");
        let error = run.result().await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "no stock");
        for undone in ["first", "second", "third", "charge"] {
            assert_eq!(world.effects.keys(undone).len(), 1, "{undone}");
        }
        assert_eq!(world.effects.calls("third").len(), 1, "what was undone is not undone again");
        heir.shutdown().await.unwrap();
    }
}

scenario! {
    async fn a_run_that_cannot_be_undone_is_stuck_and_says_why(world) {
        let worker = world.at_work().await;
        world.effects.script("refund", [Answer::Status(400, "the account is closed")]);
        let commands = [undo("release"), undo("refund"), Command::Fail("no stock".into())];
        let run = start(&world.composer().await, commands).await;
        until_status(&run, Status::Stuck).await;
        let reason = run.status().await.unwrap().reason.unwrap();
        for part in ["undo step failed", "effect", "the account is closed", "no stock"] {
            assert!(reason.contains(part), "{reason}");
        }
        assert_eq!(world.effects.calls("release").len(), 0, "nothing is undone past a failure");
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn a_scope_is_undone_by_itself_and_a_shield_is_finished(world) {
        let worker = world.at_work().await;
        let scope = Command::Scope(vec![undo("free"), step("hold").into(), Command::Fail("taken".into())]);
        world.effects.hold("label");
        let shield = Command::Shield(vec![step("label").into(), step("courier").into()]);
        let commands = [undo("all"), scope, shield, step("never").into()];
        let run = start(&world.composer().await, commands).await;
        world.effects.arrived("label", 1).await;
        assert_eq!(world.effects.calls("free").len(), 1);
        run.cancel("").await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.effects.open("label");
        until_status(&run, Status::Cancelled).await;
        for (name, calls) in [("courier", 1), ("never", 0), ("all", 1), ("free", 1)] {
            assert_eq!(world.effects.calls(name).len(), calls, "{name}");
        }
        worker.shutdown().await.unwrap();
    }
}
