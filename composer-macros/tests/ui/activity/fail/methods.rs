use composer_sdk::activity;

struct Shop;

impl Shop {
    #[activity]
    async fn charge(&self, amount: u32) -> u32 {
        amount
    }

    #[activity]
    async fn new() -> Self {
        Self
    }
}

fn main() {
    drop(Shop.charge(1));
    drop(Shop::new());
}
