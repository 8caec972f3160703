use composer_sdk::prelude::*;

#[path = "../../support/foreign.rs"]
mod foreign;
use foreign::{futures, tokio};

#[activity]
async fn charge(amount: u32) -> u32 {
    amount
}

#[workflow]
async fn of_tokio() -> u32 {
    tokio::select! { n = charge(1) => n }
}

#[workflow]
async fn of_futures() -> u32 {
    futures::select! { n = charge(1) => n }
}

#[workflow]
async fn imported_in_the_body() -> u32 {
    use tokio::select;
    select! { n = charge(1) => n }
}

fn main() {
    drop((of_tokio(), of_futures(), imported_in_the_body()));
}
