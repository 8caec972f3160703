//! The purchase of a data package: this is all that the business has to write.
//!
//! Five steps at services that can fail at any moment, in a process that can die at any moment. Each awaited call is
//! a step: its result is journaled before the next one begins, and is never asked for again. What can be undone is
//! undone when a later step fails for good.

use composer_runtime::WorkerBuilder;
use composer_sdk::{http, prelude::*};
use serde::{Deserialize, Serialize};

/// What a customer wants.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) number: String,
    pub(crate) customer: String,
    pub(crate) phone: String,
    pub(crate) package: String,
    pub(crate) cents: u32,
    pub(crate) currency: String,
}

/// What a customer gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Confirmation {
    pub(crate) order: String,
    pub(crate) charge: Booking,
}

/// What a service has booked, by the service's own id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Booking {
    pub(crate) id: String,
}

// ANCHOR: error
/// Why a purchase did not come to its end.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum PurchaseError {
    /// The bank said no, and would say no again: the error below is a permanent one, so nothing is retried.
    #[error("the card was declined")]
    Declined(#[source] http::Error),
    /// A service failed. The error knows whether another attempt may help, and the engine asks it.
    #[error(transparent)]
    Service(http::Error),
    /// What only the engine can say: timed out, cancelled.
    #[error(transparent)]
    Engine(#[from] Failure),
}

impl From<http::Error> for PurchaseError {
    fn from(error: http::Error) -> Self {
        match error.status() {
            Some(402) => Self::Declined(error),
            _ => Self::Service(error),
        }
    }
}
// ANCHOR_END: error

// ANCHOR: services
/// Where the services are: given to the worker once, lent to every activity that asks for it.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) url: String,
}

impl Services {
    /// One request. It carries the activity's `Idempotency-Key`: the same on every attempt, and after a crash.
    async fn post(&self, path: &str, body: &impl Serialize) -> Result<Booking, PurchaseError> {
        Ok(http::post(format!("{}/{path}", self.url)).json(body).send().await?.json().await?)
    }
}
// ANCHOR_END: services

/// Sets the amount aside.
#[activity(timeout = "5s")]
async fn reserve_balance(#[state] services: &Services, order: &Order) -> Result<Booking, PurchaseError> {
    services.post("reservations", order).await
}

// ANCHOR: activity
/// Takes the money: tried up to five times, after a pause of up to 50 ms, then 100 ms, then 200 ms …
#[activity(retry(max_attempts = 5, first = "50ms"), timeout = "5s")]
async fn charge_card(#[state] services: &Services, order: &Order) -> Result<Booking, PurchaseError> {
    services.post("charges", order).await
}
// ANCHOR_END: activity

/// Switches the package on.
#[activity(retry(max_attempts = 4, first = "100ms"), timeout = "5s")]
async fn activate_package(#[state] services: &Services, order: &Order) -> Result<Booking, PurchaseError> {
    services.post("activations", order).await
}

/// Tells the customer.
#[activity(timeout = "5s")]
async fn send_sms(#[state] services: &Services, order: &Order) -> Result<Booking, PurchaseError> {
    services.post("texts", order).await
}

/// Tells the auditors.
#[activity(timeout = "5s")]
async fn write_audit_log(#[state] services: &Services, order: &Order) -> Result<Booking, PurchaseError> {
    services.post("audits", order).await
}

/// Undoes [`reserve_balance`].
#[activity(timeout = "5s")]
async fn release_balance(#[state] services: &Services, held: &Booking) -> Result<Booking, PurchaseError> {
    services.post("releases", held).await
}

/// Undoes [`charge_card`].
#[activity(timeout = "5s")]
async fn refund_card(#[state] services: &Services, charge: &Booking) -> Result<Booking, PurchaseError> {
    services.post("refunds", charge).await
}

// ANCHOR: workflow
/// Buys a package. An ordinary async function; the process that began it need not be the one that ends it.
#[workflow]
pub(crate) async fn buy_package(order: Order) -> Result<Confirmation, PurchaseError> {
    let reservation = reserve_balance(&order).await?;

    let charge = match charge_card(&order).await {
        Ok(charge) => charge,
        Err(error) => {
            release_balance(&reservation).await?;
            return Err(error);
        }
    };
    if let Err(error) = activate_package(&order).await {
        refund_card(&charge).await?;
        release_balance(&reservation).await?;
        return Err(error);
    }

    send_sms(&order).await?;
    write_audit_log(&order).await?;
    Ok(Confirmation { order: order.number, charge })
}
// ANCHOR_END: workflow

// ANCHOR: host
/// Tells a worker all that it needs to carry purchases out.
pub(crate) fn host(worker: WorkerBuilder, services: Services) -> WorkerBuilder {
    worker
        .workflow::<buy_package>()
        .activity::<reserve_balance>()
        .activity::<charge_card>()
        .activity::<activate_package>()
        .activity::<send_sms>()
        .activity::<write_audit_log>()
        .activity::<release_balance>()
        .activity::<refund_card>()
        .state(services)
}
// ANCHOR_END: host
