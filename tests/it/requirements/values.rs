//! what goes in comes out, or is refused where it goes in.

use std::collections::BTreeMap;

use composer_runtime::{Composer, Error as ClientError, RunFilter, RunHandle, Status, Worker};
use composer_sdk::{Failure, error::FailureKind, prelude::*};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{World, scenario, stands};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Empty;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Kind {
    One,
    Two,
}

/// A value of everything that is easily lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Values {
    integers: (u64, i64, u64, i128, u128),
    /// Above 2^53, where a float rounds.
    odd: u64,
    floats: Vec<f64>,
    empty: ((), Empty, Kind),
    options: (Option<()>, Option<Option<u32>>, Option<Option<u32>>),
    texts: Vec<String>,
    characters: Vec<char>,
    by_number: BTreeMap<i64, String>,
    by_kind: BTreeMap<Kind, u128>,
    bytes: Vec<u8>,
}

fn values() -> Values {
    Values {
        integers: (u64::MAX, i64::MIN, 0, i128::MIN, u128::MAX),
        odd: (1 << 53) + 1,
        floats: vec![-0.0, 5e-324, f64::MAX, f64::MIN_POSITIVE, 0.1 + 0.2, 1e21, 123_456_789.123_456_78],
        empty: ((), Empty, Kind::Two),
        options: (None, None, Some(Some(1))),
        texts: [
            "",
            "\0",
            "\u{ffff}",
            "👩‍👩‍👧",
            "\u{202e}rtl\u{202c}",
            "e\u{301} é",
            "\r\n\t\"\\/",
            "\u{1b}[31m",
            "null",
            "</script>",
        ]
        .map(String::from)
        .to_vec(),
        characters: vec!['\0', '\u{ffff}', '\u{10ffff}', '"'],
        by_number: BTreeMap::from([
            (i64::MIN, "least".into()),
            (-1, String::new()),
            (i64::MAX, "most".into()),
        ]),
        by_kind: BTreeMap::from([(Kind::One, 1), (Kind::Two, u128::MAX)]),
        bytes: (0..=255).collect(),
    }
}

/// Equal to the last bit: `==` does not see the sign of a zero.
#[track_caller]
fn same(values: &Values) {
    assert_eq!(values, &self::values());
    assert_eq!(format!("{values:?}"), format!("{:?}", self::values()));
}

#[derive(Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
enum Refused {
    #[error("they are refused")]
    Values(Box<Values>),
    #[error(transparent)]
    Engine(#[from] Failure),
}

static SENT: Signal<Values> = Signal::new("sent");

#[activity]
async fn give_back(values: Values) -> Result<Values, Refused> {
    Ok(values)
}

#[activity(retry(max_attempts = 1))]
async fn refuse(values: &Values) -> Result<(), Refused> {
    Err(Refused::Values(Box::new(values.clone())))
}

/// Takes them every way there is; the two waits are where a replay begins.
#[workflow]
async fn carry(input: Values, well: bool) -> Result<Values, Refused> {
    let result = give_back(input.clone()).await?;
    let first = SENT.recv().await;
    let Err(Refused::Values(error)) = refuse(&result).await else { panic!("no error") };
    let second = SENT.recv().await;
    for values in [&input, &result, &first, &*error, &second] {
        same(values);
    }
    if well { Ok(result) } else { Err(Refused::Values(error)) }
}

async fn at_work(world: &World) -> (Composer, Worker) {
    let worker = world.worker().await.workflow::<carry>().activity::<give_back>().activity::<refuse>();
    let worker = worker.workflow::<carry_deep>().activity::<give_back_deep>();
    let worker = worker.workflow::<number>().workflow::<number_of>().workflow::<bad_argument>();
    let worker = worker.workflow::<bad_result>().activity::<not_a_number>().workflow::<bad_end>();
    (world.composer().await, worker.linger(Duration::ZERO).start().await.unwrap())
}

scenario! {
    async fn r11_every_value_is_the_same_at_every_border_live_and_replayed(world) {
        let (composer, worker) = at_work(world).await;
        for well in [true, false] {
            let run = composer.start(carry(values(), well)).await.unwrap();
            for _ in 0..2 {
                stands(&run, Status::Parked).await;
                run.signal(&SENT, values()).await.unwrap();
            }
            match run.result().await.unwrap() {
                Ok(values) if well => same(&values),
                Err(Refused::Values(values)) if !well => same(&values),
                other => panic!("{other:?}"),
            }
        }
        worker.shutdown().await.unwrap();
    }
}

/// Brackets in brackets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Deep(Vec<Deep>);

fn deep(levels: usize) -> Deep {
    (1..levels).fold(Deep(vec![]), |inner, _| Deep(vec![inner]))
}

#[activity]
async fn give_back_deep(deep: Deep) -> Result<Deep> {
    Ok(deep)
}

#[workflow]
async fn carry_deep(deep: Deep) -> Result<Deep> {
    give_back_deep(deep).await
}

scenario! {
    /// One level less than the limit is for the list of arguments.
    async fn r11_what_is_nested_deeply_is_read_back_or_refused_before_anything_is_stored(world) {
        let (composer, worker) = at_work(world).await;
        for levels in [1, 100, 125, 126] {
            let run = composer.start(carry_deep(deep(levels))).await.unwrap();
            assert_eq!(run.result().await.unwrap().unwrap(), deep(levels));
        }
        let before = composer.list(&RunFilter::default(), None).await.unwrap().len();
        for levels in [127, 128, 1_000] {
            let error = composer.start(carry_deep(deep(levels))).await.unwrap_err();
            assert!(error.to_string().contains("nested deeper than 127"), "{error}");
        }
        assert_eq!(composer.list(&RunFilter::default(), None).await.unwrap().len(), before);
        worker.shutdown().await.unwrap();
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Reading {
    value: f64,
    seen: Option<Option<u32>>,
}

const GOOD: Reading = Reading { value: 1.0, seen: None };

/// What cannot be written, and the place that the error names.
fn bad_readings() -> [(Reading, &'static str); 4] {
    [
        (Reading { value: f64::NAN, ..GOOD }, "value"),
        (Reading { value: f64::INFINITY, ..GOOD }, "value"),
        (Reading { value: f64::NEG_INFINITY, ..GOOD }, "value"),
        (Reading { seen: Some(None), ..GOOD }, "seen"),
    ]
}

static READING: Signal<Reading> = Signal::new("reading");

#[workflow]
async fn number(reading: Reading) -> Result<Reading> {
    let _ = reading;
    Ok(READING.recv().await)
}

scenario! {
    async fn r11_a_client_is_refused_with_the_path_and_nothing_is_stored(world) {
        let (composer, worker) = at_work(world).await;
        let run = composer.start(number(GOOD)).await.unwrap();
        for (bad, place) in bad_readings() {
            let error = composer.start(number(bad.clone())).await.unwrap_err().to_string();
            assert!(error.contains("reading") && error.contains(place), "{error}");
            match run.signal(&READING, bad).await {
                Err(ClientError::Run(failure)) => {
                    assert_eq!(failure.kind, FailureKind::Encode);
                    assert!(failure.message.contains(place), "{failure}");
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(composer.list(&RunFilter::default(), None).await.unwrap().len(), 1);
        run.signal(&READING, GOOD).await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), GOOD);
        worker.shutdown().await.unwrap();
    }
}

#[activity]
async fn not_a_number(over: f64) -> Result<f64> {
    Ok(over / 0.0)
}

#[workflow]
async fn bad_argument() -> Result<f64> {
    not_a_number(f64::NAN).await
}

#[workflow]
async fn bad_result() -> Result<f64> {
    not_a_number(0.0).await
}

#[workflow]
async fn bad_end() -> Result<f64> {
    Ok(f64::NAN)
}

/// The run fails for a value that cannot be written, which is said with these words.
async fn is_refused<W>(run: RunHandle<W>, words: &[&str]) -> Vec<&'static str>
where
    W: composer_runtime::Returns<Output = Result<f64>>,
{
    let error = run.result().await.unwrap().unwrap_err();
    assert_eq!(error.failure().map(|failure| failure.kind), Some(FailureKind::Encode), "{error:#}");
    for word in words {
        assert!(format!("{error:#}").contains(word), "{error:#}");
    }
    assert_eq!(stands(&run, Status::Failed).await.status, Status::Failed);
    run.journal().await.unwrap().iter().map(|line| line.kind).collect()
}

scenario! {
    async fn r11_a_run_is_refused_at_the_call_that_made_the_value(world) {
        let (composer, worker) = at_work(world).await;
        let argument = is_refused(composer.start(bad_argument()).await.unwrap(), &["argument `over`", "NaN"]).await;
        assert_eq!(argument, ["started", "run_failed"], "no step was asked for");
        let result = is_refused(composer.start(bad_result()).await.unwrap(), &["NaN"]).await;
        assert_eq!(result, ["started", "step_scheduled", "step_failed", "run_failed"], "it was tried once");
        let end = is_refused(composer.start(bad_end()).await.unwrap(), &["NaN"]).await;
        assert_eq!(end, ["started", "run_failed"]);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    /// What is no number of JSON's common form is refused, not rounded.
    async fn r11_a_client_without_the_code_is_told_exact_numbers_or_an_error(world) {
        let (composer, worker) = at_work(world).await;
        let exact = composer.start_json("number_of", json!([u64::MAX])).await.unwrap();
        assert_eq!(exact.result().await.unwrap(), Ok(json!(u64::MAX)));
        let large = composer.start(number_of(u128::MAX)).id("large").await.unwrap();
        assert_eq!(large.result().await.unwrap().unwrap(), u128::MAX);
        match composer.get_json("large").await.unwrap().result().await {
            Ok(value) => assert_eq!(value.unwrap().to_string(), u128::MAX.to_string()),
            Err(refused) => assert!(refused.to_string().contains("number"), "{refused}"),
        }
        worker.shutdown().await.unwrap();
    }
}

#[workflow]
async fn number_of(number: u128) -> Result<u128> {
    Ok(number)
}
