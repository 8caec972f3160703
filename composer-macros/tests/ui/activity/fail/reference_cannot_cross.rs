use composer_sdk::activity;

struct Order;

#[activity]
async fn charge(order: &Order) {
    let _ = order;
}

fn main() {
    drop(charge(&Order));
}
