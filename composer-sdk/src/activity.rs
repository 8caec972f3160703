//! What activity code may ask, and what the runtime uses to carry an activity out.
//!
//! For activity code: [`info`], [`attempt`], [`idempotency_key`], [`cancelled`], [`is_cancelled`]. They find the
//! current activity through a thread-local that is set while the activity is being polled.
//!
//! For the runtime: [`ActivityEntry`] makes one attempt. Bad input is an outcome like any other; a panic of the
//! user's code unwinds to the caller, who counts it as a failed attempt. Retrying, timeouts and slots are left to it.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    task::{Context, Poll, Waker},
};

pub use crate::definition::Activity;
use crate::{
    context::{self, Here},
    definition::{BodyFuture, Env, Lends},
    error::{Failure, met_while},
    id::{RunId, Timestamp, WorkflowId},
    journal::Outcome,
    options::ActivityOptions,
    payload::Payload,
};

/// A registered activity: everything that a worker needs to carry it out.
#[derive(Clone, Copy)]
pub struct ActivityEntry {
    /// Its name in the journal.
    pub name: &'static str,
    /// Where it is written, `file:line`.
    pub source: &'static str,
    /// Whether it is a plain `fn` that may block its thread.
    pub blocking: bool,
    needs: fn() -> Vec<Need>,
    options: fn() -> ActivityOptions,
    attempt: fn(&Payload, Arc<ActivityCx>) -> BodyFuture<'static, Attempted>,
    attempt_blocking: fn(&Payload, Arc<ActivityCx>) -> Attempted,
}

impl ActivityEntry {
    /// Of an `#[activity]` function.
    pub fn of<A: Activity>() -> Self {
        Self {
            name: A::NAME,
            source: A::SOURCE,
            blocking: A::BLOCKING,
            needs: A::needs,
            options: A::options,
            attempt: attempt_of::<A>,
            attempt_blocking: attempt_blocking_of::<A>,
        }
    }

    /// What it wants from the worker besides its arguments.
    pub fn needs(&self) -> Vec<Need> {
        (self.needs)()
    }

    /// The options of its attribute.
    pub fn options(&self) -> ActivityOptions {
        (self.options)()
    }

    /// One attempt of an async activity. Input that cannot be read is an outcome; a panic unwinds to the caller.
    pub fn attempt(&self, input: &Payload, cx: Arc<ActivityCx>) -> BodyFuture<'static, Attempted> {
        (self.attempt)(input, cx)
    }

    /// One attempt of a blocking activity, to its end: for a thread that may block.
    pub fn attempt_blocking(&self, input: &Payload, cx: Arc<ActivityCx>) -> Attempted {
        (self.attempt_blocking)(input, cx)
    }
}

impl fmt::Debug for ActivityEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "activity `{}` ({})", self.name, self.source)
    }
}

fn attempt_of<A: Activity>(input: &Payload, cx: Arc<ActivityCx>) -> BodyFuture<'static, Attempted> {
    // User code already runs here (`Deserialize` of the arguments), so the context is set for it, too.
    let body = {
        let _here = context::enter(Here::Activity(cx.clone()));
        A::body(input, Env::new(cx.clone()))
    };
    let attempt = async move {
        match body {
            Ok(body) => Attempted::of::<A>(&body.await),
            Err(failure) => Attempted::refused(failure),
        }
    };
    Box::pin(InActivity { cx, attempt: Some(Box::pin(attempt)) })
}

fn attempt_blocking_of<A: Activity>(input: &Payload, cx: Arc<ActivityCx>) -> Attempted {
    let _here = context::enter(Here::Activity(cx.clone()));
    A::body_blocking(input, Env::new(cx))
        .map_or_else(Attempted::refused, |output| Attempted::of::<A>(&output))
}

/// Sets the activity's context around every poll, and around the drop of what is left.
struct InActivity {
    cx: Arc<ActivityCx>,
    attempt: Option<BodyFuture<'static, Attempted>>,
}

impl Future for InActivity {
    type Output = Attempted;
    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Attempted> {
        let _here = context::enter(Here::Activity(self.cx.clone()));
        let attempt = self.attempt.as_mut().expect("invariant: only `drop` takes the attempt away");
        attempt.as_mut().poll(task)
    }
}

impl Drop for InActivity {
    fn drop(&mut self) {
        let _here = context::enter(Here::Activity(self.cx.clone()));
        drop(self.attempt.take());
    }
}

/// What came of one attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempted {
    /// What the workflow gets, if this attempt is the one that decides.
    pub outcome: Outcome,
    /// The error's chain; empty for a value.
    pub error: String,
    /// Whether another attempt may follow.
    pub retry: Verdict,
}

impl Attempted {
    /// What a worker makes of an activity's result.
    pub fn of<A: Activity>(output: &A::Output) -> Self {
        let (outcome, marks) = met_while(|| A::encode(output));
        match outcome {
            Outcome::Failed(failure) => Self::refused(failure),
            Outcome::Ok(_) => Self { outcome, error: String::new(), retry: Verdict::Final },
            Outcome::Err(_) => {
                let retry = A::retryable(output).and(marks.verdict());
                Self { outcome, error: A::judge(output).error, retry }
            }
        }
    }

    /// One attempt in which a closure of the activity's own arguments stands in for it: for tests. A panic unwinds to
    /// the caller.
    #[doc(hidden)]
    pub fn by<A, F>(input: &Payload, cx: Arc<ActivityCx>, stand_in: &mut F) -> Self
    where
        A: Activity + Lends<F, A::Output>,
    {
        let _here = context::enter(Here::Activity(cx));
        A::lend(input, stand_in).map_or_else(Self::refused, |output| Self::of::<A>(&output))
    }

    fn refused(failure: Failure) -> Self {
        Self { error: failure.to_string(), outcome: Outcome::Failed(failure), retry: Verdict::Final }
    }
}

/// Whether another attempt may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No: a value, or an error that trying again cannot heal.
    Final,
    /// Yes.
    Retry {
        /// Not before that long, if the error itself says so.
        after: Option<std::time::Duration>,
    },
}

impl Verdict {
    /// Both must allow another attempt; the first delay that is known counts.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Retry { after }, Self::Retry { after: other }) => Self::Retry { after: after.or(other) },
            _ => Self::Final,
        }
    }
}

/// What an activity may know about the call that it carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityInfo {
    /// The run that asked.
    pub run_id: RunId,
    /// The user's key of that run.
    pub workflow_id: WorkflowId,
    /// The workflow's name.
    pub workflow: &'static str,
    /// The number of the step in that run.
    pub step: u32,
    /// The activity's name.
    pub name: &'static str,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// When the workflow asked.
    pub scheduled_at: Timestamp,
}

/// What a worker shares with its activities as `#[state]`: one value a type.
#[derive(Default)]
pub struct States(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl States {
    /// Adds a value, in the place of an earlier one of that type; false when there was one.
    pub fn insert<T: Send + Sync + 'static>(&mut self, state: T) -> bool {
        self.0.insert(TypeId::of::<T>(), Arc::new(state)).is_none()
    }

    /// Whether the need can be met.
    pub fn has(&self, need: &Need) -> bool {
        self.0.contains_key(&need.ty)
    }

    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.0.get(&TypeId::of::<T>())?.clone().downcast().ok()
    }
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} states", self.0.len())
    }
}

/// Something that an activity wants from the worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Its type.
    pub ty: TypeId,
    /// Its type, for messages.
    pub type_name: &'static str,
    /// In which role.
    pub what: NeedKind,
}

/// The kinds of [`Need`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NeedKind {
    /// A `#[state]` parameter.
    State,
}

/// The context of one attempt.
#[derive(Debug)]
pub struct ActivityCx {
    info: ActivityInfo,
    states: Arc<States>,
    requests: AtomicU32,
    cancelled: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl ActivityCx {
    /// Of an attempt that is about to be made.
    pub fn new(info: ActivityInfo, states: Arc<States>) -> Arc<Self> {
        Arc::new(Self {
            info,
            states,
            requests: AtomicU32::new(0),
            cancelled: AtomicBool::new(false),
            waiting: Mutex::default(),
        })
    }

    /// Tells the activity to stop.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        let waiting = std::mem::take(&mut *self.lock());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// The same on every attempt and redelivery of the call: `{run_id}-{step}`.
    pub fn idempotency_key(&self) -> String {
        format!("{}-{}", self.info.run_id, self.info.step)
    }

    /// The key of the next request that this attempt makes: the activity's own, then `…-2`, `…-3`.
    #[cfg_attr(not(feature = "http"), allow(dead_code))]
    pub(crate) fn next_request_key(&self) -> String {
        match self.requests.fetch_add(1, Ordering::Relaxed) {
            0 => self.idempotency_key(),
            before => format!("{}-{}", self.idempotency_key(), before + 1),
        }
    }

    /// What the activity may know.
    pub fn info(&self) -> &ActivityInfo {
        &self.info
    }

    pub(crate) fn states(&self) -> &States {
        &self.states
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// What this activity may know about the call that it carries out.
///
/// # Panics
/// Outside an activity, as all functions of this module.
#[track_caller]
pub fn info() -> ActivityInfo {
    current("info").info.clone()
}

/// Which attempt this is, from 1.
#[track_caller]
pub fn attempt() -> u32 {
    current("attempt").info.attempt
}

/// A key for the services that this activity calls: the same on every attempt and redelivery of this call, different
/// for every other.
#[track_caller]
pub fn idempotency_key() -> String {
    current("idempotency_key").idempotency_key()
}

/// Whether this activity was told to stop.
#[track_caller]
pub fn is_cancelled() -> bool {
    current("is_cancelled").is_cancelled()
}

/// Resolves when this activity is told to stop: the run was cancelled, the call was dropped, or its time is up.
#[track_caller]
pub fn cancelled() -> Cancelled {
    Cancelled { cx: current("cancelled") }
}

/// The future of [`cancelled`].
///
/// # Cancel safety
/// Dropping it has no effect.
#[must_use = "this does nothing until it is awaited"]
pub struct Cancelled {
    cx: Arc<ActivityCx>,
}

impl Future for Cancelled {
    type Output = ();
    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        {
            let mut waiting = self.cx.lock();
            if !waiting.iter().any(|waker| waker.will_wake(task.waker())) {
                waiting.push(task.waker().clone());
            }
        }
        // Looked at after the waker is in the list: `cancel` sets the flag before it empties the list.
        if self.cx.is_cancelled() { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[track_caller]
fn current(what: &str) -> Arc<ActivityCx> {
    match context::here() {
        Here::Activity(cx) => cx,
        _ => panic!(
            "`activity::{what}` was called outside an activity; inside one, tasks spawned with `tokio::spawn` are \
             outside, too: ask first and move the answer in"
        ),
    }
}
