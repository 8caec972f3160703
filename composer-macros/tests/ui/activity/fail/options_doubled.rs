use composer_sdk::activity;

#[activity(timeout = "1s", queue = "a", timeout = "2s")]
async fn twice() {}

#[activity(retry(max_attempts = 2, max_attempts = 3))]
async fn twice_inside() {}

fn main() {}
