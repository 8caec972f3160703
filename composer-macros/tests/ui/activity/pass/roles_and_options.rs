//! States, blocking functions, options, attributes of others, and results judged by their type.
#![deny(warnings)]

use std::{
    sync::{Arc, atomic::{AtomicU32, Ordering}},
    time::Duration,
};

use composer_sdk::{
    Activity, Call, Failure, Workflow, activity,
    activity::{States, Verdict},
    workflow,
};

#[path = "../../support/attempt.rs"]
mod attempt;
use attempt::{attempt, attempt_with, text};

/// Not `Clone`.
struct Partner(u32);

trait Clock: Send + Sync {
    fn now(&self) -> u32;
}
impl Clock for Partner {
    fn now(&self) -> u32 {
        self.0 + 1
    }
}

#[activity]
async fn stateful(#[state] clock: Arc<dyn Clock>, n: u32, #[state] partner: &Partner) -> u32 {
    clock.now() * 100 + partner.0 * 10 + n
}

#[activity(blocking, timeout = "none")]
fn blocks(#[state] partner: &Partner, text: &str) -> String {
    format!("{text}{}", partner.0)
}

const ATTEMPTS: u32 = 7;
const TIMEOUT: Duration = Duration::from_secs(3);
const QUEUE: &str = "partner";

fn is_transient(error: &std::num::ParseIntError) -> bool {
    error.to_string().contains("empty")
}

#[derive(Debug, thiserror::Error, serde::Serialize, serde::Deserialize)]
enum Typed {
    #[error("declined")]
    Declined,
    #[error(transparent)]
    Engine(#[from] Failure),
}

#[activity(
    retry(max_attempts = ATTEMPTS, first = "100ms", factor = 1.5, max = "2s", jitter = 0, on = |error| matches!(error, Typed::Engine(_))),
    timeout = TIMEOUT,
    total_timeout = "1h",
    queue = QUEUE,
    name = "tuned.activity",
)]
async fn tuned(fine: bool) -> Result<u32, Typed> {
    if fine { Ok(1) } else { Err(Typed::Declined) }
}

type Aliased = Result<u32, Typed>;
type Text = Result<u32, String>;

#[activity]
async fn aliased(fine: bool) -> Aliased {
    if fine { Ok(1) } else { Err(Typed::Declined) }
}

#[activity]
async fn with_text(text: String) -> Text {
    let number: u32 = text.parse().map_err(|error: std::num::ParseIntError| error.to_string())?;
    Ok(number)
}

#[activity]
async fn any_error(text: &str) -> composer_sdk::Result<u32> {
    Ok(text.parse()?)
}

#[activity]
async fn boxed(text: &str) -> Result<u32, Box<dyn std::error::Error + Send + Sync>> {
    Ok(text.parse()?)
}

static SEEN: AtomicU32 = AtomicU32::new(0);

/// Documented.
#[tracing::instrument(skip_all, fields(id = order))]
#[activity]
#[inline]
async fn instrumented_above(order: u32) -> u32 {
    SEEN.fetch_add(1, Ordering::Relaxed);
    order
}

#[activity]
#[tracing::instrument(level = "debug", ret)]
#[must_use = "it is money"]
#[deprecated = "charge instead"]
#[allow(unused_variables)]
async fn instrumented_below(order: u32, _: u8, (a, b): (u8, u8)) -> u32 {
    order
}

#[workflow(version = 3, name = "buy")]
async fn buy_package(order: &str, #[cfg(any())] gone: u32) -> Aliased {
    // Only asked for, not run: what a workflow does is the machine's tests.
    aliased(order.is_empty()).await
}

#[workflow]
async fn fib(n: u64) -> u64 {
    if n < 2 { n } else { fib(n - 1).await + fib(n - 2).await }
}

fn states() -> States {
    let mut states = States::default();
    states.insert(Partner(2));
    states.insert::<Arc<dyn Clock>>(Arc::new(Partner(4)));
    states
}

fn main() {
    assert_eq!(text(&attempt_with::<stateful>("[3]", states()).outcome), "523");
    assert_eq!(text(&attempt_with::<blocks>(r#"["x"]"#, states()).outcome), r#""x2""#);
    const { assert!(blocks::BLOCKING && !stateful::BLOCKING) };
    assert_eq!(blocks::run(&Partner(9), "y"), "y9");
    assert_eq!(blocks::options().timeout, None);
    assert_eq!(stateful::needs().len(), 2);

    let options = tuned::options();
    assert_eq!((options.timeout, options.total_timeout), (Some(TIMEOUT), Some(Duration::from_secs(3600))));
    assert_eq!(options.queue.as_deref(), Some("partner"));
    let retry = options.retry;
    assert_eq!((retry.max_attempts, retry.first, retry.max), (7, Duration::from_millis(100), Duration::from_secs(2)));
    assert_eq!((retry.factor, retry.jitter), (1.5, 0.0));
    assert_eq!(attempt_with::<tuned>("[false]", States::default()).retry, Verdict::Final);
    assert!(is_transient(&"".parse::<u32>().unwrap_err()));

    assert_eq!(attempt::<tuned>("[true]"), "1");
    assert_eq!(attempt::<aliased>("[true]"), "1");
    assert_eq!(attempt::<aliased>("[false]"), r#"!"Declined""#);
    let failed = attempt_with::<aliased>("[false]", States::default());
    assert_eq!((failed.error.as_str(), failed.retry), ("declined", Verdict::Retry { after: None }));
    assert_eq!(attempt::<with_text>(r#"["x"]"#), r#"!"invalid digit found in string""#);
    assert!(attempt::<any_error>(r#"["x"]"#).contains("invalid digit"));
    assert!(attempt::<boxed>(r#"["x"]"#).contains("invalid digit"));
    assert_eq!(attempt::<boxed>(r#"["5"]"#), "5");

    assert_eq!(attempt::<instrumented_above>("[5]"), "5");
    #[allow(deprecated)]
    drop::<Call<instrumented_below>>(instrumented_below(1, 2, (3, 4)));
    assert_eq!(attempt::<instrumented_below>("[6,0,[1,2]]"), "6");
    assert_eq!(SEEN.load(Ordering::Relaxed), 1);

    assert_eq!((<buy_package as Workflow>::VERSION, <fib as Workflow>::VERSION), (3, 0));
    let body = <fib as Workflow>::body(&composer_sdk::payload::Payload::from(b"[1]".as_slice()));
    assert_eq!(futures::executor::block_on(body.expect("the arguments fit")), 1);
    let _: (Call<buy_package>, Call<fib>) = (buy_package("x"), fib(3));

    // A missing argument at the end reads as `null`, another one says which.
    assert!(attempt::<any_error>("[]").contains("the argument `text`"), "{}", attempt::<any_error>("[]"));
    assert!(attempt::<tuned>("[5]").contains("the argument `fine` cannot be read as `bool`"));
}
