use composer_sdk::activity;

#[activity]
#[composer_sdk::workflow]
async fn both() {}

fn main() {
    drop(both());
}
