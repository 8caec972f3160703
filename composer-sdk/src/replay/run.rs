//! The state that a machine shares with the futures of its workflow.
//!
//! One mutex guards it, and **no user code runs while it is held**: wakers are cloned, woken and dropped, values are
//! encoded, decoded and dropped outside. Steps live in a list by number, so that each event costs the same however
//! long the run is.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::Location,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
    time::Duration,
};

use super::{
    branches::Arrivals, cancel::Cancels, determinism::Streams, mailbox::Mailboxes, report::StuckReason,
    undo::UndoStack,
};
use crate::{
    call::StartRequest,
    context::{self, Here},
    error::Failure,
    id::{RunId, Timestamp, WorkflowId},
    journal::{Outcome, Step},
    options::ActivityOptions,
    payload::Payload,
};

/// A run as its workflow's futures know it.
pub(crate) struct Run {
    pub(crate) id: RunId,
    pub(crate) workflow_id: WorkflowId,
    pub(crate) workflow: &'static str,
    pub(crate) started_at: Timestamp,
    pub(crate) generation: u32,
    state: Mutex<State>,
    pub(super) branches: Arrivals,
    /// Something that the machine caused wants a poll.
    woken: AtomicBool,
    /// Something else did.
    foreign: AtomicBool,
    /// The workflow does what it has done in an earlier life.
    replaying: AtomicBool,
    /// The body is gone; nobody cares who wakes it.
    closed: AtomicBool,
    alarm: Arc<dyn Fn() + Send + Sync>,
}

/// What changes while a run goes on.
pub(super) struct State {
    /// By number, from the first of this generation.
    slots: Vec<Slot>,
    /// Numbers that were taken before this generation.
    taken: u32,
    /// The steps that were asked for and have neither a result nor been dropped.
    pub(super) open: BTreeSet<u32>,
    /// Asked since the last `take`.
    pub(super) asked: Vec<u32>,
    /// Dropped since the last `take`.
    pub(super) abandoned: Vec<u32>,
    /// How many futures wait for something durable.
    waiting: usize,
    pub(super) mailboxes: Mailboxes,
    pub(super) cancels: Cancels,
    pub(super) undos: UndoStack,
    pub(super) streams: Streams,
    pub(super) now: Timestamp,
    /// Counts the delivered events: tells which steps are new.
    pub(super) round: u64,
    /// Counts what was asked and what was taken: a workflow that wakes itself is alive while this grows.
    pub(super) moves: u64,
    /// Where the last step was asked for.
    pub(super) last: Option<&'static Location<'static>>,
    /// The run cannot go on here.
    pub(super) stuck: Option<StuckReason>,
    /// The run ends with this.
    pub(super) failed: Option<Failure>,
    /// The run goes on as this workflow, with these arguments.
    pub(super) continued: Option<(&'static str, Payload)>,
    /// What was published since the last `take_published`, the last value of each name.
    pub(super) published: BTreeMap<&'static str, Payload>,
    /// Calls that were built and dropped.
    pub(super) forgotten: Vec<String>,
}

/// One step number.
pub(super) enum Slot {
    /// Taken by a call that nobody has polled.
    Built,
    /// Asked for.
    Asked(Box<Asked>),
    /// Done with.
    Settled,
}

/// A step that was asked for.
pub(super) struct Asked {
    pub(super) step: Step,
    pub(super) work: Work,
    pub(super) asked_at: Timestamp,
    /// In which round.
    pub(super) round: u64,
    /// Whether its command was taken.
    pub(super) told: bool,
    /// Its future was dropped.
    pub(super) abandoned: bool,
    /// Failed attempts so far.
    pub(super) attempts: u32,
    /// The earliest instant of the next attempt.
    pub(super) retry_at: Option<Timestamp>,
    /// The journal holds its `TimerSet`.
    pub(super) armed: bool,
    /// The run that it is, once the journal holds its `ChildStarted`.
    pub(super) child: Option<RunId>,
    /// What came of it, until its future takes it.
    answer: Option<Answer>,
    waker: Option<Waker>,
}

/// What is to be done.
pub(crate) enum Work {
    /// An activity.
    Activity { input: Payload, options: ActivityOptions },
    /// A timer, and the length that it was asked with.
    Timer { due: Timestamp, after: Option<Duration> },
    /// A child. Detached, it goes on when nobody waits for it any more.
    Child { request: Box<StartRequest>, detached: bool },
    /// A side effect, and what it gave once it has run: the outcome, and the error in words.
    SideEffect(Option<(Outcome, String)>),
}

/// What came of a step.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Of an activity.
    Done(Outcome),
    /// Of a timer.
    Fired,
}

impl Run {
    /// A run whose generation is that one, before which so many numbers were taken.
    pub(super) fn new(start: &super::Start, generation: u32, taken: u32) -> Arc<Self> {
        let state = State {
            slots: Vec::new(),
            taken,
            open: BTreeSet::new(),
            asked: Vec::new(),
            abandoned: Vec::new(),
            waiting: 0,
            mailboxes: Mailboxes::default(),
            cancels: Cancels::default(),
            undos: UndoStack::default(),
            streams: Streams::new(start.seed, generation),
            now: start.started_at,
            round: 0,
            moves: 0,
            last: None,
            stuck: None,
            failed: None,
            continued: None,
            published: BTreeMap::new(),
            forgotten: Vec::new(),
        };
        Arc::new(Self {
            id: start.run_id,
            workflow_id: start.workflow_id.clone(),
            workflow: start.workflow.name,
            started_at: start.started_at,
            generation,
            state: Mutex::new(state),
            branches: Arrivals::default(),
            woken: AtomicBool::new(true),
            foreign: AtomicBool::new(false),
            replaying: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            alarm: start.alarm.clone(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The number of a call that is being built.
    pub(crate) fn number(&self) -> u32 {
        let mut state = self.lock();
        state.slots.push(Slot::Built);
        state.numbers()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.lock().now
    }

    /// Ends the run with a failure that its code has no place for.
    pub(crate) fn fail(&self, failure: Failure) {
        self.lock().failed.get_or_insert(failure);
    }

    /// The run goes on as a new generation, with these arguments of that workflow. Says why it may not.
    pub(crate) fn continue_as(&self, workflow: &'static str, input: Payload) -> Result<(), String> {
        let mut state = self.lock();
        if !state.undos.is_empty() {
            return Err("`continue_as_new` would forget the undo steps that are recorded: `saga::commit()` before it if \
                        nothing is to be undone any more"
                .to_owned());
        }
        state.continued.get_or_insert((workflow, input));
        Ok(())
    }

    /// Makes the run stuck, from wherever the fault was found.
    pub(crate) fn refuse(&self, why: String) {
        self.lock().stuck.get_or_insert(StuckReason::Refused(why));
        if !self.is_here() {
            (self.alarm)();
        }
    }

    /// Shows a value to those outside.
    pub(crate) fn publish(&self, name: &'static str, value: Payload) {
        self.lock().published.insert(name, value);
    }

    /// Remembers a call that nobody awaited.
    pub(crate) fn forgot(&self, call: String) {
        self.lock().forgotten.push(call);
    }

    /// The next random number of a stream.
    pub(crate) fn random(&self, stream: &str) -> u64 {
        self.lock().streams.next(stream)
    }

    /// Whether the running code is this run's workflow.
    pub(crate) fn is_here(&self) -> bool {
        context::look(|here| matches!(here, Here::Workflow(run) if std::ptr::eq(&**run, self)))
    }

    /// Whether `what` is polled by this run; if not, refuses in words. False in `Drop` code, where nothing happens.
    pub(crate) fn is_in_place(self: &Arc<Self>, what: &str) -> bool {
        super::future::in_place(self, format_args!("{what}"))
    }

    /// Whether what is dropped here is dropped by the run itself, the same way in every life: by its workflow, or by a
    /// waker that the machine wakes. In the `Drop` code of a body that goes, and on other threads, it is not.
    pub(crate) fn drops_here(&self) -> bool {
        let ours = |run: &Arc<Run>| std::ptr::eq(&**run, self);
        !std::thread::panicking()
            && context::look(|here| matches!(here, Here::Workflow(run) | Here::Delivering(run) if ours(run)))
    }

    /// `file:line` of the last step that was asked for.
    pub(super) fn last_line(&self) -> String {
        self.lock().last.map(line).unwrap_or_default()
    }

    pub(super) fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::AcqRel)
    }

    pub(super) fn was_woken_from_outside(&self) -> bool {
        self.foreign.load(Ordering::Acquire)
    }

    /// Whether the workflow does what it has done in an earlier life.
    pub(crate) fn is_replaying(&self) -> bool {
        self.replaying.load(Ordering::Acquire)
    }

    pub(super) fn set_replaying(&self, replaying: bool) {
        self.replaying.store(replaying, Ordering::Release);
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Wakes what an event made ready.
    pub(super) fn deliver(self: &Arc<Self>, waker: Waker) {
        let _here = context::enter(Here::Delivering(self.clone()));
        waker.wake();
    }
}

/// A wake is our own while this run is being polled or an event is being delivered *on this thread*; a flag without
/// the thread would take a timer thread's wake for our own.
impl Wake for Run {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let own = context::look(|here| match here {
            Here::Workflow(run) | Here::Delivering(run) | Here::Dropping(Some(run)) => Arc::ptr_eq(run, self),
            _ => false,
        });
        if own {
            self.woken.store(true, Ordering::Release);
        } else if !self.closed.load(Ordering::Acquire) {
            self.foreign.store(true, Ordering::Release);
            (self.alarm)();
        }
    }
}

impl State {
    pub(super) fn slot(&mut self, number: u32) -> Option<&mut Slot> {
        self.slots.get_mut(number.checked_sub(self.taken)?.checked_sub(1)? as usize)
    }

    /// Another number under which just this was asked for.
    pub(super) fn asked_elsewhere(&self, step: &Step) -> Option<u32> {
        self.slots.iter().find_map(|slot| match slot {
            Slot::Asked(asked) => {
                let Step { number, kind, name, digest, .. } = &asked.step;
                let same = *kind == step.kind && *name == step.name && *digest == step.digest;
                (same && *number != step.number).then_some(*number)
            }
            _ => None,
        })
    }

    /// The last step number that was taken.
    pub(super) fn numbers(&self) -> u32 {
        let mine = u32::try_from(self.slots.len()).ok();
        mine.and_then(|mine| mine.checked_add(self.taken)).expect("a run has fewer than 2^32 steps")
    }

    pub(super) fn asked(&mut self, number: u32) -> Option<&mut Asked> {
        match self.slot(number)? {
            Slot::Asked(asked) => Some(asked),
            _ => None,
        }
    }

    /// Whether any future waits for something durable.
    pub(super) fn waits_on_something_durable(&self) -> bool {
        self.waiting > 0 || self.mailboxes.has_waiters() || self.cancels.has_waiters()
    }

    /// Asks for a step: its future was polled for the first time.
    pub(super) fn ask(
        &mut self,
        step: Step,
        work: Work,
        at: &'static Location<'static>,
        waker: impl Into<Option<Waker>>,
    ) {
        let number = step.number;
        // There is nothing to do for a side effect before it has run.
        let is_due = !matches!(work, Work::SideEffect(None));
        let asked = Asked {
            step,
            work,
            asked_at: self.now,
            round: self.round,
            told: false,
            abandoned: false,
            attempts: 0,
            retry_at: None,
            armed: false,
            child: None,
            answer: None,
            waker: waker.into(),
        };
        *self.slot(number).expect("invariant: a step has its number from `number`") =
            Slot::Asked(Box::new(asked));
        self.last = Some(at);
        self.open.insert(number);
        if is_due {
            self.asked.push(number);
        }
        self.waiting += 1;
        self.moves += 1;
    }

    /// The answer to a step that was asked for, if it is there.
    pub(super) fn answer(&mut self, number: u32) -> Option<Answer> {
        let answer = self.asked(number)?.answer.take()?;
        *self.slot(number)? = Slot::Settled;
        self.moves += 1;
        Some(answer)
    }

    /// Takes the waker of a waiting step out, or puts one in.
    pub(super) fn swap_waker(&mut self, number: u32, waker: Option<Waker>) -> Option<Waker> {
        let asked = self.asked(number)?;
        std::mem::replace(&mut asked.waker, waker)
    }

    /// Keeps an answer for the step's future and returns whom to wake. Nobody waits for an abandoned step.
    pub(super) fn settle(&mut self, number: u32, answer: Answer) -> Option<Waker> {
        self.open.remove(&number);
        let asked = self.asked(number)?;
        if asked.abandoned {
            *self.slot(number)? = Slot::Settled;
            return None;
        }
        asked.answer = Some(answer);
        let waker = asked.waker.take();
        self.waiting -= 1;
        waker
    }

    /// Every waker there is, to be dropped outside the lock. Each of them owns the run.
    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        let steps = self.slots.iter_mut().filter_map(|slot| match slot {
            Slot::Asked(asked) => asked.waker.take(),
            _ => None,
        });
        let mut wakers: Vec<Waker> = steps.collect();
        wakers.extend(self.mailboxes.take_wakers());
        wakers.extend(self.cancels.take_wakers());
        wakers
    }

    /// The step is not to be begun; returns its waker, to be dropped outside the lock.
    pub(super) fn forget(&mut self, number: u32) -> Option<Waker> {
        let asked = self.asked(number)?;
        let waiting = !asked.abandoned && asked.answer.is_none();
        let waker = asked.waker.take();
        self.waiting -= usize::from(waiting);
        *self.slot(number)? = Slot::Settled;
        self.abandoned.retain(|abandoned| *abandoned != number);
        waker
    }

    /// The step's future was dropped; returns its waker, to be dropped outside the lock.
    pub(super) fn abandon(&mut self, number: u32) -> Option<Waker> {
        let asked = self.asked(number)?;
        if asked.answer.is_some() {
            let waker = asked.waker.take();
            *self.slot(number)? = Slot::Settled;
            return waker;
        }
        asked.abandoned = true;
        let waker = asked.waker.take();
        self.open.remove(&number);
        self.abandoned.push(number);
        self.waiting -= 1;
        waker
    }
}

impl Asked {
    /// Whether an answer is there that the future has not taken yet.
    pub(super) fn is_settled(&self) -> bool {
        self.answer.is_some()
    }
}

/// A place in the source, as the journal and messages name it.
pub(crate) fn line(at: &Location<'_>) -> String {
    format!("{}:{}", at.file(), at.line())
}
