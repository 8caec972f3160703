// Another crate's macro of the same name wins over the prelude's glob without a word, and polls in random order.
use composer_sdk::prelude::*;

macro_rules! select {
    ($pat:pat = $future:expr => $code:expr) => {
        match $future.await {
            $pat => $code,
        }
    };
}

#[workflow]
async fn buy() -> u32 {
    select! { n = std::future::ready(1) => n }
}

fn main() {}
