//! J: determinism and code change. What a build may change, and what it is told where it may not.
//!
//! The workflow `changing` has a body for each build; see `composer_tests::kit::variant`. The requirement R-01 goes
//! through all of them; here are the scenarios, with a process for each build.

use composer_runtime::{JournalFile, RunHandle, Status, testing};
use composer_tests::kit::{
    variant::{v1, with_a_step_appended, with_a_step_inserted},
    workflow::GO,
};
use serde_json::json;

use super::{
    Process, World, projection, scenario,
    world::{until_lines, until_status},
};

/// A process of the build that has this body.
fn build(world: &World, variant: &str) -> Process {
    world.process_with(|setup| {
        setup.variant = Some(variant.into());
        setup.build = variant.into();
    })
}

/// A run whose worker of the first build was killed after two steps of three.
async fn in_flight(world: &World) -> RunHandle<v1> {
    let mut first = build(world, "v1");
    let run = world.composer().await.start(v1()).await.unwrap();
    until_lines(&run, "step_completed", 2).await;
    first.kill();
    run
}

/// Waits until the run is stuck; why.
async fn stuck(run: &RunHandle<v1>) -> String {
    until_status(run, Status::Stuck).await;
    run.status().await.unwrap().reason.expect("a stuck run says why")
}

scenario! {
    async fn j1_a_step_inserted_before_a_recorded_one_makes_the_run_stuck_until_its_code_is_back(world) {
        let run = in_flight(world).await;
        let before = projection(&run).await;
        let mut changed = build(world, "with_a_step_inserted");
        run.signal(&GO, json!(1)).await.unwrap();
        let reason = stuck(&run).await;
        for words in ["step 2", "`second`", "activity `inserted` was inserted before activity `second`"] {
            assert!(reason.contains(words), "{words:?} in {reason:?}");
        }
        assert_eq!(reason.matches("variant.rs:").count(), 2, "both source lines: {reason}");
        assert_eq!(projection(&run).await, before, "nothing is added, and no attempt is used up");
        assert_eq!(world.effects.count("inserted"), 0);
        changed.kill();

        let mut right = build(world, "v1");
        assert_eq!(run.result().await.unwrap().unwrap(), 6);
        assert_eq!(world.effects.counts(), ["first", "second", "third"].map(|name| (name.to_owned(), 1)));
        right.kill();
    }
}

scenario! {
    async fn j2_a_renamed_activity_is_noticed_and_its_old_name_in_the_attribute_heals_it(world) {
        let run = in_flight(world).await;
        let mut renamed = build(world, "with_a_step_renamed");
        run.signal(&GO, json!(1)).await.unwrap();
        let reason = stuck(&run).await;
        for words in ["step 2", "`second_by_another_name`", "renamed: `#[activity(name = \"second\")]` keeps the old name"] {
            assert!(reason.contains(words), "{words:?} in {reason:?}");
        }
        assert_eq!(world.effects.count("second_by_another_name"), 0);

        // The healed build does not need the other one to be gone.
        let mut healed = build(world, "with_a_step_renamed_and_named");
        assert_eq!(run.result().await.unwrap().unwrap(), 6);
        assert_eq!(world.effects.count("second"), 1);
        renamed.kill();
        healed.kill();
    }
}

scenario! {
    async fn j7_a_step_appended_after_the_last_recorded_one_goes_on_normally(world) {
        let run = in_flight(world).await;
        let mut appended = build(world, "with_a_step_appended");
        run.signal(&GO, json!(1)).await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), 10);
        let names = ["first", "fourth", "second", "third"];
        assert_eq!(world.effects.counts(), names.map(|name| (name.to_owned(), 1)));
        appended.kill();
    }
}

scenario! {
    async fn j14_an_exported_journal_says_before_a_deployment_what_it_would_do(world) {
        let run = in_flight(world).await;
        let open = JournalFile::from_json(&run.export().await.unwrap().to_json()).unwrap();
        assert_eq!(open, run.export().await.unwrap());
        let replayed = testing::replay::<v1>(&open).unwrap();
        assert_eq!((replayed.ended, replayed.signals), (false, vec!["go".to_owned()]));
        assert!(testing::replay::<with_a_step_appended>(&open).is_ok(), "what is open may go on with it");
        let early = testing::replay::<with_a_step_inserted>(&open).unwrap_err();

        // The same words as at run time.
        let mut changed = build(world, "with_a_step_inserted");
        run.signal(&GO, json!(1)).await.unwrap();
        assert_eq!(stuck(&run).await, early.to_string());
        changed.kill();

        let mut right = build(world, "v1");
        run.result().await.unwrap().unwrap();
        let ended = JournalFile::from_json(&run.export().await.unwrap().to_json()).unwrap();
        assert!(testing::replay::<v1>(&ended).unwrap().ended);
        let appended = testing::replay::<with_a_step_appended>(&ended).unwrap_err();
        assert!(matches!(appended, testing::ReplayError::GoesOn { .. }), "{appended}");
        right.kill();
    }
}

scenario! {
    async fn j16_other_options_are_no_mismatch(world) {
        let run = in_flight(world).await;
        let mut changed = build(world, "with_other_options");
        run.signal(&GO, json!(1)).await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), 6);
        assert_eq!(world.effects.total(), 3);
        changed.kill();
    }
}
