//! M: payloads. R-11: what goes in comes out, or is refused where it was written.

use std::collections::BTreeMap;

use composer_runtime::{Error, RunFilter, Status};
use composer_sdk::{FailureKind, prelude::*};
use composer_tests::kit::{Command, Ledger, wait, workflow::GO};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    projection, scenario,
    world::{details, parked, start, until_status},
};

/// Everything that often does not survive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Oddities {
    greatest: u64,
    beyond_a_double: u64,
    least: i64,
    wide: (i128, u128),
    floats: Vec<f64>,
    unit: (),
    empty: Empty,
    kinds: Vec<Kind>,
    nothing: Option<u8>,
    texts: Vec<String>,
    bytes: Vec<u8>,
    by_number: BTreeMap<i64, bool>,
    by_kind: BTreeMap<Kind, u8>,
    nested: Value,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Empty {}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Kind {
    Plain,
    Other,
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

fn oddities() -> Oddities {
    Oddities {
        greatest: u64::MAX,
        beyond_a_double: (1 << 53) + 1,
        least: i64::MIN,
        wide: (i128::MIN, u128::MAX),
        floats: vec![-0.0, 5e-324, f64::MAX, 0.1],
        unit: (),
        empty: Empty {},
        kinds: vec![Kind::Plain, Kind::Other],
        nothing: None,
        texts: ["", "a\0b", "\u{ffff}", "👩‍👩‍👧", "\u{202e}abc", "e\u{301}", "é", "line\r\nline", "\"\\'"]
            .map(String::from)
            .to_vec(),
        bytes: vec![0, 0xff, 0xc3, 0x28],
        by_number: BTreeMap::from([(-1, true), (i64::MAX, false)]),
        by_kind: BTreeMap::from([(Kind::Other, 7)]),
        nested: nested(100),
    }
}

static ODD: Signal<Oddities> = Signal::new("odd");

#[activity]
async fn hand_on(odd: &Oddities) -> Result<Oddities> {
    Ok(odd.clone())
}

/// Input, argument, result and signal; what the last life saw.
#[workflow]
async fn carry(odd: Oddities) -> Result<Vec<Oddities>> {
    let handed_on = hand_on(&odd).await?;
    let sent = ODD.recv().await;
    GO.recv().await;
    Ok(vec![odd, handed_on, sent])
}

scenario! {
    async fn m4_r11_odd_values_come_out_as_they_went_in_wherever_they_pass(world) {
        let worker = world.worker().await.workflow::<carry>().activity::<hand_on>().start().await.unwrap();
        let run = world.composer().await.start(carry(oddities())).await.unwrap();
        run.signal(&ODD, oddities()).await.unwrap();
        parked(&run).await;
        run.signal(&GO, json!(1)).await.unwrap();
        let values = run.result().await.unwrap().unwrap();
        assert_eq!(values, [oddities(), oddities(), oddities()]);
        for value in &values {
            let bits = |odd: &Oddities| odd.floats.iter().map(|float| float.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(value), bits(&oddities()), "also the sign of zero");
        }
        worker.shutdown().await.unwrap();
    }
}

#[activity(retry(max_attempts = 5, first = "1ms"))]
async fn divide(#[state] ledger: Ledger, a: f64, b: f64) -> Result<f64> {
    ledger.effect("divide", &json!(null)).await?;
    Ok(a / b)
}

/// Two refusals, one in the argument and one in the result, and then a result of its own that is refused.
#[workflow]
async fn reckless() -> Result<f64> {
    let argument = divide(f64::INFINITY, 1.0).await.unwrap_err();
    assert_eq!(argument.failure().unwrap().kind, FailureKind::Encode);
    let result = divide(0.0, 0.0).await.unwrap_err();
    assert_eq!(result.failure().unwrap().kind, FailureKind::Encode);
    Ok(f64::NAN)
}

#[workflow]
async fn weigh(grams: f64) -> Result<f64> {
    Ok(grams)
}

static WEIGHT: Signal<f64> = Signal::new("weight");

scenario! {
    async fn m4_r11_what_cannot_be_written_is_refused_where_it_was_written(world) {
        let worker = world.worker().await.workflow::<reckless>().workflow::<weigh>().activity::<divide>();
        let worker = worker.start().await.unwrap();
        let composer = world.composer().await;

        let refused = composer.start(weigh(f64::NAN)).id("never").await.unwrap_err();
        assert!(refused.to_string().contains("`grams`"), "it names the argument: {refused}");
        assert!(matches!(composer.get::<weigh>("never").await, Err(Error::NoRun { .. })), "no half-made row");
        assert_eq!(composer.list(&RunFilter::default(), None).await.unwrap(), []);

        let run = start(&composer, [wait()]).await;
        let refused = run.signal(&WEIGHT, f64::NEG_INFINITY).await.unwrap_err();
        assert!(matches!(&refused, Error::Run(failure) if failure.kind == FailureKind::Encode), "{refused}");
        assert_eq!(world.db().number("select count(*) from {s}inbox").await, Some(0));
        run.signal(&GO, json!(1)).await.unwrap();
        run.result().await.unwrap().unwrap();

        let run = composer.start(reckless()).await.unwrap();
        let error = run.result().await.unwrap().unwrap_err();
        assert_eq!(error.failure().unwrap().kind, FailureKind::Encode, "{error:#}");
        assert_eq!(
            projection(&run).await,
            ["started reckless", "step_scheduled divide", "step_failed divide #1", "run_failed"],
            "a refused argument is never asked for, a refused result is one attempt"
        );
        assert_eq!(world.effects.count("divide"), 1);
        worker.shutdown().await.unwrap();
    }
}

#[workflow]
async fn deep(value: Value) -> Result<Value> {
    Ok(value)
}

scenario! {
    async fn r11_what_is_accepted_can_be_read_back_however_deep(world) {
        let worker = world.worker().await.workflow::<deep>().start().await.unwrap();
        let composer = world.composer().await;
        let mut accepted = 0;
        for levels in [100, 124, 125, 126, 127, 128, 200, 1_000] {
            match composer.start(deep(nested(levels))).await {
                Ok(run) => {
                    accepted = levels;
                    assert_eq!(run.result().await.unwrap().unwrap(), nested(levels), "{levels} levels");
                }
                Err(refused) => assert!(refused.to_string().contains("127"), "{levels} levels: {refused}"),
            }
        }
        assert!((124..=127).contains(&accepted), "{accepted} levels were accepted");
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r11_texts_of_errors_keep_or_lose_nothing_that_matters(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        let text = "no \0 such \u{ffff} thing \u{202e} é";
        let failed = start(&composer, [Command::Fail(text.into())]).await;
        let error = failed.result().await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), text);
        until_status(&failed, Status::Failed).await;
        assert!(details(&failed, "run_failed").await[0].contains("such"));

        let panicked = start(&composer, [Command::Panic(text.into())]).await;
        until_status(&panicked, Status::Stuck).await;
        let reason = panicked.status().await.unwrap().reason.unwrap();
        assert!(reason.contains("such"), "{reason}");
        panicked.cancel("for \0 good").await.unwrap();
        until_status(&panicked, Status::Cancelled).await;
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn m4_an_id_that_is_none_gets_a_clear_error_and_leaves_nothing(world) {
        let composer = world.composer().await;
        for id in ["", "a\0b", &"x".repeat(513), &"x".repeat(100_000)] {
            let refused = composer.start(deep(json!(1))).id(id).await.unwrap_err();
            assert!(matches!(refused, Error::Id(_)), "{refused}");
            assert!(refused.to_string().len() < 500, "it does not repeat 100 kB");
        }
        assert_eq!(composer.list(&RunFilter::default(), None).await.unwrap(), []);
        let ids = ["é", "e\u{301}", " trailing ", "a/b\\c%_?#&+<>\"'", "..", "1", &"x".repeat(512)];
        for id in ids {
            let run = composer.start(deep(json!(id))).id(id).await.unwrap();
            assert!(!run.already(), "{id:?} is no other id");
            assert_eq!(run.workflow_id().as_str(), id);
        }
        let worker = world.worker().await.workflow::<deep>().start().await.unwrap();
        for id in ids {
            let run = composer.get::<deep>(id).await.unwrap();
            assert_eq!(run.result().await.unwrap().unwrap(), json!(id));
        }
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn m4_input_that_cannot_be_read_and_unknown_types_wait_visibly(world) {
        let worker = world.worker().await.workflow::<deep>().start().await.unwrap();
        let composer = world.composer().await;
        let wrong = composer.start_json("interpret", json!(["no list of commands"])).await.unwrap();
        until_status(&wrong, Status::Stuck).await;
        let reason = wrong.status().await.unwrap().reason.unwrap();
        assert!(reason.contains("`commands`"), "{reason}");
        wrong.cancel("it was a slip").await.unwrap();

        let unknown = composer.start_json("nobody_has_this", json!([])).await.unwrap();
        let row = unknown.status().await.unwrap();
        assert_eq!((row.status, row.hosted), (Status::Pending, false));
        let healthy = composer.start(deep(json!(1))).await.unwrap();
        assert!(healthy.status().await.unwrap().hosted);
        healthy.result().await.unwrap().unwrap();
        worker.shutdown().await.unwrap();
    }
}
