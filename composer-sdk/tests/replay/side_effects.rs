//! Side effects: run once, journaled, and the same in every life.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use composer_sdk::{
    Failure, FailureKind,
    journal::{Event, Outcome, StepKind},
    payload::Payload,
    prelude::*,
    replay::{Command, FinishedStatus, Machine, Progress},
    workflow::{map, side_effect, spawn, try_side_effect},
};
use serde::{Deserialize, Serialize};

use crate::sim::{Sim, describe, seeds, start, stuck};

#[activity]
async fn work(n: u32) -> u32 {
    n
}

fn commands(sim: &Sim) -> Vec<String> {
    sim.commands.iter().map(describe).collect()
}

#[test]
fn it_runs_once_and_its_value_is_the_journals() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Found {
        n: u32,
        #[serde(skip)]
        lost: u32,
    }
    #[workflow]
    async fn body() -> (u32, u32) {
        let found = side_effect(|| Found { n: RUNS.fetch_add(1, Ordering::SeqCst), lost: 9 }).await;
        work(1).await;
        (found.n, found.lost)
    }
    let mut sim = Sim::of(body()).with::<work>();
    let Command::Record { step, outcome: Outcome::Ok(_), error } = &sim.commands[0] else { panic!() };
    assert_eq!((step.kind, &*step.name, step.number, &**error), (StepKind::SideEffect, "side_effect", 1, ""));
    assert!(step.line.to_string().contains("side_effects.rs:"), "{}", step.line);
    assert_eq!(sim.progress, Progress::Waiting);
    sim.carry_out(1);
    sim.carry_out(2);
    assert_eq!(sim.value::<(u32, u32)>(), (0, 0), "the first life, too, sees what was journaled");
    for entries in 1..=2 {
        let _ = sim.replay(entries);
    }
    assert_eq!(RUNS.load(Ordering::SeqCst), 1, "not again, with its value in the journal");
    let (_, open, _) = sim.replay(0);
    assert_eq!(RUNS.load(Ordering::SeqCst), 2, "again, if that was not written");
    let Command::Record { outcome, .. } = &open[&1] else { panic!() };
    assert_eq!(outcome, &Outcome::Ok(Payload::encode(&Found { n: 1, lost: 0 }).unwrap()));
}

#[test]
fn an_owner_that_does_not_say_that_the_run_lived_before_gets_the_journals_value_all_the_same() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    #[workflow]
    async fn body() -> u32 {
        side_effect(|| RUNS.fetch_add(1, Ordering::SeqCst)).await
    }
    let mut sim = Sim::of(body());
    sim.carry_out(1);
    let mut machine = Machine::new(sim.start.clone());
    machine.feed(&sim.journal[0]);
    assert_eq!(machine.drive(), sim.progress);
    assert_eq!(sim.value::<u32>(), 0);
}

#[test]
fn side_effects_among_everything_else_replay() {
    #[workflow]
    async fn body() -> Vec<u32> {
        let spawned = spawn(async { side_effect(|| 1).await + work(2).await + side_effect(|| 3).await });
        let mapped = map(0..4, async |n| side_effect(|| n).await + work(n).await).limit(2).await;
        let (a, b) = join!(side_effect(|| 4), async { work(5).await + side_effect(|| 6).await });
        let race = select! {
            x = async { side_effect(|| 7).await + work(8).await } => x,
            x = async { work(9).await + side_effect(|| 10).await } => x,
        };
        let sum = mapped.iter().sum::<u32>();
        assert!(race == 15 || race == 19);
        vec![spawned.await, sum, a, b]
    }
    seeds(100, |seed| {
        let sim = Sim::new(start(body()), seed).with::<work>().run();
        assert_eq!(sim.value::<Vec<u32>>(), [6, 12, 4, 11]);
        sim.check_replays();
    });
}

#[test]
fn in_a_replay_only_what_is_still_waited_for_runs_and_only_at_the_end() {
    static RUNS: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    fn ran(what: &'static str) {
        RUNS.lock().unwrap().push(what);
    }
    #[workflow]
    async fn body() -> u32 {
        let dropped = async {
            side_effect(|| ran("dropped")).await;
            0
        };
        let first = select! { x = work(1) => x, x = dropped => x };
        let (second, ()) = join!(work(2), side_effect(|| ran("kept")));
        side_effect(|| ran("last")).await;
        first + second
    }
    let mut sim = Sim::of(body()).with::<work>();
    // The crash comes before the first value is written, and after the activity beside it.
    sim.carry_out(1);
    assert_eq!(std::mem::take(&mut *RUNS.lock().unwrap()), ["dropped", "kept"]);
    let (_, open, _) = sim.replay(1);
    assert_eq!(open.values().map(describe).collect::<Vec<_>>(), ["3 work", "4 side_effect"]);
    assert_eq!(std::mem::take(&mut *RUNS.lock().unwrap()), ["kept"]);
    // With the last entry an undelivered one.
    let Command::RunActivity { step, .. } = sim.open[&3].clone() else { panic!() };
    sim.happen(crate::sim::failed_attempt(&step, 1));
    let _ = sim.replay(2);
    assert_eq!(std::mem::take(&mut *RUNS.lock().unwrap()), ["kept"]);
}

#[test]
fn it_may_borrow_and_need_not_be_cloned_or_sent_back() {
    #[workflow]
    async fn body(names: Vec<String>) -> (usize, String) {
        let mut log = String::new();
        let longest = side_effect(|| names.iter().map(String::len).max()).await.unwrap();
        log.push_str(&side_effect(|| names.join("+")).await);
        (longest, log)
    }
    let sim = Sim::of(body(vec!["a".into(), "bcd".into()])).run();
    assert_eq!(sim.value::<(usize, String)>(), (3, "a+bcd".into()));
    sim.check_replays();
}

#[test]
fn one_that_lost_a_race_has_run_and_its_value_is_journaled_and_not_used() {
    #[workflow]
    async fn body() -> u32 {
        let first = select! { x = side_effect(|| 1) => x, x = std::future::ready(2) => x };
        first + work(1).await
    }
    let mut sim = Sim::of(body()).with::<work>();
    assert_eq!(commands(&sim), ["1 side_effect", "1 abandoned", "2 work"]);
    let Command::Record { step, outcome, error } = sim.commands[0].clone() else { panic!() };
    sim.happen(Event::StepDone { step, attempt: 0, error, gave_up: None, outcome });
    sim.carry_out(2);
    assert_eq!(sim.value::<u32>(), 3);
    sim.check_replays();
}

#[test]
fn a_panic_in_it_makes_the_run_stuck() {
    #[workflow]
    async fn body() -> u32 {
        side_effect(|| panic!("in the closure")).await
    }
    let sim = Sim::of(body());
    assert!(sim.stuck().contains("in the closure"), "{}", sim.stuck());
    assert!(sim.commands.is_empty());
}

#[test]
fn it_stands_outside_the_workflow() {
    #[workflow]
    async fn asks() -> u32 {
        side_effect(|| workflow::random("x").next_u64() as u32).await
    }
    assert!(Sim::of(asks()).stuck().contains("`random` was called outside a workflow"));
    #[workflow]
    async fn calls() -> u32 {
        // The call is none of the run's: it takes no number.
        side_effect(|| drop(work(1))).await;
        work(2).await
    }
    let mut sim = Sim::of(calls()).with::<work>();
    sim.carry_out(1);
    assert_eq!(sim.steps(), ["2 work"]);
    assert!(sim.machine.take_forgotten().is_empty());
}

#[derive(Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
enum Broken {
    #[error("odd: {0}")]
    Odd(u32),
    #[error(transparent)]
    Engine(#[from] Failure),
}

#[test]
fn a_result_crosses_the_journal_as_it_is() {
    #[workflow]
    async fn body(n: u32) -> std::result::Result<u32, Broken> {
        let half = try_side_effect(|| if n % 2 == 1 { Err(Broken::Odd(n)) } else { Ok(n / 2) }).await?;
        Ok(half)
    }
    let sim = Sim::of(body(4)).run();
    assert_eq!(sim.value::<u32>(), 2);
    let sim = Sim::of(body(5)).run();
    let finished = sim.finished();
    let Outcome::Err(error) = &finished.outcome else { panic!("{finished:?}") };
    assert_eq!(error.decode::<Broken>().unwrap(), Broken::Odd(5));
    let reason = finished.reason.as_ref().unwrap();
    assert!(reason.starts_with("step 1 `side_effect` (") && reason.ends_with(") failed: odd: 5"), "{reason}");
    let Event::StepDone { error, outcome: Outcome::Err(_), .. } = &sim.journal[0].event else { panic!() };
    assert_eq!(error, "odd: 5");
    sim.check_replays();
}

#[test]
fn a_value_that_cannot_be_journaled_is_a_failure_of_its_kind() {
    #[workflow]
    async fn typed() -> std::result::Result<f64, Broken> {
        match try_side_effect(|| Ok(f64::NAN)).await {
            Err(Broken::Engine(failure)) if failure.kind == FailureKind::Encode => Ok(1.5),
            other => other,
        }
    }
    let sim = Sim::of(typed()).run();
    assert_eq!(sim.value::<f64>(), 1.5);
    sim.check_replays();
    #[workflow]
    async fn plain() -> f64 {
        side_effect(|| f64::INFINITY).await
    }
    let sim = Sim::of(plain()).run();
    let Outcome::Failed(failure) = &sim.finished().outcome else { panic!() };
    assert_eq!((sim.finished().status, failure.kind), (FinishedStatus::Failed, FailureKind::Encode));
    for words in ["`side_effect` (", "side_effects.rs:"] {
        assert!(failure.message.contains(words), "{failure}");
    }
    sim.check_replays();
}

#[test]
fn a_journaled_value_that_this_build_cannot_read_leaves_the_run_to_another() {
    #[workflow(name = "body")]
    async fn words() -> String {
        side_effect(|| "words".to_owned()).await
    }
    #[workflow(name = "body")]
    async fn number() -> u32 {
        side_effect(|| 1).await
    }
    let mut sim = Sim::of(words()).run();
    sim.start = start(number());
    let (progress, _, _) = sim.replay(1);
    let reason = stuck(&progress).to_string();
    assert!(reason.contains("`side_effect` (") && reason.contains("u32"), "{reason}");
}

#[test]
fn another_step_in_its_place_is_reported() {
    #[workflow(name = "body")]
    async fn before() -> u32 {
        side_effect(|| 1).await
    }
    #[workflow(name = "body")]
    async fn after() -> u32 {
        work(1).await
    }
    let mut sim = Sim::of(before()).run();
    sim.start = start(after());
    let reason = stuck(&sim.replay(1).0).to_string();
    assert!(reason.contains("the journal holds a side effect (") && reason.contains("`work`"), "{reason}");
}

#[test]
fn in_drop_code_it_does_not_run() {
    struct Late(Arc<AtomicU32>);
    impl Drop for Late {
        fn drop(&mut self) {
            use futures::FutureExt;
            let ran = self.0.clone();
            let effect = side_effect(move || ran.fetch_add(1, Ordering::SeqCst));
            assert_eq!(effect.now_or_never(), None);
        }
    }
    static RAN: Mutex<Option<Arc<AtomicU32>>> = Mutex::new(None);
    #[workflow]
    async fn body() -> u32 {
        let _late = Late(RAN.lock().unwrap().clone().unwrap());
        work(1).await
    }
    let ran = Arc::new(AtomicU32::new(0));
    *RAN.lock().unwrap() = Some(ran.clone());
    drop(Sim::of(body()));
    assert_eq!((ran.load(Ordering::SeqCst), Arc::strong_count(&ran)), (0, 2));
}
