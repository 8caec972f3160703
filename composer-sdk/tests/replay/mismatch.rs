//! changed workflow code is noticed, never mis-paired, and heals when the right code is back.

use composer_sdk::{
    Workflow,
    prelude::*,
    replay::{Machine, Progress, StuckReason},
    workflow::WorkflowEntry,
};

use crate::sim::{Sim, failed_attempt, signal, stuck};

#[activity]
async fn one(n: u32) -> u32 {
    n
}
#[activity]
async fn two(n: u32) -> u32 {
    n
}
#[activity]
async fn three(n: u32) -> u32 {
    n
}

#[workflow]
async fn original() -> u32 {
    one(1).await + two(2).await + three(3).await + one(4).await
}

/// The journal of `original` after that many steps.
fn journal(steps: u32) -> Sim {
    let mut sim = Sim::of(original()).with::<one>().with::<two>().with::<three>();
    for step in 1..=steps {
        sim.carry_out(step);
    }
    sim
}

/// What another build makes of a journal: where it stops, and what it would begin.
fn replay_as<W: Workflow>(sim: &Sim) -> (Progress, usize) {
    let mut start = sim.start.clone();
    start.workflow = WorkflowEntry::of::<W>();
    let mut machine = Machine::new(start);
    let mut progress = machine.drive();
    for entry in &sim.journal {
        machine.feed(entry);
        progress = machine.drive();
    }
    (progress, machine.take().len())
}

#[track_caller]
fn noticed<W: Workflow>(sim: &Sim, words: &[&str]) {
    let (progress, commands) = replay_as::<W>(sim);
    assert!(matches!(stuck(&progress), StuckReason::Nondeterminism(_)), "{progress:?}");
    let reason = stuck(&progress).to_string();
    for word in words {
        assert!(reason.contains(word), "`{word}` is missing in: {reason}");
    }
    assert!(reason.contains("mismatch.rs:"), "no source line in: {reason}");
    assert_eq!(commands, 0, "no effect is started");
    // With the right code back, the run goes on.
    assert_eq!(replay_as::<original>(sim).0, Progress::Waiting);
}

#[test]
fn r01_a_renamed_step() {
    #[workflow]
    async fn changed() -> u32 {
        one(1).await + three(2).await + three(3).await
    }
    noticed::<changed>(
        &journal(2),
        &[
            "step 2",
            "the journal holds activity `two`",
            "the code asked for activity `three`",
            "activity `two` was renamed: `#[activity(name = \"two\")]` keeps the old name",
        ],
    );
}

#[test]
fn r01_swapped_neighbours() {
    #[workflow]
    async fn changed() -> u32 {
        two(2).await + one(1).await + three(3).await
    }
    let moved = "activity `one` was removed, or moved behind activity `two`";
    noticed::<changed>(&journal(2), &["step 1", "activity `one`", "activity `two`", moved]);
}

#[test]
fn r01_swapped_sleeps_are_not_taken_for_each_other() {
    #[workflow]
    async fn short_first() {
        sleep(Duration::from_secs(1)).await;
        sleep(Duration::days(1)).await;
    }
    #[workflow]
    async fn long_first() {
        sleep(Duration::days(1)).await;
        sleep(Duration::from_secs(1)).await;
    }
    let mut sim = Sim::of(short_first());
    sim.carry_out(1);
    let (progress, _) = replay_as::<long_first>(&sim);
    let reason = stuck(&progress).to_string();
    assert!(
        reason.contains("step 1") && reason.contains("a timer") && reason.contains("other arguments"),
        "{reason}"
    );
}

#[test]
fn r01_an_activity_that_became_a_timer() {
    #[workflow]
    async fn changed() -> u32 {
        sleep(Duration::from_secs(1)).await;
        two(2).await
    }
    noticed::<changed>(&journal(2), &["step 1", "activity `one`", "was replaced by a timer"]);
}

#[test]
fn r01_j1_a_step_inserted_before() {
    #[workflow]
    async fn changed() -> u32 {
        three(0).await + one(1).await + two(2).await
    }
    noticed::<changed>(&journal(1), &["step 1", "activity `three` was inserted before activity `one`"]);
}

#[test]
fn r01_a_step_removed_at_the_end() {
    #[workflow]
    async fn changed() -> u32 {
        one(1).await + two(2).await
    }
    let sim = journal(3);
    noticed::<changed>(
        &sim,
        &[
            "step 3",
            "the journal holds activity `three`",
            "but the workflow has ended by then",
            "`three` was removed, or the workflow returns before it",
        ],
    );
}

#[test]
fn r01_a_step_that_the_code_has_not_asked_for_yet() {
    #[workflow]
    async fn both() -> (u32, u32) {
        join!(one(1), two(2))
    }
    #[workflow]
    async fn changed() -> (u32, u32) {
        (one(1).await, two(2).await)
    }
    let mut sim = Sim::of(both()).with::<two>();
    sim.carry_out(2);
    let (progress, _) = replay_as::<changed>(&sim);
    let reason = stuck(&progress).to_string();
    assert!(reason.contains("has not asked for a step of that number"), "{reason}");
}

#[test]
fn r01_changed_arguments_are_an_error() {
    #[workflow]
    async fn changed() -> u32 {
        one(1).await + two(20).await + three(3).await
    }
    noticed::<changed>(&journal(2), &["step 2", "activity `two`", "the same with other arguments"]);
}

#[test]
fn r01_what_is_not_delivered_is_checked_too() {
    #[workflow]
    async fn changed() -> u32 {
        two(1).await
    }
    let mut sim = journal(0);
    let step = sim.machine.open()[0].clone();
    sim.happen(failed_attempt(&step, 1));
    noticed::<changed>(&sim, &["step 1", "activity `one`", "activity `two`"]);
}

#[test]
fn r01_a_second_result_is_never_handed_out() {
    let mut sim = journal(1);
    let again = sim.journal.iter().rev().find(|entry| entry.event.is_delivered()).unwrap().event.clone();
    sim.happen(again);
    assert!(sim.stuck().contains("another result of activity `one`"), "{}", sim.stuck());
}

#[test]
fn j16_changed_options_are_no_mismatch() {
    #[workflow]
    async fn changed() -> u32 {
        let patient = composer_sdk::options::Retry::DEFAULT.max_attempts(7);
        let first = one(1).timeout(Duration::from_secs(1)).await;
        first + two(2).retry(patient).queue("other").await + three(3).await + one(4).await
    }
    let (progress, commands) = replay_as::<changed>(&journal(3));
    assert_eq!((progress, commands), (Progress::Waiting, 1));
}

#[test]
fn a12_a_workflow_without_steps_ends_at_once_and_again() {
    #[workflow]
    async fn echo(n: u32) -> u32 {
        n
    }
    let sim = Sim::of(echo(7));
    assert_eq!(sim.value::<u32>(), 7);
    sim.check_replays();
}

#[test]
fn what_is_fed_after_the_end_is_checked_against_what_was_open() {
    static GO: Signal<u8> = Signal::new("go");
    #[workflow]
    async fn first_of_two() -> u32 {
        select! { x = one(1) => x, x = two(2) => x }
    }
    let mut sim = Sim::of(first_of_two()).with::<one>().with::<two>();
    let loser = sim.open[&2].clone();
    sim.carry_out(1);
    assert_eq!(sim.value::<u32>(), 1);
    // The loser settles while the run is being closed, and a signal comes late.
    let composer_sdk::replay::Command::RunActivity { step, .. } = loser else { panic!() };
    let outcome = composer_sdk::journal::Outcome::Ok(composer_sdk::payload::Payload::encode(&2).unwrap());
    let done = composer_sdk::journal::Event::StepDone {
        step,
        attempt: 1,
        error: String::new(),
        gave_up: None,
        outcome,
    };
    sim.happen(done);
    assert_eq!(sim.value::<u32>(), 1);
    sim.happen(signal(GO.name(), &1));
    let seq = sim.journal.len() as u32;
    assert_eq!(sim.finished().unconsumed, [seq]);
    assert_eq!(sim.replay(sim.journal.len()).0, sim.progress);
}

#[test]
fn r03_a_result_of_another_type_is_noticed_and_heals() {
    mod other {
        use composer_sdk::prelude::*;

        #[activity]
        pub(super) async fn one(n: u32) -> Result<String> {
            Ok(n.to_string())
        }
    }
    #[workflow]
    async fn changed() -> u32 {
        other::one(1).await.map_or(0, |text| text.len() as u32)
    }
    let sim = journal(1);
    let (progress, commands) = replay_as::<changed>(&sim);
    let reason = stuck(&progress).to_string();
    for word in ["`one`", "mismatch.rs:", "String"] {
        assert!(reason.contains(word), "`{word}` is missing in: {reason}");
    }
    assert_eq!(commands, 0, "no effect is started");
    assert_eq!(replay_as::<original>(&sim).0, Progress::Waiting);
}

#[test]
fn r01_a_step_removed_in_the_middle() {
    #[workflow]
    async fn changed() -> u32 {
        one(1).await + three(3).await
    }
    noticed::<changed>(&journal(3), &["step 2", "`two` was removed, or moved behind activity `three`"]);
}

#[test]
fn r01_branches_that_were_swapped() {
    #[workflow]
    async fn original() -> (u32, u32) {
        join!(one(1), two(2))
    }
    #[workflow]
    async fn changed() -> (u32, u32) {
        join!(two(2), one(1))
    }
    let mut sim = Sim::of(original()).with::<one>().with::<two>();
    sim.carry_out(2);
    sim.carry_out(1);
    let reason = stuck(&replay_as::<changed>(&sim).0).to_string();
    assert!(reason.contains("activity `two` and activity `one` were swapped"), "{reason}");
}

#[test]
fn r01_the_same_calls_in_another_order() {
    #[workflow]
    async fn original() -> u32 {
        one(1).await + one(2).await
    }
    #[workflow]
    async fn changed() -> u32 {
        one(2).await + one(1).await
    }
    let mut sim = Sim::of(original()).with::<one>();
    sim.carry_out(1);
    sim.carry_out(2);
    let reason = stuck(&replay_as::<changed>(&sim).0).to_string();
    assert!(reason.contains("calls of activity `one` come in another order than before"), "{reason}");
    assert!(reason.contains("`HashMap`"), "{reason}");
}
