//! What Composer must do, seen from outside: do this, see that.
//!
//! Each scenario has a name that begins with its id (`a1_…`, `r08_…`) and runs on both stores, each time in a
//! [`World`] of its own: a database, an effect server that judges what happened how often, workers inside the test,
//! and processes where one has to die. Nothing waits for time where it can wait for a condition, and journals are
//! compared by their [projection](world::projection). At the end of each, [`World::look_around`].

mod effects;
mod process;
mod world;

mod changes;
mod children;
mod continued;
mod crashes;
mod errors;
mod fan_out;
mod macros;
mod messages;
mod modes;
mod orders;
mod payloads;
mod published;
mod redrive;
mod repair;
mod sagas;
mod seeing;
mod starting;
mod steps;
mod timers;

pub(crate) use self::{
    effects::{Answer, Effects},
    process::Process,
    world::{World, projection, scenario, start},
};
