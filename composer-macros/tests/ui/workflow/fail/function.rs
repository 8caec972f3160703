use composer_sdk::workflow;

#[workflow]
fn forgot_async(n: u32) -> u32 {
    n
}

#[workflow]
async fn with_state(#[state] db: u32, n: u32) -> u32 {
    db + n
}

#[workflow]
async fn generic<T: Into<u32>>(n: T) -> u32 {
    n.into()
}

fn main() {
    drop(with_state(1));
    drop(generic(1_u8));
}
