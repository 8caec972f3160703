// Macros that know an `@` of their own, as tokio's do, show what to do.
use composer_sdk::prelude::*;

macro_rules! join {
    (@ { $($internal:tt)* }) => {};
    ($($future:expr),+) => { ($($future.await,)+) };
}

#[workflow]
async fn buy() -> (u32,) {
    join!(std::future::ready(1))
}

fn main() {}
