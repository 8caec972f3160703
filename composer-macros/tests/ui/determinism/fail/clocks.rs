use std::time::{Instant, SystemTime};

use composer_sdk::prelude::*;

#[path = "../../support/foreign.rs"]
mod foreign;
use foreign::chrono;

#[workflow]
async fn of_the_standard_library() -> u64 {
    let begun = Instant::now();
    let at = std::time::SystemTime::now();
    drop(at);
    begun.elapsed().as_secs()
}

#[workflow]
async fn of_another_crate() -> u64 {
    chrono::Utc::now() + chrono::Local::now()
}

#[workflow]
async fn as_a_value(at: Option<SystemTime>) -> SystemTime {
    at.unwrap_or_else(SystemTime::now)
}

#[workflow]
async fn deep_inside(list: Vec<u32>) {
    let nap = async |_: &u32| println!("at {:?}", SystemTime::now());
    for item in &list {
        nap(item).await;
    }
}

#[workflow]
async fn through_the_back_door() -> u64 {
    let begun = composer_sdk::workflow::now();
    sleep(Duration::from_secs(1)).await;
    begun.elapsed().map_or(0, |d| d.as_secs())
}

fn main() {
    // What is refused is there all the same, so that each mistake is said once.
    drop((of_the_standard_library(), of_another_crate(), as_a_value(None), deep_inside(vec![])));
    drop(through_the_back_door());
}
