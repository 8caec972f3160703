use std::thread;

use composer_sdk::prelude::*;

#[path = "../../support/foreign.rs"]
mod foreign;
use foreign::tokio;

#[activity]
async fn charge(amount: u32) -> u32 {
    amount
}

#[workflow]
async fn threads() {
    thread::sleep(Duration::from_secs(1));
    let other = std::thread::spawn(|| std::time::Instant::now());
    println!("{:?}", std::thread::current().id());
    drop(other);
}

#[workflow]
async fn held() -> u32 {
    let n = futures::executor::block_on(charge(1));
    n + tokio::runtime::Handle::current().block_on(charge(2))
}

fn main() {
    drop((threads(), held()));
}
