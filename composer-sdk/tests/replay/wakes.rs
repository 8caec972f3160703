//! The second net: waits that no journal can bring, and wakes that no journal caused, are reported on the first run.

use std::{
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use composer_sdk::{prelude::*, replay::Progress};
use futures::{FutureExt, StreamExt};

use crate::sim::{Alarm, Sim, start, start_with};

#[activity]
async fn add(a: u32, b: u32) -> u32 {
    a + b
}

#[test]
fn a_wait_on_nothing_durable_is_reported_at_once_with_the_last_line() {
    #[workflow]
    async fn body() -> u32 {
        let x = add(1, 1).await;
        std::future::pending::<()>().await;
        x
    }
    let mut sim = Sim::of(body()).with::<add>();
    assert_eq!(sim.progress, Progress::Waiting);
    sim.carry_out(1);
    let reason = sim.stuck();
    assert!(reason.contains("not durable") && reason.contains("wakes.rs:"), "{reason}");
    assert_eq!(sim.commands.len(), 1);
}

#[test]
fn a_wait_on_nothing_durable_before_the_first_step_says_so() {
    #[workflow]
    async fn body() {
        futures::future::pending::<()>().await;
    }
    let reason = Sim::of(body()).stuck();
    assert!(reason.contains("before its first step"), "{reason}");
}

/// A wait that gives its waker away, beside something durable.
fn elsewhere(slot: &'static Mutex<Option<Waker>>) -> impl Future<Output = u32> {
    std::future::poll_fn(move |cx| {
        *slot.lock().unwrap() = Some(cx.waker().clone());
        Poll::Pending
    })
}

#[test]
fn a_wake_from_another_thread_rings_the_alarm_and_is_reported() {
    static WAKER: Mutex<Option<Waker>> = Mutex::new(None);
    #[workflow]
    async fn body() -> u32 {
        select! { x = add(1, 1) => x, x = elsewhere(&WAKER) => x }
    }
    let alarm = Alarm::default();
    let mut sim = Sim::new(start_with(body(), &alarm), 0).with::<add>();
    assert_eq!((&sim.progress, alarm.rings()), (&Progress::Waiting, 0));
    let waker = WAKER.lock().unwrap().take().unwrap();
    std::thread::spawn(move || waker.wake()).join().unwrap();
    assert_eq!(alarm.rings(), 1);
    sim.drive();
    let reason = sim.stuck();
    assert!(reason.contains("woken by something outside"), "{reason}");
}

#[test]
fn a_wake_between_two_polls_on_the_machines_own_thread_is_foreign_too() {
    static WAKER: Mutex<Option<Waker>> = Mutex::new(None);
    #[workflow]
    async fn body() -> u32 {
        select! { x = add(1, 1) => x, x = elsewhere(&WAKER) => x }
    }
    let mut sim = Sim::of(body()).with::<add>();
    WAKER.lock().unwrap().take().unwrap().wake();
    sim.drive();
    assert!(sim.stuck().contains("woken by something outside"));
}

#[test]
fn nobody_cares_who_wakes_a_run_that_is_over() {
    static WAKER: Mutex<Option<Waker>> = Mutex::new(None);
    #[workflow]
    async fn body() -> u32 {
        select! { x = add(1, 1) => x, x = elsewhere(&WAKER) => x }
    }
    let alarm = Alarm::default();
    let mut sim = Sim::new(start_with(body(), &alarm), 0).with::<add>();
    sim.carry_out(1);
    assert_eq!(sim.value::<u32>(), 2);
    WAKER.lock().unwrap().take().unwrap().wake();
    assert_eq!(alarm.rings(), 0);
}

#[test]
fn a_workflow_that_wakes_itself_for_ever_is_reported() {
    #[workflow]
    async fn body() {
        std::future::poll_fn::<(), _>(|cx| {
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
    assert!(Sim::of(body()).stuck().contains("keeps waking itself"));
}

#[test]
fn a_workflow_that_yields_to_itself_is_honest() {
    #[workflow]
    async fn body() -> u32 {
        for _ in 0..1_000 {
            let mut yielded = false;
            std::future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        add(1, 1).await
    }
    assert_eq!(Sim::of(body()).with::<add>().run().value::<u32>(), 2);
}

#[test]
fn a_machine_driven_inside_another_ones_poll_leaves_the_outer_one_intact() {
    #[workflow]
    async fn inner() -> u32 {
        add(1, 1).await
    }
    #[workflow]
    async fn outer() -> u32 {
        // Built in a thread of its own: here the call would belong to this run.
        #[allow_nondeterminism = "it is over before the body goes on"]
        let start = std::thread::spawn(|| start(inner())).join().unwrap();
        let nested = Sim::new(start, 0).with::<add>();
        assert_eq!(nested.steps(), ["1 add"]);
        add(2, 2).await
    }
    let sim = Sim::of(outer()).with::<add>().run();
    assert_eq!(sim.value::<u32>(), 4);
}

#[test]
fn block_on_inside_a_workflow_panics_instead_of_hanging() {
    #[workflow]
    async fn body() -> u32 {
        #[allow_nondeterminism = "what notices it at run time is tested here"]
        futures::executor::block_on(add(1, 1))
    }
    // On a thread of its own: the test harness must not be in an executor.
    let reason = std::thread::spawn(|| Sim::of(body()).stuck()).join().unwrap();
    assert!(reason.contains("panicked") && reason.contains("executor"), "{reason}");
}

#[test]
fn a_budget_of_zero_is_harmless_when_the_owner_opts_out_of_it() {
    #[workflow]
    async fn body() -> u32 {
        let lock = tokio::sync::Mutex::new(0);
        for _ in 0..300 {
            *lock.lock().await += 1;
        }
        let (tx, mut rx) = tokio::sync::mpsc::channel(1);
        let send = async move {
            for n in 0..500 {
                tx.send(n).await.unwrap();
            }
        };
        let receive = async {
            let mut sum = 0;
            while let Some(n) = rx.recv().await {
                sum += n;
            }
            sum
        };
        let (_, sum) = tokio::join!(send, receive);
        sum + add(*lock.lock().await, 0).await
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let progress = runtime.block_on(async {
        tokio::spawn(tokio::task::coop::unconstrained(async { Sim::of(body()).with::<add>().progress }))
            .await
            .unwrap()
    });
    assert_eq!(progress, Progress::Waiting);
}

#[test]
fn a_stream_that_polls_only_what_was_woken_is_no_false_alarm() {
    #[workflow]
    async fn body() -> u32 {
        let mut set: futures::stream::FuturesUnordered<_> = (0..100).map(|n| add(n, 0)).collect();
        let mut last = 0;
        while let Some(x) = set.next().await {
            last = x;
        }
        last
    }
    let mut sim = Sim::of(body()).with::<add>();
    for step in (1..=100).rev() {
        sim.carry_out(step);
    }
    assert_eq!(sim.value::<u32>(), 0);
}

/// A waker that owns a call: `FuturesUnordered` has such, whose tasks hold their futures.
struct Holder(#[allow(dead_code)] Mutex<composer_sdk::Call<add>>);

impl std::task::Wake for Holder {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_whose_drop_drops_a_call_does_not_lock_up() {
    #[workflow]
    async fn body() -> u32 {
        let asked = || {
            let mut call = add(1, 1);
            assert!(call.poll_unpin(&mut Context::from_waker(Waker::noop())).is_pending());
            call
        };
        let holder = || Waker::from(Arc::new(Holder(Mutex::new(asked()))));
        // The last waker goes when its call is dropped, when another takes its place, and when the answer comes.
        let mut dropped = add(2, 2);
        assert!(dropped.poll_unpin(&mut Context::from_waker(&holder())).is_pending());
        drop(dropped);
        let mut kept = add(3, 3);
        assert!(kept.poll_unpin(&mut Context::from_waker(&holder())).is_pending());
        assert!(kept.poll_unpin(&mut Context::from_waker(&holder())).is_pending());
        let other = add(4, 4).await;
        other + kept.await
    }
    let mut sim = Sim::of(body()).with::<add>();
    assert_eq!(sim.steps(), ["3 add", "5 add", "6 add"]);
    sim.carry_out(3);
    assert_eq!(sim.steps(), ["6 add"]);
    sim.carry_out(6);
    assert_eq!(sim.value::<u32>(), 14);
    sim.check_replays();
}

#[test]
fn nothing_is_left_of_a_machine_that_is_dropped_while_it_waits() {
    static GO: Signal<u32> = Signal::new("go");
    #[workflow]
    async fn body() -> u32 {
        let shielded = workflow::shield(async {
            workflow::cancelled().await;
            0
        });
        select! { x = add(1, 1) => x, x = GO.recv() => x, x = shielded => x }
    }
    let alive = Arc::new(());
    let kept = alive.clone();
    let start = composer_sdk::replay::Start { alarm: Arc::new(move || _ = &kept), ..start(body()) };
    let sim = Sim::new(start, 0).with::<add>();
    assert_eq!(sim.progress, Progress::Waiting);
    drop(sim);
    assert_eq!(Arc::strong_count(&alive), 1, "the run is freed");
}
