// The function brings a type of its name, and a module is a type, too: use plural names for modules (`refunds`).
mod refund {
    #[composer_sdk::activity]
    pub async fn refund() {}
}
pub use refund::refund;

fn main() {}
