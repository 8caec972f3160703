//! Tests of a workflow: the code of the book's chapter about them.
//!
//! ```text
//! cargo test -p composer-examples --test testing
//! ```

use composer_runtime::{
    JournalFile, Status,
    testing::{self, Testing},
};
use composer_sdk::prelude::*;
use serde::{Deserialize, Serialize};

// ANCHOR: workflow
#[activity(retry(max_attempts = 4, first = "1s", on = OrderError::may_heal), timeout = "30s")]
async fn charge_card(#[state] bank: &Bank, order: &str, cents: u32) -> Result<String, OrderError> {
    bank.charge(order, cents).await
}

#[activity]
async fn check_stock(order: &str) -> Result<(), OrderError> {
    if order.is_empty() { Err(OrderError::SoldOut) } else { Ok(()) }
}

#[activity]
async fn refund(#[state] bank: &Bank, order: &str) -> Result<(), OrderError> {
    bank.refund(order).await
}

static APPROVAL: Signal<bool> = Signal::new("approval");

#[workflow]
async fn buy(order: String, cents: u32) -> Result<String, OrderError> {
    check_stock(&order).await?;
    let approved = select! {
        approved = APPROVAL.recv() => approved,
        () = sleep(Duration::days(30)) => false,
    };
    if !approved {
        return Err(OrderError::NotApproved);
    }
    compensate(refund(&order));
    charge_card(&order, cents).await
}
// ANCHOR_END: workflow

#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
enum OrderError {
    #[error("sold out")]
    SoldOut,
    #[error("nobody approved it")]
    NotApproved,
    #[error("declined")]
    Declined,
    #[error("the bank is closed")]
    Closed,
    #[error(transparent)]
    Engine(#[from] Failure),
}

impl OrderError {
    fn may_heal(&self) -> bool {
        *self == Self::Closed
    }
}

/// What tests must not talk to.
struct Bank;

impl Bank {
    async fn charge(&self, order: &str, cents: u32) -> Result<String, OrderError> {
        unreachable!("a test charges {cents} for {order}")
    }
    async fn refund(&self, order: &str) -> Result<(), OrderError> {
        unreachable!("a test refunds {order}")
    }
}

// ANCHOR: first
#[tokio::test]
async fn an_approved_order_is_charged() -> Result<()> {
    let env = Testing::new()
        .activity::<check_stock>() // the real one
        .mock::<charge_card>()
        .with(|order, cents| Ok(format!("{order}: {cents}"))) // the declared arguments, the declared result
        .mock::<refund>()
        .with(|_| Ok(()));

    let run = env.start(buy("102".into(), 4_900))?;
    run.signal(&APPROVAL, true)?;
    assert_eq!(run.result().await?, Ok("102: 4900".into()));
    assert_eq!(run.journal(), ["signal approval", "check_stock: ok", "charge_card: ok", "completed"]);
    Ok(())
}
// ANCHOR_END: first

// ANCHOR: wait
/// Everything but the bank.
fn env() -> Testing {
    Testing::new()
        .activity::<check_stock>()
        .mock::<charge_card>()
        .with(|order, cents| Ok(format!("{order}: {cents}")))
        .mock::<refund>()
        .with(|_| Ok(()))
}

#[test]
fn nobody_waits_for_an_approval_for_ever() {
    let env = env();
    let began = env.now();
    let run = env.start(buy("102".into(), 4_900)).unwrap();
    assert_eq!(run.result().wait().unwrap(), Err(OrderError::NotApproved));
    assert_eq!(env.now().duration_since(began).unwrap(), Duration::days(30));
}
// ANCHOR_END: wait

// ANCHOR: clock
#[test]
fn an_approval_on_the_last_day_is_early_enough() {
    let env = env();
    let run = env.start(buy("102".into(), 4_900)).unwrap();
    env.advance(Duration::days(29)).wait().unwrap();
    assert_eq!(run.status(), Status::Running);
    run.signal(&APPROVAL, true).unwrap();
    assert!(run.result().wait().unwrap().is_ok());
}
// ANCHOR_END: clock

// ANCHOR: fail
#[test]
fn a_closed_bank_is_asked_again_and_a_declined_card_is_not() {
    let closed = env().fail::<charge_card>(1..=3, OrderError::Closed);
    let run = closed.start(buy("102".into(), 4_900)).unwrap();
    run.signal(&APPROVAL, true).unwrap();
    assert!(run.result().wait().unwrap().is_ok());
    assert_eq!(closed.attempts::<charge_card>().len(), 4);

    let declined = env().fail::<charge_card>(.., OrderError::Declined);
    let run = declined.start(buy("102".into(), 4_900)).unwrap();
    run.signal(&APPROVAL, true).unwrap();
    assert_eq!(run.result().wait().unwrap(), Err(OrderError::Declined));
    assert!(run.journal().contains("charge_card: failed: declined (not retryable)"));
    assert!(run.journal().contains("undo refund: ok"));
    assert_eq!(declined.attempts::<refund>()[0].args(|order| order.to_owned()), "102");
}
// ANCHOR_END: fail

// ANCHOR: hang
#[test]
fn an_answer_that_does_not_come_is_not_waited_for() {
    let env = env().hang::<charge_card>(1..=1);
    let run = env.start(buy("102".into(), 4_900)).unwrap();
    run.signal(&APPROVAL, true).unwrap();
    assert!(run.result().wait().unwrap().is_ok());
    let words = "charge_card: attempt 1 failed: activity `charge_card` timed out after 30s in attempt 1";
    assert!(run.journal().contains(words), "{}", run.journal());
}
// ANCHOR_END: hang

// ANCHOR: cancel
#[test]
fn an_order_that_is_cancelled_before_the_charge_charges_nothing() {
    let env = env();
    let run = env.start(buy("102".into(), 4_900)).unwrap();
    run.until(|journal| journal.contains("check_stock: ok")).wait().unwrap();
    run.cancel("changed my mind").unwrap();
    assert!(run.result().wait().unwrap().is_err());
    assert_eq!(run.status(), Status::Cancelled);
    assert!(env.attempts::<charge_card>().is_empty());
}

#[test]
fn an_order_that_is_cancelled_during_the_charge_is_refunded() {
    let env = env().takes::<charge_card>(Duration::from_secs(5));
    let run = env.start(buy("102".into(), 4_900)).unwrap();
    run.signal(&APPROVAL, true).unwrap();
    env.advance(Duration::from_secs(3)).wait().unwrap();
    run.cancel("changed my mind").unwrap();
    assert!(run.result().wait().unwrap().is_err());
    assert!(run.journal().contains("undo refund: ok"));
}
// ANCHOR_END: cancel

// ANCHOR: crash
#[tokio::test]
async fn an_order_survives_a_crash_at_any_moment() {
    let order = testing::crash_everywhere(async |env| {
        let env = env
            .activity::<check_stock>()
            .mock::<charge_card>()
            .with(|order, cents| Ok(format!("{order}: {cents}")))
            .fail::<charge_card>(1..=1, OrderError::Closed);
        let run = env.start(buy("102".into(), 4_900))?;
        env.advance(Duration::days(1)).await?;
        run.signal(&APPROVAL, true)?;
        run.result().await
    });
    assert_eq!(order.await, Ok(Ok("102: 4900".into())));
}
// ANCHOR_END: crash

// ANCHOR: twice
#[test]
fn a_charge_whose_answer_was_lost_is_repeated_with_the_same_key() {
    // The signal is the first journal write, the stock the second, the charge the third.
    let env = env().crash_before_write(3);
    let run = env.start(buy("102".into(), 4_900)).unwrap();
    run.signal(&APPROVAL, true).unwrap();
    assert!(run.result().wait().unwrap().is_ok());
    let attempts = env.attempts::<charge_card>();
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[0].idempotency_key(), attempts[1].idempotency_key());
}
// ANCHOR_END: twice

// ANCHOR: replay
#[test]
fn runs_that_were_begun_by_an_earlier_release_go_on() {
    // Exported in production: `std::fs::write(file, handle.export().await?.to_json())`.
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testing");
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let journal = JournalFile::from_json(&std::fs::read_to_string(&path).unwrap()).unwrap();
        testing::replay::<buy>(&journal).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    }
}
// ANCHOR_END: replay
