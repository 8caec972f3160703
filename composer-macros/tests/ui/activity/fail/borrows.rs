use composer_sdk::activity;
use std::borrow::Cow;

#[derive(serde::Serialize, serde::Deserialize)]
struct Order(u32);

#[activity]
async fn lifetime<'a>(order: &'a Order) -> u32 {
    order.0
}

#[activity]
async fn is_static(text: &'static str) -> usize {
    text.len()
}

#[activity]
async fn nested(order: Option<&Order>, tags: Vec<&str>) -> usize {
    tags.len() + order.is_some() as usize
}

#[activity]
async fn cow(text: Cow<'_, str>) -> usize {
    text.len()
}

#[activity]
async fn changed(order: &mut Order) {
    order.0 += 1;
}

#[activity]
async fn returned(text: &str) -> &str {
    text
}

fn main() {}
