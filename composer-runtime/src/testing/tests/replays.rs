//! Stored journals and the code of today.

use std::sync::atomic::{AtomicU32, Ordering};

use composer_sdk::{prelude::*, workflow::side_effect};

use super::shop::*;
use crate::{
    JournalFile, Status,
    testing::{self, ReplayError, Testing},
};

/// A journal that was exported once: what it says is read and replayed for ever.
const ORDER: &str = include_str!("order.json");

#[test]
fn a_journal_of_another_day_replays() {
    let journal = JournalFile::from_json(ORDER).unwrap();
    assert_eq!(journal.workflow_id.as_str(), "order-102");
    assert!(testing::replay::<buy>(&journal).unwrap().ended);
}

/// As `order.json` was made.
fn exported() -> JournalFile {
    let env = shop().fail::<charge>(1..=1, ShopError::Busy);
    let run = env.start(buy(order()).id("order-102")).unwrap();
    env.advance(Duration::from_secs(90)).wait().unwrap();
    run.signal(&APPROVAL, Decision::Yes).unwrap();
    run.result().wait().unwrap().unwrap();
    run.export()
}

#[test]
fn an_exported_run_comes_back_and_replays_to_its_end() {
    let exported = exported();
    assert_eq!(JournalFile::from_json(&exported.to_json()).as_ref(), Ok(&exported));
    assert!(testing::replay::<buy>(&exported).unwrap().ended);
}

#[test]
fn an_open_run_replays_to_what_it_waits_for() {
    let env = shop();
    let run = env.start(buy(order())).unwrap();
    env.settle().wait().unwrap();
    let replayed = testing::replay::<buy>(&run.export()).unwrap();
    assert!(!replayed.ended);
    assert_eq!((replayed.open, replayed.signals), (vec!["sleep".into()], vec!["approval".into()]));
}

/// The same workflow, as it was changed since.
mod changed {
    use super::*;

    #[workflow(name = "buy")]
    pub(super) async fn without_the_first(order: Order) -> Result<String, ShopError> {
        charge(&order, 1).await
    }

    #[workflow(name = "buy")]
    pub(super) async fn with_more(order: Order) -> Result<String, ShopError> {
        let receipt = super::super::shop::buy_body(order).await?;
        tell("one more".into()).await;
        Ok(receipt)
    }

    #[workflow(name = "buy")]
    pub(super) async fn with_another_value(order: Order) -> Result<String, ShopError> {
        let receipt = super::super::shop::buy_body(order).await?;
        Ok(receipt.to_uppercase())
    }

    #[workflow(name = "buy")]
    pub(super) async fn with_other_input(orders: Vec<u32>) -> Result<String, ShopError> {
        drop(orders);
        Ok(String::new())
    }
}

#[test]
fn changed_code_is_told_with_both_sides() {
    let journal = exported();
    let Err(ReplayError::Mismatch(mismatch)) = testing::replay::<changed::without_the_first>(&journal) else {
        panic!("a step is missing")
    };
    assert_eq!(mismatch.recorded.name, "reserve");
    assert_eq!(mismatch.asked.as_ref().map(|asked| &*asked.name), Some("charge"));

    let goes_on = testing::replay::<changed::with_more>(&journal).unwrap_err();
    assert_eq!(goes_on, ReplayError::GoesOn { recorded: Status::Completed, open: vec!["tell".into()] });

    let otherwise = testing::replay::<changed::with_another_value>(&journal).unwrap_err().to_string();
    let words = "the run had ended with the value \"102 paid 4900\" (Completed), and the code ends with the value \
                 \"102 PAID 4900\" (Completed)";
    assert_eq!(otherwise, words);

    let input = testing::replay::<changed::with_other_input>(&journal).unwrap_err();
    assert!(matches!(input, ReplayError::Stuck(_)), "{input}");

    let wrong = testing::replay::<super::children::two_orders>(&journal).unwrap_err();
    assert!(wrong.to_string().contains("`#[workflow(name = \"buy\")]`"), "{wrong}");
}

#[test]
fn a_run_that_was_cancelled_replays_to_its_cancellation_and_one_closed_without_its_code_to_its_journal() {
    let env = shop();
    let run = env.start(buy(order())).unwrap();
    env.settle().wait().unwrap();
    run.cancel("no").unwrap();
    assert!(run.result().wait().unwrap().is_err());
    assert!(testing::replay::<buy>(&run.export()).unwrap().ended);

    let run = Testing::new().start(buy(order()).after(Duration::from_secs(1))).unwrap();
    run.cancel("no").unwrap();
    assert!(!testing::replay::<buy>(&run.export()).unwrap().ended);
}

#[test]
fn a_side_effect_runs_once_in_a_test_and_never_in_a_replay() {
    static RAN: AtomicU32 = AtomicU32::new(0);
    #[workflow]
    async fn takes(order: Order) -> Result<u32, ShopError> {
        let taken = side_effect(|| RAN.fetch_add(1, Ordering::SeqCst)).await;
        tell(order.number).await;
        side_effect(|| RAN.fetch_add(1, Ordering::SeqCst)).await;
        Ok(taken)
    }
    let env = shop().evict_after_every_step();
    let run = env.start(takes(order())).unwrap();
    assert_eq!(run.result().wait(), Ok(Ok(0)));
    let ended = run.export();
    assert!(testing::replay::<takes>(&ended).unwrap().ended);
    // Where it is the next thing to happen.
    let entries = ended.entries[..2].to_vec();
    let open = JournalFile { entries, end: None, status: Status::Running, ..ended };
    assert_eq!(testing::replay::<takes>(&open).unwrap().open, ["side_effect"]);
    assert_eq!(RAN.load(Ordering::SeqCst), 2);
    assert_eq!(run.journal(), ["side_effect: ok", "tell: ok", "side_effect: ok", "completed"]);
}
