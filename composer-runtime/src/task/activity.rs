//! One attempt of an activity: run it, bound it, and decide what follows.
//!
//! Deciding is pure ([`decide`]); running ([`run`]) guards the effect: the lease is looked at immediately before the
//! user's code is called, a panic is a failed attempt, a timeout drops the future and tells the activity, and a stop
//! is not counted as an attempt.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use composer_sdk::{
    activity::{ActivityCx, ActivityEntry, Attempted, Verdict},
    error::{Failure, FailureKind},
    id::Timestamp,
    journal::{Event, GaveUp, Outcome},
};
use futures::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::driver::Activity;
use crate::session::Session;

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum AttemptEnd {
    /// The activity returned.
    Done(Attempted),
    /// It panicked, with this text.
    Panicked(String),
    /// It took longer than it was given.
    TimedOut(Duration),
    /// The time for all attempts was over before it began.
    OutOfTime,
    /// It was stopped, or never begun: not an attempt.
    Interrupted,
}

/// What follows an attempt.
#[derive(Debug, PartialEq)]
pub(crate) enum Decision {
    /// The step is decided.
    Deliver(Event),
    /// Another attempt, not before that instant.
    Retry {
        /// The error's chain.
        error: String,
        /// The instant.
        retry_at: Timestamp,
    },
    /// The same attempt once more.
    Again,
}

/// Decides what follows an attempt. `random` is in `0..1`.
pub(crate) fn decide(
    activity: &Activity,
    attempt: u32,
    end: AttemptEnd,
    now: Timestamp,
    random: f64,
) -> Decision {
    let name = &activity.step.name;
    let out_of_time = matches!(end, AttemptEnd::OutOfTime);
    let (outcome, error, verdict) = match end {
        AttemptEnd::Interrupted => return Decision::Again,
        AttemptEnd::Done(done) => (done.outcome, done.error, done.retry),
        AttemptEnd::Panicked(text) => engine_failure(
            FailureKind::Exhausted,
            format!("activity `{name}` panicked in attempt {attempt}: {text}"),
            attempt,
        ),
        AttemptEnd::OutOfTime => engine_failure(
            FailureKind::TimedOut,
            format!("activity `{name}` ran out of time before attempt {attempt} began"),
            attempt - 1,
        ),
        AttemptEnd::TimedOut(after) => engine_failure(
            FailureKind::TimedOut,
            format!("activity `{name}` timed out after {after:?} in attempt {attempt}"),
            attempt,
        ),
    };
    let options = &activity.options;
    let gave_up = match verdict {
        _ if out_of_time => Some(GaveUp::Time),
        Verdict::Final if error.is_empty() => None,
        Verdict::Final => Some(GaveUp::Permanent),
        Verdict::Retry { .. } if attempt >= options.retry.max_attempts => Some(GaveUp::Attempts),
        Verdict::Retry { after } => {
            let delay = after.unwrap_or_else(|| options.retry.delay(attempt, random));
            let retry_at = now.saturating_add(delay);
            if deadline(activity).is_none_or(|deadline| retry_at < deadline) {
                return Decision::Retry { error, retry_at };
            }
            Some(GaveUp::Time)
        }
    };
    Decision::Deliver(Event::StepDone { step: activity.step.clone(), attempt, error, gave_up, outcome })
}

fn engine_failure(kind: FailureKind, message: String, attempt: u32) -> (Outcome, String, Verdict) {
    let failure = Failure::new(kind, &message).attempts(attempt);
    (Outcome::Failed(failure), message, Verdict::Retry { after: None })
}

/// When the time for all attempts is over.
fn deadline(activity: &Activity) -> Option<Timestamp> {
    activity.options.total_timeout.map(|total| activity.scheduled_at.saturating_add(total))
}

/// What is left for all attempts.
pub(crate) fn time_left(activity: &Activity, now: Timestamp) -> Option<Duration> {
    deadline(activity).map(|deadline| deadline.since(now))
}

/// How long an attempt may take from `now`.
pub(crate) fn time_limit(activity: &Activity, now: Timestamp) -> Option<Duration> {
    [activity.options.timeout, time_left(activity, now)].into_iter().flatten().min()
}

/// Until the time for all attempts is over.
pub(crate) async fn out_of_time(activity: &Activity, now: Timestamp) {
    match time_left(activity, now) {
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}

/// Everything that one attempt needs.
pub(crate) struct Run {
    pub(crate) entry: ActivityEntry,
    pub(crate) cx: Arc<ActivityCx>,
    pub(crate) activity: Activity,
    pub(crate) limit: Option<Duration>,
    pub(crate) permit: OwnedSemaphorePermit,
    pub(crate) session: Arc<Session>,
    pub(crate) stop: oneshot::Receiver<()>,
}

/// Runs one attempt to its end. A blocking activity that overruns its time keeps its slot until it returns.
pub(crate) async fn run(run: Run) -> AttemptEnd {
    let Run { entry, cx, activity, limit, permit, session, stop } = run;
    if !session.holds() {
        // The lease is over or in doubt: whoever owns the run by now will do this (PROTOCOL 29). The worker is told
        // the moment this is certain; until then there is nothing to do.
        let _ = tokio::time::timeout(Duration::from_millis(100), session.lost()).await;
        return AttemptEnd::Interrupted;
    }
    let end = if entry.blocking {
        blocking(entry, cx.clone(), activity, permit, limit, stop).await
    } else {
        let body = AssertUnwindSafe(entry.attempt(&activity.input, cx.clone())).catch_unwind();
        let end = bounded(body, limit, stop).await;
        drop(permit);
        end
    };
    if matches!(end, AttemptEnd::TimedOut(_) | AttemptEnd::Interrupted) {
        cx.cancel();
    }
    end
}

async fn blocking(
    entry: ActivityEntry,
    cx: Arc<ActivityCx>,
    activity: Activity,
    permit: OwnedSemaphorePermit,
    limit: Option<Duration>,
    stop: oneshot::Receiver<()>,
) -> AttemptEnd {
    let told = cx.clone();
    let (done, mut answer) = oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    // A thread of its own: a runtime waits for its blocking threads before it ends, and then so would the process.
    let thread = std::thread::Builder::new().name("composer-blocking".into()).spawn(move || {
        let _slot = permit;
        let _runtime = runtime.enter();
        let body = AssertUnwindSafe(|| entry.attempt_blocking(&activity.input, cx));
        let _ = done.send(std::panic::catch_unwind(body));
    });
    if let Err(error) = thread {
        return AttemptEnd::Panicked(format!("there is no thread for it: {error}"));
    }
    let body = (&mut answer).map(|done| done.unwrap_or_else(|_| Err(Box::new("its thread is gone"))));
    let end = bounded(body, limit, stop).await;
    if matches!(end, AttemptEnd::Interrupted) {
        // A thread cannot be dropped: it is told, and has settled when it returns.
        told.cancel();
        let _ = answer.await;
    }
    end
}

async fn bounded(
    body: impl Future<Output = Result<Attempted, Box<dyn Any + Send>>>,
    limit: Option<Duration>,
    mut stop: oneshot::Receiver<()>,
) -> AttemptEnd {
    let mut body = std::pin::pin!(body);
    let timer = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        done = &mut body => match done {
            Ok(attempted) => AttemptEnd::Done(attempted),
            Err(panic) => AttemptEnd::Panicked(panic_text(panic)),
        },
        () = timer => AttemptEnd::TimedOut(limit.unwrap_or_default()),
        // An error means that the run let go of the attempt.
        _ = &mut stop => AttemptEnd::Interrupted,
    }
}

/// What a panic said. A payload whose own end panics is leaked: it has had its chance.
pub(crate) fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    if let Err(again) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    text.unwrap_or_else(|| "a panic that carried no text".into())
}
