use composer_sdk::activity;

#[activity(timeout = "10s", total_timeout = "5s")]
async fn one_longer_than_all() {}

#[activity(retry(first = "10s", max = "1s"))]
async fn first_longer_than_longest() {}

#[activity(retry(first = "5m"))]
async fn first_longer_than_the_default() {}

#[activity(retry(max_attempts = 1, factor = 2.0))]
async fn delays_without_retries() {}

fn main() {}
