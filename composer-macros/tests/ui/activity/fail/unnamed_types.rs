use composer_sdk::activity;
use std::fmt::Display;

#[activity]
async fn boxed(value: Box<dyn Display>) -> String {
    value.to_string()
}

#[activity]
async fn by_reference(value: &dyn Display) -> String {
    value.to_string()
}

#[activity]
async fn any(value: impl Display) -> String {
    value.to_string()
}

#[activity]
async fn some() -> impl Display {
    5
}

#[activity]
async fn function(f: fn(u8) -> u8) -> u8 {
    f(1)
}

#[activity]
async fn never() -> ! {
    std::future::pending().await
}

fn main() {}
