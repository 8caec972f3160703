use std::time::SystemTime;

use composer_sdk::prelude::*;

#[activity]
async fn charge(amount: u32) -> u32 {
    amount
}

#[workflow]
async fn without_a_reason() {
    #[allow_nondeterminism]
    let began = SystemTime::now();
    #[allow_nondeterminism = ""]
    println!("{began:?} {:?}", SystemTime::now());
}

#[workflow]
async fn for_nothing() -> u32 {
    #[allow_nondeterminism = "it is only shown"]
    charge(1).await
}

#[workflow]
async fn beside_the_place() {
    #[allow_nondeterminism = "it is only shown"]
    let what = "the time";
    println!("{what}: {:?}", SystemTime::now());
}

#[workflow]
#[allow_nondeterminism = "it is only shown"]
async fn on_the_function() {
    println!("{:?}", SystemTime::now());
}

#[activity]
async fn in_an_activity() {
    #[allow_nondeterminism = "it is only shown"]
    let now = SystemTime::now();
    drop(now);
}

fn main() {
    drop((without_a_reason(), for_nothing(), beside_the_place(), on_the_function(), in_an_activity()));
}
