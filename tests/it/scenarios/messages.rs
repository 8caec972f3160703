//! G: signals and waits. R-06: signals that come early, together, or last.

use std::{future::IntoFuture, time::Duration};

use composer_runtime::{Error, IdPolicy, MessageContent, Status};
use composer_sdk::prelude::*;
use composer_tests::kit::{self, Command, step, wait, workflow::GO};
use futures::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Answer, projection, scenario,
    world::{details, parked, start, until_line, until_lines},
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Decision {
    Yes { by: String },
    No,
}

static DECISION: Signal<Decision> = Signal::new("decision");

#[workflow]
async fn decide() -> Result<Vec<Decision>> {
    Ok(vec![DECISION.recv().await, DECISION.recv().await])
}

scenario! {
    async fn g1_a_wait_ends_with_the_typed_value_that_was_sent(world) {
        let worker = world.worker().await.workflow::<decide>().start().await.unwrap();
        let run = world.composer().await.start(decide()).await.unwrap();
        parked(&run).await;
        let yes = Decision::Yes { by: "Ada".into() };
        run.signal(&DECISION, yes.clone()).await.unwrap();
        until_line(&run, "signal").await;
        run.signal(&DECISION, Decision::No).await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), [yes, Decision::No], "two waits take two");
        assert_eq!(
            projection(&run).await,
            ["started decide", "signal decision", "signal decision", "run_completed"]
        );
        assert_eq!(run.unconsumed().await.unwrap(), []);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn g2_a_signal_from_before_the_wait_is_delivered_at_the_wait(world) {
        let composer = world.composer().await;
        // Before there is any worker, and again while the workflow is busy with something else.
        world.effects.hold("busy");
        let run = start(&composer, [step("busy").into(), wait(), wait()]).await;
        run.signal(&GO, json!("before the first worker")).await.unwrap();
        let worker = world.at_work().await;
        world.effects.arrived("busy", 1).await;
        run.signal(&GO, json!("before the wait")).await.unwrap();
        world.effects.open("busy");
        let values = run.result().await.unwrap().unwrap();
        assert_eq!(values, [json!("busy"), json!("before the first worker"), json!("before the wait")]);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn g4_a_wait_that_timed_out_stays_so_whatever_comes_late(world) {
        let worker = world.at_work().await;
        world.effects.hold("after");
        let run = start(&world.composer().await, [Command::Wait { ms: Some(300) }, step("after").into()]).await;
        world.effects.arrived("after", 1).await;
        run.signal(&GO, json!("too late")).await.unwrap();
        until_line(&run, "signal").await;
        worker.shutdown().await.unwrap();
        world.effects.open("after");

        let worker = world.at_work().await;
        assert_eq!(run.result().await.unwrap().unwrap(), [json!("nothing"), json!("after")]);
        let late = MessageContent::Signal { name: "go".into(), payload: GO.encode(&json!("too late")).unwrap() };
        assert_eq!(run.unconsumed().await.unwrap(), [late], "it is kept and listed");
        worker.shutdown().await.unwrap();
    }
}

#[workflow]
async fn collects(count: u32) -> Result<Vec<u64>> {
    let mut all = vec![];
    for _ in 0..count {
        all.push(GO.recv().await.as_u64().unwrap_or(0));
    }
    Ok(all)
}

scenario! {
    async fn r06_signals_of_one_sender_keep_their_order_across_parking(world) {
        let setup = kit::Setup { linger_ms: 0, ..world.setup.clone() };
        let worker = kit::worker(&world.composer().await, &setup).workflow::<collects>().start().await.unwrap();
        let run = world.composer().await.start(collects(60)).await.unwrap();
        for n in 0..60_u64 {
            run.signal(&GO, json!(n)).await.unwrap();
            if n == 19 || n == 39 {
                // Now and then it has become a row by the time that the next one comes.
                parked(&run).await;
            }
        }
        assert_eq!(run.result().await.unwrap().unwrap(), (0..60).collect::<Vec<_>>());
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r06_a_signal_sent_at_the_very_end_is_seen_refused_or_listed(world) {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let worker = world.at_work().await;
        let composer = world.composer().await;
        let runs = join_all((0..60).map(|n| {
            let name = format!("last-{n}");
            world.effects.always(&name, Answer::Late(Duration::from_millis(30)));
            start(&composer, [step(name).into()])
        }))
        .await;
        let sends = runs.iter().map(|run| {
            let pause = Duration::from_micros(random.u64(0..120_000));
            async move {
                tokio::time::sleep(pause).await;
                let sent = run.signal(&GO, json!(1)).await;
                run.result().await.unwrap().unwrap();
                let listed = run.unconsumed().await.unwrap().len();
                match sent {
                    Ok(()) => assert_eq!(listed, 1, "accepted, so it is listed: the run never waits"),
                    Err(Error::Closed { .. }) => assert_eq!(listed, 0),
                    Err(other) => panic!("{other}"),
                }
            }
        });
        join_all(sends).await;
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r06_a_cancel_is_a_message_like_any_other_and_says_why(world) {
        let worker = world.at_work().await;
        let run = start(&world.composer().await, [wait()]).await;
        parked(&run).await;
        run.cancel("the customer left").await.unwrap();
        assert!(run.result().await.unwrap().is_err());
        assert_eq!(details(&run, "cancel_requested").await, ["the customer left"]);
        assert!(matches!(run.cancel("again").await, Err(Error::Closed { status: Status::Cancelled, .. })));
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn g10_whoever_comes_first_starts_the_run_and_no_signal_is_lost(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        let add = |n: u32| {
            let call = composer_tests::kit::workflow::interpret(vec![wait(), wait()]);
            composer.start(call).id("cart").with_signal(&GO, json!(n)).into_future()
        };
        let (one, two) = (add(1).await.unwrap(), add(2).await.unwrap());
        assert_eq!((one.already(), two.already(), one.run_id() == two.run_id()), (false, true, true));
        assert_eq!(one.result().await.unwrap().unwrap(), [json!(1), json!(2)]);
        assert!(matches!(add(3).await, Err(Error::Closed { .. })), "by the default policy the closed run has the id");

        // Ten at once, on an id that closes now and then: each signal is received by some run, once.
        let started = join_all((0..10).map(|n| {
            let call = composer_tests::kit::workflow::interpret(vec![wait()]);
            let start = composer.start(call).id("bell").policy(IdPolicy::NewWhenClosed);
            start.with_signal(&GO, json!(n)).into_future()
        }))
        .await;
        let mut seen = vec![];
        for run in started {
            let run = run.unwrap();
            let mut values = run.result().await.unwrap().unwrap();
            let unconsumed = run.unconsumed().await.unwrap();
            values.extend(unconsumed.into_iter().map(|message| match message {
                MessageContent::Signal { payload, .. } => payload.decode().unwrap(),
                other => panic!("{other:?}"),
            }));
            seen.extend(values.into_iter().map(|value| (run.run_id(), value.as_u64().unwrap())));
        }
        seen.sort();
        seen.dedup();
        let mut values: Vec<_> = seen.into_iter().map(|(_, value)| value).collect();
        values.sort_unstable();
        assert_eq!(values, (0..10).collect::<Vec<_>>());
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn g12_polling_goes_on_at_the_next_check_after_a_kill(world) {
        let mut first = world.process();
        world.effects.script("check", [Answer::Value(json!(false)), Answer::Value(json!(false))]);
        world.effects.always("check", Answer::Value(json!("found")));
        let poll = Command::PollUntil { name: "check".into(), ms: 1_000, times: None };
        let run = start(&world.composer().await, [poll]).await;
        until_lines(&run, "timer_set", 2).await;
        first.kill();

        let mut second = world.process();
        assert_eq!(run.result().await.unwrap().unwrap(), [json!("found")]);
        let at: Vec<_> = world.effects.calls("check").iter().map(|call| call.at).collect();
        assert_eq!(at.len(), 3, "what had answered is not asked again");
        for pause in at.windows(2).map(|at| at[1] - at[0]) {
            assert!(pause >= Duration::from_millis(1_000), "{pause:?}");
        }
        let check = ["step_scheduled effect", "step_completed effect #1"];
        let pause = ["timer_set sleep", "timer_fired"];
        let expected: Vec<_> = ["started interpret"]
            .into_iter()
            .chain([check, pause, check, pause, check].into_iter().flatten())
            .chain(["run_completed"])
            .collect();
        assert_eq!(projection(&run).await, expected);
        second.kill();
    }
}

scenario! {
    async fn g12_polling_that_gives_up_says_so(world) {
        let worker = world.at_work().await;
        world.effects.always("check", Answer::Value(json!(false)));
        let poll = Command::PollUntil { name: "check".into(), ms: 1, times: Some(2) };
        let run = start(&world.composer().await, [poll]).await;
        let value = run.result().await.unwrap().unwrap().remove(0);
        assert!(value.as_str().unwrap().starts_with("not yet, at 2 checks in "), "{value}");
        assert_eq!(world.effects.count("check"), 2);
        worker.shutdown().await.unwrap();
    }
}
