//! What every store promises.
//!
//! [`promises`] goes through the methods of the trait. `pNN_…` tests show the interleaving of `ARCHITECTURE.md` that
//! a rule prevents, steered step by step, and fail when the rule is removed; those that need two raw connections at
//! once are in [`postgres`], those that any store can show are here.

mod asking;
mod children;
mod continued;
mod forks;
mod kit;
mod orders;
mod postgres;
mod published;
mod repair;
mod working;
