//! Whatever polls the calls, and in whatever order they are done: live equals replay, and nothing honest is reported.

use composer_sdk::prelude::*;
use futures::{FutureExt, SinkExt, StreamExt, stream::FuturesUnordered};

use crate::sim::{Sim, seeds, start};

#[activity]
async fn add(a: u32, b: u32) -> u32 {
    a + b
}

#[activity]
async fn slow(a: u32) -> Result<u32> {
    if a % 5 == 4 { Err(Error::new("five")) } else { Ok(a) }
}

/// A workflow without arguments, over many random orders.
macro_rules! holds {
    ($($name:ident -> $output:ty { $($body:tt)* })*) => { $(
        #[test]
        fn $name() {
            #[workflow]
            async fn body() -> $output { $($body)* }

            seeds(30, |seed| {
                let sim = Sim::new(start(body()), seed).with::<add>().with::<slow>().run();
                let _: serde_json::Value = sim.value();
                sim.check_replays();
            });
        }
    )* };
}

holds! {
    one_after_the_other -> Vec<u32> {
        let mut all = vec![];
        for n in 0..5 {
            all.push(add(n, 1).await);
        }
        all
    }

    our_join -> (u32, u32, u32) {
        join!(add(1, 1), add(2, 2), async { add(3, 3).await + slow(1).await.unwrap_or(9) })
    }

    our_try_join -> bool {
        composer_sdk::try_join!(slow(1), slow(4), async { Ok(add(1, 1).await) }).is_err()
    }

    our_select -> Vec<u32> {
        let mut all = vec![];
        for n in 0..10 {
            select! {
                x = add(n, 1) => all.push(x),
                x = slow(n) => all.push(x.unwrap_or(7)),
                _ = sleep(Duration::from_secs(1)) => all.push(99),
            }
        }
        all
    }

    our_select_over_blocks -> Vec<u32> {
        let mut all = vec![];
        for n in 0..10 {
            select! {
                x = async { add(n, 1).await + add(n, 2).await } => all.push(x),
                x = async { slow(n).await } => { all.push(x.unwrap_or(7)); }
            }
        }
        all
    }

    a_branch_that_is_kept -> Vec<u32> {
        let (mut all, mut kept) = (vec![], add(100, 1));
        for n in 0..3 {
            select! {
                x = &mut kept => { all.push(x); break }
                x = add(n, 0) => all.push(x),
            }
        }
        all
    }

    futures_join -> (u32, u32) {
        futures::join!(add(1, 1), async { add(3, 3).await + add(1, 1).await })
    }

    futures_select_biased -> Vec<u32> {
        let (mut one, mut other) = (add(1, 1), slow(2));
        let mut all = vec![];
        loop {
            futures::select_biased! {
                x = one => all.push(x),
                x = other => all.push(x.unwrap_or(7)),
                complete => break,
            }
        }
        all
    }

    join_all_of_few -> Vec<u32> {
        futures::future::join_all((0..10).map(|n| add(n, 1))).await
    }

    join_all_of_many -> Vec<u32> {
        futures::future::join_all((0..50).map(|n| add(n, 1))).await
    }

    unordered_with_steps_in_between -> Vec<u32> {
        let mut calls: FuturesUnordered<_> = (0..40).map(|n| add(n, 1)).collect();
        let mut all = vec![];
        while let Some(x) = calls.next().await {
            all.push(x);
            if x % 7 == 0 {
                all.push(slow(x).await.unwrap_or(0));
                calls.push(add(1000, x));
            }
        }
        all
    }

    select_all -> Vec<u32> {
        let mut calls: Vec<_> = (0..15).map(|n| add(n, 1)).collect();
        let mut all = vec![];
        while !calls.is_empty() {
            let (x, _, rest) = futures::future::select_all(calls).await;
            all.push(x);
            calls = rest;
        }
        all
    }

    buffer_unordered -> Vec<u32> {
        futures::stream::iter(0..30).map(|n| add(n, 1)).buffer_unordered(5).collect().await
    }

    channels_between_branches -> Vec<u32> {
        let (mut tx, rx) = futures::channel::mpsc::channel(1);
        let send = async move {
            for n in 0..5 {
                let x = add(n, 0).await;
                tx.send(x).await.unwrap();
            }
        };
        let receive = rx.then(|x| async move { slow(x).await.unwrap_or(7) }).collect::<Vec<_>>();
        join!(send, receive).1
    }

    tokio_join_and_biased_select -> Vec<u32> {
        let (a, b) = tokio::join!(add(1, 1), async { add(3, 3).await + add(1, 2).await });
        let c = tokio::select! { biased; x = add(1, 1) => x, x = add(2, 2) => x };
        vec![a, b, c]
    }

    tokio_channels -> Vec<u32> {
        let (tx, mut rx) = tokio::sync::mpsc::channel(2);
        let lock = tokio::sync::Mutex::new(0);
        let send = async move {
            for n in 0..5 {
                tx.send(add(n, 1).await).await.unwrap();
            }
        };
        let receive = async {
            let mut all = vec![];
            while let Some(x) = rx.recv().await {
                *lock.lock().await += x;
                all.push(add(x, 1).await);
            }
            all
        };
        tokio::join!(send, receive).1
    }

    boxed_calls_of_different_activities -> u32 {
        let calls = vec![add(1, 1).boxed(), slow(3).map(|x| x.unwrap_or(7)).boxed()];
        futures::future::join_all(calls).await.into_iter().sum()
    }

    numbers_with_gaps -> Vec<u32> {
        let skipped = add(9, 9);
        let mut all = vec![add(1, 1).await];
        if all[0] > 100 {
            all.push(skipped.await);
        }
        all.push(add(3, 3).await);
        all
    }

    timers_and_timeouts -> Vec<bool> {
        let mut all = vec![];
        for n in 0..5 {
            all.push(select! { _ = add(n, 1) => true, _ = sleep(Duration::days(1)) => false });
            sleep(Duration::from_millis(1)).await;
        }
        all
    }

    asked_and_dropped_within_one_poll -> u32 {
        let first = select! { biased = std::future::ready(5) => biased, x = add(1, 1) => x };
        let asked = select! { x = add(1, 1) => x, x = std::future::ready(6) => x };
        first + asked + add(1, 1).await
    }

    randomness -> Vec<u64> {
        let mut dice = workflow::random("dice");
        let mut all = vec![];
        for _ in 0..5 {
            let n = dice.range(0..3) as u32;
            let calls = (0..=n).map(|n| add(n, 1));
            all.push(futures::future::join_all(calls).await.len() as u64);
            all.push(workflow::uuid().as_u128() as u64);
        }
        all
    }
}
