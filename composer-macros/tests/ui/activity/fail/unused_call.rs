#![deny(unused_must_use)]
use composer_sdk::{activity, workflow};

#[activity]
async fn charge(amount: u32) -> u32 {
    amount
}

#[workflow]
async fn buy() {
    charge(1);
}

fn main() {
    let _ = buy();
}
