//! changed workflow code is noticed, and never given an old result for another step.
//!
//! A run of `changing` waits between its second and third step; another build replays it, then the old one is back.

use std::collections::HashMap;

use composer_runtime::{RunHandle, Status, Worker, store::MessageContent};
use composer_sdk::prelude::*;
use composer_tests::kit::{self, Ledger, Setup, variant::v1, workflow::GO};
use serde_json::json;

use super::{World, lines, projection, scenario, stands, swept};

/// A worker of a build that has that variant of the workflow.
async fn build(world: &World, variant: &str) -> Worker {
    let setup = Setup { variant: Some(variant.into()), build: variant.into(), ..world.setup.clone() };
    kit::worker(&world.composer().await, &setup).start().await.unwrap()
}

/// A run that `v1` has left half done, with the signal that makes it go on.
async fn half_done(world: &World) -> RunHandle<v1> {
    let worker = build(world, "v1").await;
    let run = world.composer().await.start(v1()).await.unwrap();
    lines(&run, "step_completed", 2).await;
    worker.shutdown().await.unwrap();
    run.signal(&GO, json!(null)).await.unwrap();
    run
}

/// The change is noticed before anything new happens, with both sides in words; with the old build the run goes on.
async fn is_noticed(world: &World, variant: &str, words: &[&str]) {
    let run = half_done(world).await;
    let begun = [("first".to_owned(), 1), ("second".to_owned(), 1)];
    assert_eq!(world.effects.counts(), begun);

    let changed = build(world, variant).await;
    let row = stands(&run, Status::Stuck).await;
    changed.shutdown().await.unwrap();
    let reason = row.reason.unwrap();
    for word in words {
        assert!(reason.contains(word), "`{word}` is not in: {reason}");
    }
    assert!(reason.matches("src/kit/variant.rs:").count() >= 2, "both source lines are named: {reason}");
    assert_eq!(world.effects.counts(), begun, "nothing happens that the journal does not know of");

    let old = build(world, "v1").await;
    assert_eq!(run.result().await.unwrap().unwrap(), 1 + 2 + 3);
    assert_eq!(world.effects.counts(), ["first", "second", "third"].map(|name| (name.to_owned(), 1)));
    assert_eq!(
        projection(&run).await,
        [
            "started changing",
            "step_scheduled first",
            "step_completed first #1",
            "step_scheduled second",
            "step_completed second #1",
            "signal go",
            "step_scheduled third",
            "step_completed third #1",
            "run_completed",
        ]
    );
    old.shutdown().await.unwrap();
}

scenario! {
    async fn r01_a_renamed_step(world) {
        let words = ["step 2", "activity `second`", "activity `second_by_another_name`"];
        is_noticed(world, "with_a_step_renamed", &words).await;
    }
}

scenario! {
    async fn r01_swapped_steps(world) {
        is_noticed(world, "with_steps_swapped", &["step 1", "`first` was removed, or moved behind activity `second`"]).await;
    }
}

scenario! {
    async fn r01_an_activity_that_became_a_timer(world) {
        is_noticed(world, "with_a_timer_instead", &["step 2", "activity `second` was replaced by a timer"]).await;
    }
}

scenario! {
    async fn r01_a_step_removed_at_the_end(world) {
        let words = ["step 2", "has not asked for a step of that number", "activity `second` was removed"];
        is_noticed(world, "with_a_step_removed", &words).await;
    }
}

scenario! {
    async fn r01_a_step_inserted_before(world) {
        is_noticed(world, "with_a_step_inserted", &["step 2", "activity `second`", "activity `inserted`"]).await;
    }
}

scenario! {
    async fn r01_a_workflow_that_returns_early(world) {
        is_noticed(world, "that_returns_early", &["step 2", "activity `second`", "the workflow has ended"]).await;
    }
}

scenario! {
    /// Not ignored, and never executed again.
    async fn r01_changed_arguments_of_a_journaled_step(world) {
        let words = ["step 2", "the arguments of activity `second` are made in another way"];
        is_noticed(world, "with_another_argument", &words).await;
    }
}

scenario! {
    async fn r01_what_the_journal_does_not_hold_may_change(world) {
        for (variant, result) in
            [("with_a_step_renamed_and_named", 6), ("with_other_options", 6), ("with_a_step_appended", 10)]
        {
            let run = half_done(world).await;
            let changed = build(world, variant).await;
            assert_eq!(run.result().await.unwrap().unwrap(), result, "{variant}");
            changed.shutdown().await.unwrap();
        }
        let counts = [("first", 3), ("fourth", 1), ("second", 3), ("third", 3)];
        assert_eq!(world.effects.counts(), counts.map(|(name, count)| (name.to_owned(), count)));
    }
}

#[activity]
async fn count(#[state] ledger: Ledger, name: String) -> Result<()> {
    ledger.effect(&name, &json!(1)).await.map(drop)
}

#[workflow]
async fn in_hash_order(names: Vec<String>) -> Result<()> {
    let names: HashMap<_, _> = names.into_iter().map(|name| (name, ())).collect();
    #[allow_nondeterminism = "what notices it on a replay is tested here"]
    for name in names.into_keys() {
        count(name).await?;
    }
    GO.recv().await;
    Ok(())
}

scenario! {
    /// Eight steps have 40,320 orders, and every `HashMap` has its own.
    async fn r01_steps_in_the_order_of_a_hash_map(world) {
        let worker = world.worker().await.workflow::<in_hash_order>().activity::<count>();
        let worker = worker.linger(Duration::ZERO).start().await.unwrap();
        let names: Vec<String> = (0..8).map(|n| format!("s{n}")).collect();
        let run = world.composer().await.start(in_hash_order(names.clone())).await.unwrap();
        stands(&run, Status::Parked).await;
        run.signal(&GO, json!(null)).await.unwrap();

        let reason = stands(&run, Status::Stuck).await.reason.unwrap();
        assert!(reason.contains("other arguments") && reason.contains("`HashMap`"), "{reason}");
        let once: Vec<_> = names.into_iter().map(|name| (name, 1)).collect();
        assert_eq!(world.effects.counts(), once);

        run.cancel("its code cannot be healed").await.unwrap();
        stands(&run, Status::Cancelled).await;
        let unread = run.unconsumed().await.unwrap();
        assert!(matches!(&unread[..], [MessageContent::Signal { name, .. }] if name == "go"), "{unread:?}");
        swept(world).await;
        worker.shutdown().await.unwrap();
    }
}
