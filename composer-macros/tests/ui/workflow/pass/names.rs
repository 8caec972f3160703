//! The attributes mind no name of the user's either.
#![deny(warnings)]
#![no_implicit_prelude]
#![allow(dead_code, unused_macros, non_camel_case_types, clippy::let_underscore_future)]

struct Result;
struct Ok;
struct String;
struct Box;
struct Vec;
struct Option;
struct Payload;
struct Call;
struct Duration;
enum str {}
mod core {}
mod std {}
mod composer_sdk {}
macro_rules! vec { () => {} }
macro_rules! concat { () => {} }

#[::composer_sdk::activity(timeout = "1s", queue = "q", retry(max_attempts = 2))]
async fn charge(#[state] n: &::std::sync::Arc<u32>, a: u32) -> ::composer_sdk::Result<u32> {
    ::std::result::Result::Ok(a + **n)
}

#[::composer_sdk::workflow(version = 1)]
async fn buy(args: u32, input: &u32) -> ::composer_sdk::Result<u32> {
    charge(args + *input).await
}

fn main() {
    let _ = buy(1, &2);
    macro_rules! made_by_a_macro {
        ($name:ident, $ty:ty, $timeout:expr) => {
            #[::composer_sdk::activity(timeout = $timeout)]
            async fn $name(a: $ty, b: &$ty) -> $ty {
                let _ = b;
                a
            }
        };
    }
    made_by_a_macro!(made, u32, "5s");
    let _ = made(1, &2);
}
