//! What only looks like a look at the world is nobody's business.
#![deny(warnings)]

use std::{
    collections::{BTreeMap, HashMap},
    time::Instant,
};

use composer_sdk::prelude::*;
use futures::future::join_all;

#[path = "../../support/foreign.rs"]
mod foreign;
use foreign::{fastrand, rand::rngs::StdRng, reqwest, tokio};

#[activity]
async fn charge(amount: u32) -> u32 {
    // An activity may do as it likes.
    let began = Instant::now();
    tokio::time::sleep(tokio::time::Duration::from_millis(u64::from(amount))).await;
    u32::try_from(began.elapsed().as_secs()).unwrap_or(0) + fastrand::u32(..)
}

/// Modules and types of the user's own, with names that are known elsewhere.
mod mine {
    pub(crate) mod env {
        pub(crate) fn var(name: &str) -> usize {
            name.len()
        }
    }
    pub(crate) struct Command;
    impl Command {
        pub(crate) fn new(_: u32) -> Self {
            Self
        }
        pub(crate) fn elapsed(&self, n: u32) -> u32 {
            n
        }
    }
    pub(crate) fn now() -> u32 {
        7
    }
}
use mine::{Command, now};

#[workflow]
async fn names(at: std::time::SystemTime) -> usize {
    struct Local;
    impl Local {
        fn now() -> usize {
            1
        }
    }
    let rng = StdRng::seed_from_u64(composer_sdk::workflow::random("seed").next_u64());
    let mut other = fastrand::Rng::with_seed(7);
    let began = composer_sdk::workflow::now();
    let waited = began.duration_since(at).unwrap_or(Duration::ZERO);
    drop((rng, other.u32(..), env!("CARGO_PKG_NAME"), std::env::consts::OS, reqwest::StatusCode::OK));
    Local::now()
        + self::mine::env::var("x")
        + usize::try_from(Command::new(now()).elapsed(3)).unwrap_or(0)
        + waited.subsec_nanos() as usize
}

#[workflow]
async fn ordered(prices: HashMap<String, u32>) -> u32 {
    let sum: u32 = prices.values().sum();
    let sorted: BTreeMap<_, _> = prices.into_iter().collect();
    for price in sorted.values() {
        charge(*price).await;
    }
    let all = join_all(sorted.into_values().map(charge)).await;
    sum + all.len() as u32
}

#[workflow]
async fn waits() -> u32 {
    let first = tokio::select! { biased; n = charge(1) => n };
    let second = select! { n = charge(2) => n, () = sleep(Duration::from_secs(1)) => 0 };
    tokio::task::coop::unconstrained(charge(first + second)).await
}

fn main() {
    drop((names(std::time::UNIX_EPOCH), ordered(HashMap::new()), waits()));
}
