//! Client, worker and stores.

pub mod store;
