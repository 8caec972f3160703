use composer_sdk::{Activity, activity, workflow};

async fn plain() {}

#[activity]
async fn charge() {}

#[workflow]
async fn buy() {}

fn register<A: Activity>() {}

fn main() {
    register::<charge>();
    register::<buy>();
    register::<plain>();
}
