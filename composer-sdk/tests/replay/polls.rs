//! `poll_until`: checks, pauses, and giving up.

use std::time::SystemTime;

use composer_sdk::{
    id::Timestamp,
    journal::Event,
    prelude::*,
    replay::{Command, Progress},
    workflow::{NotYet, poll_until},
};

use crate::sim::{STARTED, Sim, describe, seeds, start};

#[activity]
async fn at_least(n: u32, least: u32) -> bool {
    n >= least
}

#[activity]
async fn find(n: u32) -> Result<Option<u32>> {
    match n {
        0..3 => Ok(None),
        3 => Ok(Some(33)),
        n => Err(Error::new(format!("{n} is too many"))),
    }
}

fn commands(sim: &Sim) -> Vec<String> {
    sim.commands.iter().map(describe).collect()
}

/// The lengths of the pauses.
fn pauses(sim: &Sim) -> Vec<Duration> {
    let pauses = sim.commands.iter().filter_map(|command| match command {
        Command::SetTimer { after, .. } => *after,
        _ => None,
    });
    pauses.collect()
}

/// Carries out what is open; timers fire when they are due.
fn play(mut sim: Sim) -> Sim {
    while sim.progress == Progress::Waiting {
        match sim.open.values().next().unwrap().clone() {
            Command::SetTimer { step, due, .. } => {
                sim.until(due);
                sim.happen(Event::TimerSet { step: step.clone(), due });
                sim.happen(Event::TimerFired { step: step.number });
            }
            command => sim.carry_out(command.step()),
        }
    }
    sim
}

#[test]
fn g12_it_checks_at_once_and_then_every_so_often_until_it_is_done() {
    #[workflow]
    async fn body() -> u32 {
        let mut checks = 0;
        poll_until(Duration::from_secs(1), || {
            checks += 1;
            at_least(checks, 3)
        })
        .await;
        checks
    }
    seeds(5, |seed| {
        let sim = Sim::new(start(body()), seed).with::<at_least>().run();
        assert_eq!(commands(&sim), ["1 at_least", "2 sleep", "3 at_least", "4 sleep", "5 at_least"]);
        assert_eq!(pauses(&sim), [Duration::from_secs(1); 2]);
        assert_eq!(sim.value::<u32>(), 3);
        sim.check_replays();
    });
}

#[test]
fn what_was_found_and_what_went_wrong_end_it() {
    #[workflow]
    async fn body(from: u32) -> Result<u32> {
        let mut n = from;
        poll_until(Duration::days(1), || {
            n += 1;
            find(n)
        })
        .await
    }
    let sim = play(Sim::of(body(0)).with::<find>());
    assert_eq!((sim.value::<u32>(), pauses(&sim).len()), (33, 2));
    sim.check_replays();
    let sim = play(Sim::of(body(3)).with::<find>());
    assert!(sim.finished().reason.as_ref().unwrap().contains("4 is too many"), "{:?}", sim.finished());
    assert!(pauses(&sim).is_empty());
}

#[test]
fn a_check_need_not_be_a_step_and_may_borrow() {
    #[workflow]
    async fn body(names: Vec<String>) -> (usize, bool) {
        let (seen, mut rest) = (std::sync::atomic::AtomicUsize::new(0), names.iter());
        poll_until(Duration::from_secs(1), async || {
            seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == names.len()
        })
        .await;
        let found = poll_until(Duration::ZERO, || {
            let name = rest.next();
            async move { name.filter(|name| name.len() > 1) }
        })
        .await;
        (seen.into_inner(), found == "bb")
    }
    let sim = play(Sim::of(body(vec!["a".into(), "bb".into()])));
    assert_eq!(sim.value::<(usize, bool)>(), (3, true));
    sim.check_replays();
}

#[test]
fn it_gives_up_after_so_many_checks() {
    #[workflow]
    async fn body(times: u32) -> std::result::Result<u32, String> {
        let mut n = 0;
        let found = poll_until(Duration::from_secs(1), || {
            n += 1;
            find(n)
        });
        match found.times(times).await {
            Ok(found) => Ok(found.unwrap()),
            Err(NotYet { checks, waited, .. }) => Err(format!("{checks} {}", waited.as_secs())),
        }
    }
    let sim = play(Sim::of(body(3)).with::<find>());
    assert_eq!(sim.value::<u32>(), 33);
    let sim = play(Sim::of(body(2)).with::<find>());
    let composer_sdk::journal::Outcome::Err(why) = &sim.finished().outcome else { panic!() };
    assert_eq!(why.decode::<String>().unwrap(), "2 1");
    assert_eq!(commands(&sim), ["1 find", "2 sleep", "3 find"], "no pause after the last check");
    sim.check_replays();
    let reason = Sim::of(body(0)).stuck();
    assert!(reason.contains("times(0)") && reason.contains("the least is 1"), "{reason}");
}

#[test]
fn it_gives_up_after_so_long_with_a_last_check_at_the_end() {
    #[workflow]
    async fn body() -> (u32, Duration) {
        let begun = workflow::now();
        let gave_up = poll_until(Duration::from_secs(10), || at_least(0, 1))
            .for_at_most(Duration::from_secs(25))
            .times(100)
            .await
            .unwrap_err();
        let waited = workflow::now().duration_since(begun).unwrap_or_default();
        assert_eq!(gave_up.waited, waited);
        assert!(gave_up.to_string().starts_with("not yet, at 4 checks in 25."), "{gave_up}");
        (gave_up.checks, waited)
    }
    let sim = play(Sim::of(body()).with::<at_least>());
    let (checks, waited) = sim.value::<(u32, Duration)>();
    assert!(checks == 4 && waited >= Duration::from_secs(25), "{checks} {waited:?}");
    let pauses = pauses(&sim);
    assert_eq!(pauses[..2], [Duration::from_secs(10); 2]);
    assert!(pauses[2] < Duration::from_secs(5) && pauses.len() == 3, "{pauses:?}");
    sim.check_replays();
}

#[test]
fn its_steps_name_the_line_of_the_workflow() {
    let line = line!() + 3;
    #[workflow]
    async fn body() {
        poll_until(Duration::from_secs(1), || at_least(0, 1)).await;
    }
    let mut sim = Sim::of(body()).with::<at_least>();
    sim.carry_out(1);
    let Command::SetTimer { step, due, .. } = &sim.commands[1] else { panic!() };
    assert!(step.line.to_string().ends_with(&format!("polls.rs:{line}")), "{}", step.line);
    assert!(SystemTime::from(*due) > Timestamp::from_micros(STARTED).into());
}
