use composer_sdk::activity;

struct Order;

#[activity]
async fn charge(order: Order, lines: &[Order]) {
    let _ = (order, lines);
}

fn main() {
    drop(charge(Order, &[]));
}
