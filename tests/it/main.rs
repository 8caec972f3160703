//! The promises, each a test named as a sentence.
//!
//! `conformance` holds what every store promises, and runs on each of them; `support` gives every test a database of
//! its own; `scenarios` is the engine seen from outside; `requirements` is how it behaves where comparable systems have
//! failed; `examples` runs what a newcomer runs first; `tidy` reads the rules of ARCHITECTURE.md off the source.

mod conformance;
mod crash;
mod engine;
mod examples;
mod requirements;
mod scenarios;
mod sqlite;
mod support;
mod tidy;
