use composer_sdk::activity;

#[derive(Debug, serde::Serialize, serde::Deserialize)]
enum ChargeError {
    Declined,
}

#[activity]
async fn charge() -> Result<u32, ChargeError> {
    Err(ChargeError::Declined)
}

fn main() {}
