use composer_sdk::activity;

#[activity]
struct Order;

#[activity]
impl Order {}

trait Charging {
    #[activity]
    async fn charge();
}

fn main() {}
