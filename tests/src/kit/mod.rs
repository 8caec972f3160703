//! A worker that obeys data: one generic workflow, its effects outside of the process, and code that changes.
//!
//! * [`interpret`](workflow::interpret) carries out a list of [`Command`]s, so that a scenario is a few lines of data.
//! * Every effect is a request to the test's effect server, which is the judge of "ran once" (see [`Ledger`]).
//! * [`variant`] is one workflow name with several bodies: what a new build of a program looks like to a run.
//! * The same worker runs inside the test ([`worker`]) and as a process of its own (`src/bin/kit.rs`), set up by the
//!   same [`Setup`].

mod command;
mod ledger;
pub mod log;
mod setup;
pub mod variant;
pub mod workflow;

pub use self::{
    command::{Command, Step, child, join_all, map, note, race, sleep, step, wait},
    ledger::{ExitAt, Ledger},
    setup::{Setup, Start, composer, worker},
};
