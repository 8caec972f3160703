use composer_sdk::{activity, workflow};

#[activity]
#[workflow]
async fn both() {}

fn main() {
    drop(both());
}
