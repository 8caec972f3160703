//! Child workflows: asked for, started, ended, abandoned.

use composer_sdk::{
    error::{Failure, FailureKind},
    id::RunId,
    journal::{Event, Outcome},
    prelude::*,
    replay::{Command, FinishedStatus, Progress},
};

use crate::sim::{Sim, describe, seeds};

#[activity]
async fn work(n: u32) -> Result<u32> {
    Ok(n)
}

#[workflow]
async fn child(n: u32) -> Result<u32> {
    work(n).await
}

fn started(sim: &Sim, step: u32) -> Event {
    let Command::StartChild { step, .. } = &sim.open[&step] else { panic!("{:?}", sim.open) };
    Event::ChildStarted { step: step.clone(), run_id: run() }
}

fn run() -> RunId {
    "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap()
}

#[test]
fn a_child_is_asked_for_with_its_options_and_gives_its_typed_result() {
    #[workflow]
    async fn parent() -> Result<u32> {
        Ok(child(7).id("seven").tag("a", "b").run_timeout(Duration::from_secs(9)).await? + 1)
    }
    let sim = Sim::of(parent());
    let Command::StartChild { step, request, run_id: None, detached: false } = &sim.open[&1] else {
        panic!("{:?}", sim.open)
    };
    assert_eq!((&*step.name, request.workflow, request.input.as_bytes()), ("child", "child", &b"[7]"[..]));
    assert_eq!(request.id.as_ref().map(|id| id.as_str()), Some("seven"));
    assert_eq!((request.tags["a"].as_str(), request.timeout), ("b", Some(Duration::from_secs(9))));
    let sim = sim.run();
    assert_eq!(sim.value::<u32>(), 8);
    sim.check_replays();
}

#[test]
fn f2_a_child_that_fails_is_caught_with_its_typed_error() {
    #[workflow]
    async fn parent() -> Result<u32> {
        match child(7).await {
            Err(error) => work(error.to_string().len() as u32).await,
            Ok(_) => Ok(0),
        }
    }
    let mut sim = Sim::of(parent()).with::<work>();
    sim.happen(started(&sim, 1));
    let outcome = Outcome::Failed(Failure::new(FailureKind::Cancelled, "cancelled"));
    sim.happen(Event::ChildDone { step: 1, inbox: 1, outcome });
    let sim = sim.run();
    assert_eq!(sim.value::<u32>(), 9);
    sim.check_replays();
}

#[test]
fn a_child_that_may_be_there_is_asked_to_cancel_and_a_detached_one_is_not() {
    #[workflow]
    async fn parent(detached: bool) -> Result<u32> {
        let child = if detached { child(7).detached() } else { child(7) };
        select! {
            n = child => n,
            n = work(1) => n,
        }
    }
    for detached in [false, true] {
        let mut sim = Sim::of(parent(detached)).with::<work>();
        sim.happen(started(&sim, 1));
        sim.carry_out(2);
        let asked = sim.commands.iter().find_map(|command| match command {
            Command::Abandon { step: 1, child } => Some(*child),
            _ => None,
        });
        assert_eq!(asked, Some((!detached).then(run)));
        assert_eq!(sim.finished().status, FinishedStatus::Completed);
        // It ends all the same, and that changes nothing.
        sim.happen(Event::ChildDone { step: 1, inbox: 1, outcome: Outcome::Ok(b"7".to_vec().into()) });
        assert_eq!(sim.finished().status, FinishedStatus::Completed);
    }
}

#[test]
fn a_child_whose_id_is_none_is_a_failure_of_the_call() {
    #[workflow]
    async fn parent() -> Result<u32> {
        child(7).id("").await
    }
    let sim = Sim::of(parent());
    assert_eq!(sim.finished().status, FinishedStatus::Failed);
    assert!(sim.commands.is_empty());
}

#[test]
fn an_end_of_a_child_that_nobody_asked_for_is_a_mismatch() {
    #[workflow]
    async fn parent() -> Result<u32> {
        work(1).await
    }
    let mut sim = Sim::of(parent()).with::<work>();
    sim.happen(Event::ChildDone { step: 1, inbox: 1, outcome: Outcome::Ok(b"7".to_vec().into()) });
    assert!(sim.stuck().contains("child workflow"), "{}", sim.stuck());
}

#[test]
fn a_second_end_of_a_child_changes_nothing() {
    #[workflow]
    async fn parent() -> Result<u32> {
        Ok(child(7).await? + work(1).await?)
    }
    let mut sim = Sim::of(parent()).with::<work>();
    sim.carry_out(1);
    sim.happen(Event::ChildDone { step: 1, inbox: 2, outcome: Outcome::Ok(b"9".to_vec().into()) });
    let sim = sim.run();
    assert_eq!(sim.value::<u32>(), 8);
    sim.check_replays();
}

#[test]
fn children_beside_activities_replay_in_every_order() {
    #[workflow]
    async fn parent() -> Result<u32> {
        let (a, b, c) = join!(child(1), work(2), async { Ok::<_, Error>(child(3).await? + child(4).await?) });
        Ok(a? + b? + c?)
    }
    seeds(50, |seed| {
        let sim = Sim::new(crate::sim::start(parent()), seed).with::<work>().run();
        assert_eq!(sim.value::<u32>(), 10);
        assert!(matches!(sim.progress, Progress::Done(_)));
        assert_eq!(sim.commands.iter().filter(|command| describe(command).ends_with("child")).count(), 3);
        sim.check_replays();
    });
}
