//! The project's own commands, behind `cargo xtask`.
//!
//! A library, so that `tests/it` can run the same checks as the command line. It depends on nothing but the
//! standard library, so that `cargo xtask` answers within seconds of a fresh clone.

#![forbid(unsafe_code)]

mod apt;
pub mod bench;
pub mod book;
pub mod command;
pub mod guard;
pub mod postgres;
pub mod servers;
pub mod test;
pub mod tidy;
pub mod verify;

/// What went wrong, in words for the person at the terminal: what, where, and what to do next.
pub type Error = String;

/// A result whose error is for the person at the terminal.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The root of the workspace, wherever the command was called from.
pub fn root() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace")
}
