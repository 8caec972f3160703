//! starting one id many times at the same moment. R-06: signals that come early, together, or last.

use std::{collections::BTreeMap, time::Instant};

use composer_runtime::{Composer, Error, IdPolicy, RunFilter, RunHandle, Status, store::MessageContent};
use composer_sdk::prelude::*;
use composer_tests::kit::{self, step, workflow::interpret};
use futures::{FutureExt, future::join_all};
use serde_json::json;

use super::{scenario, seed, stands, swept};

/// Fifty starts of one id, by both clients in turn.
async fn fifty(
    composers: &[Composer; 2],
    id: &str,
    policy: IdPolicy,
) -> Vec<Result<RunHandle<interpret>, Error>> {
    let starts = (0..50).map(|n| {
        let call = interpret(vec![step(id).into()]);
        composers[n % 2].start(call).id(id).policy(policy).into_future()
    });
    join_all(starts).await
}

/// One of them was the first, and all speak of the same run.
fn one_run(handles: &[RunHandle<interpret>]) -> &RunHandle<interpret> {
    assert_eq!(handles.iter().filter(|run| !run.already()).count(), 1);
    assert!(handles.iter().all(|run| run.run_id() == handles[0].run_id()));
    &handles[0]
}

scenario! {
    async fn r04_fifty_starts_of_one_id_at_once_make_one_run(world) {
        let composers = [world.composer().await, world.composer().await];
        // The first client's process has a worker, which new runs may be handed to at once.
        let worker = kit::worker(&composers[0], &world.setup).start().await.unwrap();
        for id in ["order-1", "order-2", "order-3"] {
            let handles: Result<Vec<_>, _> =
                fifty(&composers, id, IdPolicy::UseExisting).await.into_iter().collect();
            let handles = handles.unwrap();
            let run = one_run(&handles);
            assert_eq!(run.result().await.unwrap().unwrap(), [json!(id)]);
            assert_eq!(world.effects.count(id), 1);
            let filter = RunFilter { id_prefix: Some(id.into()), ..RunFilter::default() };
            assert_eq!(composers[1].list(&filter, None).await.unwrap().len(), 1);
        }
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r04_the_others_are_told_when_the_policy_says_so(world) {
        let composers = [world.composer().await, world.composer().await];
        let worker = kit::worker(&composers[0], &world.setup).start().await.unwrap();
        let (winners, losers): (Vec<_>, Vec<_>) =
            fifty(&composers, "order", IdPolicy::Reject).await.into_iter().partition(Result::is_ok);
        assert_eq!(winners.len(), 1);
        let winner = winners[0].as_ref().unwrap();
        for loser in losers {
            match loser {
                Err(Error::AlreadyExists { id, run_id, .. }) => {
                    assert_eq!((id.as_str(), run_id), ("order", winner.run_id()));
                }
                other => panic!("{other:?}"),
            }
        }
        winner.result().await.unwrap().unwrap();
        assert_eq!(world.effects.count("order"), 1);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r04_an_id_of_a_finished_run_follows_the_policy(world) {
        let composers = [world.composer().await, world.composer().await];
        let worker = kit::worker(&composers[0], &world.setup).start().await.unwrap();
        let start = |policy| composers[1].start(interpret(vec![])).id("order").policy(policy).into_future();
        let first = start(IdPolicy::UseExisting).await.unwrap();
        first.result().await.unwrap().unwrap();

        let same = start(IdPolicy::UseExisting).await.unwrap();
        assert!(same.already() && same.run_id() == first.run_id());
        let refused = start(IdPolicy::Reject).await.unwrap_err();
        assert!(matches!(refused, Error::AlreadyExists { status: Status::Completed, .. }), "{refused:?}");

        // Fifty at once make one new run. It waits for a signal, so that it is open for all of them.
        let again = |n: usize| {
            let call = interpret(vec![kit::wait()]);
            composers[n % 2].start(call).id("order").policy(IdPolicy::NewWhenClosed).into_future()
        };
        let handles: Result<Vec<_>, _> = join_all((0..50).map(again)).await.into_iter().collect();
        let handles = handles.unwrap();
        let second = one_run(&handles);
        assert_ne!(second.run_id(), first.run_id());
        second.signal(&kit::workflow::GO, json!("on")).await.unwrap();
        assert_eq!(second.result().await.unwrap().unwrap(), [json!("on")]);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r04_a_start_whose_answer_was_not_awaited_can_be_repeated(world) {
        let composer = world.composer().await;
        for n in 0..10 {
            let id = format!("order-{n}");
            let start = || composer.start(interpret(vec![])).id(&id).into_future();
            // It may have happened or not; nobody knows.
            let _ = tokio::time::timeout(Duration::from_micros(200 * n), start()).await;
            let run = start().await.unwrap();
            let again = start().await.unwrap();
            assert!(again.already() && again.run_id() == run.run_id());
            let filter = RunFilter { id_prefix: Some(id.clone()), ..RunFilter::default() };
            assert_eq!(composer.list(&filter, None).await.unwrap().len(), 1);
        }
    }
}

/// Who sent it, and which of theirs it was.
type News = (u32, u32);

static NEWS: Signal<News> = Signal::new("news");

#[activity]
async fn read(news: News) -> Result<News> {
    Ok(news)
}

/// Receives that many, and reads each.
#[workflow]
async fn reader(wanted: u32) -> Result<Vec<News>> {
    let mut all = vec![];
    for _ in 0..wanted {
        all.push(read(NEWS.recv().await).await?);
    }
    Ok(all)
}

/// Sends up to three, each when the one before was acknowledged; returns those that were.
async fn send(composer: Composer, run: &RunHandle<reader>, sender: u32, pauses: [u64; 3]) -> Vec<News> {
    let run = composer.get::<reader>(run.workflow_id().as_str()).await.unwrap();
    let mut acknowledged = vec![];
    for (n, pause) in pauses.into_iter().enumerate() {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let news = (sender, n as u32);
        match run.signal(&NEWS, news).await {
            Ok(()) => acknowledged.push(news),
            Err(Error::Closed { status: Status::Completed, .. }) => break,
            Err(other) => panic!("{other}"),
        }
    }
    acknowledged
}

/// Everything that was acknowledged was received or is listed: once each, and in its sender's order.
async fn nothing_is_lost(run: &RunHandle<reader>, acknowledged: [Vec<News>; 2]) {
    let mut all = run.result().await.unwrap().unwrap();
    for message in run.unconsumed().await.unwrap() {
        match message {
            MessageContent::Signal { name, payload } if name == NEWS.name() => {
                all.push(payload.decode::<News>().unwrap());
            }
            other => panic!("{other:?}"),
        }
    }
    let mut by_sender = BTreeMap::<u32, Vec<News>>::from([(0, vec![]), (1, vec![])]);
    for news in all {
        by_sender.get_mut(&news.0).unwrap().push(news);
    }
    assert_eq!(by_sender.into_values().collect::<Vec<_>>(), acknowledged, "run {}", run.run_id());
}

scenario! {
    /// From before the first worker to after the end, by two processes at once.
    async fn r06_every_acknowledged_signal_is_delivered_once_or_listed(world) {
        let mut random = seed();
        let (starter, senders) = (world.composer().await, [world.composer().await, world.composer().await]);
        let runs = (0..200).map(|_| {
            let (wanted, late) = (random.u32(0..=6), random.u64(0..150));
            let pauses = [0, 1].map(|_| [0; 3].map(|_: u64| random.u64(0..30)));
            let (starter, senders) = (&starter, &senders);
            async move {
                tokio::time::sleep(Duration::from_millis(late)).await;
                let run = starter.start(reader(wanted)).await.unwrap();
                let (one, other) = futures::join!(
                    send(senders[0].clone(), &run, 0, pauses[0]),
                    send(senders[1].clone(), &run, 1, pauses[1]),
                );
                nothing_is_lost(&run, [one, other]).await;
            }
        });
        let worker = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let worker = world.worker().await.workflow::<reader>().activity::<read>();
            worker.linger(Duration::from_millis(5)).start().await.unwrap()
        };
        let (_, worker) = futures::join!(join_all(runs), worker);
        swept(world).await;
        worker.shutdown().await.unwrap();
    }
}

/// How long it takes until a waiting run has ended, from the acknowledgement of what it waits for.
async fn wake_up(run: &RunHandle<reader>) -> Duration {
    run.signal(&NEWS, (0, 0)).await.unwrap();
    let sent = Instant::now();
    assert_eq!(run.result().await.unwrap().unwrap(), [(0, 0)]);
    sent.elapsed()
}

scenario! {
    /// The runs are being parked while the signals come, and the database is asked without a hint once a minute.
    async fn r06_no_wake_up_is_lost_between_the_look_and_the_wait(world) {
        let mut random = seed();
        let worker = world.worker().await.workflow::<reader>().activity::<read>();
        let worker = worker.linger(Duration::ZERO).poll(Duration::from_secs(60)).start().await.unwrap();
        let composer = world.composer().await;
        let runs = (0..60).map(|_| {
            let pause = Duration::from_micros(random.u64(0..40_000));
            let composer = composer.clone();
            async move {
                let run = composer.start(reader(1)).await.unwrap();
                tokio::time::sleep(pause).await;
                wake_up(&run).await
            }
        });
        let slowest = join_all(runs).await.into_iter().max().unwrap();
        assert!(slowest < Duration::from_secs(2), "{slowest:?}");
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r06_a_signal_to_a_closed_run_is_refused_and_one_that_nobody_waits_for_is_listed(world) {
        let worker = world.worker().await.workflow::<reader>().activity::<read>().start().await.unwrap();
        let run = world.composer().await.start(reader(2)).await.unwrap();
        run.signal_json("gossip", &json!("psst")).await.unwrap();
        run.signal(&NEWS, (0, 0)).await.unwrap();
        // Two waits on one name take two signals.
        assert!(run.result().now_or_never().is_none());
        run.signal(&NEWS, (0, 1)).await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), [(0, 0), (0, 1)]);
        stands(&run, Status::Completed).await;

        let refused = run.signal(&NEWS, (0, 2)).await.unwrap_err();
        assert!(matches!(refused, Error::Closed { status: Status::Completed, .. }), "{refused}");
        let left = run.unconsumed().await.unwrap();
        assert!(
            matches!(&left[..], [MessageContent::Signal { name, payload }]
                if name == "gossip" && payload.decode::<String>().unwrap() == "psst"),
            "{left:?}"
        );
        worker.shutdown().await.unwrap();
    }
}
