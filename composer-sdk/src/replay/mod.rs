//! The replay machine: runs a workflow against its journal. Pure: no clock, no I/O, no threads.
//!
//! ```text
//!    journal ──feed──►  Machine  ──drive──►  Progress: Waiting, Done, Stuck
//!                          │
//!                          └─────take────►  Commands: what to do, in step order
//! ```
//!
//! *Feed* one entry, *drive* the workflow until it can go no further, *take* what it asked for, *look* at its state.
//! A first run and a replay take the same path: the workflow only sees values that are decoded from journaled bytes,
//! one event at a time, in journal order, and is polled to quiescence in between. So combinators that poll in any
//! order (`join!`, `select!`, `FuturesUnordered`) come to the same result each time.
//!
//! **What is guaranteed.** An entry is handed to the step of its number only if kind, name and input digest are those
//! that the code has asked for by then; otherwise the run is [`Progress::Stuck`], both sides are shown, and no command
//! comes out. A panic, a wait on nothing durable and a wake from outside end in the same way: never in the caller.
//!
//! **What is left to the owner.** To journal before feeding; to drive inside `tokio::task::coop::unconstrained`, since
//! tokio's cooperative budget makes honest channels look foreign; to start nothing before the whole journal was fed.

mod branches;
mod cancel;
mod cursor;
mod determinism;
mod future;
mod mailbox;
mod report;
mod run;
mod side_effects;
mod undo;

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

pub use report::{Guess, Mismatch, StuckReason};

pub(crate) use future::{Ask, Leaf, MailboxLeaf};
pub(crate) use run::{Answer, Run, Work, line};
pub(crate) use undo::Undoing;

use branches::Branches;

use crate::{
    call::StartRequest,
    context::{self, Here},
    definition::BodyFuture,
    error::{Failure, FailureKind},
    id::{RunId, Timestamp, WorkflowId},
    journal::{Entry, Event, Outcome, Step},
    options::ActivityOptions,
    payload::Payload,
    workflow::{Ended, WorkflowEntry},
};

/// How often a workflow may wake itself in a row without asking for or getting anything.
const MAX_IDLE_POLLS: u32 = 100_000;

/// A run as its machine needs it.
#[derive(Clone)]
pub struct Start {
    /// The run.
    pub run_id: RunId,
    /// The run whose random numbers it draws: itself. A fork draws those of its original, whose steps it repeats.
    pub seed: RunId,
    /// The user's key of it.
    pub workflow_id: WorkflowId,
    /// The workflow's code.
    pub workflow: WorkflowEntry,
    /// Its arguments.
    pub input: Payload,
    /// When a worker first took it: `now()` until the first event.
    pub started_at: Timestamp,
    /// Called, from any thread, when something outside the machine wakes the workflow. The owner then drives.
    pub alarm: Arc<dyn Fn() + Send + Sync>,
}

/// How far a workflow has come.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a run that is done or stuck must not be driven on"]
pub enum Progress {
    /// It waits for events.
    Waiting,
    /// It ended.
    Done(Finished),
    /// It goes on as a new generation, from the start.
    Continued(Continuation),
    /// It cannot go on with this code. The machine is of no more use.
    Stuck(StuckReason),
}

/// The next generation of a run: the same run, with a journal that begins anew.
#[derive(Debug, Clone, PartialEq)]
pub struct Continuation {
    /// The workflow that goes on.
    pub workflow: &'static str,
    /// Its arguments.
    pub input: Payload,
    /// Counts the generations: 1 for the second.
    pub generation: u32,
    /// Step numbers that were taken so far.
    pub steps: u32,
    /// The signals that nobody has received: names and values, in order.
    pub signals: Vec<(String, Payload)>,
}

impl Continuation {
    /// What the journal of the new generation begins with, in order.
    pub fn events(self) -> Vec<Event> {
        let Self { workflow, input, generation, steps, signals } = self;
        let begin = Event::Continued { generation, steps, workflow: workflow.to_owned(), input };
        let signals = signals.into_iter().map(|(name, payload)| Event::Signal { name, inbox: 0, payload });
        std::iter::once(begin).chain(signals).collect()
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// In which way.
    pub status: FinishedStatus,
    /// With what.
    pub outcome: Outcome,
    /// Why, for people, when it is not a value.
    pub reason: Option<String>,
    /// The places in the journal of the signals that nobody received.
    pub unconsumed: Vec<u32>,
}

/// The ways in which a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishedStatus {
    /// With a value.
    Completed,
    /// With an error.
    Failed,
    /// By a cancellation.
    Cancelled,
    /// By its own timeout.
    TimedOut,
}

/// What a workflow wants done.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Command {
    /// Carry out an activity.
    RunActivity {
        /// Which step it is.
        step: Step,
        /// Its arguments.
        input: Payload,
        /// How.
        options: ActivityOptions,
        /// How many attempts have failed so far.
        attempts: u32,
        /// The earliest instant of the next one.
        retry_at: Option<Timestamp>,
        /// When the workflow asked.
        scheduled_at: Timestamp,
    },
    /// Wake the workflow at an instant.
    SetTimer {
        /// Which step it is.
        step: Step,
        /// The instant.
        due: Timestamp,
        /// The length, for one that was asked relative to `now()`.
        after: Option<Duration>,
        /// Whether the journal holds its `TimerSet`, so that the instant is fixed.
        armed: bool,
    },
    /// Start a child workflow.
    StartChild {
        /// Which step it is.
        step: Step,
        /// The run that is asked for.
        request: Box<StartRequest>,
        /// Its run id, if the journal holds one: it may be there already.
        run_id: Option<RunId>,
        /// Whether it goes on when nobody waits for it any more.
        detached: bool,
    },
    /// Journal what a side effect gave, as its `StepDone`, and feed it: the workflow waits for nothing else.
    Record {
        /// Which step it is.
        step: Step,
        /// What it gave.
        outcome: Outcome,
        /// The error in words; empty for a value.
        error: String,
    },
    /// The workflow has dropped the step: stop the activity, delete the timer, ask the child to cancel. A later result is
    /// not delivered.
    Abandon {
        /// The step's number.
        step: u32,
        /// The child that is to be asked, if the step is one that may be there.
        child: Option<RunId>,
    },
}

impl Command {
    /// The number of the step that it is about.
    pub fn step(&self) -> u32 {
        match self {
            Self::RunActivity { step, .. }
            | Self::SetTimer { step, .. }
            | Self::StartChild { step, .. }
            | Self::Record { step, .. } => step.number,
            Self::Abandon { step, .. } => *step,
        }
    }
}

/// One workflow and its journal, so far.
pub struct Machine {
    run: Arc<Run>,
    waker: Waker,
    start: Start,
    body: Option<BodyFuture<'static, Ended>>,
    branches: Branches,
    /// Entries up to this one were there before this life of the run.
    recorded: u32,
    /// The last entry that was fed.
    fed: u32,
    /// Whether something was delivered (or nothing was polled yet) since the last drive.
    dirty: bool,
    begun: bool,
    /// The run is to end in this way.
    stop: Option<(FinishedStatus, Failure)>,
    /// The body is over, and its undo steps are not.
    undoing: Option<Finished>,
    /// Whom the last entry wakes.
    wakes: Vec<Waker>,
    /// What an error's reason for people mentions.
    last_failed: Option<String>,
    end: Option<Progress>,
}

impl Machine {
    /// A run before its first poll.
    pub fn new(start: Start) -> Self {
        let run = Run::new(&start, 0, 0);
        Self::of(run, start)
    }

    fn of(run: Arc<Run>, start: Start) -> Self {
        Self {
            waker: Waker::from(run.clone()),
            run,
            start,
            body: None,
            branches: Branches::default(),
            recorded: 0,
            fed: 0,
            dirty: true,
            begun: false,
            stop: None,
            undoing: None,
            wakes: Vec::new(),
            last_failed: None,
            end: None,
        }
    }

    /// The same for a run that has lived before, and whose journal holds that many entries by now. All of them are to be
    /// fed. Until the workflow has come to rest after the last of them it is *replaying*: it does what it has done
    /// before. So no side effect runs whose value the journal may hold, and [`workflow::log`](crate::workflow::log) is
    /// quiet.
    pub fn resumed(mut self, entries: u32) -> Self {
        self.run.set_replaying(true);
        self.recorded = entries;
        self
    }

    /// Takes one entry in. Drive after each that is delivered; if that was left out, it is made up for here.
    ///
    /// A journal is fed to its end even when the workflow has ended before: what the journal holds beyond the end
    /// may show that the code has changed.
    pub fn feed(&mut self, entry: &Entry) {
        if let Event::Continued { generation, steps, input, .. } = &entry.event {
            return self.begin_generation(entry, *generation, *steps, input);
        }
        if self.dirty {
            let _ = self.drive();
        }
        match &mut self.end {
            Some(Progress::Stuck(StuckReason::Nondeterminism(mismatch))) => {
                return mismatch.look_at(&entry.event);
            }
            Some(Progress::Stuck(_)) => return,
            _ => {}
        }
        self.fed = entry.seq;
        match self.accept(entry) {
            Ok(()) => self.wakes.drain(..).for_each(|waker| self.run.deliver(waker)),
            Err(mismatch) => self.end = Some(Progress::Stuck(StuckReason::Nondeterminism(mismatch))),
        }
    }

    /// Of what was before, a generation knows nothing but which numbers were taken.
    fn begin_generation(&mut self, entry: &Entry, generation: u32, steps: u32, input: &Payload) {
        let start = Start { input: input.clone(), started_at: entry.at, ..self.start.clone() };
        let run = Run::new(&start, generation, steps);
        run.set_replaying(self.run.is_replaying());
        let mut next = Self::of(run, start);
        (next.recorded, next.fed) = (self.recorded, entry.seq);
        *self = next;
    }

    /// Polls the workflow until it waits for the next event, ends, or is stuck.
    pub fn drive(&mut self) -> Progress {
        self.dirty = false;
        if self.end.is_none() && self.undoing.is_none() {
            let mut progress = self.poll_to_quiescence();
            if progress == Progress::Waiting && self.catches_up() {
                progress = self.poll_to_quiescence();
            }
            match progress {
                Progress::Waiting => return Progress::Waiting,
                end => self.end_body(end),
            }
        }
        if self.end.is_none() {
            self.end = self.undo();
        }
        match self.end.clone() {
            Some(Progress::Done(finished)) => {
                // Signals may have come after the end.
                let unconsumed = self.run.lock().mailboxes.left();
                Progress::Done(Finished { unconsumed, ..finished })
            }
            Some(end) => end,
            None => Progress::Waiting,
        }
    }

    /// Whether the run is on its way to an end that is decided: its own timeout changes nothing any more.
    pub fn is_ending(&self) -> bool {
        self.stop.is_some() || self.undoing.is_some() || self.end.is_some()
    }

    /// The commands that are new since the last call, in step order. After a replay: everything that is still open,
    /// with what the journal knows of it. Of a stuck run: none.
    pub fn take(&mut self) -> Vec<Command> {
        let mut state = self.run.lock();
        let asked = std::mem::take(&mut state.asked);
        let abandoned = std::mem::take(&mut state.abandoned);
        match &self.end {
            Some(Progress::Stuck(_)) => Vec::new(),
            Some(_) => cursor::stop_everything(&mut state, abandoned),
            None => cursor::commands(&mut state, asked, abandoned),
        }
    }

    /// The run.
    pub fn run_id(&self) -> RunId {
        self.run.id
    }

    /// The steps that were asked for and have no result yet.
    pub fn open(&self) -> Vec<Step> {
        let mut state = self.run.lock();
        let open: Vec<u32> = state.open.iter().copied().collect();
        open.into_iter().filter_map(|number| state.asked(number).map(|asked| asked.step.clone())).collect()
    }

    /// Whether the workflow waits for a signal.
    pub fn waits_for_signals(&self) -> bool {
        self.run.lock().mailboxes.has_waiters()
    }

    /// The signals that the workflow waits for, by name, sorted.
    pub fn awaited_signals(&self) -> Vec<String> {
        self.run.lock().mailboxes.awaited()
    }

    /// `file:line` of the last step that was asked for; empty before the first.
    pub fn last_line(&self) -> String {
        self.run.last_line()
    }

    /// What the workflow has published since the last call, the last value of each name. It belongs into the transaction
    /// of the entries that were fed since then; after a replay it is there already.
    pub fn take_published(&mut self) -> Vec<(&'static str, Payload)> {
        std::mem::take(&mut self.run.lock().published).into_iter().collect()
    }

    /// Calls that were built and dropped without being awaited, in words, since the last call: work that the author
    /// of the workflow may believe done. Worth a warning on the first run; a replay finds them again.
    pub fn take_forgotten(&mut self) -> Vec<String> {
        std::mem::take(&mut self.run.lock().forgotten)
    }

    /// Lets another thread ask where a long poll is.
    pub fn observer(&self) -> Observer {
        Observer(self.run.clone())
    }

    /// Applies an entry to the state; leaves whom to wake in `wakes`.
    fn accept(&mut self, entry: &Entry) -> Result<(), Box<Mismatch>> {
        let ended = self.end.is_some() || self.undoing.is_some();
        let mut state = self.run.lock();
        let woken = match &entry.event {
            Event::StepDone { step, attempt, error, outcome, .. } => {
                cursor::pair(&mut state, step, ended)?;
                if !matches!(outcome, Outcome::Ok(_)) {
                    let attempts = match attempt {
                        0 => String::new(), // of a side effect
                        1 => " after 1 attempt".to_owned(),
                        n => format!(" after {n} attempts"),
                    };
                    self.last_failed = Some(format!(
                        "step {} `{}` ({}) failed{attempts}: {error}",
                        step.number, step.name, step.line,
                    ));
                }
                state.settle(step.number, Answer::Done(outcome.clone()))
            }
            Event::AttemptFailed { step, attempt, retry_at, .. } => {
                let asked = cursor::pair(&mut state, step, ended)?;
                asked.attempts = *attempt;
                asked.retry_at = Some(*retry_at);
                return Ok(());
            }
            Event::TimerSet { step, due } => {
                cursor::pair(&mut state, step, ended)?.arm(*due);
                return Ok(());
            }
            Event::ChildStarted { step, run_id } => {
                cursor::pair(&mut state, step, ended)?.child = Some(*run_id);
                return Ok(());
            }
            Event::ChildDone { step, outcome, .. } => {
                cursor::pair_child(&mut state, *step, ended)?;
                if let Some(asked) = state.asked(*step)
                    && !matches!(outcome, Outcome::Ok(_))
                {
                    let (name, line) = (&asked.step.name, &asked.step.line);
                    self.last_failed = Some(format!("step {step} child workflow `{name}` ({line}) failed"));
                }
                state.settle(*step, Answer::Done(outcome.clone()))
            }
            Event::RetryRequested { .. } => {
                cursor::end_rests(&mut state);
                return Ok(());
            }
            Event::Continued { .. } => unreachable!("invariant: `feed` has begun a generation with it"),
            Event::TimerFired { step } => {
                cursor::pair_timer(&mut state, *step, ended)?;
                state.settle(*step, Answer::Fired)
            }
            Event::Signal { name, payload, .. } => state.mailboxes.arrive(name, entry.seq, payload.clone()),
            Event::CancelRequested { reason, .. } => {
                let words =
                    if reason.is_empty() { "cancelled".to_owned() } else { format!("cancelled: {reason}") };
                let failure = Failure::new(FailureKind::Cancelled, words);
                self.stop.get_or_insert((FinishedStatus::Cancelled, failure));
                self.wakes.extend(state.cancels.request());
                None
            }
            Event::RunTimedOut => {
                let failure = Failure::new(FailureKind::TimedOut, "the run took longer than its timeout");
                self.stop.get_or_insert((FinishedStatus::TimedOut, failure));
                self.wakes.extend(state.cancels.request());
                None
            }
        };
        state.now = entry.at;
        state.round += 1;
        self.dirty = true;
        self.wakes.extend(woken);
        Ok(())
    }

    fn poll_to_quiescence(&mut self) -> Progress {
        let mut idle = 0;
        loop {
            if let Some(end) = self.end_by_state() {
                return end;
            }
            if !self.run.take_woken() {
                break;
            }
            let before = self.run.lock().moves;
            match self.poll() {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(ended)) => {
                    return self.end_by_state().unwrap_or_else(|| self.end_of_body(ended));
                }
                Err(message) => {
                    return Progress::Stuck(StuckReason::Panicked { message, line: self.run.last_line() });
                }
            }
            idle = if self.run.lock().moves == before { idle + 1 } else { 0 };
            if idle > MAX_IDLE_POLLS {
                return Progress::Stuck(StuckReason::Restless { line: self.run.last_line() });
            }
        }
        if self.run.lock().waits_on_something_durable() {
            Progress::Waiting
        } else {
            Progress::Stuck(StuckReason::NothingDurable { line: self.run.last_line() })
        }
    }

    /// Whether the workflow has done all that it had done before, and goes on from here. Then it is time for the side
    /// effects whose value the journal does not hold.
    fn catches_up(&mut self) -> bool {
        let there = self.fed >= self.recorded && self.run.is_replaying();
        if there {
            self.run.set_replaying(false);
            let wakers = self.run.lock().due_side_effects();
            wakers.into_iter().for_each(|waker| self.run.deliver(waker));
        }
        there
    }

    /// What ends the run before, between and after polls, whatever its body says.
    fn end_by_state(&mut self) -> Option<Progress> {
        let (stuck, failed, shielded) = {
            let mut state = self.run.lock();
            (state.stuck.take(), state.failed.take(), state.cancels.is_shielded())
        };
        if let Some(reason) = stuck {
            return Some(Progress::Stuck(reason));
        }
        if self.run.was_woken_from_outside() {
            return Some(Progress::Stuck(StuckReason::ForeignWake { line: self.run.last_line() }));
        }
        let (status, failure) = match failed {
            Some(failure) => (FinishedStatus::Failed, failure),
            None if shielded && self.stop.is_some() => return None,
            None => match self.stop.clone() {
                Some(stop) => stop,
                None => return self.continuation().map(Progress::Continued),
            },
        };
        let reason = Some(failure.message.clone());
        Some(Progress::Done(Finished {
            status,
            outcome: Outcome::Failed(failure),
            reason,
            unconsumed: Vec::new(),
        }))
    }

    /// How the run goes on, if its code has asked for that.
    fn continuation(&self) -> Option<Continuation> {
        let mut state = self.run.lock();
        let (workflow, input) = state.continued.take()?;
        let left = state.mailboxes.left_values().into_values();
        let signals = left.map(|(name, value)| (name.to_owned(), value.clone())).collect();
        let (generation, steps) = (self.run.generation + 1, state.numbers());
        Some(Continuation { workflow, input, generation, steps, signals })
    }

    fn end_of_body(&mut self, ended: Ended) -> Progress {
        let Ended { outcome, error } = ended;
        let (status, reason) = match &outcome {
            Outcome::Ok(_) => (FinishedStatus::Completed, None),
            Outcome::Err(_) | Outcome::Failed(_) => {
                let reason = match self.last_failed.take() {
                    // The error of the step is what the workflow returned: said once.
                    Some(step) if step.ends_with(&format!(": {error}")) => step,
                    Some(step) => format!("{error}; {step}"),
                    None => error,
                };
                (FinishedStatus::Failed, Some(reason))
            }
        };
        Progress::Done(Finished { status, outcome, reason, unconsumed: Vec::new() })
    }

    /// One poll, with the context set. A panic comes back as its text.
    fn poll(&mut self) -> Result<Poll<Ended>, String> {
        let _here = context::enter(Here::Workflow(self.run.clone()));
        // Makes `futures::executor::block_on` inside the workflow panic instead of hanging the thread for ever. It is
        // taken already when a machine is driven inside such an executor, as in tests.
        let _executor = futures::executor::enter().ok();
        let mut task = Context::from_waker(&self.waker);
        let begin = !std::mem::replace(&mut self.begun, true);
        let (body, branches, start, run) = (&mut self.body, &mut self.branches, &self.start, &self.run);
        let polled = catch_unwind(AssertUnwindSafe(|| {
            if begin {
                match start.workflow.begin(&start.input) {
                    Ok(begun) => *body = Some(begun),
                    Err(why) => {
                        let (why, source) = (why.to_string(), start.workflow.source);
                        run.lock().stuck = Some(StuckReason::Undecodable { why, source });
                    }
                }
            }
            let Some(body) = body else { return Poll::Pending };
            let polled = body.as_mut().poll(&mut task);
            match &polled {
                Poll::Pending => branches.poll(run),
                Poll::Ready(_) => Branches::report_unbegun(run),
            }
            polled
        }));
        polled.map_err(words_of)
    }

    /// The body is over. What it did is undone, unless it ended with a value or is stuck.
    fn end_body(&mut self, end: Progress) {
        self.run.close();
        self.drop_body();
        match end {
            Progress::Done(finished)
                if finished.status != FinishedStatus::Completed && !self.run.lock().undos.is_empty() =>
            {
                let wakers = self.run.lock().abandon_body();
                drop(wakers);
                self.undoing = Some(finished);
            }
            end => self.end = Some(end),
        }
    }

    /// Goes on undoing; the end when that is over.
    fn undo(&mut self) -> Option<Progress> {
        match self.run.undo(None, None) {
            Undoing::Running => None,
            Undoing::Done => self.undoing.take().map(Progress::Done),
            Undoing::Failed(_) => {
                let because = self.undoing.take().and_then(|finished| finished.reason).unwrap_or_default();
                let failed = self.last_failed.take().unwrap_or_default();
                Some(Progress::Stuck(StuckReason::UndoFailed { failed, because }))
            }
        }
    }

    /// Drops the body and the branches. Their `Drop` code can do nothing durable, and a panic in it ends here.
    fn drop_body(&mut self) {
        // There are branches only as long as there is a body.
        let Some(body) = self.body.take() else { return };
        let _here = context::enter(Here::Dropping(Some(self.run.clone())));
        let _ = catch_unwind(AssertUnwindSafe(move || drop(body)));
        self.branches.drop_all(&self.run);
    }
}

/// An evicted run: the body of a machine that is not needed any more.
impl Drop for Machine {
    fn drop(&mut self) {
        self.run.close();
        // What `Drop` code has to say here is no part of the run's story: it is said at each eviction.
        self.run.set_replaying(true);
        self.drop_body();
        // The run's own waker is among them: without this a run would own itself, and never be freed.
        let wakers = self.run.lock().take_wakers();
        drop(wakers);
    }
}

/// Asks from another thread where a workflow is, while it is being driven.
#[derive(Clone)]
pub struct Observer(Arc<Run>);

impl Observer {
    /// `file:line` of the last step that was asked for; empty before the first.
    pub fn last_line(&self) -> String {
        self.0.last_line()
    }
}

/// The text of a panic.
fn words_of(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&'static str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    // Dropping the payload may run user code, and panic again.
    let _ = catch_unwind(AssertUnwindSafe(move || drop(panic)));
    text.unwrap_or_else(|| "a panic that carries no text".to_owned())
}
