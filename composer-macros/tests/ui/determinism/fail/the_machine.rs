use std::{env, fs, fs::File, process};

use composer_sdk::prelude::*;

#[path = "../../support/foreign.rs"]
mod foreign;
use foreign::tokio;

#[workflow]
async fn files() -> bool {
    let there = File::open("stock.json").is_ok() && fs::read_to_string("stock.json").is_ok();
    std::fs::write("log", "x").is_ok() && tokio::fs::read("stock.json").await.is_empty() && there
}

#[workflow]
async fn environment() -> Result<String> {
    let folder = std::env::current_dir()?;
    Ok(format!("{} {}", folder.display(), env::var("HOME")?))
}

#[workflow]
async fn programs() -> bool {
    let mut line = String::new();
    tokio::signal::ctrl_c().await;
    std::io::stdin().read_line(&mut line).is_ok() && process::Command::new(line).status().is_ok()
}

fn main() {
    drop((files(), environment(), programs()));
}
