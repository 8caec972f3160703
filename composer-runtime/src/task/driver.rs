//! What a hosted run does next, decided without touching the world.
//!
//! The driver joins the replay machine with the journal, the steps under way, timers and retries. It is fed what
//! happened (an attempt ended, time passed, mail came, a write became durable) and answers with what to do: entries
//! to write, attempts to start or to stop. It keeps three promises:
//!
//! * *Durable before visible*: an attempt starts only when every entry that was decided before it is durable.
//! * *One order*: entries leave in the order in which the workflow saw them; nothing is delivered past a decision.
//! * *No open step at the end*: what is under way when the workflow ends is stopped, and settles, before the first undo
//!   step begins and before the end is written.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use composer_sdk::{
    call::StartRequest,
    error::{Failure, FailureKind},
    id::{RunId, Timestamp},
    journal::{Entry, Event, GaveUp, Outcome, Step, StepKind},
    options::ActivityOptions,
    payload::Payload,
    replay::{Command, Continuation, Finished, FinishedStatus, Machine, Progress, Start},
};

use super::activity::{AttemptEnd, Decision, decide};
use crate::store::{End, Message, MessageContent, Status};

/// So many entries may be on their way to the journal before side effects, which come of the workflow alone, wait for
/// them: a workflow that does nothing else holds up neither its worker nor the memory.
const AHEAD: u32 = 256;

/// What to do now.
#[derive(Debug, Default)]
pub(crate) struct Todo {
    /// Entries after `prev`, and the end.
    pub(crate) write: Option<Write>,
    /// Attempts to start, in step order.
    pub(crate) start: Vec<Attempt>,
    /// Steps whose attempt is to be stopped.
    pub(crate) stop: Vec<u32>,
    /// Children to start.
    pub(crate) children: Vec<Child>,
    /// Children to ask to cancel, with their steps. Asking twice changes nothing.
    pub(crate) cancel: Vec<(u32, RunId)>,
}

/// A child to start. Starting it twice changes nothing.
#[derive(Debug, Clone)]
pub(crate) struct Child {
    pub(crate) step: Step,
    pub(crate) run_id: RunId,
    pub(crate) request: Box<StartRequest>,
    pub(crate) detached: bool,
}

/// Entries to write together.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) prev: u32,
    pub(crate) entries: Vec<Entry>,
    pub(crate) end: Option<End>,
    /// What the workflow shows from now on.
    pub(crate) published: Vec<(String, Payload)>,
    /// Counts the writes: comes back with the answer.
    pub(crate) mark: u64,
}

/// One attempt to start.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) activity: Activity,
    pub(crate) attempt: u32,
}

/// An activity that the workflow asked for.
#[derive(Debug, Clone)]
pub(crate) struct Activity {
    pub(crate) step: Step,
    pub(crate) input: Payload,
    pub(crate) options: ActivityOptions,
    pub(crate) scheduled_at: Timestamp,
    /// Attempts that failed so far.
    pub(crate) failed: u32,
}

/// An open step.
#[derive(Debug)]
enum Open {
    Timer {
        due: Timestamp,
    },
    /// Asked for; waits for what it depends on to be durable, then for its instant.
    Waiting {
        activity: Activity,
        not_before: Option<Timestamp>,
    },
    Attempting {
        activity: Activity,
        attempt: u32,
    },
    /// Nobody waits for it any more; told to stop.
    Stopping,
    /// A child whose run id waits to be durable.
    ChildWaiting(Child),
    /// A child that is being started; asked to cancel as soon as that is certain, if nobody waits for it any more.
    ChildStarting {
        child: Child,
        cancel: bool,
    },
    /// A child that is there.
    ChildRunning {
        run_id: RunId,
        detached: bool,
    },
    /// A child that was asked to cancel, and has not ended.
    ChildStopping,
}

impl Open {
    /// Whether nobody waits for it any more, and it has not settled.
    fn is_stopping(&self) -> bool {
        matches!(self, Open::Stopping | Open::ChildStopping | Open::ChildStarting { cancel: true, .. })
    }
}

/// See the module.
pub(crate) struct Driver {
    /// `None` once the workflow has ended, or is stuck.
    machine: Option<Machine>,
    /// The build, for a run that gets stuck.
    build: String,
    deadline: Option<Timestamp>,
    /// The last entry decided, sent, and durable.
    decided: u32,
    durable: u32,
    last_at: Timestamp,
    entries: Vec<Entry>,
    published: BTreeMap<&'static str, Payload>,
    /// Writes sent, and answered.
    sent: u64,
    answered: u64,
    /// What side effects gave, in order, until it is recorded.
    given: VecDeque<Event>,
    steps: HashMap<u32, Open>,
    /// Waiting steps by the entry that must be durable first; that entry never decreases.
    gated: VecDeque<(u32, u32)>,
    /// Undo steps that wait until what was stopped has settled.
    undos: Vec<u32>,
    /// Timers and waiting steps by their instant.
    timers: BTreeSet<(Timestamp, u32)>,
    rests: BTreeSet<(Timestamp, u32)>,
    start: Vec<Attempt>,
    stop: Vec<u32>,
    children: Vec<Child>,
    cancel: Vec<(u32, RunId)>,
    under_way: usize,
    end: Option<End>,
    /// What follows the end, when it is one of a generation alone.
    next: Option<Continuation>,
    end_sent: bool,
    draining: bool,
    mail: BTreeSet<i64>,
    forgotten: Vec<String>,
}

impl Driver {
    /// Replays a journal, of which the first entries were `copied` from another run. Timers that were asked for but
    /// never armed count from `claimed_at`.
    pub(crate) fn new(
        start: Start,
        journal: &[Entry],
        copied: u32,
        claimed_at: Timestamp,
        deadline: Option<Timestamp>,
        build: String,
    ) -> Self {
        let mut driver = Self::blank(start.started_at, build);
        driver.deadline = deadline;
        if let Some(last) = journal.last() {
            (driver.decided, driver.durable, driver.last_at) = (last.seq, last.seq, last.at);
        }
        // What a later generation begins with has been written before anybody has polled it.
        let lived = journal.iter().rfind(|entry| !hands_over(entry)).map_or(0, |entry| entry.seq);
        let began =
            journal.first().filter(|first| hands_over(first)).map_or(start.started_at, |first| first.at);
        let mut machine = Machine::new(start);
        // Whoever had the run before has polled it, also when nothing came of that.
        if lived > 0 || claimed_at > began {
            machine = machine.resumed(driver.decided);
        }
        journal.iter().for_each(|entry| machine.feed(entry));
        let progress = machine.drive();
        // What a first run has warned of, a replay finds again.
        machine.take_forgotten();
        // What it has shown was written with its own entries.
        if lived > copied {
            machine.take_published();
        }
        driver.machine = Some(machine);
        driver.follow(progress, Some(claimed_at));
        driver
    }

    /// A run whose journal cannot be read: stuck, with the reason in words, before its code is called.
    pub(crate) fn unreadable(reason: String, started_at: Timestamp, build: String) -> Self {
        let mut driver = Self::blank(started_at, build);
        driver.give_up(reason);
        driver
    }

    fn blank(last_at: Timestamp, build: String) -> Self {
        Self {
            machine: None,
            build,
            deadline: None,
            decided: 0,
            durable: 0,
            last_at,
            entries: vec![],
            published: BTreeMap::new(),
            sent: 0,
            answered: 0,
            given: VecDeque::new(),
            steps: HashMap::new(),
            gated: VecDeque::new(),
            undos: vec![],
            timers: BTreeSet::new(),
            rests: BTreeSet::new(),
            start: vec![],
            stop: vec![],
            children: vec![],
            cancel: vec![],
            under_way: 0,
            end: None,
            next: None,
            end_sent: false,
            draining: false,
            mail: BTreeSet::new(),
            forgotten: vec![],
        }
    }

    /// An attempt is over.
    pub(crate) fn attempt_ended(
        &mut self,
        step: u32,
        attempt: u32,
        end: AttemptEnd,
        now: Timestamp,
        random: f64,
    ) {
        match self.steps.remove(&step) {
            Some(Open::Stopping) => self.under_way -= 1,
            Some(Open::Attempting { activity, attempt: current }) if current == attempt => {
                self.under_way -= 1;
                match decide(&activity, attempt, end, now, random) {
                    Decision::Again => self.wait_for(activity, None),
                    Decision::Deliver(event) => self.deliver(event, now),
                    Decision::Retry { error, retry_at } => {
                        self.retry(activity, attempt, error, retry_at, now)
                    }
                }
            }
            // A late report of an attempt that was given up.
            Some(other) => drop(self.steps.insert(step, other)),
            None => {}
        }
    }

    fn retry(
        &mut self,
        mut activity: Activity,
        attempt: u32,
        error: String,
        retry_at: Timestamp,
        now: Timestamp,
    ) {
        let step = activity.step.clone();
        self.record(Event::AttemptFailed { step, attempt, error, retry_at }, now);
        activity.failed = attempt;
        self.wait_for(activity, Some(retry_at));
    }

    /// The messages that were taken from the inbox, for the driver of the run's next generation: some of them may be on
    /// their way to it, read before they were taken.
    pub(crate) fn heard(&mut self) -> BTreeSet<i64> {
        std::mem::take(&mut self.mail)
    }

    /// These messages were taken by the generation before.
    pub(crate) fn has_heard(&mut self, messages: BTreeSet<i64>) {
        self.mail.extend(messages);
    }

    /// Messages from the inbox, in order; those already taken are passed over.
    pub(crate) fn mail(&mut self, messages: Vec<Message>, now: Timestamp) {
        for message in messages {
            if let (true, MessageContent::Child { step, .. }) = (self.end.is_some(), &message.content) {
                self.child_ended(*step);
            }
            if self.end.is_some() || !self.mail.insert(message.id) {
                continue;
            }
            let inbox = message.id;
            match message.content {
                MessageContent::Signal { name, payload } => {
                    self.deliver(Event::Signal { name, inbox, payload }, now)
                }
                MessageContent::Cancel { reason } => {
                    self.deliver(Event::CancelRequested { inbox, reason }, now)
                }
                MessageContent::Child { step, outcome } => {
                    self.child_ended(step);
                    self.deliver(Event::ChildDone { step, inbox, outcome }, now);
                }
                MessageContent::Retry => self.end_rests(inbox, now),
            }
        }
    }

    /// Steps that rest between two attempts go on as soon as the request is durable: a replay rests no more, either.
    fn end_rests(&mut self, inbox: i64, now: Timestamp) {
        self.record(Event::RetryRequested { inbox }, now);
        let mut resting = BTreeSet::new();
        for (step, open) in &mut self.steps {
            if let Open::Waiting { not_before, .. } = open
                && not_before.take().is_some()
            {
                resting.insert(*step);
            }
        }
        self.rests.clear();
        self.undos.retain(|step| !resting.contains(step));
        self.gated.retain(|(_, step)| !resting.contains(step));
        self.gated.extend(resting.into_iter().map(|step| (self.decided, step)));
    }

    /// What became of a child's start: refused when another run has its workflow id.
    pub(crate) fn child_started(&mut self, step: u32, refused: Option<String>, now: Timestamp) {
        let Some(Open::ChildStarting { child, cancel }) = self.steps.remove(&step) else { return };
        self.under_way -= 1;
        let Child { step, run_id, detached, .. } = child;
        match refused {
            Some(why) if !cancel => {
                let outcome = Outcome::Failed(Failure::new(FailureKind::Refused, &why));
                let gave_up = Some(GaveUp::Permanent);
                self.deliver(Event::StepDone { step, attempt: 1, error: why, gave_up, outcome }, now);
            }
            Some(_) => {}
            None if cancel => {
                self.cancel.push((step.number, run_id));
                self.steps.insert(step.number, Open::ChildStopping);
            }
            None => drop(self.steps.insert(step.number, Open::ChildRunning { run_id, detached })),
        }
    }

    /// A child has ended, or was never there: nothing of it is open.
    pub(crate) fn child_ended(&mut self, step: u32) {
        match self.steps.remove(&step) {
            // Its end was heard of before the answer to its start.
            Some(Open::ChildStarting { .. }) => self.under_way -= 1,
            Some(Open::ChildWaiting(_)) => self.gated.retain(|(_, gated)| *gated != step),
            _ => {}
        }
    }

    /// Time has passed: fires what is due, in due order.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.deliver(Event::RunTimedOut, now);
        }
        while let Some((due, step)) = self.timers.first().copied().filter(|(due, _)| *due <= now) {
            self.timers.remove(&(due, step));
            self.steps.remove(&step);
            self.deliver(Event::TimerFired { step }, now);
        }
        while let Some((at, step)) =
            self.rests.first().copied().filter(|(at, _)| *at <= now && !self.draining)
        {
            self.rests.remove(&(at, step));
            self.begin(step);
        }
    }

    /// Everything up to `upto` is durable.
    pub(crate) fn written(&mut self, upto: u32, mark: u64, now: Timestamp) {
        self.answered = self.answered.max(mark);
        self.durable = self.durable.max(upto);
        if !self.given.is_empty() {
            self.follow(Progress::Waiting, None);
        }
        self.open_gates(now);
    }

    /// Something outside the journal woke the workflow: the machine says what it makes of it.
    pub(crate) fn alarm(&mut self) {
        if let Some(machine) = &mut self.machine {
            let progress = machine.drive();
            self.follow(progress, None);
        }
    }

    /// Begin nothing new.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
    }

    /// Stop everything under way; it will not count as an attempt.
    pub(crate) fn stop_all(&mut self) {
        self.draining = true;
        let under_way = self.steps.iter().filter(|(_, open)| matches!(open, Open::Attempting { .. }));
        self.stop.extend(under_way.map(|(step, _)| *step));
    }

    /// The run cannot go on here: stuck, with the reason in words.
    pub(crate) fn give_up(&mut self, reason: String) {
        self.finish(End::Stuck { reason: storable(reason), build: self.build.clone() });
    }

    /// Drops what was decided but not accepted; returns the last durable entry.
    pub(crate) fn forget_unwritten(&mut self) -> u32 {
        self.machine = None;
        self.published.clear();
        self.entries.clear();
        self.next = None;
        self.decided = self.durable;
        self.end_sent = true;
        self.durable
    }

    /// What is to be done, once.
    pub(crate) fn take(&mut self, now: Timestamp) -> Todo {
        self.open_gates(now);
        let settled = self.under_way == 0 && !self.is_stopping();
        let due = settled && !self.end_sent && self.end.is_some();
        if due {
            self.begin_generation(now);
        }
        let end = if due { self.end.clone() } else { None };
        self.end_sent |= due;
        let entries = std::mem::take(&mut self.entries);
        let prev = self.decided - entries.len() as u32;
        let published: Vec<_> = std::mem::take(&mut self.published)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        let some = !entries.is_empty() || !published.is_empty() || end.is_some();
        self.sent += u64::from(some);
        let write = some.then_some(Write { prev, entries, end, published, mark: self.sent });
        Todo {
            write,
            start: std::mem::take(&mut self.start),
            stop: std::mem::take(&mut self.stop),
            children: std::mem::take(&mut self.children),
            cancel: std::mem::take(&mut self.cancel),
        }
    }

    /// Calls that the workflow built and dropped, in words, once.
    pub(crate) fn take_forgotten(&mut self) -> Vec<String> {
        std::mem::take(&mut self.forgotten)
    }

    /// The signals that the workflow waits for, by name.
    pub(crate) fn awaited_signals(&self) -> Vec<String> {
        self.machine.as_ref().map(Machine::awaited_signals).unwrap_or_default()
    }

    /// When time alone changes something.
    pub(crate) fn next_instant(&self) -> Option<Timestamp> {
        // An ended workflow waits for its acknowledgement alone.
        self.machine.as_ref()?;
        let rest = self.rests.first().filter(|_| !self.draining);
        [self.timers.first().map(|(at, _)| *at), rest.map(|(at, _)| *at), self.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The run's own deadline, while that can still change how it ends.
    fn deadline(&self) -> Option<Timestamp> {
        self.deadline.filter(|_| self.machine.as_ref().is_some_and(|machine| !machine.is_ending()))
    }

    /// Whether something that was told to stop has not settled.
    fn is_stopping(&self) -> bool {
        self.steps.values().any(Open::is_stopping)
    }

    /// Whether nothing is under way and nothing is on its way to the journal. A run whose workflow has ended is only
    /// while it waits for its children: its end has to arrive.
    pub(crate) fn is_idle(&self) -> bool {
        (self.machine.is_some() || (self.is_stopping() && !self.end_sent))
            && self.under_way == 0
            && self.entries.is_empty()
            && self.durable == self.decided
            && self.published.is_empty()
            && self.answered >= self.sent
    }

    /// For a run that is let go: when it is due again, or `Err` when it has something to do at once.
    pub(crate) fn due(&self) -> Result<Option<Timestamp>, AtOnce> {
        if !self.gated.is_empty() || !self.undos.is_empty() || !self.start.is_empty() {
            return Err(AtOnce);
        }
        let instants = [self.timers.first().map(|(at, _)| *at), self.rests.first().map(|(at, _)| *at)];
        Ok(instants.into_iter().flatten().min())
    }

    // ------------------------------------------------------------------------------------------------ inside

    /// An event that the workflow sees.
    fn deliver(&mut self, event: Event, now: Timestamp) {
        self.record(event, now);
        if let Some(machine) = &mut self.machine {
            let progress = machine.drive();
            self.follow(progress, None);
        }
    }

    /// An entry. The machine is fed exactly what a replay would feed it.
    fn record(&mut self, event: Event, now: Timestamp) {
        let Some(machine) = &mut self.machine else { return };
        self.decided += 1;
        self.last_at = self.last_at.max(now);
        let entry = Entry { seq: self.decided, at: self.last_at, event };
        machine.feed(&entry);
        self.entries.push(entry);
    }

    /// What the machine has come to, and what it asks for.
    fn follow(&mut self, mut progress: Progress, resumed: Option<Timestamp>) {
        self.absorb(resumed);
        while progress == Progress::Waiting
            && let Some(event) = self.next_given()
        {
            self.record(event, resumed.unwrap_or(self.last_at));
            progress = self.machine.as_mut().map_or(Progress::Waiting, Machine::drive);
            self.absorb(resumed);
        }
        match progress {
            Progress::Waiting => {}
            Progress::Done(finished) => self.finish(closed(finished)),
            Progress::Continued(next) => {
                // Where it begins is known when everything that was open has settled.
                let end = End::Continued { workflow: next.workflow.to_owned(), base: 0 };
                self.next.get_or_insert(next);
                self.finish(end);
            }
            Progress::Stuck(reason) => self.give_up(reason.to_string()),
        }
    }

    fn next_given(&mut self) -> Option<Event> {
        if self.decided - self.durable < AHEAD { self.given.pop_front() } else { None }
    }

    fn absorb(&mut self, resumed: Option<Timestamp>) {
        let Some(machine) = &mut self.machine else { return };
        self.forgotten.append(&mut machine.take_forgotten());
        self.published.extend(machine.take_published());
        let parent = machine.run_id();
        for command in machine.take() {
            match command {
                Command::RunActivity { step, input, options, attempts, retry_at, scheduled_at } => {
                    let activity = Activity { step, input, options, scheduled_at, failed: attempts };
                    self.wait_for(activity, retry_at);
                }
                Command::SetTimer { step, due, after, armed } => {
                    let number = step.number;
                    // A sleep that was asked for before an outage, but never armed, counts from the claim.
                    let fresh = after.zip(resumed).map(|(after, from)| from.saturating_add(after));
                    let due = if armed { due } else { fresh.map_or(due, |fresh| fresh.max(due)) };
                    if !armed {
                        self.record(Event::TimerSet { step, due }, self.last_at);
                    }
                    self.timers.insert((due, number));
                    self.steps.insert(number, Open::Timer { due });
                }
                Command::StartChild { step, request, run_id, detached } => {
                    let number = step.number;
                    let run_id = run_id.unwrap_or_else(|| {
                        let run_id = parent.child(number, self.last_at);
                        self.record(Event::ChildStarted { step: step.clone(), run_id }, self.last_at);
                        run_id
                    });
                    let child = Child { step, run_id, request, detached };
                    self.steps.insert(number, Open::ChildWaiting(child));
                    self.gated.push_back((self.decided, number));
                }
                Command::Record { step, outcome, error } => {
                    let event = Event::StepDone { step, attempt: 0, error, gave_up: None, outcome };
                    self.given.push_back(event);
                }
                Command::Abandon { step, child } => self.abandon(step, child),
                _ => self.give_up("the workflow asked for something that this version cannot do".into()),
            }
        }
    }

    /// Stops a step. A `child` of an earlier life may be there, of which this one knows nothing else.
    fn abandon(&mut self, step: u32, child: Option<RunId>) {
        if let Some(place) = self.start.iter().position(|attempt| attempt.activity.step.number == step) {
            // It never left: nobody would report its end.
            self.start.remove(place);
            self.steps.remove(&step);
            self.under_way -= 1;
            return;
        }
        match self.steps.remove(&step) {
            Some(Open::Attempting { .. }) => {
                self.stop.push(step);
                self.steps.insert(step, Open::Stopping);
            }
            Some(stopping) if stopping.is_stopping() => drop(self.steps.insert(step, stopping)),
            Some(Open::ChildStarting { child, .. }) => {
                let cancel = !child.detached;
                self.steps.insert(step, Open::ChildStarting { child, cancel });
            }
            Some(Open::ChildRunning { detached: true, .. }) => {}
            Some(Open::ChildRunning { run_id, .. }) => {
                self.cancel.push((step, run_id));
                self.steps.insert(step, Open::ChildStopping);
            }
            Some(Open::ChildWaiting(waiting)) => {
                self.gated.retain(|(_, gated)| *gated != step);
                // Detached, it is started all the same: it was asked for. Else an earlier life may have started it.
                if waiting.detached {
                    self.start_child(waiting);
                } else if child.is_some() {
                    self.cancel.push((step, waiting.run_id));
                    self.steps.insert(step, Open::ChildStopping);
                }
            }
            Some(Open::Stopping | Open::ChildStopping) => {}
            Some(Open::Timer { due }) => drop(self.timers.remove(&(due, step))),
            Some(Open::Waiting { not_before, .. }) => {
                self.rests.retain(|(_, resting)| not_before.is_none() || *resting != step);
                self.gated.retain(|(_, gated)| *gated != step);
            }
            None => {
                if let Some(run_id) = child {
                    self.cancel.push((step, run_id));
                    self.steps.insert(step, Open::ChildStopping);
                }
            }
        }
    }

    fn start_child(&mut self, child: Child) {
        self.children.push(child.clone());
        self.steps.insert(child.step.number, Open::ChildStarting { child, cancel: false });
        self.under_way += 1;
    }

    /// The workflow has ended: everything open is abandoned.
    fn finish(&mut self, end: End) {
        if self.end.is_some() {
            return;
        }
        self.machine = None;
        self.given.clear();
        self.end = Some(end);
        let open: Vec<u32> = self.steps.keys().copied().collect();
        open.into_iter().for_each(|step| self.abandon(step, None));
    }

    /// The entries of the next generation, behind all of this one.
    fn begin_generation(&mut self, now: Timestamp) {
        let (Some(next), Some(End::Continued { base, .. })) = (self.next.take(), &mut self.end) else {
            return;
        };
        *base = self.decided + 1;
        self.last_at = self.last_at.max(now);
        for event in next.events() {
            self.decided += 1;
            self.entries.push(Entry { seq: self.decided, at: self.last_at, event });
        }
    }

    fn wait_for(&mut self, activity: Activity, not_before: Option<Timestamp>) {
        if self.end.is_some() {
            return;
        }
        let step = activity.step.number;
        self.steps.insert(step, Open::Waiting { activity, not_before });
        self.gated.push_back((self.decided, step));
    }

    fn open_gates(&mut self, now: Timestamp) {
        while !self.draining && self.gated.front().is_some_and(|(gate, _)| *gate <= self.durable) {
            let Some((_, step)) = self.gated.pop_front() else { return };
            match self.steps.get(&step) {
                Some(Open::Waiting { not_before: Some(at), .. }) if *at > now => {
                    self.rests.insert((*at, step));
                }
                Some(Open::Waiting { activity, .. }) if activity.step.kind == StepKind::Undo => {
                    self.undos.push(step);
                }
                _ => self.begin(step),
            }
        }
        if !self.draining && !self.undos.is_empty() && !self.is_stopping() {
            std::mem::take(&mut self.undos).into_iter().for_each(|step| self.begin(step));
        }
    }

    fn begin(&mut self, step: u32) {
        match self.steps.remove(&step) {
            Some(Open::Waiting { activity, .. }) => {
                let attempt = activity.failed + 1;
                self.start.push(Attempt { activity: activity.clone(), attempt });
                self.steps.insert(step, Open::Attempting { activity, attempt });
                self.under_way += 1;
            }
            Some(Open::ChildWaiting(child)) => self.start_child(child),
            Some(other) => drop(self.steps.insert(step, other)),
            None => {}
        }
    }
}

/// Whether a generation has it from the one before.
fn hands_over(entry: &Entry) -> bool {
    matches!(entry.event, Event::Continued { .. } | Event::Signal { inbox: 0, .. })
}

/// The run has something to do at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AtOnce;

fn closed(finished: Finished) -> End {
    let status = match finished.status {
        FinishedStatus::Completed => Status::Completed,
        FinishedStatus::Cancelled => Status::Cancelled,
        _ => Status::Failed,
    };
    let reason = finished.reason.or_else(|| match &finished.outcome {
        Outcome::Failed(failure) => Some(failure.to_string()),
        _ => None,
    });
    let reason = reason.map(storable);
    End::Closed { status, outcome: finished.outcome, reason, unconsumed: finished.unconsumed }
}

/// Words that every store takes: Postgres has no NUL in its texts, and an error or a panic may say anything.
fn storable(words: String) -> String {
    if words.contains('\0') { words.replace('\0', "\u{fffd}") } else { words }
}

#[cfg(test)]
mod tests;
