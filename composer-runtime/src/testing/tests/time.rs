//! The clock moves by itself, and only as far as it must.

use composer_sdk::{
    prelude::*,
    workflow::{now, sleep_until},
};

use super::shop::*;
use crate::testing::{Error as TestError, Testing};

#[workflow]
async fn naps(times: u32) -> u64 {
    let before = now();
    for _ in 0..times {
        sleep(Duration::days(30)).await;
    }
    now().duration_since(before).unwrap().as_secs() / 86_400
}

fn days(n: u64) -> Duration {
    Duration::from_secs(86_400 * n)
}

#[test]
fn a_month_of_sleep_is_over_at_once() {
    let env = Testing::new();
    let before = env.now();
    let run = env.start(naps(2)).unwrap();
    assert_eq!(run.result().wait(), Ok(60));
    assert_eq!(env.now().duration_since(before).unwrap(), days(60));
    assert_eq!(run.journal(), ["sleep: set", "sleep: over", "sleep: set", "sleep: over", "completed"]);
}

#[test]
fn a_clock_that_is_advanced_stops_where_it_should() {
    let env = Testing::new();
    let run = env.start(naps(3)).unwrap();
    env.advance(days(30) - Duration::from_micros(1)).wait().unwrap();
    assert_eq!(run.journal(), ["sleep: set"]);
    env.advance(Duration::from_micros(1)).wait().unwrap();
    assert_eq!(run.journal(), ["sleep: set", "sleep: over", "sleep: set"]);
    env.advance(days(100)).wait().unwrap();
    assert_eq!(run.result().wait(), Ok(90));
}

#[test]
fn nothing_happens_before_a_run_is_due() {
    let env = Testing::new();
    let run = env.start(naps(1).after(days(5)).run_timeout(days(31))).unwrap();
    env.advance(days(4)).wait().unwrap();
    assert_eq!(run.status(), crate::Status::Pending);
    let before = env.now();
    assert_eq!(run.result().wait(), Ok(30));
    assert_eq!(env.now().duration_since(before).unwrap(), days(31));
}

#[test]
fn a_run_times_out_by_the_clock() {
    let env = Testing::new();
    let run = env.start(naps(2).run_timeout(days(31))).unwrap();
    let Err(TestError::Run(failure)) = run.result().wait() else { panic!("it takes 60 days") };
    assert_eq!(failure.kind, composer_sdk::FailureKind::TimedOut);
    let expected = ["sleep: set", "sleep: over", "sleep: set", "run timed out", "failed"];
    assert_eq!(run.journal(), expected);
}

#[test]
fn the_clock_begins_where_the_test_says() {
    #[workflow]
    async fn until(at: u64) -> bool {
        sleep_until(std::time::UNIX_EPOCH + Duration::from_secs(at)).await;
        now() == std::time::UNIX_EPOCH + Duration::from_secs(at)
    }
    let env = Testing::new().starting_at(std::time::UNIX_EPOCH + days(10_000));
    assert_eq!(env.start(until(days(10_001).as_secs())).unwrap().result().wait(), Ok(true));
    assert_eq!(env.now(), std::time::UNIX_EPOCH + days(10_001));
}

#[test]
fn a_timer_fires_late_after_an_outage_and_a_cut_off_attempt_begins_again() {
    let env = shop().takes::<charge>(Duration::from_secs(5));
    let (run, nap) = (approved(&env), env.start(naps(1)).unwrap());
    env.settle().wait().unwrap();
    assert_eq!(env.attempts::<charge>().len(), 1);
    env.outage(days(40));
    assert_eq!(nap.result().wait(), Ok(40));
    let before = env.now();
    assert!(run.result().wait().unwrap().is_ok());
    assert_eq!(env.now().duration_since(before).unwrap(), Duration::from_secs(5));
    let attempts = env.attempts::<charge>();
    assert_eq!(attempts.iter().map(|attempt| attempt.number()).collect::<Vec<_>>(), [1, 1]);
}

#[activity(retry(first = "1h", max = "1h", jitter = 0.0), total_timeout = "2h")]
async fn bill() -> Result<()> {
    Ok(())
}

#[workflow]
async fn bills() -> Result<()> {
    bill().await
}

#[test]
fn the_time_for_all_attempts_goes_on_in_an_outage() {
    let env = Testing::new().activity::<bill>().fail::<bill>(1..=1, Error::new("no paper"));
    let run = env.start(bills()).unwrap();
    env.settle().wait().unwrap();
    env.outage(days(1));
    assert!(run.result().wait().unwrap().is_err());
    let words =
        "bill: failed in attempt 2: activity `bill` ran out of time before attempt 2 began (out of time)";
    assert!(run.journal().contains(words), "{}", run.journal());
    assert_eq!(env.attempts::<bill>().len(), 1);
}

#[test]
fn pauses_before_retries_are_those_of_the_seed() {
    let paid = |env: Testing| {
        let env = env.fail::<charge>(1..=3, ShopError::Busy);
        assert!(approved(&env).result().wait().unwrap().is_ok());
        env.now()
    };
    let at = |seed| paid(shop().seed(seed));
    assert_eq!(at(1), at(1));
    assert_ne!(at(1), at(2));
    assert_eq!(paid(shop().seed(1).crash_before_write(3)), at(1));
    let run_id = |seed| Testing::new().seed(seed).start(naps(1)).unwrap().run_id();
    assert_eq!(run_id(3), run_id(3));
    assert_ne!(run_id(3), run_id(4));
}

#[test]
fn a_workflow_without_an_end_is_told_to_be_one() {
    #[workflow]
    async fn ticks() -> u32 {
        loop {
            sleep(Duration::from_secs(1)).await;
        }
    }
    let env = Testing::new();
    let run = env.start(ticks()).unwrap();
    env.advance(Duration::from_secs(10)).wait().unwrap();
    assert_eq!(run.journal().lines().len(), 21);
    let Err(endless @ TestError::Endless { .. }) = run.result().wait() else { panic!("it has no end") };
    assert!(endless.to_string().contains("does a workflow loop for ever?"), "{endless}");
}
