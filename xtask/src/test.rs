//! `cargo xtask test`: every test of the workspace, beside private servers.

use crate::Result;
use crate::command::cargo;
use crate::servers::Servers;

/// Options of `cargo test` that are followed by a value.
const WITH_VALUE: &[&str] =
    &["-p", "--package", "--exclude", "--test", "--bin", "--example", "--features", "-j", "--jobs"];

/// Runs the tests whose names contain one of the filters (all of them without one). What starts with a dash goes to
/// `cargo test`, what follows `--` to the test programs.
///
/// # Errors
/// When the servers do not start or a test fails.
pub fn run(args: &[String]) -> Result<()> {
    let args = arguments(args);
    let mut servers = Servers::start(&[])?;
    servers.run(&mut cargo(&args.iter().map(String::as_str).collect::<Vec<_>>()))
}

fn arguments(args: &[String]) -> Vec<String> {
    let (ours, harness) = match args.iter().position(|arg| arg == "--") {
        Some(at) => (&args[..at], &args[at + 1..]),
        None => (args, &args[..0]),
    };
    let mut options = Vec::new();
    let mut filters = Vec::new();
    let mut rest = ours.iter();
    while let Some(arg) = rest.next() {
        if !arg.starts_with('-') {
            filters.push(arg.clone());
            continue;
        }
        options.push(arg.clone());
        if WITH_VALUE.contains(&arg.as_str()) {
            options.extend(rest.next().cloned());
        }
    }
    let one_package = options.iter().any(|arg| arg == "-p" || arg.starts_with("--package"));
    let all = ["test", "--workspace", "--no-fail-fast"].map(String::from);
    let mut command =
        all.into_iter().filter(|arg| !(one_package && arg == "--workspace")).collect::<Vec<_>>();
    command.extend(options);
    command.push("--".to_owned());
    command.extend(filters);
    command.extend(harness.iter().cloned());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &str, expected: &str) {
        let given = given.split_whitespace().map(String::from).collect::<Vec<_>>();
        assert_eq!(arguments(&given).join(" "), expected);
    }

    #[test]
    fn filters_options_and_harness_arguments_each_reach_their_program() {
        check("", "test --workspace --no-fail-fast --");
        check("a1_ c11_", "test --workspace --no-fail-fast -- a1_ c11_");
        check("a1_ -- --nocapture", "test --workspace --no-fail-fast -- a1_ --nocapture");
        check("--release a1_", "test --workspace --no-fail-fast --release -- a1_");
        check("-p xtask a1_", "test --no-fail-fast -p xtask -- a1_");
    }
}
