//! B: retries and errors: what is retried, and when.

use composer_sdk::{Failure, FailureKind, prelude::*};
use composer_tests::kit::{Ledger, step, workflow::GO};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Answer, projection, scenario,
    world::{details, parked, start, until_line},
};

scenario! {
    async fn b1_a_failed_attempt_is_recorded_and_the_workflow_sees_success_alone(world) {
        let worker = world.at_work().await;
        world.effects.script("flaky", [Answer::Status(503, "not yet")]);
        let run = start(&world.composer().await, [step("flaky").into()]).await;
        assert_eq!(run.result().await.unwrap().unwrap(), [json!("flaky")]);
        assert_eq!(
            projection(&run).await,
            [
                "started interpret",
                "step_scheduled effect",
                "attempt_failed effect #1",
                "step_completed effect #2",
                "run_completed",
            ]
        );
        let error = details(&run, "attempt_failed").await.remove(0);
        assert!(error.contains("not yet") && error.contains("will be retried"), "{error}");
        let attempts: Vec<_> = world.effects.calls("flaky").iter().map(|call| call.attempt).collect();
        assert_eq!(attempts, [1, 2]);
        assert_eq!(world.effects.keys("flaky").len(), 1, "one key for all attempts");
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn b1_an_answer_that_was_lost_is_asked_for_again_under_the_same_key(world) {
        let worker = world.at_work().await;
        world.effects.script("pay", [Answer::Lost, Answer::Value(json!("paid before"))]);
        let run = start(&world.composer().await, [step("pay").into()]).await;
        assert_eq!(run.result().await.unwrap().unwrap(), [json!("paid before")]);
        assert_eq!(world.effects.count("pay"), 2);
        assert_eq!(world.effects.keys("pay").len(), 1);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn b2_when_attempts_are_used_up_the_error_names_activity_count_and_last_message(world) {
        let worker = world.at_work().await;
        let texts = ["first words", "second words", "third words", "last words", "words never said"];
        world.effects.script("down", texts.map(|text| Answer::Status(500, text)));
        let commands = [step("down").attempts(4).first(Duration::from_millis(5)).into()];
        let run = start(&world.composer().await, commands).await;
        let error = format!("{:#}", run.result().await.unwrap().unwrap_err());
        assert!(error.contains("last words"), "{error}");
        assert_eq!(world.effects.count("down"), 4);
        let reason = run.status().await.unwrap().reason.unwrap();
        for words in ["`effect`", "4", "last words"] {
            assert!(reason.contains(words), "{words:?} in {reason:?}");
        }
        assert_eq!(
            projection(&run).await,
            [
                "started interpret",
                "step_scheduled effect",
                "attempt_failed effect #1",
                "attempt_failed effect #2",
                "attempt_failed effect #3",
                "step_failed effect #4",
                "run_failed",
            ]
        );
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn b4_a_fatal_error_is_one_attempt(world) {
        let worker = world.at_work().await;
        world.effects.always("wrong", Answer::Status(400, "no such card"));
        let run = start(&world.composer().await, [step("wrong").into()]).await;
        let error = run.result().await.unwrap().unwrap_err();
        assert!(error.is_permanent(), "{error:#}");
        assert_eq!(world.effects.count("wrong"), 1);
        let failed = details(&run, "step_failed").await;
        assert!(failed[0].contains("not retryable"), "{failed:?}");
        worker.shutdown().await.unwrap();
    }
}

#[derive(Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
enum ChargeError {
    #[error("the card was declined: {reason}")]
    Declined { reason: String },
    #[error(transparent)]
    Engine(#[from] Failure),
}

#[derive(Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
enum PurchaseError {
    #[error("order {order} was not paid")]
    NotPaid { order: u32, because: ChargeError },
    #[error(transparent)]
    Engine(#[from] Failure),
}

#[activity(retry(max_attempts = 2, first = "1ms"))]
async fn charge(euros: u32) -> Result<u32, ChargeError> {
    Err(ChargeError::Declined { reason: format!("{euros} is too much") })
}

#[workflow]
async fn purchase(order: u32) -> Result<u32, PurchaseError> {
    charge(500).await.map_err(|because| PurchaseError::NotPaid { order, because })
}

scenario! {
    async fn b7_the_client_gets_the_workflows_own_error(world) {
        let worker = world.worker().await.workflow::<purchase>().activity::<charge>().start().await.unwrap();
        let run = world.composer().await.start(purchase(7)).await.unwrap();
        let because = ChargeError::Declined { reason: "500 is too much".into() };
        assert_eq!(run.result().await.unwrap(), Err(PurchaseError::NotPaid { order: 7, because }));
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn b9_an_error_that_carries_a_delay_is_waited_for(world) {
        let worker = world.at_work().await;
        world.effects.script("busy", [Answer::RetryAfter(1)]);
        let run = start(&world.composer().await, [step("busy").first(Duration::from_millis(1)).into()]).await;
        run.result().await.unwrap().unwrap();
        let calls = world.effects.calls("busy");
        assert_eq!(calls.len(), 2);
        let waited = calls[1].at - calls[0].at;
        assert!(waited >= Duration::from_secs(1), "{waited:?}");
        worker.shutdown().await.unwrap();
    }
}

/// Its thread cannot be stopped: it returns, too late.
#[activity(blocking, retry(max_attempts = 2, first = "1ms"), timeout = "100ms")]
fn slow_thread() -> Result<u32> {
    std::thread::sleep(Duration::from_millis(400));
    Ok(1)
}

#[workflow]
async fn impatient() -> Result<u32> {
    slow_thread().await
}

scenario! {
    async fn b12_timeouts_are_recorded_as_such_and_late_results_refused(world) {
        let worker =
            world.worker().await.workflow::<impatient>().activity::<slow_thread>().start().await.unwrap();
        let composer = world.composer().await;
        world.effects.always("slow", Answer::Late(Duration::from_millis(600)));
        let slow = step("slow").attempts(2).first(Duration::from_millis(1)).timeout(Duration::from_millis(150));
        let run = start(&composer, [slow.into()]).await;
        let blocking = composer.start(impatient()).await.unwrap();

        let error = run.result().await.unwrap().unwrap_err();
        assert_eq!(error.failure().unwrap().kind, FailureKind::TimedOut, "{error:#}");
        let other = blocking.result().await.unwrap().unwrap_err();
        assert_eq!(other.failure().unwrap().kind, FailureKind::TimedOut, "{other:#}");
        assert_eq!(world.effects.count("slow"), 2);
        worker.shutdown().await.unwrap();

        for (name, lines, run_lines) in [
            ("effect", details(&run, "attempt_failed").await, projection(&run).await),
            ("slow_thread", details(&blocking, "attempt_failed").await, projection(&blocking).await),
        ] {
            assert!(lines[0].contains("timed out"), "{lines:?}");
            let failed = [format!("attempt_failed {name} #1"), format!("step_failed {name} #2"), "run_failed".into()];
            assert_eq!(run_lines[2..], failed, "nothing of the late results");
        }
        assert!(details(&run, "step_failed").await[0].contains("timed out"));
    }
}

scenario! {
    async fn r16_a_delay_really_passes_also_across_a_crash(world) {
        let mut first = world.process();
        world.effects.script("later", [Answer::Status(500, "not now")]);
        let wait = Duration::from_millis(1_500);
        let run = start(&world.composer().await, [step("later").first(wait).attempts(2).into()]).await;
        until_line(&run, "attempt_failed").await;
        first.kill();

        let mut second = world.process();
        assert_eq!(run.result().await.unwrap().unwrap(), [json!("later")]);
        let calls = world.effects.calls("later");
        assert_eq!(calls.iter().map(|call| call.attempt).collect::<Vec<_>>(), [1, 2], "counted once each");
        let waited = calls[1].at - calls[0].at;
        assert!(waited >= wait, "{waited:?}");
        assert!(waited < wait * 2, "the crash does not begin the delay again: {waited:?}");
        second.kill();
    }
}

scenario! {
    async fn r16_one_attempt_is_one_execution(world) {
        let worker = world.at_work().await;
        world.effects.always("once", Answer::Status(500, "no"));
        let run = start(&world.composer().await, [step("once").attempts(1).into()]).await;
        run.result().await.unwrap().unwrap_err();
        assert_eq!(world.effects.count("once"), 1);
        worker.shutdown().await.unwrap();
    }
}

#[derive(Debug, thiserror::Error)]
#[error("outermost")]
struct Wrapped(#[source] Box<dyn std::error::Error + Send + Sync>);

#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
enum Typed {
    #[error("typed")]
    Inner(
        #[from]
        #[source]
        Failure,
    ),
    #[error(transparent)]
    Durable(Error),
}

/// Counts an attempt at the server, then fails in one of the ways to wrap a permanent error.
async fn permanent(ledger: &Ledger, way: &str) -> Result<()> {
    ledger.effect(way, &json!(null)).await?;
    let core = Error::permanent("the heart of it");
    match way {
        "bare" => Err(core),
        "context" => Err(core).context("while doing it").context("while doing all of it"),
        "boxed" => Err(Box::<dyn std::error::Error + Send + Sync>::from(core)).durable(),
        "source" => Err(Wrapped(core.into()))?,
        way => panic!("`{way}`?"),
    }
}

#[activity(retry(max_attempts = 3, first = "1ms"))]
async fn fails_for_good(#[state] ledger: Ledger, way: String) -> Result<()> {
    permanent(&ledger, &way).await
}

#[activity(retry(max_attempts = 3, first = "1ms"))]
async fn fails_typed(#[state] ledger: Ledger) -> Result<(), Typed> {
    permanent(&ledger, "bare").await.map_err(Typed::Durable)
}

#[activity(retry(max_attempts = 3, first = "1ms", on = |error: &String| error.contains("again")))]
async fn fails_by_predicate(#[state] ledger: Ledger) -> Result<(), String> {
    ledger.effect("predicate", &json!(null)).await.map_err(|e| e.to_string())?;
    Err("never".into())
}

#[workflow]
async fn hopeless(ways: Vec<String>) -> Result<Vec<String>> {
    let mut errors = vec![];
    for way in ways {
        let error = fails_for_good(way).await.unwrap_err();
        errors.push(format!("{} {error:#}", error.is_permanent()));
    }
    let typed = fails_typed().await.unwrap_err();
    errors.push(format!("{} {typed}", matches!(&typed, Typed::Durable(e) if e.is_permanent())));
    errors.push(fails_by_predicate().await.unwrap_err());
    GO.recv().await;
    Ok(errors)
}

scenario! {
    async fn r17_a_permanent_mark_survives_wrapping_and_is_one_attempt(world) {
        let worker = world.worker().await.workflow::<hopeless>();
        let worker = worker.activity::<fails_for_good>().activity::<fails_typed>().activity::<fails_by_predicate>();
        let worker = worker.start().await.unwrap();
        let ways = ["bare", "context", "boxed", "source"].map(String::from);
        let run = world.composer().await.start(hopeless(ways.to_vec())).await.unwrap();
        parked(&run).await;
        run.signal(&GO, json!(1)).await.unwrap();
        assert_eq!(
            run.result().await.unwrap().unwrap(),
            [
                "true the heart of it",
                "true while doing all of it: while doing it: the heart of it",
                "true the heart of it",
                "true outermost: the heart of it",
                "true the heart of it",
                "never",
            ],
            "replayed as live"
        );
        let expected = [("boxed", 1), ("context", 1), ("predicate", 1), ("source", 1)];
        let mut counts = world.effects.counts();
        counts.retain(|(name, _)| name != "bare");
        assert_eq!(counts, expected.map(|(name, count)| (name.to_owned(), count)));
        assert_eq!(world.effects.count("bare"), 2, "once in each activity");
        let failed = details(&run, "step_failed").await;
        assert_eq!(failed.len(), 6);
        assert!(failed.iter().all(|detail| detail.contains("not retryable")), "{failed:#?}");
        worker.shutdown().await.unwrap();
    }
}

#[workflow]
async fn careful() -> Result<Value> {
    let failed = fails_retryably().await.map_err(|e| format!("{e:#}"));
    GO.recv().await;
    Ok(json!(failed))
}

#[activity(retry(max_attempts = 2, first = "1ms"))]
async fn fails_retryably(#[state] ledger: Ledger) -> Result<()> {
    ledger.effect("exhausted", &json!(null)).await?;
    Err(Error::new("still no"))
}

scenario! {
    async fn r17_an_exhausted_activity_is_final_and_a_replay_does_not_run_it_again(world) {
        let worker = world.worker().await.workflow::<careful>().activity::<fails_retryably>();
        let worker = worker.start().await.unwrap();
        let run = world.composer().await.start(careful()).await.unwrap();
        parked(&run).await;
        run.signal(&GO, json!(1)).await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), json!({ "Err": "still no" }));
        assert_eq!(world.effects.count("exhausted"), 2);
        assert!(details(&run, "step_failed").await[0].contains("attempts used up"));
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r17_a_cancelled_activity_is_not_a_failed_attempt(world) {
        let worker = world.at_work().await;
        world.effects.hold("held");
        let run = start(&world.composer().await, [step("held").into()]).await;
        world.effects.arrived("held", 1).await;
        run.cancel("not wanted any more").await.unwrap();
        let error = run.result().await.unwrap().unwrap_err();
        assert_eq!(error.failure().unwrap().kind, FailureKind::Cancelled, "{error:#}");
        assert_eq!(
            projection(&run).await,
            ["started interpret", "cancel_requested", "run_cancelled"],
            "no attempt is recorded"
        );
        assert_eq!(world.effects.count("held"), 1);
        worker.shutdown().await.unwrap();
    }
}
