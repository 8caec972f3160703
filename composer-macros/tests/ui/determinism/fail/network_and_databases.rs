use composer_sdk::prelude::*;

#[path = "../../support/foreign.rs"]
mod foreign;
use foreign::{reqwest, sqlx, tokio};

#[workflow]
async fn network() -> u32 {
    let client = reqwest::Client::new();
    drop((client, std::net::TcpStream::connect("shop:80"), tokio::net::TcpStream::connect("shop:80").await));
    reqwest::get("http://shop").await
}

#[workflow]
async fn databases() -> u32 {
    sqlx::query("select 1") + sqlx::query_as!(u32, "select 1")
}

fn main() {
    drop((network(), databases()));
}
