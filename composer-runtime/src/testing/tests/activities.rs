//! Who plays an activity, and what comes of it.

use std::{cell::RefCell, rc::Rc, time::Instant};

use composer_sdk::{activity, prelude::*};

use super::shop::*;
use crate::testing::{Error as TestError, Testing};

#[test]
fn real_activities_run_and_the_typed_result_comes_back() {
    let env = shop();
    let run = approved(&env);
    assert_eq!(run.result().wait(), Ok(Ok("102 paid 4900".into())));
    assert_eq!(run.journal(), ["signal approval", "reserve: ok", "charge: ok", "tell: ok", "completed"]);
}

#[test]
fn a_stand_in_gets_the_declared_arguments_and_is_recorded() {
    let seen = Rc::new(RefCell::new(vec![]));
    let record = seen.clone();
    let env = shop().mock::<charge>().with(move |order, cents| {
        record.borrow_mut().push(order.clone());
        assert_eq!(activity::attempt(), 1);
        Ok(format!("a stand-in took {cents}"))
    });
    let run = approved(&env);
    assert_eq!(run.result().wait(), Ok(Ok("a stand-in took 4900".into())));
    assert_eq!(*seen.borrow(), [order()]);
    let attempts = env.attempts::<charge>();
    assert_eq!((attempts.len(), attempts[0].number(), attempts[0].run_id()), (1, 1, run.run_id()));
    assert_eq!(attempts[0].args(|order, cents| (order.number.clone(), cents)), ("102".into(), 4_900));
    assert!(env.attempts::<release>().is_empty());
}

#[test]
fn a_declared_error_is_judged_as_in_production() {
    let env = shop().mock::<charge>().with(|_, _| Err(ShopError::Declined));
    let run = approved(&env);
    assert_eq!(run.result().wait(), Ok(Err(ShopError::Declined)));
    let journal = run.journal();
    assert!(journal.contains("charge: failed: declined (not retryable)"), "{journal}");
    assert!(journal.contains("undo release: ok"), "{journal}");
    assert_eq!(env.attempts::<release>()[0].args(|seat| seat), 49);
}

#[test]
fn chosen_attempts_fail_whoever_plays() {
    let env = shop().fail::<charge>(1..=2, ShopError::Busy);
    let run = approved(&env);
    assert_eq!(run.result().wait(), Ok(Ok("102 paid 4900".into())));
    let journal = run.journal();
    assert!(journal.contains("charge: attempt 2 failed: busy"), "{journal}");
    assert!(journal.contains("charge: ok in attempt 3"), "{journal}");

    let env = shop().fail::<charge>(.., ShopError::Busy);
    let run = approved(&env);
    assert_eq!(run.result().wait(), Ok(Err(ShopError::Busy)));
    assert!(
        run.journal().contains("charge: failed in attempt 4: busy (attempts used up)"),
        "{}",
        run.journal()
    );
    assert_eq!(env.attempts::<charge>().len(), 4);
}

#[test]
fn a_panic_is_a_failed_attempt() {
    let env = shop().mock::<charge>().with(|_, _| match activity::attempt() {
        1 => panic!("no terminal"),
        _ => Ok("paid".into()),
    });
    let run = approved(&env);
    assert_eq!(run.result().wait(), Ok(Ok("paid".into())));
    let words = "charge: attempt 1 failed: activity `charge` panicked in attempt 1: no terminal";
    assert!(run.journal().contains(words), "{}", run.journal());
}

#[test]
fn an_attempt_that_hangs_or_takes_too_long_times_out() {
    let hangs = shop().hang::<charge>(1..=1);
    let slow = shop().takes::<charge>(Duration::from_secs(11));
    for (env, charged) in [(hangs, true), (slow, false)] {
        let run = approved(&env);
        assert_eq!(run.result().wait().unwrap().is_ok(), charged);
        let words = "charge: attempt 1 failed: activity `charge` timed out after 10s in attempt 1";
        assert!(run.journal().contains(words), "{}", run.journal());
        let tries = env.attempts::<charge>();
        assert!(tries[1].at().duration_since(tries[0].at()).unwrap() >= Duration::from_secs(10));
    }
}

#[activity(timeout = "none")]
async fn endless() -> u32 {
    1
}

#[workflow]
async fn waits_for_endless() -> u32 {
    endless().await
}

#[test]
fn an_attempt_that_hangs_without_a_timeout_is_told_and_can_be_cancelled() {
    let env = Testing::new().hang::<endless>(..);
    let run = env.start(waits_for_endless()).unwrap();
    let Err(waits @ TestError::Waits(_)) = run.result().wait() else { panic!("it hangs") };
    assert!(waits.to_string().contains("an attempt of `endless` that hangs (give it a `timeout`"), "{waits}");
    run.cancel("").unwrap();
    assert!(matches!(run.result().wait(), Err(TestError::Run(_))));
    assert_eq!(run.journal(), ["cancel requested", "cancelled"]);
}

#[workflow]
async fn race() -> Result<String, ShopError> {
    select! {
        paid = charge(&order(), 1) => paid.map(|_| "paid".into()),
        () = sleep(Duration::from_secs(3)) => Ok("gone".into()),
    }
}

#[test]
fn who_wins_a_race_is_what_the_test_says() {
    for (takes, wins) in [(2, "paid"), (5, "gone")] {
        let env = shop().takes::<charge>(Duration::from_secs(takes));
        let before = env.now();
        let run = env.start(race()).unwrap();
        assert_eq!(run.result().wait(), Ok(Ok(wins.to_owned())));
        assert_eq!(env.now().duration_since(before).unwrap(), Duration::from_secs(takes.min(3)));
    }
}

#[test]
fn an_activity_that_nobody_plays_is_told_with_what_to_write() {
    let env = Testing::new().activity::<reserve>();
    let run = approved(&env);
    let Err(TestError::Stuck { reason, .. }) = run.result().wait() else { panic!("nobody charges") };
    assert!(
        reason.contains("activity `charge` (called at ") && reason.contains("`.mock::<charge>()"),
        "{reason}"
    );
}

#[activity]
async fn greet(#[state] greeting: &String, name: &str) -> String {
    format!("{greeting}, {name}!")
}

#[workflow]
async fn welcome(name: String) -> String {
    greet(&name).await
}

#[test]
fn activities_get_their_state_and_what_is_missing_is_told_at_the_start() {
    let env = Testing::new().activity::<greet>().state("Hello".to_owned());
    assert_eq!(env.start(welcome("Ada".into())).unwrap().result().wait(), Ok("Hello, Ada!".into()));

    let env = Testing::new().activity::<greet>();
    let Err(TestError::Setup { faults }) = env.start(welcome("Ada".into())) else {
        panic!("it has no state")
    };
    assert!(faults.contains("activity `greet` needs a `#[state]` of type"), "{faults}");
    let env = env.mock::<greet>().with(|name| name.to_uppercase());
    assert_eq!(env.start(welcome("Ada".into())).unwrap().result().wait(), Ok("ADA".into()));
}

#[activity(name = "greet")]
async fn another_greet() {}

#[test]
fn two_activities_of_one_name_are_refused() {
    let env = Testing::new().activity::<another_greet>().mock::<greet>().with(|name| name.into());
    let Err(TestError::Setup { faults }) = env.start(welcome("Ada".into())) else { panic!("they are two") };
    assert!(faults.starts_with("two activities are named `greet`"), "{faults}");
}

#[activity(blocking)]
fn add(a: u32, b: u32) -> u32 {
    a + b
}

#[activity]
async fn slow_double(n: u32) -> u32 {
    tokio::time::sleep(Duration::from_millis(1)).await;
    n * 2
}

#[workflow]
async fn compute() -> u32 {
    let (a, b) = join!(slow_double(1), slow_double(2));
    add(a, b).await
}

#[test]
fn what_waits_for_something_real_runs_without_a_runtime_of_the_test() {
    let env = Testing::new().activities::<(add, slow_double)>();
    let before = env.now();
    assert_eq!(env.start(compute()).unwrap().result().wait(), Ok(6));
    assert_eq!(env.now(), before);
}

#[tokio::test]
async fn what_waits_for_something_real_runs_on_the_runtime_of_the_test() {
    let env = Testing::new().activities::<(add, slow_double)>();
    let (one, other) = (env.start(compute()).unwrap(), env.start(compute()).unwrap());
    assert_eq!(tokio::join!(one.result(), other.result()), (Ok(6), Ok(6)));
}

#[tokio::test]
async fn waiting_in_a_runtime_is_refused_only_when_it_would_block_it() {
    let env = shop();
    assert!(approved(&env).result().wait().unwrap().is_ok());
    let env = Testing::new().activities::<(add, slow_double)>();
    let result = env.start(compute()).unwrap().result();
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| result.wait())).unwrap_err();
    assert!(panic.downcast_ref::<&str>().unwrap().contains("write `.await`"));
}

#[test]
fn awaited_without_any_runtime_an_activity_that_needs_one_fails_in_words() {
    let env = Testing::new().activity::<slow_double>();
    let run = env.start(compute()).unwrap();
    futures::executor::block_on(env.settle()).unwrap();
    assert!(run.journal().lines()[0].outcome.contains("there is no reactor running"), "{}", run.journal());
}

#[tokio::test]
async fn a_wait_may_be_dropped_and_begun_again() {
    let env = Testing::new().activities::<(add, slow_double)>();
    let run = env.start(compute()).unwrap();
    assert!(futures::FutureExt::now_or_never(run.result()).is_none());
    assert_eq!(run.result().await, Ok(6));
    assert_eq!(env.attempts::<slow_double>().len(), 2);
}

#[test]
fn an_activity_may_not_drive_the_environment_that_it_runs_in() {
    let env = shop();
    let run = approved(&env);
    let again = run.clone();
    let env = env.mock::<charge>().with(move |_, _| Ok(format!("{:?}", again.result().wait())));
    assert!(matches!(run.result().wait(), Ok(Err(ShopError::Engine(_)))));
    let words = "an activity drives the environment that it runs in";
    assert!(run.journal().to_string().contains(words), "{}", run.journal());
    drop(env);
}

#[test]
fn a_test_of_a_workflow_takes_a_fraction_of_fifty_milliseconds() {
    let began = Instant::now();
    let env = shop().fail::<charge>(1..=3, ShopError::Busy);
    assert!(approved(&env).result().wait().unwrap().is_ok());
    let took = began.elapsed();
    println!("a test with seven steps and three retries took {took:?}");
    assert!(took < Duration::from_millis(50), "{took:?}");
}
