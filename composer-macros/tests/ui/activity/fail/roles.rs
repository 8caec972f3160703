use composer_sdk::activity;

struct Connection;
trait Clock {}

#[activity]
async fn tx(#[tx] db: &mut Connection, n: u32) -> u32 {
    let _ = db;
    n
}

#[activity]
async fn misspelt(#[stat] db: u32) -> u32 {
    db
}

#[activity]
async fn said_too_much(#[state(db)] db: u32) -> u32 {
    db
}

#[activity]
async fn exclusive(#[state] db: &mut Connection) {
    let _ = db;
}

#[activity]
async fn without_a_size(#[state] clock: &dyn Clock) {
    let _ = clock;
}

fn main() {
    drop(tx(1));
    drop(exclusive());
}
