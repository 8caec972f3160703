//! Branches: code of the workflow beside its body, polled and dropped in one order in every life.

use std::sync::{Arc, Mutex};

use composer_sdk::{prelude::*, replay::Progress, workflow::spawn};
use futures::{FutureExt, SinkExt, StreamExt, future::join_all};

use crate::sim::{Sim, describe, seeds, signal, start};

static GO: Signal<u32> = Signal::new("go");

#[activity]
async fn work(n: u32) -> u32 {
    n
}

/// What a test wants to remember, in order.
type Notes = Mutex<Vec<&'static str>>;

/// Notes its own end.
struct Noted(&'static str, &'static Notes);

impl Drop for Noted {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0);
    }
}

fn take(notes: &'static Notes) -> Vec<&'static str> {
    std::mem::take(&mut *notes.lock().unwrap())
}

#[test]
fn a_branch_goes_on_beside_the_body_and_gives_its_value() {
    #[workflow]
    async fn body() -> (u32, u32, String) {
        let call = spawn(work(1));
        let block = spawn(async { spawn(work(2)).await + work(3).await });
        let words = spawn(std::future::ready("ready".to_owned()));
        let own = work(4).await;
        (call.await + own, block.await, words.await)
    }
    let mut sim = Sim::of(body()).with::<work>();
    // The call that is handed over takes its number first; the block's are taken when the branch is polled.
    assert_eq!(sim.steps(), ["1 work", "2 work", "3 work"]);
    for step in [3, 4, 2, 1] {
        sim.carry_out(step);
    }
    assert_eq!(sim.value::<(u32, u32, String)>(), (5, 5, "ready".into()));
    sim.check_replays();
}

#[test]
fn branches_are_polled_after_the_body_in_spawn_order() {
    static NOTES: Notes = Mutex::new(Vec::new());
    /// Notes each poll.
    async fn noted<F: Future>(what: &'static str, future: F) -> F::Output {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|cx| {
            NOTES.lock().unwrap().push(what);
            future.as_mut().poll(cx)
        })
        .await
    }
    #[workflow]
    async fn body() -> u32 {
        spawn(noted("first", async { GO.recv().await + GO.recv().await })).detach();
        spawn(noted("second", GO.recv())).detach();
        noted("body", work(1)).await
    }
    let mut sim = Sim::of(body()).with::<work>();
    assert_eq!(take(&NOTES), ["body", "first", "second", "body"]);
    sim.happen(signal("go", &1));
    assert_eq!(take(&NOTES), ["body", "first"], "of the branches, only what was woken");
    sim.happen(signal("go", &2));
    assert_eq!(take(&NOTES), ["body", "second"]);
    sim.happen(signal("go", &3));
    assert_eq!(take(&NOTES), ["body", "first"]);
    sim.happen(signal("go", &4));
    assert_eq!(take(&NOTES), [""; 0], "both are over");
}

#[test]
fn branches_in_any_order_replay() {
    #[workflow]
    async fn body() -> Vec<u32> {
        let branch = |n: u32| async move {
            let nested = spawn(async move { work(n).await + work(n).await });
            let first = select! { x = work(n) => x, _ = sleep(Duration::from_secs(1)) => 100 };
            first + nested.await
        };
        let (mut tx, mut rx) = futures::channel::mpsc::channel(1);
        spawn(async move {
            for n in 0..4 {
                let n = work(n).await;
                tx.send(n).await.unwrap();
            }
        })
        .detach();
        let branches: Vec<_> = (0..6).map(|n| spawn(branch(n))).collect();
        let mut all = vec![];
        while let Some(n) = rx.next().await {
            all.push(n);
        }
        all.extend(join_all(branches).await);
        all
    }
    seeds(100, |seed| {
        let sim = Sim::new(start(body()), seed).with::<work>().run();
        assert_eq!(sim.value::<Vec<u32>>().len(), 10);
        sim.check_replays();
    });
}

#[test]
fn a_handle_in_a_race_can_be_awaited_afterwards() {
    #[workflow]
    async fn body() -> (bool, u32) {
        let mut slow = spawn(work(1));
        let late = select! { _ = &mut slow => false, _ = work(2) => true };
        (late, slow.await)
    }
    let mut sim = Sim::of(body()).with::<work>();
    sim.carry_out(2);
    sim.carry_out(1);
    assert_eq!(sim.value::<(bool, u32)>(), (true, 1));
    sim.check_replays();
}

#[test]
fn a_branch_without_its_handle_goes_on() {
    #[workflow]
    async fn body() -> u32 {
        spawn(async { work(1).await + work(2).await }).detach();
        GO.recv().await
    }
    let mut sim = Sim::of(body()).with::<work>();
    sim.carry_out(1);
    assert_eq!(sim.steps(), ["2 work"]);
    sim.carry_out(2);
    sim.happen(signal("go", &7));
    assert_eq!(sim.value::<u32>(), 7);
    sim.check_replays();
}

#[test]
fn open_branches_end_with_the_body_and_their_steps_are_abandoned() {
    static NOTES: Notes = Mutex::new(Vec::new());
    #[workflow]
    async fn body() -> u32 {
        let branch = |name, n| async move {
            let _noted = Noted(name, &NOTES);
            work(n).await
        };
        let _last = Noted("body", &NOTES);
        let (_a, _b) = (spawn(branch("first", 1)), spawn(branch("second", 2)));
        work(3).await
    }
    let mut sim = Sim::of(body()).with::<work>();
    sim.carry_out(1);
    assert_eq!(sim.value::<u32>(), 3);
    assert_eq!(take(&NOTES), ["body", "first", "second"]);
    let commands: Vec<_> = sim.commands.iter().map(describe).collect();
    assert_eq!(commands, ["1 work", "2 work", "3 work", "2 abandoned", "3 abandoned"]);
    sim.check_replays();
}

#[test]
fn a_cancelled_or_evicted_run_drops_its_body_and_then_its_branches_in_spawn_order() {
    static NOTES: Notes = Mutex::new(Vec::new());
    #[workflow]
    async fn body() -> u32 {
        let branch = |name| async move {
            let _noted = Noted(name, &NOTES);
            // A panic in one does not keep the next.
            let _bomb = Bomb;
            GO.recv().await
        };
        let _noted = Noted("body", &NOTES);
        let (a, b, c) = (spawn(branch("first")), spawn(branch("second")), spawn(branch("third")));
        a.await + b.await + c.await
    }
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            // In `Drop` code a branch is inert.
            spawn(work(9)).detach();
            panic!("in drop");
        }
    }
    let mut sim = Sim::of(body());
    sim.happen(composer_sdk::journal::Event::CancelRequested { inbox: 1, reason: String::new() });
    sim.finished();
    assert_eq!(take(&NOTES), ["body", "first", "second", "third"]);
    drop(Sim::of(body()));
    assert_eq!(take(&NOTES), ["body", "first", "second", "third"]);
}

#[test]
fn nothing_is_left_of_branches_that_are_dropped_while_they_wait() {
    #[workflow]
    async fn body() -> u32 {
        let handle = spawn(async { spawn(work(1)).await + GO.recv().await });
        handle.await
    }
    let alive = Arc::new(());
    let kept = alive.clone();
    let start = composer_sdk::replay::Start { alarm: Arc::new(move || _ = &kept), ..start(body()) };
    drop(Sim::new(start, 0).with::<work>());
    assert_eq!(Arc::strong_count(&alive), 1, "the run is freed");
}

#[test]
fn a_panic_in_a_branch_makes_the_run_stuck() {
    #[workflow]
    async fn body() -> u32 {
        spawn(async {
            work(1).await;
            panic!("in a branch");
        })
        .detach();
        GO.recv().await
    }
    let mut sim = Sim::of(body()).with::<work>();
    sim.carry_out(1);
    let reason = sim.stuck();
    assert!(reason.contains("panicked") && reason.contains("in a branch"), "{reason}");
    assert_eq!(sim.commands.len(), 1);
}

#[test]
fn a_branch_that_waits_for_itself_waits_for_nothing_durable() {
    #[workflow]
    async fn body() {
        let (tx, rx) = futures::channel::oneshot::channel();
        let handle = spawn(async move {
            let own: composer_sdk::workflow::Branch<()> = rx.await.unwrap();
            own.await;
        });
        let _ = tx.send(handle);
        std::future::pending().await
    }
    assert!(Sim::of(body()).stuck().contains("not durable"));
}

#[test]
fn a_branch_that_wakes_itself_for_ever_is_reported() {
    #[workflow]
    async fn body() -> u32 {
        spawn(std::future::poll_fn::<(), _>(|cx| {
            cx.waker().wake_by_ref();
            std::task::Poll::Pending
        }))
        .detach();
        GO.recv().await
    }
    assert!(Sim::of(body()).stuck().contains("keeps waking itself"));
}

#[test]
fn a_branch_that_never_began_is_reported() {
    #[workflow]
    async fn body() -> u32 {
        spawn(work(1)).detach();
        7
    }
    let mut sim = Sim::of(body());
    assert_eq!(sim.value::<u32>(), 7);
    let forgotten = sim.machine.take_forgotten();
    assert_eq!(forgotten.len(), 1, "{forgotten:?}");
    assert!(
        forgotten[0].contains("branches.rs:") && forgotten[0].contains("before it began"),
        "{forgotten:?}"
    );
}

#[test]
fn a_handle_outside_its_workflow_is_refused() {
    static KEPT: Mutex<Option<composer_sdk::workflow::Branch<u32>>> = Mutex::new(None);
    #[workflow]
    async fn body() -> u32 {
        *KEPT.lock().unwrap() = Some(spawn(work(1)));
        GO.recv().await
    }
    let mut sim = Sim::of(body()).with::<work>();
    let handle = KEPT.lock().unwrap().take().unwrap();
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| handle.now_or_never()));
    let words = *panic.unwrap_err().downcast::<String>().unwrap();
    assert!(words.contains("the handle of a branch was awaited outside the workflow"), "{words}");
    sim.drive();
    assert_eq!(sim.stuck(), words);
}

#[test]
fn a_branch_outlives_the_cancelled_body_as_long_as_a_shield_does() {
    #[workflow]
    async fn body() -> u32 {
        let branch = spawn(async { work(1).await + work(2).await });
        workflow::shield(async { branch.await + work(3).await }).await
    }
    let mut sim = Sim::of(body()).with::<work>();
    sim.happen(composer_sdk::journal::Event::CancelRequested { inbox: 1, reason: String::new() });
    assert_eq!(sim.progress, Progress::Waiting);
    for step in [1, 2, 3] {
        assert_eq!(sim.progress, Progress::Waiting);
        sim.carry_out(step);
    }
    assert_eq!(sim.finished().status, composer_sdk::replay::FinishedStatus::Cancelled);
    sim.check_replays();
}
