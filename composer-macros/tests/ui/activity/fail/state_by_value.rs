use composer_sdk::activity;

struct Partner;

#[activity]
async fn activate(#[state] partner: Partner) {
    let _ = partner;
}

fn main() {}
