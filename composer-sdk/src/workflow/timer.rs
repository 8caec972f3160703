//! Durable timers.

use std::{
    future::Future,
    panic::Location,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use futures::future::FusedFuture;

use super::current;
use crate::{
    error::{Failure, FailureKind},
    id::Timestamp,
    journal::StepKind,
    payload::{Digest, Payload},
    replay::{Ask, Leaf, Work, line},
};

/// Waits durably: a row with a wake-up time, not a thread. The instant is fixed here and not at the first poll, and
/// survives crashes.
///
/// A length of zero is ready as soon as it is journaled. One that ends after the year 9999 ends the run with a
/// [`Failure`] that says so.
///
/// ```
/// # use composer_sdk::{DurationExt, workflow::sleep};
/// # use std::time::Duration;
/// # async fn body() {
/// sleep(Duration::days(30)).await;
/// # }
/// ```
#[track_caller]
pub fn sleep(length: Duration) -> Sleep {
    Sleep::after(length, Location::caller())
}

/// Waits durably until an instant; one that has passed is ready as soon as it is journaled.
///
/// An instant after the year 9999 ends the run with a [`Failure`] that says so.
#[track_caller]
pub fn sleep_until(instant: SystemTime) -> Sleep {
    Sleep::new("sleep_until", None, Location::caller(), |_| {
        let due = Timestamp::from(instant);
        // Instants that do not fit become the last one.
        if due < Timestamp::MAX { Ok(due) } else { Err("`sleep_until` would end".to_owned()) }
    })
}

/// The future of [`sleep`] and [`sleep_until`].
///
/// # Cancel safety
/// Dropping it deletes the timer.
#[must_use = "a sleep does nothing until it is awaited"]
pub struct Sleep {
    /// None in `Drop` code, where it never ends.
    leaf: Option<Leaf>,
    due: Result<Timestamp, Failure>,
    after: Option<Duration>,
    done: bool,
}

impl Sleep {
    /// A sleep of that length, asked for at that place.
    #[track_caller]
    pub(super) fn after(length: Duration, at: &'static Location<'static>) -> Self {
        Self::new("sleep", Some(length), at, |now| {
            now.checked_add(length).ok_or_else(|| format!("`sleep` of {length:?} would end"))
        })
    }

    #[track_caller]
    fn new(
        what: &str,
        after: Option<Duration>,
        at: &'static Location<'static>,
        due: impl FnOnce(Timestamp) -> Result<Timestamp, String>,
    ) -> Self {
        let run = current(what);
        let now = run.as_ref().map_or(Timestamp::MAX, |run| run.now());
        let due = due(now).map_err(|words| {
            let place = line(at);
            Failure::new(
                FailureKind::Refused,
                format_args!("{words} after the year 9999, the last instant of a timer ({place})"),
            )
        });
        Self { leaf: run.map(|run| Leaf::new(run, at)), due, after, done: false }
    }

    fn ask(due: Timestamp, after: Option<Duration>) -> Ask {
        let input = match after {
            Some(length) => format!("[\"after\",{}]", length.as_nanos().div_ceil(1_000)),
            None => format!("[\"until\",{}]", due.as_micros()),
        };
        Ask {
            kind: StepKind::Timer,
            name: "sleep",
            digest: Digest::of(&Payload::from(input.into_bytes())),
            work: Work::Timer { due, after },
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let me = self.get_mut();
        let Some(leaf) = &mut me.leaf else { return Poll::Pending };
        if me.done || !leaf.is_in_place("`sleep`") {
            return Poll::Pending;
        }
        let due = match &me.due {
            Ok(due) => *due,
            Err(failure) => {
                leaf.run().fail(failure.clone());
                return Poll::Pending;
            }
        };
        let after = me.after;
        let fired = leaf.poll(cx, || Self::ask(due, after)).map(|_| ());
        me.done = fired.is_ready();
        fired
    }
}

impl FusedFuture for Sleep {
    fn is_terminated(&self) -> bool {
        self.done
    }
}

/// Lengths in larger units, for workflows that wait for long: `Duration::days(2)`.
pub trait DurationExt {
    /// That many minutes.
    fn minutes(n: u64) -> Duration;
    /// That many hours.
    fn hours(n: u64) -> Duration;
    /// That many days of 24 hours.
    fn days(n: u64) -> Duration;
}

impl DurationExt for Duration {
    fn minutes(n: u64) -> Duration {
        Duration::from_secs(n.saturating_mul(60))
    }

    fn hours(n: u64) -> Duration {
        Duration::from_secs(n.saturating_mul(60 * 60))
    }

    fn days(n: u64) -> Duration {
        Duration::from_secs(n.saturating_mul(24 * 60 * 60))
    }
}
