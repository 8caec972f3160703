//! What stands between the journal and the machine: attempts, half-done replays, owners in a hurry, long runs.

use std::time::Instant;

use composer_sdk::{
    journal::{Event, Outcome},
    payload::Payload,
    prelude::*,
    replay::{Command, Machine, Progress, Start},
};

use crate::sim::{Sim, failed_attempt, start};

#[activity]
async fn work(n: u32) -> u32 {
    n
}

#[test]
fn after_a_replay_a_command_knows_its_failed_attempts() {
    #[workflow]
    async fn body() -> u32 {
        work(1).await
    }
    let mut sim = Sim::of(body());
    let step = sim.machine.open()[0].clone();
    sim.happen(failed_attempt(&step, 1));
    sim.happen(failed_attempt(&step, 2));
    let (_, open, _) = sim.replay(2);
    let Command::RunActivity { attempts, retry_at, .. } = &open[&1] else { panic!() };
    assert_eq!(*attempts, 2);
    assert!(retry_at.is_some());
    sim.check_replays();
}

#[test]
fn i10_after_a_request_to_retry_no_step_rests_and_its_attempts_are_as_they_were() {
    #[workflow]
    async fn body() -> u32 {
        let (a, b) = join!(work(1), work(2));
        a + b
    }
    let mut sim = Sim::of(body()).with::<work>();
    let steps = sim.machine.open();
    sim.happen(failed_attempt(&steps[0], 1));
    sim.happen(failed_attempt(&steps[1], 1));
    sim.happen(Event::RetryRequested { inbox: 1 });
    sim.happen(failed_attempt(&steps[1], 2));
    let (_, open, _) = sim.replay(4);
    let attempts = open.values().map(|command| match command {
        Command::RunActivity { attempts, retry_at, .. } => (*attempts, retry_at.is_some()),
        other => panic!("{other:?}"),
    });
    assert_eq!(attempts.collect::<Vec<_>>(), [(1, false), (2, true)], "a later failure rests again");
    sim.run().check_replays();
}

#[test]
fn an_owner_that_feeds_without_driving_comes_to_the_same() {
    #[workflow]
    async fn body() -> u32 {
        let (a, b) = join!(work(1), async { work(2).await + work(3).await });
        a + b
    }
    let sim = Sim::of(body()).with::<work>().run();
    let mut machine = Machine::new(sim.start.clone());
    for entry in &sim.journal {
        machine.feed(entry);
    }
    assert_eq!(machine.drive(), sim.progress);
    assert_eq!(machine.drive(), sim.progress, "driving again changes nothing");
    assert!(machine.take().is_empty());
}

#[test]
fn r03_a_journaled_value_of_another_type_makes_the_run_stuck_and_names_the_step() {
    #[workflow]
    async fn body() -> u32 {
        work(1).await
    }
    let mut sim = Sim::of(body());
    let step = sim.machine.open()[0].clone();
    let outcome = Outcome::Ok(Payload::encode("text").unwrap());
    sim.happen(Event::StepDone { step, attempt: 1, error: String::new(), gave_up: None, outcome });
    let Progress::Stuck(reason) = &sim.progress else { panic!("{:?}", sim.progress) };
    let reason = reason.to_string();
    for word in ["`work`", "journal_edges.rs:", "`u32`"] {
        assert!(reason.contains(word), "{reason}");
    }
}

#[test]
fn what_a_machine_says_about_itself() {
    #[workflow]
    async fn body() -> u32 {
        let (a, b) = join!(work(1), work(2));
        a + b
    }
    let mut sim = Sim::of(body()).with::<work>();
    assert_eq!(sim.machine.open().len(), 2);
    assert!(sim.machine.last_line().contains("journal_edges.rs:"));
    assert_eq!(sim.machine.observer().last_line(), sim.machine.last_line());
    sim.carry_out(1);
    let numbers: Vec<u32> = sim.machine.open().iter().map(|step| step.number).collect();
    assert_eq!(numbers, [2]);
    fn sendable<T: Send>(_: &T) {}
    sendable(&sim.machine);
}

/// How long a replay takes of a run with that many steps.
fn replay_time(start: Start) -> Duration {
    let mut sim = Sim::new(start, 0).with::<work>().without_history();
    while sim.progress == Progress::Waiting {
        let step = *sim.open.keys().next_back().unwrap();
        sim.carry_out(step);
    }
    let time = || {
        let begun = Instant::now();
        let mut machine = Machine::new(sim.start.clone());
        sim.journal.iter().for_each(|entry| machine.feed(entry));
        assert_eq!(machine.drive(), sim.progress);
        begun.elapsed()
    };
    (0..5).map(|_| time()).min().unwrap()
}

#[test]
fn r15_a_replay_costs_what_its_length_costs() {
    #[workflow]
    async fn in_line(n: u32) -> u32 {
        let mut sum = 0;
        for n in 0..n {
            sum += work(n).await;
        }
        sum
    }
    #[workflow]
    async fn side_by_side(n: u32) -> usize {
        futures::future::join_all((0..n).map(work)).await.len()
    }
    // Ten times the steps: about ten times the time, where each step looking at all others would make it a hundred. A
    // busy machine disturbs a measurement, so one undisturbed pair is enough; a cost of a hundred never yields one.
    for (short, long) in
        [(start(in_line(300)), start(in_line(3_000))), (start(side_by_side(300)), start(side_by_side(3_000)))]
    {
        let pairs = (0..20).map(|_| (replay_time(short.clone()), replay_time(long.clone())));
        let mut seen = vec![];
        let linear = pairs.inspect(|pair| seen.push(*pair)).any(|(short, long)| long < short * 40);
        assert!(linear, "300 and 3,000 steps took {seen:?}");
    }
}
