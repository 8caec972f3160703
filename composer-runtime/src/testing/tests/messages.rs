//! Signals, cancels, and where a test stops to send them.

use std::{cell::RefCell, rc::Rc};

use composer_sdk::{FailureKind, prelude::*};

use super::shop::*;
use crate::{
    Status,
    testing::{Error as TestError, TestRun, Testing},
};

#[test]
fn a_wait_for_a_signal_that_never_comes_is_an_error_that_names_it() {
    #[workflow]
    async fn waits() -> bool {
        APPROVAL.recv().await == Decision::Yes
    }
    let env = Testing::new();
    let run = env.start(waits().id("order-102")).unwrap();
    let waits = run.result().wait().unwrap_err();
    let words = "the run `order-102` of `waits` waits, and nothing is to come that could wake it: it waits for the signal `approval` \
                 (send it with `run.signal(..)`)";
    assert!(waits.to_string().starts_with(words), "{waits}");
    run.signal(&APPROVAL, Decision::No).unwrap();
    assert_eq!(run.result().wait(), Ok(false));
}

#[test]
fn without_a_signal_the_clock_goes_on_to_the_timeout() {
    let env = shop();
    let run = env.start(buy(order())).unwrap();
    assert_eq!(run.result().wait(), Ok(Err(ShopError::Declined)));
    assert_eq!(run.journal(), ["reserve: ok", "sleep: set", "sleep: over", "undo release: ok", "failed"]);
}

#[test]
fn a_run_stops_right_after_the_step_and_a_cancel_comes_before_the_next() {
    for by_number in [false, true] {
        let env = shop();
        let run = env.start(buy(order())).unwrap();
        run.signal(&APPROVAL, Decision::Yes).unwrap();
        match by_number {
            true => run.until_step(1).wait().unwrap(),
            false => run.until(|journal| journal.contains("reserve: ok")).wait().unwrap(),
        }
        run.cancel("changed my mind").unwrap();
        let Ok(Err(ShopError::Engine(failure))) = run.result().wait() else { panic!("it was cancelled") };
        assert_eq!(
            (failure.kind, failure.message.as_str()),
            (FailureKind::Cancelled, "cancelled: changed my mind")
        );
        assert!(env.attempts::<charge>().is_empty());
        assert_eq!(run.status(), Status::Cancelled);
        assert!(run.journal().contains("cancel requested: changed my mind"), "{}", run.journal());
    }
}

#[test]
fn a_cancel_at_an_instant_stops_what_is_under_way() {
    let env = shop().takes::<charge>(Duration::from_secs(8));
    let run = approved(&env);
    env.advance(Duration::from_secs(5)).wait().unwrap();
    run.cancel("").unwrap();
    assert!(run.result().wait().unwrap().is_err());
    assert!(!run.journal().to_string().contains("charge"), "{}", run.journal());
}

#[test]
fn a_stand_in_may_send_to_the_run_that_it_works_for() {
    let target: Rc<RefCell<Option<TestRun<buy>>>> = Rc::default();
    let sender = target.clone();
    let env = shop().mock::<reserve>().with(move |_| {
        let run = sender.borrow().clone().expect("it was started");
        run.signal(&APPROVAL, Decision::Yes).expect("it is open");
        Ok(7)
    });
    let run = env.start(buy(order())).unwrap();
    target.replace(Some(run.clone()));
    assert!(run.result().wait().unwrap().is_ok());
    target.take();
}

#[test]
fn a_run_that_ends_before_the_place_says_so() {
    let env = shop();
    let run = approved(&env);
    let never = run.until_step(99).wait().unwrap_err();
    assert!(matches!(never, TestError::NeverCame { status: Status::Completed, .. }), "{never}");
    let closed = run.cancel("too late").unwrap_err();
    assert!(closed.to_string().contains("takes no more messages"), "{closed}");
}

#[test]
fn a_run_that_has_not_begun_is_cancelled_without_its_code() {
    let env = Testing::new();
    let run = env.start(buy(order()).after(Duration::from_secs(1))).unwrap();
    run.cancel("never mind").unwrap();
    assert!(run.result().wait().unwrap().is_err());
    assert_eq!(run.journal(), ["cancelled"]);
}

#[test]
fn one_id_is_one_run() {
    let env = shop();
    let (one, same) = (env.start(buy(order()).id("a")).unwrap(), env.start(buy(order()).id("a")).unwrap());
    assert_eq!(one.run_id(), same.run_id());
    #[workflow]
    async fn other() {}
    let wrong = env.start(other().id("a")).unwrap_err();
    assert!(matches!(wrong, TestError::WrongWorkflow { found: "buy", .. }), "{wrong}");
}

#[test]
fn a_workflow_that_waits_for_something_else_is_stuck_in_words() {
    #[workflow]
    async fn foreign() {
        std::future::pending::<()>().await;
    }
    let env = Testing::new();
    let run = env.start(foreign()).unwrap();
    let Err(stuck @ TestError::Stuck { .. }) = run.result().wait() else { panic!("it is stuck") };
    assert!(stuck.to_string().contains("something that is not durable"), "{stuck}");
    assert_eq!(run.status(), Status::Stuck);
    run.cancel("give up").unwrap();
    assert_eq!(run.status(), Status::Cancelled);
}

#[tokio::test]
async fn a_wake_from_outside_is_noticed_while_an_activity_works() {
    #[activity]
    async fn works() {
        std::future::pending::<()>().await;
    }
    #[workflow]
    async fn foreign() {
        #[allow_nondeterminism = "it is what this test is about"]
        let sleep = tokio::time::sleep(Duration::from_millis(1));
        select! {
            () = works() => {}
            () = sleep => {}
        }
    }
    let env = Testing::new().activity::<works>();
    let run = env.start(foreign()).unwrap();
    let Err(TestError::Stuck { reason, .. }) = run.result().await else { panic!("it was woken") };
    assert!(reason.contains("woken by something outside its journal"), "{reason}");
}

#[tokio::test]
async fn a_cancel_reaches_a_real_activity_that_works_meanwhile() {
    #[activity]
    async fn works() -> Result<()> {
        let told = composer_sdk::activity::cancelled();
        let told = tokio::spawn(async move {
            told.await;
            TOLD.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        drop(told);
        std::future::pending().await
    }
    #[workflow]
    async fn body() -> Result<()> {
        works().await
    }
    static TOLD: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let env = Testing::new().activity::<works>();
    let run = env.start(body()).unwrap();
    let cancel = async {
        tokio::task::yield_now().await;
        run.cancel("enough").unwrap();
    };
    let (result, ()) = tokio::join!(run.result(), cancel);
    assert!(result.unwrap().is_err());
    assert_eq!(run.status(), Status::Cancelled);
    tokio::task::yield_now().await;
    assert!(TOLD.load(std::sync::atomic::Ordering::SeqCst));
}

#[test]
fn what_a_run_shows_can_be_seen_also_when_it_forgets() {
    static STAGE: Published<String> = Published::new("stage");
    #[workflow]
    async fn staged() -> Result<()> {
        STAGE.set(&"waiting".into());
        APPROVAL.recv().await;
        STAGE.set(&"done".into());
        Ok(())
    }
    for env in
        [Testing::new(), Testing::new().evict_after_every_step(), Testing::new().crash_after_every_write()]
    {
        let run = env.start(staged()).unwrap();
        assert_eq!(run.published(&STAGE), Ok(None));
        env.settle().wait().unwrap();
        assert_eq!(run.published(&STAGE), Ok(Some("waiting".into())));
        run.signal(&APPROVAL, Decision::Yes).unwrap();
        assert!(run.result().wait().unwrap().is_ok());
        assert_eq!(run.published(&STAGE), Ok(Some("done".into())));
    }
}
