use std::collections::{HashMap, HashSet};

use composer_sdk::prelude::*;
use futures::{future::join_all, stream::FuturesUnordered};

#[activity]
async fn charge(name: String, amount: u32) -> u32 {
    drop(name);
    amount
}

#[workflow]
async fn in_a_loop(prices: HashMap<String, u32>) -> u32 {
    let mut sum = 0;
    for (name, price) in &prices {
        sum += charge(name.clone(), *price).await;
    }
    sum
}

#[workflow]
async fn all_at_once(names: Vec<String>) -> Vec<u32> {
    let names: HashSet<_> = names.into_iter().collect();
    join_all(names.iter().map(|name| charge(name.clone(), 1))).await
}

#[workflow]
async fn one_by_one(names: Vec<String>) -> usize {
    let mut counts = HashMap::new();
    names.into_iter().for_each(|name| *counts.entry(name).or_insert(0) += 1);
    let mut calls = vec![];
    for (name, count) in counts.drain() {
        calls.push(charge(name, count));
    }
    join_all(calls).await.len()
}

#[workflow]
async fn as_a_set_of_futures(names: HashSet<String>) -> usize {
    let all: FuturesUnordered<_> = names.into_iter().map(|name| charge(name, 1)).collect();
    all.len()
}

fn main() {
    drop((in_a_loop(HashMap::new()), all_at_once(vec![]), one_by_one(vec![])));
    drop(as_a_set_of_futures(HashSet::new()));
}
