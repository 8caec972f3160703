//! `cargo xtask verify`: everything that CI checks, in one command, cheapest first.
//!
//! It stops at the first step that fails and says how to repeat that step alone. All steps share one target folder
//! and one set of compiler flags: format, lints, documentation and feature checks reuse the same metadata of the
//! dependencies, and only the tests build them in full.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::command::{cargo, output, run, shown};
use crate::{Result, book, root, test, tidy};

/// The crates that users depend on, whose features are checked one by one.
const PUBLISHED: [&str; 2] = ["composer-sdk", "composer-runtime"];

/// What the sdk must not depend on without its default features: replay stays pure because it has nothing else.
const WORLD: [&str; 5] = ["tokio", "sqlx", "redis", "reqwest", "hyper"];

/// Runs every step.
///
/// # Errors
/// The first step that failed, and the command to repeat it.
pub fn verify() -> Result<()> {
    let mut log = Log::default();
    log.command("format", cargo(&["fmt", "--all", "--check"]))?;
    log.step("tidy", "cargo xtask tidy", tidy::run)?;
    log.step("book", "cargo xtask book", book::run)?;
    log.step("pure sdk", "cargo tree -p composer-sdk --no-default-features -e normal,build", sdk_is_pure)?;
    log.command("lints", clippy(&["--workspace", "--all-targets"]))?;
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--lib"]);
    // Module headers may lead contributors to private neighbours.
    doc.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links");
    log.command("documentation", doc)?;
    for package in PUBLISHED {
        let alone = ["-p", package, "--lib", "--no-default-features"];
        log.command(&format!("{package} without features"), clippy(&alone))?;
        for feature in features(package)? {
            let with_it = [&alone[..], &["--features", &feature]].concat();
            log.command(&format!("{package} with {feature} alone"), clippy(&with_it))?;
        }
    }
    log.step("tests", "cargo xtask test", || test::run(&[]))?;
    log.summary();
    Ok(())
}

/// As `cargo check`, and what is a warning there is an error here, in our own crates alone.
fn clippy(selection: &[&str]) -> Command {
    cargo(&[&["clippy"], selection, &["--", "-D", "warnings"]].concat())
}

fn sdk_is_pure() -> Result<()> {
    let mut tree = cargo(&["tree", "-p", "composer-sdk", "--no-default-features"]);
    tree.args(["--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
    let tree = output(&mut tree)?;
    match tree.lines().filter_map(|line| line.split(' ').next()).find(|name| WORLD.contains(name)) {
        Some(name) => Err(format!("composer-sdk without default features depends on {name}")),
        None => Ok(()),
    }
}

/// The features of a package, as its manifest lists them, without `default`.
fn features(package: &str) -> Result<Vec<String>> {
    let path = root().join(package).join("Cargo.toml");
    let manifest = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let section = manifest.lines().skip_while(|line| line.trim() != "[features]").skip(1);
    let section = section.take_while(|line| !line.starts_with('['));
    let names = section.filter_map(|line| line.split_once('=')).map(|(name, _)| name.trim().to_owned());
    Ok(names.filter(|name| name != "default" && !name.starts_with('#')).collect())
}

#[derive(Default)]
struct Log {
    steps: Vec<(String, Duration)>,
}

impl Log {
    fn command(&mut self, name: &str, mut command: Command) -> Result<()> {
        let repeat = shown(&command);
        self.step(name, &repeat, || run(&mut command))
    }

    fn step(&mut self, name: &str, repeat: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("== {name}: {repeat}");
        let began = Instant::now();
        let outcome = work();
        let took = began.elapsed();
        println!(
            "== {name}: {} in {:.1} s",
            if outcome.is_ok() { "ok" } else { "FAILED" },
            took.as_secs_f64()
        );
        self.steps.push((name.to_owned(), took));
        outcome.map_err(|why| format!("{name}: {why}\nto repeat this step: {repeat}"))
    }

    fn summary(&self) {
        println!("\neverything verified:");
        for (name, took) in &self.steps {
            println!("{:>8.1} s  {name}", took.as_secs_f64());
        }
        let total = self.steps.iter().map(|(_, took)| *took).sum::<Duration>();
        println!("{:>8.1} s  in all", total.as_secs_f64());
    }
}
