//! What the tests are about: an order that is reserved, approved, charged and sent.

use composer_sdk::prelude::*;
use serde::{Deserialize, Serialize};

use crate::testing::{TestRun, Testing};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) number: String,
    pub(super) cents: u32,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
pub(super) enum ShopError {
    #[error("declined")]
    Declined,
    #[error("busy")]
    Busy,
    #[error(transparent)]
    Engine(#[from] Failure),
}

impl ShopError {
    fn may_heal(&self) -> bool {
        *self != Self::Declined
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Decision {
    Yes,
    No,
}

pub(super) static APPROVAL: Signal<Decision> = Signal::new("approval");

#[activity]
pub(super) async fn reserve(order: &Order) -> Result<u32, ShopError> {
    Ok(order.cents / 100)
}

#[activity(retry(max_attempts = 4, first = "1s", on = ShopError::may_heal), timeout = "10s")]
pub(super) async fn charge(order: &Order, cents: u32) -> Result<String, ShopError> {
    Ok(format!("{} paid {cents}", order.number))
}

#[activity]
pub(super) async fn release(seat: u32) -> Result<(), ShopError> {
    let _ = seat;
    Ok(())
}

#[activity]
pub(super) async fn tell(words: String) {
    drop(words);
}

#[workflow]
pub(super) async fn buy(order: Order) -> Result<String, ShopError> {
    buy_body(order).await
}

/// For workflows that do a little more.
pub(super) async fn buy_body(order: Order) -> Result<String, ShopError> {
    let seat = reserve(&order).await?;
    compensate(release(seat));
    let decision = select! {
        decision = APPROVAL.recv() => decision,
        () = sleep(Duration::days(2)) => Decision::No,
    };
    if decision == Decision::No {
        return Err(ShopError::Declined);
    }
    let (receipt, ()) = join!(charge(&order, order.cents), tell(format!("{} is on its way", order.number)));
    receipt
}

pub(super) fn order() -> Order {
    Order { number: "102".into(), cents: 4_900 }
}

/// The real activities.
pub(super) fn shop() -> Testing {
    Testing::new().activities::<(reserve, charge, release, tell)>()
}

/// A run whose order is approved.
pub(super) fn approved(env: &Testing) -> TestRun<buy> {
    let run = env.start(buy(order())).unwrap();
    run.signal(&APPROVAL, Decision::Yes).unwrap();
    run
}
