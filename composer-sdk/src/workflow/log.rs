//! Lines for people, once, however often the code that writes them is run again.

use std::{fmt, panic::Location, sync::Arc};

use crate::{
    context::{self, Here},
    replay::{Run, line},
};

/// Whether the workflow does what it has done in an earlier life.
///
/// True from the first line of a run that was taken up again until the workflow has come to rest after the last entry that
/// its journal had by then. False outside a workflow.
///
/// For what is neither a step nor decides about one: a line for people, a counter. A step that depends on it does not fit
/// the journal.
///
/// ```
/// # use composer_sdk::{prelude::*, workflow::is_replaying};
/// # #[activity] async fn pack(order: u32) {}
/// #[workflow]
/// async fn ship(order: u32) {
///     pack(order).await;
///     if !is_replaying() {
///         println!("packed {order}");
///     }
/// }
/// ```
pub fn is_replaying() -> bool {
    context::look(|here| of(here).is_some_and(|run| run.is_replaying()))
}

/// Writes a line about the run, once: a `tracing` event of the level `INFO` with the run's id, unless the workflow does
/// what it has done before.
///
/// ```
/// # use composer_sdk::{prelude::*, workflow::log};
/// # #[activity] async fn pack(order: u32) {}
/// #[workflow]
/// async fn ship(order: u32) {
///     pack(order).await;
///     log(format_args!("packed {order}"));
/// }
/// ```
///
/// Outside a workflow it writes the line without a run, so that helpers may use it anywhere. For lines of other levels
/// and with fields of their own, `composer_runtime::QuietOnReplay` does the same to all events of `tracing`.
///
/// A line is not journaled. If the process dies between the line and the journal entry that led to it, the next life
/// writes it again; if it dies between taking a run and its first line, that line is lost.
#[track_caller]
pub fn log(words: impl fmt::Display) {
    match context::look(|here| of(here).cloned()) {
        Some(run) if run.is_replaying() => {}
        Some(run) => {
            let at = line(Location::caller());
            tracing::info!(run_id = %run.id, workflow = run.workflow, at, "{words}");
        }
        None => tracing::info!(at = line(Location::caller()), "{words}"),
    }
}

/// The run whose code is running.
fn of(here: &Here) -> Option<&Arc<Run>> {
    match here {
        Here::Workflow(run) | Here::Delivering(run) | Here::Dropping(Some(run)) => Some(run),
        Here::Outside | Here::Activity(_) | Here::Dropping(None) => None,
    }
}
