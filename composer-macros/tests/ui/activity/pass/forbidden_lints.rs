//! What stands beside the function never needs an `allow`, so lints may be forbidden.
#![forbid(warnings)]
#![forbid(unsafe_code, non_camel_case_types, missing_docs, unreachable_pub, unused, nonstandard_style, future_incompatible)]

use composer_sdk::{activity, select, workflow, Result};

/// Charges.
#[activity(retry(max_attempts = 3), timeout = "1s")]
async fn charge_card(order: String, amount: &u32, (a, _): (u8, u8)) -> Result<u32> {
    Ok(*amount + order.len() as u32 + u32::from(a))
}

#[activity]
async fn none() {}

#[activity(blocking)]
fn blocks(#[state] prefix: &String, n: u32) -> String {
    format!("{prefix}{n}")
}

#[workflow]
async fn buy(order: String) -> Result<u32> {
    let text = blocks(1).await;
    none().await;
    select! {
        amount = charge_card(order, &1, (1, 2)) => Ok(amount? + text.len() as u32),
        () = none() => Ok(0),
    }
}

fn main() {
    drop(buy("x".into()));
}
