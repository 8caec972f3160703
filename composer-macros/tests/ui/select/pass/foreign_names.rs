//! The macros mind no name of the user's: constants, types and macros of any name may be around.
#![deny(warnings)]
#![no_implicit_prelude]
#![allow(dead_code, non_upper_case_globals, non_camel_case_types)]

use ::composer_sdk::{join, select, try_join};
use ::std::{assert_eq, future::ready, result::Result::{self, Ok}};

const A: u32 = 0;
fn out() {}
struct B;
enum Poll {}
trait Future {}
fn poll_fn() {}
fn value() {}

async fn all() -> Result<u32, ()> {
    let one = select! { n = ready(A) => n, n = ready(2) => n };
    let (two, three) = join!(ready(2), ready(3));
    let (four,) = try_join!(ready(Result::<u32, ()>::Ok(4)))?;
    Ok(one + two + three + four)
}

fn main() {
    assert_eq!(::futures::executor::block_on(all()), Ok(9));
}
