use composer_sdk::activity;

#[activity(timeout = 10)]
async fn no_unit() {}

#[activity(timeout = "5min")]
async fn foreign_unit() {}

#[activity(timeout = "0s")]
async fn no_time() {}

#[activity(retry(max_attempts = 0, factor = 0.5, jitter = 1.5, first = "soon"))]
async fn a_policy_that_cannot_work() {}

#[activity(name = "", queue = 5)]
async fn names() {}

#[activity(blocking = true)]
fn flag_with_a_value() {}

#[activity("charge")]
async fn no_key() {}

fn main() {}
