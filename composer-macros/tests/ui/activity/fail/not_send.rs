use composer_sdk::activity;
use std::rc::Rc;

#[activity]
async fn charge(amount: u32) -> u32 {
    let shared = Rc::new(amount);
    std::future::ready(()).await;
    *shared
}

fn main() {}
