//! The orders of `orders.csv`: what customers want, how the services behave for each, and how it should end.

use std::fmt;

use composer_sdk::prelude::*;
use serde::Deserialize;

use crate::workflow::Order;

/// An order, and what is to come of it.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) order: Order,
    pub(crate) services: Services,
    pub(crate) expected: End,
}

/// How the services behave for an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Services {
    Ok,
    CardDeclined,
    PaymentFailsTwice,
    ActivationFailsTwice,
    ActivationNeverWorks,
}

/// How an order ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    Completed,
    Declined,
    Failed,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completed => "completed",
            Self::Declined => "declined",
            Self::Failed => "failed",
        })
    }
}

/// The columns of a row that are not the order's own.
#[derive(Deserialize)]
struct Fate {
    services: Services,
    expected: End,
}

/// All of them. The file is compiled in, so the example runs from anywhere.
pub(crate) fn read() -> Result<Vec<Case>> {
    let mut file = csv::Reader::from_reader(include_str!("orders.csv").as_bytes());
    let columns = file.headers()?.clone();
    let cases = file.records().map(|row| {
        let row = row?;
        let order = row.deserialize(Some(&columns))?;
        let Fate { services, expected } = row.deserialize(Some(&columns))?;
        Ok(Case { order, services, expected })
    });
    cases.collect::<Result<_, csv::Error>>().context("orders.csv cannot be read")
}
