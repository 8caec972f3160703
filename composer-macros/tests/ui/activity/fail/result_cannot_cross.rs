use composer_sdk::{Result, activity};

struct Receipt;

#[activity]
async fn charge() -> Result<Receipt> {
    Ok(Receipt)
}

fn main() {}
