//! Timers, signals, time and randomness as workflow code uses them.

use std::time::SystemTime;

use composer_sdk::{
    FailureKind,
    id::Timestamp,
    journal::{Event, Outcome},
    prelude::*,
    replay::{Command, FinishedStatus, Progress, Start},
};
use futures::future::join_all;

use crate::sim::{STARTED, Sim, seeds, signal, start};

static GO: Signal<u32> = Signal::new("go");
static OTHER: Signal<String> = Signal::new("other");

#[activity]
async fn work(n: u32) -> u32 {
    n
}

fn timers(sim: &Sim) -> Vec<(i64, Option<Duration>)> {
    let timers = sim.commands.iter().filter_map(|command| match command {
        Command::SetTimer { due, after, .. } => Some((due.as_micros() - STARTED, *after)),
        _ => None,
    });
    timers.collect()
}

#[test]
fn a_sleep_fixes_its_instant_when_it_is_built() {
    #[workflow]
    async fn body() {
        let first = sleep(Duration::from_secs(60));
        work(1).await;
        first.await;
    }
    let mut sim = Sim::of(body()).with::<work>();
    assert_eq!(timers(&sim), []);
    sim.carry_out(2);
    assert_eq!(timers(&sim), [(60_000_000, Some(Duration::from_secs(60)))]);
}

#[test]
fn r09_timers_at_the_edges_are_journaled_like_any_other() {
    #[workflow]
    async fn body() -> bool {
        sleep(Duration::ZERO).await;
        sleep(Duration::from_nanos(1)).await;
        workflow::sleep_until(SystemTime::UNIX_EPOCH).await;
        let before = workflow::now();
        sleep(Duration::days(3650)).await;
        workflow::now() > before
    }
    let sim = Sim::of(body()).run();
    let firsts: Vec<i64> = timers(&sim).iter().map(|(due, _)| *due).collect();
    // Each `happen` moves the clock by a millisecond; a timer has two entries.
    assert_eq!(firsts, [0, 2_001, -STARTED, 6_000 + 3650 * 86_400 * 1_000_000]);
    assert!(sim.value::<bool>());
    sim.check_replays();
}

#[test]
fn r09_beyond_the_last_instant_the_run_fails_in_words_and_asks_for_nothing() {
    #[workflow]
    async fn too_long() {
        sleep(Duration::MAX).await;
    }
    #[workflow]
    async fn too_late() {
        workflow::sleep_until(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40)).await;
    }
    for sim in [Sim::of(too_long()), Sim::of(too_late())] {
        let finished = sim.finished();
        assert_eq!(finished.status, FinishedStatus::Failed);
        let Outcome::Failed(failure) = &finished.outcome else { panic!() };
        assert_eq!(failure.kind, FailureKind::Refused);
        for word in ["year 9999", "vocabulary.rs:"] {
            assert!(failure.message.contains(word), "{failure}");
        }
        assert!(sim.commands.is_empty());
        sim.check_replays();
    }
}

#[test]
fn a_relative_sleep_that_was_armed_later_keeps_the_journaled_instant() {
    #[workflow]
    async fn body() {
        sleep(Duration::from_secs(1)).await;
    }
    let mut sim = Sim::of(body());
    let Command::SetTimer { step, .. } = sim.commands[0].clone() else { panic!() };
    let pushed = Timestamp::from_micros(STARTED + 9_000_000);
    sim.happen(Event::TimerSet { step, due: pushed });
    let (_, open, _) = sim.replay(1);
    assert!(matches!(open[&1], Command::SetTimer { due, armed: true, .. } if due == pushed));
}

#[test]
fn now_is_the_instant_of_the_last_delivered_event() {
    #[workflow]
    async fn body() -> Vec<Duration> {
        let start: SystemTime = workflow::info().started_at;
        let mut all = vec![workflow::now().duration_since(start).unwrap()];
        for n in 0..3 {
            work(n).await;
            all.push(workflow::now().duration_since(start).unwrap());
        }
        all
    }
    let sim = Sim::of(body()).with::<work>().run();
    assert!(sim.value::<Vec<Duration>>().is_sorted());
    assert_eq!(sim.value::<Vec<Duration>>()[0], Duration::ZERO);
    sim.check_replays();
}

#[test]
fn r06_signals_are_received_in_order_also_those_that_came_early() {
    #[workflow]
    async fn body() -> Vec<u32> {
        work(1).await;
        vec![GO.recv().await, GO.recv().await, GO.recv().await]
    }
    let mut sim = Sim::of(body()).with::<work>();
    sim.happen(signal("go", &1));
    sim.happen(signal("go", &2));
    assert!(!sim.machine.waits_for_signals() && sim.machine.awaited_signals().is_empty());
    sim.carry_out(1);
    assert!(sim.machine.waits_for_signals() && sim.machine.awaited_signals() == ["go"]);
    sim.happen(signal("go", &3));
    assert_eq!(sim.value::<Vec<u32>>(), [1, 2, 3]);
    sim.check_replays();
}

#[test]
fn r06_the_wait_that_was_polled_first_gets_the_signal() {
    #[workflow]
    async fn body() -> (u32, u32, String) {
        join!(GO.recv(), GO.recv(), OTHER.recv())
    }
    let mut sim = Sim::of(body());
    for event in [signal("go", &1), signal("other", &"x"), signal("go", &2)] {
        sim.happen(event);
    }
    assert_eq!(sim.value::<(u32, u32, String)>(), (1, 2, "x".into()));
    sim.check_replays();
}

#[test]
fn r06_a_signal_that_nobody_received_is_listed() {
    #[workflow]
    async fn body() -> u32 {
        let (got, _) = join!(GO.recv(), work(1));
        got
    }
    let mut sim = Sim::of(body()).with::<work>();
    for event in [signal("go", &1), signal("nobody", &"x"), signal("go", &2)] {
        sim.happen(event);
    }
    sim.carry_out(1);
    assert_eq!(sim.value::<u32>(), 1);
    assert_eq!(sim.finished().unconsumed, [2, 3]);
    sim.check_replays();
}

#[test]
fn a_wait_that_lost_a_race_gives_its_signal_back() {
    // One event makes both branches ready: the receive stands behind in source order and is dropped.
    #[workflow]
    async fn body() -> (u32, u32) {
        let (tx, rx) = futures::channel::oneshot::channel();
        let racer = async {
            let lost = select! { _ = rx => true, _ = GO.recv() => false };
            assert!(lost);
            GO.recv().await
        };
        let winner = async {
            let first = GO.recv().await;
            tx.send(()).unwrap();
            first
        };
        join!(winner, racer)
    }
    let mut sim = Sim::of(body());
    sim.happen(signal("go", &1));
    assert_eq!(sim.progress, Progress::Waiting);
    sim.happen(signal("go", &2));
    assert_eq!(sim.value::<(u32, u32)>(), (1, 2));
    sim.check_replays();
}

#[test]
fn a_signal_given_to_a_wait_that_is_dropped_goes_to_the_next() {
    #[workflow]
    async fn body() -> u32 {
        let mut kept = GO.recv();
        assert!(futures::poll!(&mut kept).is_pending());
        work(1).await;
        // The value was given to `kept` meanwhile, which never looked.
        drop(kept);
        GO.recv().await
    }
    let mut sim = Sim::of(body()).with::<work>();
    sim.happen(signal("go", &5));
    sim.carry_out(1);
    assert_eq!(sim.value::<u32>(), 5);
    assert!(sim.finished().unconsumed.is_empty());
    sim.check_replays();
}

#[test]
fn a_receive_with_a_time_limit_takes_what_comes_first() {
    #[workflow]
    async fn body() -> (Option<u32>, Option<u32>) {
        (GO.recv_timeout(Duration::days(2)).await, GO.recv_timeout(Duration::days(2)).await)
    }
    let mut sim = Sim::of(body());
    sim.happen(signal("go", &1));
    assert_eq!(sim.steps(), ["2 sleep"]);
    sim.carry_out(2);
    assert_eq!(sim.value::<(Option<u32>, Option<u32>)>(), (Some(1), None));
    sim.check_replays();
}

#[test]
fn r03_a_signal_that_cannot_be_read_fails_the_run_and_names_it() {
    #[workflow]
    async fn body() -> Option<u32> {
        GO.recv_timeout(Duration::days(1)).await
    }
    let mut sim = Sim::of(body());
    sim.happen(signal("go", &"x"));
    let Outcome::Failed(failure) = &sim.finished().outcome else { panic!() };
    assert_eq!(failure.kind, FailureKind::Decode);
    for word in ["the signal `go`", "u32"] {
        assert!(failure.message.contains(word), "{failure}");
    }
    sim.check_replays();
}

#[test]
fn signals_steps_and_timers_in_any_order_replay() {
    #[workflow]
    async fn body() -> Vec<u32> {
        let branch = |n: u32| async move {
            let first = select! { x = GO.recv() => x, _ = sleep(Duration::days(1)) => 1000 };
            first + work(n).await
        };
        join_all((0..6).map(branch)).await
    }
    seeds(50, |seed| {
        let mut sim = Sim::new(start(body()), seed).with::<work>();
        let mut random = crate::sim::Random(seed);
        for n in 0..4 {
            if sim.progress == Progress::Waiting && random.below(2) == 0 {
                sim.happen(signal("go", &n));
            } else if let Some(step) = sim.open.keys().nth(random.below(3)).copied() {
                sim.carry_out(step);
            }
        }
        let sim = sim.run();
        assert_eq!(sim.value::<Vec<u32>>().len(), 6);
        sim.check_replays();
    });
}

#[test]
fn the_vocabulary_outside_a_workflow_says_so() {
    let words = |f: fn()| *std::panic::catch_unwind(f).unwrap_err().downcast::<String>().unwrap();
    for (what, said) in [
        ("sleep", words(|| _ = sleep(Duration::ZERO))),
        ("now", words(|| _ = workflow::now())),
        ("uuid", words(|| _ = workflow::uuid())),
        ("random", words(|| _ = workflow::random("x"))),
        ("info", words(|| _ = workflow::info())),
        ("recv", words(|| _ = GO.recv())),
        ("poll_until", words(|| _ = workflow::poll_until(Duration::ZERO, async || true))),
        ("side_effect", words(|| _ = workflow::side_effect(|| 1))),
        ("try_side_effect", words(|| _ = workflow::try_side_effect(|| Ok::<_, Error>(1)))),
        ("spawn", words(|| _ = workflow::spawn(std::future::ready(1)))),
    ] {
        assert!(said.contains(&format!("`{what}` was called outside a workflow")), "{said}");
    }
}

#[test]
fn random_numbers_stay_in_their_range() {
    #[workflow]
    async fn body() -> Vec<u64> {
        let mut dice = workflow::random("dice");
        let mut items: Vec<u64> = (0..10).collect();
        dice.shuffle(&mut items);
        for _ in 0..1_000 {
            assert!((3..6).contains(&dice.range(3..6)));
            assert!((0.0..1.0).contains(&dice.next_f64()));
        }
        assert!(!dice.chance(0.0) && dice.chance(1.0));
        items
    }
    let mut items = Sim::of(body()).value::<Vec<u64>>();
    assert_ne!(items, (0..10).collect::<Vec<_>>());
    items.sort_unstable();
    assert_eq!(items, (0..10).collect::<Vec<_>>());
}

#[test]
fn what_a_run_shows_is_the_last_value_of_each_name_since_it_was_taken() {
    static AT: Published<u32> = Published::new("at");
    static WHO: Published<String> = Published::new("who");
    #[activity]
    async fn step() {}
    #[workflow]
    async fn body() {
        AT.set(&1);
        AT.set(&2);
        step().await;
        WHO.set(&"me".to_owned());
    }
    let mut sim = Sim::of(body()).with::<step>();
    let taken = |sim: &mut Sim| {
        let shown = sim.machine.take_published();
        shown
            .iter()
            .map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value.as_bytes())))
            .collect::<Vec<_>>()
    };
    assert_eq!(taken(&mut sim), ["at=2"]);
    sim.carry_out(1);
    assert_eq!(taken(&mut sim), ["who=\"me\""]);
    assert!(taken(&mut sim).is_empty());
}

#[test]
fn a_value_that_cannot_be_stored_ends_the_run_and_names_the_state() {
    static RATE: Published<f64> = Published::new("rate");
    #[workflow]
    async fn body() {
        RATE.set(&f64::NAN);
    }
    let sim = Sim::of(body());
    assert!(
        sim.finished().reason.as_ref().is_some_and(|reason| reason.contains("`rate`")),
        "{:?}",
        sim.finished()
    );
}

#[test]
fn i7_a_fork_draws_the_numbers_of_its_original() {
    #[workflow]
    async fn body() -> (u64, String) {
        (workflow::random("dice").next_u64(), workflow::uuid().to_string())
    }
    let value = |start| Sim::new(start, 0).value::<(u64, String)>();
    let original = start(body());
    let run_id = "01890a5d-ac96-774b-bcce-b302099a8058".parse().unwrap();
    let fork = Start { run_id, ..original.clone() };
    let other = Start { seed: run_id, ..fork.clone() };
    assert_eq!(value(fork), value(original.clone()));
    assert_ne!(value(other), value(original));
}
