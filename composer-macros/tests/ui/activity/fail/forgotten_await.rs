use composer_sdk::{Result, activity, workflow};

#[activity]
async fn charge(amount: u32) -> Result<u32> {
    Ok(amount)
}

#[workflow]
async fn buy() -> Result<u32> {
    Ok(charge(2)?)
}

fn main() {}
