use composer_sdk::prelude::*;

#[path = "../../support/foreign.rs"]
mod foreign;
use foreign::tokio;

#[activity]
async fn charge(amount: u32) -> u32 {
    amount
}

#[workflow]
async fn tasks() -> u32 {
    // What is given to a task is no mistake of its own.
    let other = tokio::spawn(async { std::time::Instant::now() });
    tokio::task::yield_now().await;
    other.await + tokio::task::spawn_blocking(|| std::fs::read("x")).await
}

#[workflow]
async fn timers() -> Option<u32> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    tokio::time::interval(Duration::from_secs(1));
    tokio::time::timeout(Duration::from_secs(1), charge(1)).await
}

#[workflow]
async fn imported_in_the_body() {
    sleep(Duration::from_secs(1)).await;
    {
        use tokio::time::sleep;
        sleep(Duration::from_secs(2)).await;
    }
}

fn main() {
    drop((tasks(), timers(), imported_in_the_body()));
}
