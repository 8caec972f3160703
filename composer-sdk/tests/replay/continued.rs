//! `continue_as_new`: a run that begins anew and stays the same.

use composer_sdk::{
    Signal,
    id::Timestamp,
    journal::{Entry, Event},
    prelude::*,
    replay::{Command, Continuation, Machine, Progress},
    saga,
    workflow::{continue_as_new, info, random, spawn},
};

use crate::sim::{STARTED, Sim, signal, start, stuck};

static GO: Signal<u32> = Signal::new("go");

#[activity]
async fn add(n: u32) -> u32 {
    n + 1
}

/// Three generations of two steps each.
#[workflow]
async fn count(n: u32) -> (u32, u32, u64) {
    let n = add(add(n).await).await;
    if n < 6 { continue_as_new(count(n)).await } else { (n, info().generation, random("x").next_u64()) }
}

#[track_caller]
fn next(progress: &Progress) -> Continuation {
    match progress {
        Progress::Continued(next) => next.clone(),
        other => panic!("not continued: {other:?}"),
    }
}

/// Runs to the end, through all generations.
fn generations(mut sim: Sim) -> Sim {
    loop {
        sim = sim.run();
        let Progress::Continued(next) = sim.progress.clone() else { return sim };
        for event in next.events() {
            sim.happen(event);
        }
    }
}

#[test]
fn a_run_goes_on_with_new_arguments_and_ends_with_the_last_generation() {
    let sim = generations(Sim::of(count(0)).with::<add>());
    let (n, generation, _): (u32, u32, u64) = sim.value();
    assert_eq!((n, generation), (6, 2));
}

#[test]
fn step_numbers_go_on_so_no_idempotency_key_comes_twice() {
    let sim = generations(Sim::of(count(0)).with::<add>());
    let steps: Vec<u32> = sim.commands.iter().map(Command::step).collect();
    assert!(steps.windows(2).all(|two| two[0] < two[1]), "{steps:?}");
    assert_eq!(steps.len(), 6);
}

#[test]
fn the_entries_of_the_last_generation_are_all_that_a_replay_needs() {
    let sim = generations(Sim::of(count(0)).with::<add>());
    let begins = |entry: &Entry| matches!(entry.event, Event::Continued { generation: 2, .. });
    let last = &sim.journal[sim.journal.iter().position(begins).unwrap()..];
    let end = |entries: &[Entry]| {
        let mut machine = Machine::new(start(count(0))).resumed(entries.last().unwrap().seq);
        entries.iter().for_each(|entry| machine.feed(entry));
        machine.drive()
    };
    assert_eq!(end(last), sim.progress);
    assert_eq!(end(&sim.journal), sim.progress, "and the whole journal comes to the same");
}

#[test]
fn randomness_and_the_clock_begin_anew() {
    #[workflow]
    async fn twice(drawn: Option<(u64, u64)>) -> Vec<(u64, u64)> {
        let at = Timestamp::from(composer_sdk::workflow::now()).as_micros() as u64;
        let draw = (random("x").next_u64(), at);
        match drawn {
            None => continue_as_new(twice(Some(draw))).await,
            Some(first) => vec![first, draw],
        }
    }
    let sim = generations(Sim::of(twice(None)));
    let drawn: Vec<(u64, u64)> = sim.value();
    assert_ne!(drawn[0].0, drawn[1].0);
    assert_eq!(drawn[0].1, STARTED as u64);
    assert!(drawn[1].1 > drawn[0].1, "{drawn:?}");
}

#[test]
fn signals_that_nobody_received_are_there_in_the_next_generation_in_their_order() {
    #[workflow]
    async fn body(first: Option<u32>) -> (u32, u32, u32) {
        match first {
            None => {
                let first = GO.recv().await;
                add(first).await;
                continue_as_new(body(Some(first))).await
            }
            Some(first) => (first, GO.recv().await, GO.recv().await),
        }
    }
    let mut sim = Sim::of(body(None)).with::<add>();
    for n in [7, 8, 9] {
        sim.happen(signal("go", &n));
    }
    let sim = generations(sim);
    assert_eq!(sim.value::<(u32, u32, u32)>(), (7, 8, 9));
}

#[test]
fn what_is_open_is_stopped_and_what_was_not_begun_is_not() {
    #[workflow]
    async fn body() {
        let other = spawn(async { add(1).await });
        add(2).await;
        let _later = add(3);
        join!(continue_as_new(body()), async { add(4).await });
        other.await;
    }
    let mut sim = Sim::of(body()).with::<add>();
    let two = *sim.open.iter().find(|(_, command)| matches!(command, Command::RunActivity { input, .. } if input.as_bytes() == b"[2]")).unwrap().0;
    sim.carry_out(two);
    next(&sim.progress);
    let told: Vec<_> = sim.commands.iter().skip(2).collect();
    assert!(matches!(told[..], [Command::Abandon { .. }]), "{told:?}");
}

#[test]
fn a_cancelled_run_ends_instead() {
    #[workflow]
    async fn body() {
        composer_sdk::workflow::shield(async { add(1).await }).await;
        continue_as_new(body()).await
    }
    let mut sim = Sim::of(body()).with::<add>();
    sim.happen(Event::CancelRequested { inbox: 1, reason: "enough".into() });
    let sim = sim.run();
    assert!(matches!(sim.progress, Progress::Done(_)), "{:?}", sim.progress);
}

#[test]
fn undo_steps_are_not_forgotten_on_the_way() {
    #[workflow]
    async fn body(committed: bool) {
        compensate(add(1));
        if committed {
            saga::commit();
        }
        continue_as_new(body(committed)).await
    }
    let reason = stuck(&Sim::of(body(false)).progress).to_string();
    assert!(reason.contains("would forget the undo steps") && reason.contains("saga::commit()"), "{reason}");
    next(&Sim::of(body(true)).progress);
}

#[test]
fn options_of_a_start_and_calls_from_elsewhere_are_refused_in_words() {
    #[workflow]
    async fn tagged() {
        continue_as_new(tagged().tag("a", "b")).await
    }
    let reason = stuck(&Sim::of(tagged()).progress).to_string();
    assert!(reason.contains("keeps its id, its tags and its timeout"), "{reason}");
}

#[test]
fn a_call_that_the_run_goes_on_with_is_not_taken_for_a_forgotten_one() {
    let mut sim = Sim::of(count(0)).with::<add>().run();
    next(&sim.progress);
    assert_eq!(sim.machine.take_forgotten(), Vec::<String>::new());
}
