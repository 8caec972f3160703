//! A crash at any moment comes to the same result and the same journal.

use std::{cell::Cell, rc::Rc};

use composer_sdk::{
    prelude::*,
    workflow::{now, random, uuid},
};

use super::shop::*;
use crate::testing::{self, Error as TestError, Testing};

#[test]
fn an_order_survives_a_crash_everywhere() {
    let runs = Cell::new(0);
    let result = testing::crash_everywhere(async |env| {
        runs.set(runs.get() + 1);
        let env = env
            .activities::<(reserve, release, tell)>()
            .mock::<charge>()
            .with(|_, cents| Ok(format!("paid {cents}")))
            .fail::<charge>(1..=2, ShopError::Busy)
            .takes::<tell>(Duration::from_secs(2));
        let run = approved(&env);
        run.result().await
    });
    assert_eq!(result.wait(), Ok(Ok("paid 4900".into())));
    // Signal, reserve, sleep, two failed attempts, charge, tell with the end; and once without a crash.
    assert!(runs.get() >= 1 + 2 + 2 * 6, "{}", runs.get());
}

#[test]
fn a_cancelled_order_survives_a_crash_everywhere() {
    let scenario = async |env: Testing| {
        let env = env.activities::<(reserve, charge, release, tell)>().hang::<charge>(..);
        let run = approved(&env);
        env.advance(Duration::from_secs(5)).await?;
        run.cancel("enough")?;
        let ended = run.result().await?;
        Ok::<_, TestError>((ended, run.status()))
    };
    let (ended, status) = testing::crash_everywhere(scenario).wait().unwrap();
    assert!(ended.is_err());
    assert_eq!(status, crate::Status::Cancelled);
}

#[test]
fn time_and_chance_are_the_same_after_a_crash() {
    #[workflow]
    async fn draws() -> (String, u64, u64) {
        let id = uuid();
        sleep(Duration::from_secs(60)).await;
        tell("x".into()).await;
        let age = now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        (id.to_string(), random("dice").next_u64(), age)
    }
    let drawn = testing::crash_everywhere(async |env| {
        let env = env.fail::<tell_err>(.., ShopError::Busy).activity::<tell>();
        env.start(draws())?.result().await
    });
    drawn.wait().unwrap();
}

#[activity]
async fn tell_err() -> Result<(), ShopError> {
    Ok(())
}

#[test]
fn what_a_crash_changes_is_shown_with_both_sides() {
    let calls = Rc::new(Cell::new(0));
    let counting = async |env: Testing| {
        let calls = calls.clone();
        calls.set(0);
        let env = env.activities::<(reserve, release, tell)>().mock::<charge>().with(move |_, _| {
            // Not what an activity should depend on: how often this process was asked.
            calls.set(calls.get() + 1);
            Ok(format!("call {}", calls.get()))
        });
        approved(&env).result().await
    };
    let checked = std::panic::AssertUnwindSafe(|| testing::crash_everywhere(counting).wait());
    let panic = std::panic::catch_unwind(checked).unwrap_err();
    let words = panic.downcast_ref::<String>().unwrap();
    for part in ["with a crash", "call 1", "call 2", "charge: ok"] {
        assert!(words.contains(part), "no {part:?} in {words}");
    }
}

#[test]
fn an_effect_whose_outcome_was_lost_is_done_again_under_its_number() {
    let env = shop().crash_before_write(2);
    let run = approved(&env);
    assert!(run.result().wait().unwrap().is_ok());
    let reserved: Vec<u32> = env.attempts::<reserve>().iter().map(|attempt| attempt.number()).collect();
    assert_eq!(reserved, [1, 1]);
    assert!(run.journal().contains("reserve: ok"), "{}", run.journal());

    let env = shop().crash_after_write(2);
    assert!(approved(&env).result().wait().unwrap().is_ok());
    assert_eq!(env.attempts::<reserve>().len(), 1);
}

#[test]
fn what_was_under_way_is_cut_off_by_a_crash_and_takes_what_is_left_of_its_time() {
    let env = shop().takes::<charge>(Duration::from_secs(5)).takes::<tell>(Duration::from_secs(2));
    let env = env.crash_after_every_write();
    let before = env.now();
    let run = approved(&env);
    assert!(run.result().wait().unwrap().is_ok());
    // Both are cut off by each write: of the signal they had not begun, of `tell` only `charge` is left.
    assert_eq!((env.attempts::<charge>().len(), env.attempts::<tell>().len()), (2, 1));
    assert_eq!(env.now().duration_since(before).unwrap(), Duration::from_secs(5));
    assert_eq!(run.journal(), ["signal approval", "reserve: ok", "tell: ok", "charge: ok", "completed"]);
}

#[test]
fn a_crash_takes_all_runs_and_what_it_kept_from_beginning_begins_once() {
    let env = shop().crash_before_write(1);
    let race = env.start(sends()).unwrap();
    let run = approved(&env);
    // The first write is the signal of the second run; the first run would have begun its step by then.
    assert!(race.result().wait().unwrap().is_ok());
    assert!(run.result().wait().unwrap().is_ok());
    assert_eq!(env.attempts::<release>().len(), 1);
}

#[workflow]
async fn sends() -> Result<(), ShopError> {
    release(1).await
}

#[test]
fn a_workflow_that_depends_on_memory_is_found_by_eviction() {
    thread_local! {
        static LIVES: Cell<u32> = const { Cell::new(0) };
    }
    #[workflow]
    async fn forgetful() -> Result<u32, ShopError> {
        LIVES.set(LIVES.get() + 1);
        if LIVES.get() > 1 {
            tell("a replay says hello".into()).await;
        }
        release(1).await?;
        sleep(Duration::from_secs(1)).await;
        Ok(LIVES.get())
    }
    let env = shop();
    assert!(env.start(forgetful()).unwrap().result().wait().unwrap().is_ok());
    LIVES.set(0);
    let env = shop().evict_after_every_step();
    let Err(TestError::Stuck { reason, .. }) = env.start(forgetful()).unwrap().result().wait() else {
        panic!("it is not the same in each life")
    };
    let words = "the journal holds activity `release`";
    assert!(reason.contains(words) && reason.contains("the code asked for activity `tell`"), "{reason}");
}
