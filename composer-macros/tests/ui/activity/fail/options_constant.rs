use composer_sdk::activity;

const ATTEMPTS: u32 = 0;

#[activity(retry(max_attempts = ATTEMPTS))]
async fn constants_are_checked_by_the_compiler() {}

fn main() {}
