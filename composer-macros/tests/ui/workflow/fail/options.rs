use composer_sdk::workflow;

#[workflow(timeout = "1h")]
async fn of_an_activity() {}

#[workflow(retry(max_attempts = 3))]
async fn not_retried() {}

#[workflow(nmae = "buy")]
async fn near_miss() {}

#[workflow(version = 0)]
async fn version() {}

fn main() {}
