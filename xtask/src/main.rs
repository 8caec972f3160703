//! The command line of the project's own commands: `cargo xtask <command>`.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::{Command, ExitCode};

use xtask::servers::Servers;
use xtask::{Result, bench, book, guard, test, tidy, verify};

const HELP: &str = "\
cargo xtask <command>

  test [filter…] [cargo test options] [-- test program arguments]
               run all tests (or those whose names contain a filter) beside private servers
  verify       everything that CI checks: format, lints, documentation, each feature alone, the book, the tests
  tidy         the rules that can be read off the source
  book         check the book, and build it where mdbook is installed
  bench [workload…] [--rounds 3] [--secs 5] [-- composer-bench arguments]
               measure Composer beside pgbench on a private server, and print the ratios
  with <command> [argument…]
               run any command beside private servers; it finds PostgreSQL in COMPOSER_TEST_POSTGRES";

fn main() -> ExitCode {
    let args = std::env::args().skip(1).collect::<Vec<_>>();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result<()> {
    let (command, args) = match args.split_first() {
        Some((command, args)) => (command.as_str(), args),
        None => ("help", args),
    };
    match command {
        "test" => test::run(args),
        "verify" => verify::verify(),
        "tidy" => tidy::run(),
        "book" => book::run(),
        "bench" => bench::run(args),
        "with" => with(args),
        // Not for people: see the module.
        "guard" => {
            let (bin, settings) = args.split_first().ok_or("guard: which PostgreSQL?")?;
            guard::run(Path::new(bin), settings)
        }
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => Err(format!("no command `{other}`\n\n{HELP}")),
    }
}

fn with(args: &[String]) -> Result<()> {
    let (program, args) = args.split_first().ok_or("with: which command?")?;
    let mut servers = Servers::start(&[])?;
    servers.run(Command::new(program).args(args))
}
