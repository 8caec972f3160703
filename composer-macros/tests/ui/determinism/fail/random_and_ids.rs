use composer_sdk::prelude::*;

#[path = "../../support/foreign.rs"]
mod foreign;
use foreign::{fastrand, rand, rand::thread_rng, uuid::Uuid};

#[workflow]
async fn numbers() -> u32 {
    if rand::random::<bool>() { fastrand::u32(..) } else { rand::rng() + thread_rng() }
}

#[workflow]
async fn ids() -> Vec<u128> {
    vec![Uuid::new_v4(), foreign::uuid::Uuid::now_v7()]
}

fn main() {
    drop((numbers(), ids()));
}
