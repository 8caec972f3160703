// Nothing tells a macro that it stands in an `impl`: here the words are the compiler's.
use composer_sdk::activity;

struct Shop;

impl Shop {
    #[activity]
    async fn charge(amount: u32) -> u32 {
        amount
    }
}

fn main() {}
