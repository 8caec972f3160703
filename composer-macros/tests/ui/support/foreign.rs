//! Other crates as far as the tests need them: their names, and nothing that works.
#![allow(dead_code, unused_macros, unused_imports)]

pub mod chrono {
    pub struct Utc;
    impl Utc {
        pub fn now() -> u64 {
            0
        }
    }
    pub struct Local;
    impl Local {
        pub fn now() -> u64 {
            0
        }
    }
}

pub mod fastrand {
    pub fn u32(_: std::ops::RangeFull) -> u32 {
        0
    }
    pub struct Rng;
    impl Rng {
        pub fn with_seed(_: u64) -> Self {
            Self
        }
        pub fn u32(&mut self, _: std::ops::RangeFull) -> u32 {
            0
        }
    }
}

pub mod futures {
    macro_rules! select {
        ($pat:pat = $future:expr => $code:expr $(,)?) => {
            match $future.await {
                $pat => $code,
            }
        };
    }
    pub(crate) use select;
}

pub mod rand {
    pub fn random<T: Default>() -> T {
        T::default()
    }
    pub fn rng() -> u32 {
        0
    }
    pub fn thread_rng() -> u32 {
        0
    }
    pub mod rngs {
        pub struct StdRng;
        impl StdRng {
            pub fn seed_from_u64(_: u64) -> Self {
                Self
            }
        }
    }
}

pub mod reqwest {
    pub async fn get(_: &str) -> u32 {
        0
    }
    pub struct Client;
    impl Client {
        pub fn new() -> Self {
            Self
        }
    }
    pub struct StatusCode;
    impl StatusCode {
        pub const OK: u16 = 200;
    }
}

pub mod sqlx {
    pub fn query(_: &str) -> u32 {
        0
    }
    macro_rules! query_as {
        ($($any:tt)*) => {
            0
        };
    }
    pub(crate) use query_as;
}

pub mod tokio {
    pub async fn spawn<F>(_: F) -> u32 {
        0
    }
    macro_rules! select {
        (biased; $($rest:tt)*) => { $crate::foreign::tokio::select!($($rest)*) };
        ($pat:pat = $future:expr => $code:expr $(,)?) => {
            match $future.await {
                $pat => $code,
            }
        };
    }
    pub(crate) use select;
    pub mod fs {
        pub async fn read(_: &str) -> Vec<u8> {
            vec![]
        }
    }
    pub mod net {
        pub struct TcpStream;
        impl TcpStream {
            pub async fn connect(_: &str) -> Self {
                Self
            }
        }
    }
    pub mod runtime {
        pub struct Handle;
        impl Handle {
            pub fn current() -> Self {
                Self
            }
            pub fn block_on<F>(&self, _: F) -> u32 {
                0
            }
        }
    }
    pub mod signal {
        pub async fn ctrl_c() {}
    }
    pub mod task {
        pub async fn spawn_blocking<F>(_: F) -> u32 {
            0
        }
        pub async fn yield_now() {}
        pub mod coop {
            pub fn unconstrained<F>(future: F) -> F {
                future
            }
        }
    }
    pub mod time {
        pub use std::time::Duration;
        pub async fn sleep(_: Duration) {}
        pub async fn timeout<F>(_: Duration, _: F) -> Option<u32> {
            None
        }
        pub fn interval(_: Duration) {}
    }
}

pub mod uuid {
    pub struct Uuid;
    impl Uuid {
        pub fn new_v4() -> u128 {
            0
        }
        pub fn now_v7() -> u128 {
            0
        }
    }
}
