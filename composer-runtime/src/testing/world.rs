//! The environment itself: rows, clock and process of a test, and the loop that drives them.
//!
//! The loop does what a worker does, one thing after another: it lets each run's driver decide, keeps what was decided,
//! begins attempts, brings their outcomes. When nothing more happens at an instant, whoever drives moves the clock to the
//! next at which something does. No user code runs while the state is borrowed, so a stand-in may send a signal.

use std::{
    cell::{Cell, OnceCell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use composer_sdk::{
    activity::{ActivityCx, ActivityEntry, ActivityInfo, Attempted},
    id::{RunId, Timestamp},
    journal::Entry,
    payload::Payload,
};
use futures::FutureExt;
use tokio::runtime::{Builder, Handle, Runtime};

use super::{
    Error, Journal,
    attempts::{Attempts, Begun, Key, Times, Working},
    cast::{Cast, Part},
    crash::Plan,
    hosted::{Alarm, Hosted},
    memory::Stored,
};
use crate::{
    store::{End, MessageContent, Status},
    task::{
        activity::{AttemptEnd, panic_text, time_left, time_limit},
        driver,
    },
};

/// Journal writes of one call that drives: what writes more loops for ever.
const MOST_WRITES: usize = 50_000;
/// Lines of the last writes that are shown then.
const LAST_LINES: usize = 6;

/// See the module.
pub(super) struct World {
    pub(super) state: RefCell<State>,
    pub(super) cast: RefCell<Cast>,
    pub(super) alarm: Arc<Alarm>,
    /// One after another: two results may be awaited at the same time.
    driving: tokio::sync::Mutex<()>,
    in_activity: Cell<bool>,
    runtime: OnceCell<Runtime>,
}

/// What a test would find after a crash, the clock, and the memory of the process.
pub(super) struct State {
    pub(super) now: Timestamp,
    pub(super) seed: u64,
    pub(super) plan: Plan,
    pub(super) runs: Vec<Run>,
    pub(super) attempts: Attempts,
    messages: i64,
    writes: usize,
    /// Writes that are left to the call that drives.
    budget: usize,
}

/// A run: its rows, and what the process has of it in memory.
pub(super) struct Run {
    pub(super) stored: Stored,
    pub(super) hosted: Option<Hosted>,
}

/// What a turn over all runs has come to.
#[derive(Default)]
struct Turn {
    begin: Vec<(usize, driver::Attempt)>,
    moved: bool,
    reached: bool,
}

/// Looked at after each write; driving ends when it holds.
pub(super) type Goal<'a> = &'a dyn Fn(&State) -> bool;

impl World {
    pub(super) fn new(now: Timestamp, seed: u64) -> Rc<Self> {
        let state = State {
            now,
            seed,
            plan: Plan::Never,
            runs: vec![],
            attempts: Attempts::default(),
            messages: 0,
            writes: 0,
            budget: 0,
        };
        Rc::new(Self {
            state: RefCell::new(state),
            cast: RefCell::default(),
            alarm: Arc::default(),
            driving: tokio::sync::Mutex::default(),
            in_activity: Cell::new(false),
            runtime: OnceCell::new(),
        })
    }

    /// The runtime of tests that have none.
    pub(super) fn runtime(&self) -> &Runtime {
        self.runtime.get_or_init(|| {
            Builder::new_current_thread().enable_all().build().expect("a thread can have a runtime of tokio")
        })
    }

    pub(super) fn journals(&self) -> Vec<Journal> {
        self.state.borrow().runs.iter().map(Run::journal).collect()
    }

    pub(super) fn writes(&self) -> usize {
        self.state.borrow().writes
    }

    /// Drives, moving the clock, until the goal is reached (true), or nothing is to come that could wake that run.
    pub(super) async fn drive(&self, run: usize, goal: Goal<'_>) -> Result<bool, Error> {
        let _turn = self.take_turn().await;
        loop {
            if goal(&self.state.borrow()) || self.settle(goal).await? {
                return Ok(true);
            }
            let mut state = self.state.borrow_mut();
            match state.next_instant() {
                Some(next) if state.runs[run].stored.end.is_none() => state.now = next,
                _ => return Ok(false),
            }
        }
    }

    /// Drives until nothing more happens before that instant, and moves the clock there.
    pub(super) async fn advance(&self, by: Duration) -> Result<(), Error> {
        let _turn = self.take_turn().await;
        let until = self.state.borrow().now.saturating_add(by);
        loop {
            self.settle(&|_| false).await?;
            let mut state = self.state.borrow_mut();
            match state.next_instant().filter(|next| *next <= until) {
                Some(next) => state.now = next,
                None if state.now == until => return Ok(()),
                None => state.now = until,
            }
            state.budget = MOST_WRITES;
        }
    }

    async fn take_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        assert!(
            !self.in_activity.get(),
            "an activity drives the environment that it runs in: it may send messages and look, but not wait for runs"
        );
        let turn = self.driving.lock().await;
        self.state.borrow_mut().budget = MOST_WRITES;
        turn
    }

    /// Drives until nothing more happens at this instant, or the goal is reached: true then.
    async fn settle(&self, goal: Goal<'_>) -> Result<bool, Error> {
        loop {
            let turn = self.state.borrow_mut().turn(&self.cast.borrow(), &self.alarm, goal)?;
            for (run, attempt) in turn.begin {
                self.begin(run, attempt);
            }
            if turn.reached {
                return Ok(true);
            }
            if turn.moved || self.state.borrow_mut().bring_outcome() {
                continue;
            }
            if self.state.borrow().attempts.working.is_empty() {
                return Ok(false);
            }
            self.work().await;
        }
    }

    /// Begins an attempt, and carries it out as far as that needs nothing real.
    fn begin(&self, run: usize, attempt: driver::Attempt) {
        let driver::Attempt { activity, attempt } = attempt;
        let step = activity.step.number;
        let key = Key { run, step, attempt };
        let (part, takes, states) = {
            let cast = self.cast.borrow();
            (cast.part(&activity.step.name, attempt), cast.time_of(&activity.step.name), cast.states())
        };
        let (cx, times) = {
            let mut state = self.state.borrow_mut();
            let now = state.now;
            let Some((name, _)) = part else { return state.nobody(key, &activity) };
            if time_left(&activity, now).is_some_and(|left| left.is_zero()) {
                return state.attempts.arrives(key, now, AttemptEnd::OutOfTime);
            }
            let info = state.runs[run].info(name, &activity, attempt);
            let cx = ActivityCx::new(info, states);
            let (key_for_services, input) = (cx.idempotency_key(), activity.input.clone());
            let began = state
                .attempts
                .begin(key, Begun { info: cx.info().clone(), key: key_for_services, at: now, input });
            let limit = time_limit(&activity, began);
            (cx, Times { began, takes, limit })
        };
        let Some((name, part)) = part else { return };
        let end = match part {
            Part::Hangs => return self.state.borrow_mut().attempts.hang(key, name, times),
            Part::Outcome(attempted) => AttemptEnd::Done(attempted),
            Part::StandIn(stand_in) => {
                self.in_activity(|| caught(|| (stand_in.borrow_mut())(&activity.input, cx)))
            }
            Part::Real(entry) if entry.blocking => {
                self.in_activity(|| on_a_thread(entry, &activity.input, cx))
            }
            Part::Real(entry) => {
                let input = activity.input;
                let attempt = cx.clone();
                let body = async move { entry.attempt(&input, attempt).await };
                let mut body = AssertUnwindSafe(body).catch_unwind().map(ended).boxed();
                match self.in_activity(|| (&mut body).now_or_never()) {
                    Some(end) => end,
                    None => {
                        let working = Working { key, times, cx, body };
                        return self.state.borrow_mut().attempts.working.push(working);
                    }
                }
            }
        };
        self.state.borrow_mut().attempts.end(key, times, end);
    }

    /// Waits for the first attempt that waits for something real, or for a wake from outside.
    async fn work(&self) {
        let mut lent =
            Lent { world: self, working: std::mem::take(&mut self.state.borrow_mut().attempts.working) };
        let over = std::future::poll_fn(|cx| {
            self.alarm.waker.register(cx.waker());
            let polls = lent.working.iter_mut().enumerate();
            let over = self.in_activity(|| {
                polls.into_iter().find_map(|(place, working)| match working.poll(cx) {
                    Poll::Ready(end) => Some((place, end)),
                    Poll::Pending => None,
                })
            });
            if over.is_some() || self.alarm.rang() { Poll::Ready(over) } else { Poll::Pending }
        });
        if let Some((place, end)) = over.await {
            let Working { key, times, .. } = lent.working.remove(place);
            self.state.borrow_mut().attempts.end(key, times, end);
        }
    }

    /// Runs code of the user's that is an activity's.
    fn in_activity<T>(&self, code: impl FnOnce() -> T) -> T {
        let before = self.in_activity.replace(true);
        let value = code();
        self.in_activity.set(before);
        value
    }
}

/// What is polled while the state is not borrowed; given back also when the waiting future is dropped.
struct Lent<'a> {
    world: &'a World,
    working: Vec<Working>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.world.state.borrow_mut().attempts.put_back(std::mem::take(&mut self.working));
    }
}

/// On failure a test says how to repeat it.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let state = self.state.get_mut();
            let (seed, plan) = (state.seed, state.plan.words());
            eprintln!("composer: the environment had seed {seed}{plan}; COMPOSER_SEED={seed} repeats it");
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl State {
    /// Lets each run decide, in order, and keeps what it has decided.
    fn turn(&mut self, cast: &Cast, alarm: &Arc<Alarm>, goal: Goal<'_>) -> Result<Turn, Error> {
        let mut turn = Turn::default();
        for run in 0..self.runs.len() {
            if !turn.reached {
                self.turn_of(run, cast, alarm, goal, &mut turn)?;
            }
        }
        Ok(turn)
    }

    fn turn_of(
        &mut self,
        index: usize,
        cast: &Cast,
        alarm: &Arc<Alarm>,
        goal: Goal<'_>,
        turn: &mut Turn,
    ) -> Result<(), Error> {
        let now = self.now;
        let Run { stored, hosted } = &mut self.runs[index];
        if stored.end.is_some() || stored.due_at > now {
            return Ok(());
        }
        stored.started_at.get_or_insert(now);
        let hosted = hosted.get_or_insert_with(|| Hosted::replay(stored, now, alarm));
        let todo = hosted.turn(stored, now);
        let children = !todo.children.is_empty() || !todo.cancel.is_empty();
        turn.moved |= todo.write.is_some() || !todo.start.is_empty() || !todo.stop.is_empty() || children;
        for step in todo.stop {
            if let Some(attempt) = self.attempts.stop(index, step) {
                hosted.attempt_ended(step, attempt, AttemptEnd::Interrupted, now, 0.0);
            }
        }
        if let Some(mut write) = todo.write {
            go_on_as(stored, &mut write, cast);
            let lives = self.write(index, write)?;
            turn.reached = goal(self);
            if !lives {
                turn.begin.clear();
                return Ok(());
            }
        }
        todo.children.into_iter().for_each(|child| self.start_child(index, child, cast));
        todo.cancel.into_iter().for_each(|(step, child)| self.cancel_child(index, step, child));
        turn.begin.extend(todo.start.into_iter().map(|attempt| (index, attempt)));
        Ok(())
    }

    /// Keeps what a run has decided; false when the process dies over it. What a run merely shows is no journal write.
    fn write(&mut self, index: usize, write: driver::Write) -> Result<bool, Error> {
        if self.budget == 0 {
            return Err(self.endless(index));
        }
        let journals = !write.entries.is_empty() || write.end.is_some();
        self.budget -= 1;
        self.writes += usize::from(journals);
        if journals && self.plan.dies_before(self.writes) {
            self.crash();
            return Ok(false);
        }
        let run = &mut self.runs[index];
        let (mark, continued) = (write.mark, matches!(write.end, Some(End::Continued { .. })));
        let upto = run.stored.write(write);
        self.tell_parent(index);
        if journals && self.plan.dies_after(self.writes) {
            self.crash();
            return Ok(false);
        }
        let run = &mut self.runs[index];
        if let Some(hosted) = &mut run.hosted {
            hosted.written(upto, mark, self.now);
            let forgotten = journals && self.plan == Plan::Evict && hosted.is_idle();
            if run.stored.end.is_some() || forgotten || continued {
                run.hosted = None;
            }
        }
        Ok(true)
    }

    fn endless(&self, index: usize) -> Error {
        let lines = self.runs[index].journal().lines().to_vec();
        let last = lines.iter().skip(lines.len().saturating_sub(LAST_LINES)).map(|line| format!("{line}\n"));
        Error::Endless { writes: MOST_WRITES, last: last.collect() }
    }

    /// The process dies: its memory is gone, and with it whatever was under way.
    pub(super) fn crash(&mut self) {
        self.runs.iter_mut().for_each(|run| run.hosted = None);
        self.attempts.crash();
    }

    /// Nobody plays the activity.
    fn nobody(&mut self, key: Key, activity: &driver::Activity) {
        let (name, line) = (&activity.step.name, &activity.step.line);
        let reason = format!(
            "activity `{name}` (called at {line}) is not part of this test: add `.activity::<{name}>()`, or \
             `.mock::<{name}>().with(…)`, to the environment"
        );
        if let Some(hosted) = &mut self.runs[key.run].hosted {
            hosted.give_up(key.step, key.attempt, reason, self.now);
        }
    }

    /// Brings the next outcome that has arrived to its run, if there is one.
    fn bring_outcome(&mut self) -> bool {
        let Some((key, end)) = self.attempts.take_due(self.now) else { return false };
        let random = self.random(key);
        if let Some(hosted) = &mut self.runs[key.run].hosted {
            hosted.attempt_ended(key.step, key.attempt, end, self.now, random);
        }
        true
    }

    /// For the pause after an attempt: the same however often that attempt is made, so that crashes change nothing.
    fn random(&self, key: Key) -> f64 {
        let place = (key.run as u64) << 48 | u64::from(key.step) << 16 | u64::from(key.attempt);
        fastrand::Rng::with_seed((self.seed ^ place).wrapping_mul(0x9e37_79b9_7f4a_7c15)).f64()
    }

    /// The id of the next run.
    pub(super) fn new_run_id(&self) -> RunId {
        let place = (self.runs.len() as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut bytes = [0; 10];
        fastrand::Rng::with_seed(self.seed ^ place).fill(&mut bytes);
        let millis = u64::try_from(self.now.as_micros() / 1_000).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid().into()
    }

    /// Puts a message into a run's inbox, unless the run is closed: then the answer is how.
    pub(super) fn send(&mut self, index: usize, content: MessageContent) -> Result<(), Status> {
        self.messages += 1;
        let was_open = self.runs[index].stored.end.is_none();
        self.runs[index].stored.send(self.messages, content)?;
        if was_open && self.runs[index].stored.end.is_some() {
            self.tell_parent(index);
        }
        Ok(())
    }

    /// When time alone changes something.
    fn next_instant(&self) -> Option<Timestamp> {
        let open = self.runs.iter().filter(|run| run.stored.end.is_none());
        let instants = open.filter_map(|run| match &run.hosted {
            Some(hosted) => hosted.next_instant(),
            None => Some(run.stored.due_at),
        });
        instants.chain(self.attempts.next_instant()).filter(|at| *at > self.now).min()
    }
}

impl Run {
    /// What its journal says.
    pub(super) fn journal(&self) -> Journal {
        let end = self.stored.end.as_ref().map(|_| self.stored.status());
        Journal::of(&self.stored.journal, end)
    }

    /// Its entries.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.stored.journal
    }

    fn info(&self, name: &'static str, activity: &driver::Activity, attempt: u32) -> ActivityInfo {
        ActivityInfo {
            run_id: self.stored.run_id,
            workflow_id: self.stored.workflow_id.clone(),
            workflow: self.stored.workflow.name,
            step: activity.step.number,
            name,
            attempt,
            scheduled_at: activity.scheduled_at,
        }
    }
}

/// A run may go on as another workflow, if the test has it.
fn go_on_as(stored: &mut Stored, write: &mut driver::Write, cast: &Cast) {
    let Some(End::Continued { workflow, .. }) = &write.end else { return };
    match cast.workflow_named(workflow) {
        Some(entry) => stored.workflow = entry,
        None if workflow == stored.workflow.name => {}
        None => {
            let reason = format!(
                "workflow `{workflow}`, with which the run goes on, is not part of this test: add \
                 `.workflow::<{workflow}>()` to the environment"
            );
            write.end = Some(End::Stuck { reason, build: "this test".into() });
        }
    }
}

/// A panic is a failed attempt.
fn caught(attempt: impl FnOnce() -> Attempted) -> AttemptEnd {
    ended(catch_unwind(AssertUnwindSafe(attempt)))
}

fn ended(attempted: std::thread::Result<Attempted>) -> AttemptEnd {
    attempted.map_or_else(|panic| AttemptEnd::Panicked(panic_text(panic)), AttemptEnd::Done)
}

/// A blocking activity, on a thread of its own as in production; this one waits for it.
fn on_a_thread(entry: ActivityEntry, input: &Payload, cx: Arc<ActivityCx>) -> AttemptEnd {
    let runtime = Handle::try_current().ok();
    let attempt = || {
        let _runtime = runtime.as_ref().map(Handle::enter);
        entry.attempt_blocking(input, cx)
    };
    ended(std::thread::scope(|scope| scope.spawn(attempt).join()))
}
