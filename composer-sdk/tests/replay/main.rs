//! The replay machine against real workflows: live equals replay, over random completion orders and every prefix.
//!
//! The seed of each run is printed when it fails; `COMPOSER_SEED=n` repeats one.

mod branches;
mod cancel;
mod children;
mod combinators;
mod contexts;
mod continued;
mod journal_edges;
mod logs;
mod maps;
mod mismatch;
mod no_false_alarm;
mod polls;
mod sagas;
mod side_effects;
mod sim;
mod stand_ins;
mod vocabulary;
mod wakes;
