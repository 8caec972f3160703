//! All that workflow and activity code needs: `use composer_sdk::prelude::*;`
//!
//! An explicit import of the same name (`use tokio::time::sleep;`) wins over this glob without a word; the run then
//! reports a wait on nothing durable.

pub use std::time::Duration;

#[cfg(feature = "http")]
pub use crate::http;
pub use crate::{
    activity,
    error::{Error, Failure, Result, ResultExt},
    join,
    message::{Published, Signal},
    saga::compensate,
    select, try_join, workflow,
    workflow::{DurationExt, sleep},
};
