use composer_sdk::activity;

struct Receipt;

#[activity]
async fn charge() -> Receipt {
    Receipt
}

fn main() {}
