use composer_sdk::{Call, Workflow, activity};

#[activity]
async fn charge(amount: u32) -> u32 {
    amount
}

fn start<W: Workflow>(_: Call<W>) {}

fn main() {
    start(charge(5));
}
