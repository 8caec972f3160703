//! Durable execution for Rust as a library: what a process needs to host or start runs.
//!
//! [`Composer`] connects to a database; [`Composer::worker`] hosts workflows, [`Composer::start`] starts them. The
//! workflows themselves need `composer-sdk` alone.

mod background;
mod client;
mod clock;
mod config;
mod error;
mod host;
mod hub;
mod journal_file;
mod journal_writer;
mod lease;
mod lists;
mod metrics;
#[cfg(feature = "tracing-layer")]
mod quiet;
mod registry;
mod session;
pub mod store;
mod task;
pub mod testing;
mod worker;

#[cfg(feature = "tracing-layer")]
pub use crate::quiet::QuietOnReplay;
pub use crate::{
    client::{Composer, ComposerBuilder, Fork, Json, Line, Returns, RunHandle, Start},
    error::Error,
    journal_file::{JournalFile, JournalFileError},
    lists::{Activities, Workflows},
    metrics::Counts,
    store::{Codec, IdPolicy, MessageContent, RunFilter, RunRow, SessionId, Status, StoreError},
    worker::{Worker, WorkerBuilder},
};
