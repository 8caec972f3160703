//! The kit's promises, each shown by a test as a user would write it.

mod activities;
mod children;
mod continued;
mod crashes;
mod messages;
mod replays;
mod shop;
mod time;
