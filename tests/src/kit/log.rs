//! The engine's log on stderr, for whoever looks for the cause of a failed scenario; and the lines of workflows on stdout,
//! for a scenario about them.

use std::fmt::Write;

use composer_runtime::QuietOnReplay;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};
use tracing_subscriber::{Layer, layer::Context, prelude::*};

/// Prints every event of a level from `Info` on when `KIT_LOG` is set, and everything when it is `trace`.
pub fn init() {
    if let Ok(wanted) = std::env::var("KIT_LOG") {
        let level = wanted.parse().unwrap_or(Level::INFO);
        let _ = tracing::subscriber::set_global_default(Lines { level });
    }
}

/// Prints what workflows say, each line once.
pub fn print_lines() {
    let lines = tracing_subscriber::registry().with(Said).with(QuietOnReplay);
    let _ = tracing::subscriber::set_global_default(lines);
}

/// Prints the lines of `Command::Log`.
struct Said;

impl<S: Subscriber> Layer<S> for Said {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let target = event.metadata().target();
        if target.starts_with("composer_sdk::workflow") || target.starts_with("composer_tests::kit") {
            let mut line = Line(String::new());
            event.record(&mut line);
            println!("{}", line.0.trim_start());
        }
    }
}

struct Lines {
    level: Level,
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with("composer")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        let metadata = event.metadata();
        eprintln!("{} {} {}:{}", std::process::id(), metadata.level(), metadata.target(), line.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
