use composer_sdk::activity;

#[activity(retries(max_attempts = 3))]
async fn near_miss() {}

#[activity(colour = "red")]
async fn no_idea() {}

#[activity(retry(delay = "1s"))]
async fn inside_retry() {}

#[activity(max_attempts = 3)]
async fn outside_retry() {}

#[activity(version = 2)]
async fn of_a_workflow() {}

fn main() {
    // A mistake in the attribute leaves the function usable.
    let _call: composer_sdk::Call<near_miss> = near_miss();
}
