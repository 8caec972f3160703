//! Ordinary functions work as they are, without a word from any lint.
#![deny(warnings, clippy::all)]
#![warn(missing_docs, unreachable_pub, unused, clippy::all)]
#![allow(clippy::let_underscore_future, clippy::non_minimal_cfg)] // of this file's own
#![forbid(unsafe_code)]

use std::path::Path;

use composer_sdk::{activity, Activity, Call, Definition};
use serde::{Deserialize, Serialize};

#[path = "../../support/attempt.rs"]
mod attempt;
use attempt::attempt;

/// Not `Clone`.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    id: u32,
}

#[derive(Serialize, Deserialize)]
struct Point {
    x: i32,
    y: i32,
}

#[activity]
async fn nothing() {}

#[activity]
async fn unit(_: u32) -> () {}

#[activity]
async fn plain(mut n: u32) -> u32 {
    n += 1;
    n
}

#[activity]
async fn borrowed(order: &Order, text: &str, list: &[u32], path: &Path) -> String {
    format!("{} {text} {} {}", order.id, list.len(), path.display())
}

#[activity]
async fn patterns((a, b): (u8, u8), Point { x, y }: Point, _ignored: u8, r#type: String) -> String {
    format!("{a} {b} {x} {y} {type}", type = r#type)
}

#[activity]
#[allow(clippy::too_many_arguments)]
async fn twelve(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8, i: u8, j: u8, k: u8, l: u8) -> u8 {
    a + b + c + d + e + f + g + h + i + j + k + l
}

#[activity]
async fn r#match(n: u8) -> u8 {
    if n == 0 {
        return 7;
    }
    n
}

/// Its own name is that of the plain function.
#[activity]
async fn run(n: u8) -> u8 {
    n
}

/// Names of the traits' own functions are ordinary names.
#[activity]
async fn encode(n: u8) -> u8 {
    n
}

#[activity]
async fn judge(args: u8, input: u8, env: u8) -> u8 {
    args + input + env
}

/// Recursion is a plain call of a call.
#[activity]
async fn factorial(n: u64) -> u64 {
    if n < 2 { 1 } else { n * factorial(n - 1).await }
}

#[activity]
async fn with_cfg(#[cfg(all())] a: u8, #[cfg(any())] b: Missing, c: &str) -> String {
    #[cfg(any())]
    let _ = b;
    format!("{a}{c}")
}

#[activity]
#[cfg(any())]
async fn not_there(a: Missing) {}

#[cfg(any())]
#[activity]
async fn not_there(a: Missing) {}

mod shop {
    #[composer_sdk::activity(name = "shop.refund", queue = "shop")]
    pub(crate) async fn refund(n: u32) -> u32 {
        n
    }

    /// Several of one name, in different namespaces and modules.
    pub(in crate::shop) mod inner {
        #[composer_sdk::activity]
        pub(in crate::shop) async fn refund() {}
    }
    #[allow(dead_code)]
    fn uses() {
        let _ = inner::refund();
    }
}
use shop::refund as pay_back;

struct Holder {
    #[allow(dead_code)]
    call: Call<pay_back>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Private(u32);

/// A public function of a program may have private arguments.
#[activity]
pub async fn with_private(own: Private, lent: &Private) -> u32 {
    own.0 + lent.0
}

fn main() {
    assert_eq!(attempt::<nothing>("[]"), "null");
    assert_eq!(attempt::<unit>("[1]"), "null");
    assert_eq!(attempt::<plain>("[1]"), "2");
    assert_eq!(attempt::<borrowed>(r#"[{"id":5},"a",[1,2],"/x"]"#), r#""5 a 2 /x""#);
    assert_eq!(attempt::<patterns>(r#"[[1,2],{"x":3,"y":4},0,"t"]"#), r#""1 2 3 4 t""#);
    assert_eq!(attempt::<twelve>("[1,1,1,1,1,1,1,1,1,1,1,1]"), "12");
    assert_eq!(attempt::<r#match>("[0]"), "7");
    assert_eq!(attempt::<encode>("[3]"), "3");
    assert_eq!(attempt::<judge>("[1,2,3]"), "6");
    assert_eq!(attempt::<factorial>("[5]"), "120");
    assert_eq!(attempt::<with_cfg>(r#"[1,"c"]"#), r#""1c""#);
    assert_eq!(attempt::<run>("[4]"), "4");

    assert_eq!(r#match::NAME, "match");
    assert_eq!(pay_back::NAME, "shop.refund");
    assert_eq!(pay_back::options().queue.as_deref(), Some("shop"));
    assert!(plain::SOURCE.contains("ordinary.rs:"), "{}", plain::SOURCE);

    // The functions themselves.
    let order = Order { id: 1 };
    let text = futures::executor::block_on(borrowed::run(&order, "b", &[], Path::new("p")));
    assert_eq!(text, "1 b 0 p");
    assert_eq!(futures::executor::block_on(run::run(9)), 9);

    // Constructors are ordinary functions: paths, values, shadowing.
    let build: fn(u32) -> Call<plain> = plain;
    let _holder = Holder { call: shop::refund(1) };
    let plain = build(5);
    let _ = (plain, borrowed(&order, "", &[], Path::new("")), with_cfg(1, "x"), nothing(), unit(1));
    let _ = (patterns((1, 2), Point { x: 1, y: 2 }, 3, String::new()), twelve(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
    let _ = (r#match(1), run(1), encode(1), judge(1, 2, 3), factorial(1));

    // In a function's body, too.
    #[activity]
    async fn local(n: u8) -> u8 {
        n
    }
    let _ = local(1);
    assert_eq!(attempt::<local>("[4]"), "4");
}
