//! How a run ends before its body does.

use std::sync::atomic::{AtomicU32, Ordering};

use composer_sdk::{
    FailureKind,
    journal::{Event, Outcome},
    prelude::*,
    replay::{Command, FinishedStatus},
};

use crate::sim::{Sim, describe, seeds, signal, start};

#[activity]
async fn work(n: u32) -> u32 {
    n
}

fn cancel() -> Event {
    Event::CancelRequested { inbox: 1, reason: "not wanted".into() }
}

fn last_commands(sim: &Sim, n: usize) -> Vec<String> {
    sim.commands[sim.commands.len() - n..].iter().map(describe).collect()
}

#[test]
fn a_cancel_drops_the_body_and_abandons_what_is_open() {
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    struct Noisy;
    impl Drop for Noisy {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::SeqCst);
            // All of it inert: nothing is asked, and nothing panics.
            let _ =
                (work(9), sleep(Duration::from_secs(1)), workflow::now(), workflow::uuid(), workflow::info());
            let _ = workflow::random("x").next_u64();
        }
    }
    #[workflow]
    async fn body() -> u32 {
        let _noisy = Noisy;
        let (a, b) = join!(work(1), async {
            select! { _ = sleep(Duration::days(1)) => 0, x = work(2) => x }
        });
        a + b
    }
    let mut sim = Sim::of(body()).with::<work>();
    sim.happen(cancel());
    let finished = sim.finished();
    assert_eq!(finished.status, FinishedStatus::Cancelled);
    assert_eq!(finished.reason.as_deref(), Some("cancelled: not wanted"));
    let Outcome::Failed(failure) = &finished.outcome else { panic!() };
    assert_eq!(failure.kind, FailureKind::Cancelled);
    assert_eq!(last_commands(&sim, 3), ["1 abandoned", "2 abandoned", "3 abandoned"]);
    assert_eq!(sim.commands.len(), 6);
    assert_eq!(DROPPED.load(Ordering::SeqCst), 1);
    sim.check_replays();
}

#[test]
fn a_timed_out_run_ends_in_the_same_way() {
    #[workflow]
    async fn body() -> u32 {
        work(1).await
    }
    let mut sim = Sim::of(body());
    sim.happen(Event::RunTimedOut);
    assert_eq!(sim.finished().status, FinishedStatus::TimedOut);
    assert_eq!(last_commands(&sim, 1), ["1 abandoned"]);
    sim.check_replays();
}

#[test]
fn a_cancel_at_any_moment_replays() {
    #[workflow]
    async fn body() -> u32 {
        let (a, b) = join!(work(1), async { work(2).await + work(3).await });
        a + b + work(4).await
    }
    seeds(30, |seed| {
        let mut sim = Sim::new(start(body()), seed).with::<work>();
        for _ in 0..seed % 4 {
            let step = *sim.open.keys().last().unwrap();
            sim.carry_out(step);
        }
        sim.happen(cancel());
        sim.happen(cancel());
        assert_eq!(sim.finished().status, FinishedStatus::Cancelled);
        assert!(sim.open.is_empty());
    });
}

#[test]
fn a_panic_in_drop_code_ends_there() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in drop");
        }
    }
    #[workflow]
    async fn body() -> u32 {
        let _bomb = Bomb;
        work(1).await
    }
    let mut sim = Sim::of(body());
    sim.happen(cancel());
    assert_eq!(sim.finished().status, FinishedStatus::Cancelled);
    // An evicted run: the machine itself is dropped.
    drop(Sim::of(body()));
}

#[test]
fn a_lost_race_stops_the_loser_and_its_late_result_is_not_delivered() {
    static GO: Signal<u8> = Signal::new("go");
    #[workflow]
    async fn body() -> u32 {
        let first = select! { _ = GO.recv() => 10, x = work(1) => x };
        first + work(2).await
    }
    let mut sim = Sim::of(body()).with::<work>();
    let loser = sim.machine.open()[0].clone();
    sim.happen(signal("go", &1));
    assert_eq!(last_commands(&sim, 2), ["1 abandoned", "2 work"]);
    let outcome = Outcome::Ok(composer_sdk::payload::Payload::encode(&1).unwrap());
    sim.happen(Event::StepDone { step: loser, attempt: 1, error: String::new(), gave_up: None, outcome });
    assert_eq!(sim.steps(), ["2 work"]);
    let sim = sim.run();
    assert_eq!(sim.value::<u32>(), 12);
    // A lone `Abandon` is repeated by a replay; the open steps are what counts.
    sim.check_replays();
}

#[test]
fn a_call_asked_and_dropped_within_one_poll_is_begun_and_stopped() {
    #[workflow]
    async fn body() -> u32 {
        let x = select! { x = work(1) => x, x = std::future::ready(6) => x };
        x + work(2).await
    }
    let sim = Sim::of(body()).with::<work>();
    let commands: Vec<String> = sim.commands.iter().map(describe).collect();
    assert_eq!(commands, ["1 work", "1 abandoned", "2 work"]);
    assert!(matches!(sim.commands[1], Command::Abandon { step: 1, .. }));
}

#[test]
fn the_reason_of_a_failed_run_names_its_last_failed_step() {
    #[activity]
    async fn fails() -> Result<u32> {
        Err(Error::new("root").context("above"))
    }
    #[workflow]
    async fn passes_on() -> Result<u32> {
        Ok(fails().await? + 1)
    }
    #[workflow]
    async fn adds() -> Result<u32> {
        fails().await.context("the sum")
    }
    fn finished<W: composer_sdk::Workflow>(call: composer_sdk::Call<W>) -> (String, Error) {
        let mut sim = Sim::of(call).with::<fails>();
        sim.carry_out(1);
        let finished = sim.finished();
        assert_eq!(finished.status, FinishedStatus::Failed);
        let Outcome::Err(error) = &finished.outcome else { panic!() };
        (finished.reason.clone().unwrap(), error.decode().unwrap())
    }
    let (reason, error) = finished(passes_on());
    assert!(reason.starts_with("step 1 `fails` (") && reason.contains("cancel.rs:"), "{reason}");
    assert!(reason.ends_with(") failed after 1 attempt: above: root"), "said once: {reason}");
    assert_eq!(format!("{error:#}"), "above: root");
    let (reason, error) = finished(adds());
    assert!(reason.starts_with("the sum: above: root; step 1 `fails` ("), "{reason}");
    assert_eq!(format!("{error:#}"), "the sum: above: root");
}
