//! The promises, each a test named as a sentence.
//!
//! `conformance` holds what every store promises, and runs on each of them; `support` gives every test a database of
//! its own.

mod conformance;
mod sqlite;
mod support;
