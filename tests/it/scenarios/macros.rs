//! R-27: ordinary Rust is accepted, and does in a run what the plain function does.
//!
//! What is refused, and with which words, is in `composer-macros/tests/ui`. Here everything that is accepted goes
//! through the engine, live and replayed.

use std::{collections::BTreeMap, path::Path};

use composer_sdk::{Failure, prelude::*};
use composer_tests::kit::workflow::GO;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    scenario,
    world::{parked, until_status},
};

/// Not `Clone`, and not `Copy`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Point {
    x: i32,
    y: i32,
}

/// Judged by its type, whatever it is called.
type Fallible<T> = std::result::Result<T, Broken>;

#[derive(Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
enum Broken {
    #[error("odd: {0}")]
    Odd(u32),
    #[error(transparent)]
    Engine(#[from] Failure),
}

impl From<std::num::ParseIntError> for Broken {
    fn from(_: std::num::ParseIntError) -> Self {
        Broken::Odd(0)
    }
}

#[activity]
#[tracing::instrument]
async fn nothing() {}

#[activity]
async fn unit(_: u32) -> () {}

#[activity]
async fn plain(mut n: u32) -> u32 {
    n += 1;
    n
}

#[activity]
async fn borrowed(point: &Point, text: &str, list: &[u32], path: &Path) -> String {
    format!("{},{} {text} {list:?} {}", point.x, point.y, path.display())
}

#[activity]
async fn patterns((a, b): (u8, u8), Point { x, y }: Point, _ignored: u8, r#type: String) -> String {
    format!("{a}{b}{x}{y}{}", r#type)
}

#[activity]
#[allow(clippy::too_many_arguments)]
async fn twelve(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8, i: u8, j: u8, k: u8, l: u8) -> u8 {
    a + b + c + d + e + f + g + h + i + j + k + l
}

#[activity]
async fn r#match(n: u8) -> u8 {
    if n == 0 {
        return 7;
    }
    n
}

/// Recursion is a plain call.
#[activity]
async fn factorial(n: u64) -> u64 {
    if n < 2 { 1 } else { n * factorial(n - 1).await }
}

#[activity]
async fn with_cfg(#[cfg(not(any()))] a: u8, #[cfg(any())] b: Missing, c: &str) -> String {
    #[cfg(any())]
    let _ = b;
    format!("{a}{c}")
}

/// `?` with a conversion, an alias of `Result`, an inner async block, a local that is dropped before the await.
#[activity(retry(max_attempts = 1))]
async fn halve(text: String) -> Fallible<u32> {
    let n = {
        let not_send = std::rc::Rc::new(text);
        not_send.parse::<u32>()?
    };
    let half = async move { if n % 2 == 0 { Ok(n / 2) } else { Err(Broken::Odd(n)) } };
    half.await
}

#[activity(blocking)]
fn on_a_thread(words: Vec<String>) -> BTreeMap<usize, String> {
    words.into_iter().enumerate().collect()
}

#[activity]
async fn stated(#[state] by_value: u64, n: u64, #[state] by_reference: &String) -> String {
    format!("{by_reference} {}", by_value + n)
}

mod shop {
    use composer_sdk::prelude::*;

    /// Says so.
    #[activity(name = "shop.refund")]
    #[must_use = "a refund is checked"]
    #[inline]
    pub(crate) async fn refund(n: u32) -> Result<u32> {
        Ok(n)
    }

    #[deprecated = "use refund"]
    #[activity(name = "shop.old_refund")]
    pub(crate) async fn old_refund(n: u32) -> Result<u32> {
        Ok(n)
    }
}
use shop::refund as pay_back;

macro_rules! from_a_macro {
    ($name:ident, $ty:ty, $body:block) => {
        #[activity]
        async fn $name(_: $ty) -> Result<$ty> $body
    };
}
from_a_macro!(made, u16, { Ok(3) });

/// An ordinary helper: it needs no attribute, and its steps are the workflow's.
async fn twice(n: u32) -> Result<u32> {
    Ok(plain(n).await + plain(n + 1).await)
}

#[workflow]
async fn everything((first, mut second): (u32, u32), text: &str) -> Fallible<Vec<String>> {
    let mut seen = vec![];
    nothing().await;
    unit(1).await;
    second += 1;
    seen.push(format!("{}", plain(first).await));
    seen.push(borrowed(&Point { x: 1, y: -1 }, text, &[1, 2], Path::new("/tmp")).await);
    seen.push(patterns((1, 2), Point { x: 3, y: 4 }, 9, "t".into()).await);
    seen.push(format!("{}", twelve(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1).await));
    seen.push(format!("{}", r#match(0).await));
    seen.push(format!("{}", factorial(5).await));
    seen.push(with_cfg(1, "c").await);
    seen.push(format!("{:?}", halve("8".into()).await));
    seen.push(format!("{:?}", halve("9".into()).await));
    seen.push(format!("{:?}", halve("nine".into()).await));
    seen.push(format!("{:?}", on_a_thread(vec!["a".into(), "b".into()]).await));
    seen.push(stated(2).await);
    seen.push(format!("{:?}", pay_back(3).await.ok()));
    #[allow(deprecated)]
    seen.push(format!("{:?}", shop::old_refund(4).await.ok()));
    seen.push(format!("{:?}", made(1).await.ok()));
    seen.push(format!("{:?}", twice(second).await.ok()));
    GO.recv().await;
    if text.is_empty() {
        return Ok(vec![]);
    }
    let last = halve(seen.len().to_string()).await?;
    seen.push(last.to_string());
    Ok(seen)
}

/// No result at all.
#[workflow]
async fn silent() {
    nothing().await;
}

/// A plain value; there is no place for a failure.
#[workflow(name = "answers")]
pub(crate) async fn answer(question: Option<String>, n: u32) -> Option<u32> {
    question.map(|_| n)
}

scenario! {
    async fn r27_ordinary_rust_does_in_a_run_what_it_does_outside(world) {
        let worker = world.worker().await.workflow::<everything>().workflow::<silent>().workflow::<answer>();
        let worker = worker
            .activity::<nothing>()
            .activity::<unit>()
            .activity::<plain>()
            .activity::<borrowed>()
            .activity::<patterns>()
            .activity::<twelve>()
            .activity::<r#match>()
            .activity::<factorial>()
            .activity::<with_cfg>()
            .activity::<halve>()
            .activity::<on_a_thread>()
            .activity::<stated>()
            .activity::<pay_back>()
            .activity::<shop::old_refund>()
            .activity::<made>();
        let worker = worker.state(40_u64).state(String::from("the sum is")).start().await.unwrap();
        let composer = world.composer().await;
        let run = composer.start(everything((1, 2), "text")).await.unwrap();
        parked(&run).await;
        run.signal(&GO, json!(null)).await.unwrap();
        assert_eq!(
            run.result().await.unwrap().unwrap(),
            [
                "2",
                "1,-1 text [1, 2] /tmp",
                "1234t",
                "12",
                "7",
                "120",
                "1c",
                "Ok(4)",
                "Err(Odd(9))",
                "Err(Odd(0))",
                r#"{0: "a", 1: "b"}"#,
                "the sum is 42",
                "Some(3)",
                "Some(4)",
                "Some(3)",
                "Some(9)",
                "8",
            ]
        );
        let names = run.journal().await.unwrap();
        let names: Vec<_> =
            names.iter().filter(|line| line.kind == "step_scheduled").map(|line| line.name.as_str()).collect();
        assert_eq!(names.len(), 20, "{names:?}");
        assert!(names.contains(&"shop.refund") && names.contains(&"match"), "{names:?}");

        composer.start(silent()).await.unwrap().result().await.unwrap();
        let found = composer.start(answer(Some("why".into()), 3)).await.unwrap();
        assert_eq!(found.result().await.unwrap(), Some(3));
        assert_eq!(composer.start(answer(None, 3)).await.unwrap().result().await.unwrap(), None);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r27_a_workflow_without_a_place_for_a_failure_tells_the_client_so(world) {
        let worker = world.worker().await.workflow::<answer>().start().await.unwrap();
        let composer = world.composer().await;
        let run = composer.start(answer(Some("why".into()), 3)).after(std::time::Duration::from_secs(60));
        let run = run.await.unwrap();
        run.cancel("never mind").await.unwrap();
        until_status(&run, composer_runtime::Status::Cancelled).await;
        let error = run.result().await.unwrap_err();
        assert!(error.to_string().contains("never mind"), "{error}");
        worker.shutdown().await.unwrap();
    }
}

#[test]
fn r27_the_plain_function_is_there_under_run() {
    let text = futures::executor::block_on(borrowed::run(&Point { x: 0, y: 0 }, "b", &[], Path::new("p")));
    assert_eq!(text, "0,0 b [] p");
    assert_eq!(futures::executor::block_on(halve::run("9".into())), Err(Broken::Odd(9)));
    assert_eq!(on_a_thread::run(vec![]), BTreeMap::new());
}
