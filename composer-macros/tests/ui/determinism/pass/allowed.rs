//! Where `#[allow_nondeterminism]` may stand: wherever an attribute can, on stable Rust.
#![deny(warnings)]
#![allow(clippy::let_underscore_future)]

// ANCHOR: allowed
use std::time::Instant;

use composer_sdk::prelude::*;

#[workflow]
async fn import(files: Vec<String>) -> Result<usize> {
    #[allow_nondeterminism = "it is only logged, and no step depends on it"]
    let began = Instant::now();
    for file in &files {
        load(file.clone()).await?;
    }
    println!("{} files, this process began {:?} ago", files.len(), began.elapsed());
    Ok(files.len())
}
// ANCHOR_END: allowed

#[activity]
async fn load(file: String) -> Result<usize> {
    Ok(file.len())
}

struct Row {
    at: Instant,
}

fn note<T>(_: T) {}

#[workflow]
async fn on_statements(n: u32) -> u64 {
    let mut last;
    #[allow_nondeterminism = "a test"]
    last = Instant::now();
    note(last);
    #[allow_nondeterminism = "a test"]
    note(Instant::now());
    #[allow_nondeterminism = "a test"]
    {
        last = Instant::now();
        note(last);
    }
    #[allow_nondeterminism = "a test"]
    if n == 0 {
        note(Instant::now());
    } else {
        note(n);
    }
    #[allow_nondeterminism = "a test"]
    for _ in 0..n {
        note(Instant::now());
    }
    #[allow_nondeterminism = "a test"]
    while n > 3 {
        note(Instant::now());
    }
    #[allow_nondeterminism = "a test"]
    println!("{:?}", Instant::now());
    #[allow_nondeterminism = "a test"]
    async { note(Instant::now()) }.await;
    let mut sum = 0;
    #[allow_nondeterminism = "a test"]
    sum += Instant::now().elapsed().as_secs();
    #[allow_nondeterminism = "a test"]
    Instant::now().elapsed().as_secs().max(sum)
}

#[workflow]
async fn on_expressions(n: u32) -> u64 {
    let first = #[allow_nondeterminism = "a test"]
    Instant::now();
    note(
        #[allow_nondeterminism = "a test"]
        Instant::now(),
    );
    let row = Row {
        #[allow_nondeterminism = "a test"]
        at: Instant::now(),
    };
    match n {
        #[allow_nondeterminism = "a test"]
        0 => note(Instant::now()),
        _ => note(row.at),
    }
    let later = #[allow_nondeterminism = "a test"]
    || Instant::now();
    note((first, later));
    println!(
        "{:?}",
        #[allow_nondeterminism = "a test"]
        Instant::now()
    );
    1 + #[allow_nondeterminism = "a test"]
    Instant::now().elapsed().as_secs()
}

fn main() {
    drop((import(vec![]), on_statements(1), on_expressions(1)));
}
