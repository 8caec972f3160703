use composer_sdk::activity;

#[activity]
fn forgot_async(n: u32) -> u32 {
    n
}

#[activity(blocking)]
async fn both(n: u32) -> u32 {
    n
}

async fn uses() -> u32 {
    forgot_async(1).await + both(2).await
}

fn main() {
    drop(uses());
}
