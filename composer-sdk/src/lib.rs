//! What workflow and activity code uses.

pub mod error;
pub mod id;
pub mod journal;
pub mod payload;
pub mod select;
