//! The attempts under way, by the virtual clock, and the record of all that were begun.
//!
//! An attempt is carried out when it begins, and its outcome arrives when its time is over: at once, unless the test
//! says how long it takes. The clock stands still while a real activity waits for something real.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    marker::PhantomData,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use composer_sdk::{
    __private::Lends,
    Activity,
    activity::{ActivityCx, ActivityInfo},
    id::{RunId, Timestamp},
    payload::Payload,
};
use futures::{FutureExt, future::BoxFuture};

use crate::task::activity::AttemptEnd;

/// Which attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// The run's place in the environment.
    pub(super) run: usize,
    pub(super) step: u32,
    pub(super) attempt: u32,
}

/// An attempt that was begun, as it was recorded.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    pub(super) info: ActivityInfo,
    /// Its idempotency key.
    pub(super) key: String,
    pub(super) at: Timestamp,
    pub(super) input: Payload,
}

/// How long an attempt takes, and how long it may.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) began: Timestamp,
    pub(super) takes: Duration,
    pub(super) limit: Option<Duration>,
}

impl Times {
    /// When an attempt of that outcome is over, and with what.
    fn over(self, end: AttemptEnd) -> (Timestamp, AttemptEnd) {
        match self.limit {
            Some(limit) if limit < self.takes => self.timed_out(limit),
            _ => (self.began.saturating_add(self.takes), end),
        }
    }

    fn timed_out(self, limit: Duration) -> (Timestamp, AttemptEnd) {
        (self.began.saturating_add(limit), AttemptEnd::TimedOut(limit))
    }
}

/// What is under way, and what was begun.
#[derive(Default)]
pub(super) struct Attempts {
    /// Carried out: what arrives when, in the order of their beginnings.
    over: BTreeMap<(Timestamp, u64), (Key, AttemptEnd)>,
    /// Those that wait for something real.
    pub(super) working: Vec<Working>,
    /// Those that never answer, and have no limit.
    hanging: Vec<(Key, &'static str)>,
    /// When each was first begun: one that is begun again after a crash takes what is left.
    began: HashMap<Key, Timestamp>,
    order: u64,
    /// Everything that was begun, in order.
    pub(super) record: Vec<Begun>,
}

/// An attempt that waits for something real.
pub(super) struct Working {
    pub(super) key: Key,
    pub(super) times: Times,
    pub(super) cx: Arc<ActivityCx>,
    pub(super) body: BoxFuture<'static, AttemptEnd>,
}

impl Attempts {
    /// Records that an attempt begins; returns when it was first begun.
    pub(super) fn begin(&mut self, key: Key, begun: Begun) -> Timestamp {
        let began = *self.began.entry(key).or_insert(begun.at);
        self.record.push(begun);
        began
    }

    /// It was carried out.
    pub(super) fn end(&mut self, key: Key, times: Times, end: AttemptEnd) {
        let (at, end) = times.over(end);
        self.arrives(key, at, end);
    }

    /// It never answers.
    pub(super) fn hang(&mut self, key: Key, activity: &'static str, times: Times) {
        match times.limit {
            Some(limit) => {
                let (at, end) = times.timed_out(limit);
                self.arrives(key, at, end);
            }
            None => self.hanging.push((key, activity)),
        }
    }

    /// It never began.
    pub(super) fn arrives(&mut self, key: Key, at: Timestamp, end: AttemptEnd) {
        self.order += 1;
        self.over.insert((at, self.order), (key, end));
    }

    /// The first outcome that has arrived by now.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Option<(Key, AttemptEnd)> {
        let first = self.over.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }

    /// When the next outcome arrives.
    pub(super) fn next_instant(&self) -> Option<Timestamp> {
        self.over.keys().next().map(|(at, _)| *at)
    }

    /// Stops the attempt of that step, whichever it is.
    pub(super) fn stop(&mut self, run: usize, step: u32) -> Option<u32> {
        let is = |key: &Key| (key.run, key.step) == (run, step);
        if let Some(place) = self.working.iter().position(|working| is(&working.key)) {
            let Working { key, cx, body, .. } = self.working.swap_remove(place);
            drop(body);
            cx.cancel();
            return Some(key.attempt);
        }
        if let Some(place) = self.hanging.iter().position(|(key, _)| is(key)) {
            return Some(self.hanging.swap_remove(place).0.attempt);
        }
        let place = self.over.iter().find(|(_, (key, _))| is(key)).map(|(place, _)| *place)?;
        self.over.remove(&place).map(|(key, _)| key.attempt)
    }

    /// The process is gone, and with it whatever was under way.
    pub(super) fn crash(&mut self) {
        self.over.clear();
        self.working.clear();
        self.hanging.clear();
    }

    /// Time has passed without a process: what is begun again takes its whole time.
    pub(super) fn forget_beginnings(&mut self) {
        self.began.clear();
    }

    /// The activities of that run that never answer.
    pub(super) fn hanging(&self, run: usize) -> Vec<&'static str> {
        self.hanging.iter().filter(|(key, _)| key.run == run).map(|(_, name)| *name).collect()
    }

    /// Takes back what was lent for polling.
    pub(super) fn put_back(&mut self, working: Vec<Working>) {
        let begun_meanwhile = std::mem::replace(&mut self.working, working);
        self.working.extend(begun_meanwhile);
    }
}

impl Working {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<AttemptEnd> {
        self.body.poll_unpin(cx)
    }
}

/// One attempt of an activity that was begun: what it was asked, and when.
pub struct Attempt<A> {
    begun: Begun,
    activity: PhantomData<fn() -> A>,
}

impl<A: Activity> Attempt<A> {
    pub(super) fn new(begun: Begun) -> Self {
        Self { begun, activity: PhantomData }
    }

    /// Its arguments, as the activity declares them, without `#[state]`:
    /// `attempt.args(|order, cents| …)`.
    ///
    /// # Panics
    /// When the arguments cannot be read, which the attempt itself reported, too.
    #[track_caller]
    pub fn args<F, R>(&self, mut read: F) -> R
    where
        A: Lends<F, R>,
    {
        A::lend(&self.begun.input, &mut read).unwrap_or_else(|failure| panic!("`{}`: {failure}", A::NAME))
    }

    /// Which attempt of its step it was, from 1. One that a crash has cut off is begun again under the same number.
    pub fn number(&self) -> u32 {
        self.begun.info.attempt
    }

    /// The number of its step in the run.
    pub fn step(&self) -> u32 {
        self.begun.info.step
    }

    /// Its idempotency key: the same for every attempt of one step.
    pub fn idempotency_key(&self) -> &str {
        &self.begun.key
    }

    /// The run that asked.
    pub fn run_id(&self) -> RunId {
        self.begun.info.run_id
    }

    /// When it began, by the virtual clock.
    pub fn at(&self) -> SystemTime {
        self.begun.at.into()
    }
}

impl<A: Activity> fmt::Debug for Attempt<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {} of `{}` with {:?}", self.begun.info.attempt, A::NAME, self.begun.input)
    }
}
