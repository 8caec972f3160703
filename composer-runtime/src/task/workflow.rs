//! The task of one hosted run: a thin loop around its [`Driver`].
//!
//! It waits for whatever comes first (a note, an instant, the end of its patience), lets the driver decide, and does
//! what the driver says. It ends when the run has ended, was let go, or belongs to somebody else; the task that ends
//! takes its attempts with it.

use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc};

use composer_sdk::{
    activity::{ActivityCx, ActivityInfo},
    id::{RunId, Timestamp, WorkflowId},
    journal::{Entry, Event},
    payload::Payload,
    replay::Start,
    workflow::WorkflowEntry,
};
use futures::FutureExt;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    Mailbox, Note, Refusal,
    activity::{self, AttemptEnd},
    children,
    driver::{Attempt, Driver, Todo, Write},
};
use crate::{
    background::mail,
    host::Host,
    journal_writer::{RunOp, Tenure},
    store::{ANSWER, Claimed, End, Release, Released, Topic, Until, within},
};

/// A run just taken, to be hosted.
pub(crate) struct Hosting {
    pub(crate) claimed: Claimed,
    pub(crate) workflow: WorkflowEntry,
    /// What it has done so far, or why that cannot be read.
    pub(crate) journal: Result<Vec<Entry>, String>,
    pub(crate) mailbox: Mailbox,
    pub(crate) notes: mpsc::UnboundedReceiver<Note>,
}

/// Hosts a run until it ends or is let go.
pub(crate) async fn host(host: Arc<Host>, hosting: Hosting) {
    let run_id = hosting.claimed.run_id;
    let epoch = hosting.claimed.epoch;
    let mailbox = hosting.mailbox.clone();
    // The whole task is outside tokio's cooperative budget: inside a workflow that budget would look like a wait on
    // something that is not durable (tokio returns `Pending` when it is used up). The task gives way by itself: it
    // waits for notes after every turn.
    let task = tokio::task::unconstrained(async {
        let mut task = Task::replay(host.clone(), hosting);
        task.run().await;
    });
    if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
        let text = activity::panic_text(panic);
        tracing::error!(%run_id, %text, "a fault of the engine while it hosted a run; giving the run back");
        host.release(Release { run_id, epoch, until: Until::Now }).await;
    }
    host.forget(run_id, &mailbox);
}

/// The entry that begins the generation of these.
fn base(journal: &[Entry]) -> u32 {
    journal
        .first()
        .filter(|first| matches!(first.event, Event::Continued { .. }))
        .map_or(0, |first| first.seq)
}

/// Wakes the run's task when its workflow is woken from outside.
fn alarm(mailbox: &Mailbox) -> Arc<dyn Fn() + Send + Sync> {
    let mailbox = mailbox.clone();
    Arc::new(move || drop(mailbox.send(Note::Alarm)))
}

struct Task {
    host: Arc<Host>,
    tenure: Arc<Tenure>,
    workflow: &'static str,
    workflow_id: WorkflowId,
    seed: RunId,
    is_child: bool,
    deadline: Option<Timestamp>,
    /// The entry that begins the run's present generation.
    base: u32,
    /// What the next one begins with, while that is being written.
    next: Vec<Entry>,
    driver: Driver,
    mailbox: Mailbox,
    notes: mpsc::UnboundedReceiver<Note>,
    attempts: HashMap<u32, oneshot::Sender<()>>,
    ending: Option<End>,
    idle_since: Option<Instant>,
    draining: bool,
    /// Others wait for its place.
    crowded: bool,
    /// The database will not accept what the run decided.
    rejected: bool,
    /// Nothing more to do here.
    over: bool,
}

impl Task {
    fn replay(host: Arc<Host>, hosting: Hosting) -> Self {
        let Hosting { claimed, workflow, journal, mailbox, notes } = hosting;
        let start = |input| Start {
            run_id: claimed.run_id,
            seed: claimed.seed,
            workflow_id: claimed.workflow_id.clone(),
            workflow,
            input,
            started_at: claimed.started_at,
            alarm: alarm(&mailbox),
        };
        let build = host.build.clone();
        let readable = claimed.input.and_then(|input| Ok((input, journal?)));
        let base = readable.as_ref().map_or(0, |(_, entries)| base(entries));
        let driver = match readable {
            Ok((input, entries)) => Driver::new(
                start(input),
                &entries,
                claimed.copied,
                claimed.claimed_at,
                claimed.deadline,
                build,
            ),
            Err(why) => Driver::unreadable(why, claimed.started_at, build),
        };
        Self {
            tenure: Tenure::new(claimed.run_id, claimed.epoch),
            workflow: workflow.name,
            workflow_id: claimed.workflow_id,
            seed: claimed.seed,
            is_child: claimed.is_child,
            deadline: claimed.deadline,
            base,
            next: vec![],
            driver,
            mailbox,
            notes,
            attempts: HashMap::new(),
            ending: None,
            idle_since: None,
            draining: host.is_draining(),
            crowded: false,
            rejected: false,
            over: false,
            host,
        }
    }

    fn run_id(&self) -> RunId {
        self.tenure.run_id
    }

    async fn run(&mut self) {
        if self.draining {
            self.driver.drain();
        }
        loop {
            let now = self.host.clock.now();
            self.driver.tick(now);
            let todo = self.driver.take(now);
            let decided = self.act(todo).await;
            for call in self.driver.take_forgotten() {
                tracing::warn!(run_id = %self.run_id(), workflow = self.workflow, "{call}");
            }
            if self.driver.is_idle() {
                let since = *self.idle_since.get_or_insert_with(Instant::now);
                let rested = self.crowded || since.elapsed() >= self.host.limits.linger;
                if self.draining || (rested && self.waits_for_long()) {
                    self.let_go().await;
                }
            } else {
                self.idle_since = None;
            }
            if self.over {
                return;
            }
            if decided {
                self.listen().await;
            } else {
                self.wait().await;
            }
        }
    }

    /// Whether a waiting run would be away for longer than a moment.
    fn waits_for_long(&self) -> bool {
        let soon = self.host.clock.now().saturating_add(self.host.limits.poll);
        self.driver.next_instant().is_none_or(|next| next > soon)
    }

    /// Waits for the first thing to happen, and takes everything that has happened by then.
    async fn wait(&mut self) {
        self.crowded = false;
        let instant = self.driver.next_instant().map(|at| at.since(self.host.clock.now()));
        let linger = self.idle_since.map(|since| {
            self.host.limits.linger.saturating_sub(since.elapsed()).max(self.host.limits.poll / 10)
        });
        let timeout = [instant, linger].into_iter().flatten().min();
        let note = match timeout {
            None => self.notes.recv().await,
            Some(timeout) => match tokio::time::timeout(timeout, self.notes.recv()).await {
                Ok(note) => note,
                Err(_) => return,
            },
        };
        if let Some(note) = note {
            self.hear(note).await;
        }
        self.listen().await;
    }

    /// Takes everything that has happened by now.
    async fn listen(&mut self) {
        while let Ok(note) = self.notes.try_recv() {
            self.hear(note).await;
        }
    }

    async fn hear(&mut self, note: Note) {
        let now = self.host.clock.now();
        match note {
            Note::Written { upto, ended, mark } => {
                self.driver.written(upto, mark, now);
                let ending = if ended { self.ending.take() } else { None };
                if let Some(End::Continued { workflow, .. }) = &ending {
                    self.begin_generation(workflow).await;
                } else if let Some(end) = ending {
                    self.host.ended(self.run_id(), end);
                    if self.is_child {
                        // Its end is mail for its parent.
                        self.host.hub.notify(Topic::Inbox);
                    }
                    self.over = true;
                }
            }
            Note::Attempt { step, attempt, end } => {
                self.attempts.remove(&step);
                self.driver.attempt_ended(step, attempt, end, now, fastrand::f64());
            }
            Note::ChildStarted { step, refused } => self.driver.child_started(step, refused, now),
            Note::ChildGone { step } => self.driver.child_ended(step),
            Note::Mail(messages) => self.driver.mail(messages, now),
            Note::Unreadable(why) => self.driver.give_up(why),
            Note::Alarm => self.driver.alarm(),
            Note::Crowded => self.crowded = true,
            Note::Drain => {
                self.draining = true;
                self.driver.drain();
            }
            Note::Stop => {
                self.draining = true;
                self.driver.stop_all();
            }
            Note::Lost => self.over = true,
            Note::Refused(refusal) => self.refused(refusal).await,
        }
    }

    /// The run goes on as a new generation, with what is durable of it. Whoever hosts its workflow no more gives it back.
    async fn begin_generation(&mut self, workflow: &str) {
        let run_id = self.run_id();
        let entries = std::mem::take(&mut self.next);
        let (Some(entry), Some(first)) = (self.host.registry.workflow(workflow), entries.first()) else {
            self.host.release(Release { run_id, epoch: self.tenure.epoch(), until: Until::Now }).await;
            self.over = true;
            return self.host.hub.notify(Topic::Runs);
        };
        let start = Start {
            run_id,
            seed: self.seed,
            workflow_id: self.workflow_id.clone(),
            workflow: entry,
            // Both are what the first entry says.
            input: Payload::from(Vec::new()),
            started_at: first.at,
            alarm: alarm(&self.mailbox),
        };
        if self.base > 0 {
            prune(self.host.clone(), run_id, self.base);
        }
        (self.workflow, self.base) = (entry.name, first.seq);
        let heard = self.driver.heard();
        self.driver = Driver::new(start, &entries, 0, first.at, self.deadline, self.host.build.clone());
        self.driver.has_heard(heard);
        if self.draining {
            self.driver.drain();
        }
        // What was sent while the generation before ended is still there.
        mail::fetch(&self.host, &[run_id]).await;
    }

    /// A write was refused: what memory says beyond the journal is worth nothing.
    async fn refused(&mut self, refusal: Refusal) {
        self.over = true;
        let run_id = self.run_id();
        match refusal {
            // All of a lost session's runs are refused at once: that was said once.
            Refusal::Fenced if self.host.session.is_lost() => {}
            Refusal::Fenced => {
                tracing::info!(%run_id, "the run belongs to another session by now; letting go")
            }
            Refusal::Rebuild => {
                tracing::warn!(%run_id, "the journal is not what memory says; replaying the run");
                self.host.release(Release { run_id, epoch: self.tenure.epoch(), until: Until::Now }).await;
            }
            // The end itself was refused: nothing can be said to the database about this run now.
            Refusal::Rejected(message) if self.rejected => {
                tracing::error!(%run_id, %message, "the run cannot be set stuck; giving it back");
                let until =
                    Until::Due(Some(self.host.clock.now().saturating_add(self.host.limits.stuck_backoff)));
                self.host.release(Release { run_id, epoch: self.tenure.epoch(), until }).await;
            }
            Refusal::Rejected(message) => {
                self.rejected = true;
                let reason = format!("the database will not accept what the run decided: {message}");
                tracing::error!(%run_id, %reason, "the run is stuck");
                let tenure = Tenure::new(run_id, self.tenure.epoch());
                let end = End::Stuck { reason, build: self.host.build.clone() };
                self.ending = Some(end.clone());
                let (prev, entries) = (self.driver.forget_unwritten(), vec![]);
                self.tenure = tenure.clone();
                let reply = self.mailbox.clone();
                let (published, mark) = (vec![], u64::MAX);
                self.host
                    .writer
                    .write(RunOp { tenure, prev, entries, end: Some(end), published, mark, reply })
                    .await;
                self.over = false;
            }
        }
    }

    /// Does what the driver says; true when that has decided something already.
    async fn act(&mut self, todo: Todo) -> bool {
        for step in todo.stop {
            // Without an attempt there is nobody to report that it stopped.
            match self.attempts.remove(&step) {
                Some(stop) => drop(stop.send(())),
                None => tracing::debug!(step, "a step was stopped twice"),
            }
        }
        if let Some(Write { prev, entries, end, published, mark }) = todo.write {
            self.ending = end.clone();
            if let Some(End::Continued { base, .. }) = end {
                self.next = entries.iter().filter(|entry| entry.seq >= base).cloned().collect();
            }
            let (tenure, reply) = (self.tenure.clone(), self.mailbox.clone());
            self.host.writer.write(RunOp { tenure, prev, entries, end, published, mark, reply }).await;
        }
        for child in todo.children {
            children::start(self.host.clone(), self.tenure.clone(), child, self.mailbox.clone());
        }
        for (step, child) in todo.cancel {
            children::cancel(self.host.clone(), step, child, self.mailbox.clone());
        }
        let alone = todo.start.len() == 1 && self.attempts.is_empty();
        let mut decided = false;
        for attempt in todo.start {
            decided |= self.start(attempt, alone);
        }
        decided
    }

    /// Begins an attempt. One that is `alone` is polled once on the spot: many are done by then, and are spared a task
    /// and the way there and back; true then. It holds nobody up, since the run has nothing else to do.
    fn start(&mut self, attempt: Attempt, alone: bool) -> bool {
        let Attempt { activity, attempt } = attempt;
        let step = activity.step.number;
        let Some(entry) = self.host.registry.activity(&activity.step.name) else {
            let reason = format!(
                "activity `{}` (called at {}) is not registered on this worker: add `.activity::<{}>()` to it, or \
                 start a worker that has it",
                activity.step.name, activity.step.line, activity.step.name,
            );
            // Reported like an attempt that never began, so that the driver's count is right; then the run is stuck.
            let end = AttemptEnd::Interrupted;
            self.driver.give_up(reason);
            drop(self.mailbox.send(Note::Attempt { step, attempt, end }));
            return false;
        };
        let info = ActivityInfo {
            run_id: self.run_id(),
            workflow_id: self.workflow_id.clone(),
            workflow: self.workflow,
            step,
            name: entry.name,
            attempt,
            scheduled_at: activity.scheduled_at,
        };
        self.host.metrics.attempts.add(1);
        if attempt > 1 {
            self.host.metrics.retries.add(1);
        }
        let host = self.host.clone();
        let entry = *entry;
        let (stop, stopped) = oneshot::channel();
        let mut body = Box::pin(async move {
            let cx = ActivityCx::new(info, host.registry.states());
            let body = AssertUnwindSafe(with_slot(&host, entry, cx, activity, stopped)).catch_unwind();
            body.await.unwrap_or_else(|panic| AttemptEnd::Panicked(activity::panic_text(panic)))
        });
        if alone && let Some(end) = (&mut body).now_or_never() {
            self.driver.attempt_ended(step, attempt, end, self.host.clock.now(), fastrand::f64());
            return true;
        }
        self.attempts.insert(step, stop);
        let mailbox = self.mailbox.clone();
        tokio::spawn(async move {
            let end = body.await;
            let _ = mailbox.send(Note::Attempt { step, attempt, end });
        });
        false
    }

    /// Parks the run, or gives it back.
    async fn let_go(&mut self) {
        let until = match self.driver.due() {
            Ok(due) => Until::Due(due),
            Err(_) => Until::Now,
        };
        let run_id = self.run_id();
        match self.host.release(Release { run_id, epoch: self.tenure.epoch(), until }).await {
            Released::Done => {
                if matches!(until, Until::Due(_)) {
                    self.host.metrics.parked.add(1);
                } else if self.draining {
                    self.host.hub.notify(Topic::Runs);
                }
                self.over = true;
            }
            Released::Fenced => {
                self.host.metrics.fenced.add(1);
                self.over = true;
            }
            // A message is there or on its way. A run that drains leaves it to the next owner.
            Released::Mail if self.draining => {
                let until = Until::Now;
                self.host.release(Release { run_id, epoch: self.tenure.epoch(), until }).await;
                self.over = true;
            }
            // If it was taken back on its way, the run parks after another rest.
            Released::Mail => self.idle_since = Some(Instant::now()),
        }
    }
}

/// Deletes what came before the generation that has just ended: nobody needs it, so nobody waits for it. What is left by a
/// database that is away goes with the next generation.
fn prune(host: Arc<Host>, run_id: RunId, before: u32) {
    tokio::spawn(async move {
        if let Err(error) = within(ANSWER, host.store.prune(run_id, before)).await {
            tracing::debug!(%run_id, %error, "entries of past generations are still there");
        }
    });
}

/// Waits for a slot, then runs the attempt; a stop is heard in both.
async fn with_slot(
    host: &Host,
    entry: composer_sdk::activity::ActivityEntry,
    cx: Arc<ActivityCx>,
    activity: super::driver::Activity,
    mut stop: oneshot::Receiver<()>,
) -> AttemptEnd {
    let permit = match host.slots.clone().try_acquire_owned() {
        Ok(permit) => permit,
        Err(_) => tokio::select! {
            permit = host.slots.clone().acquire_owned() => match permit {
                Ok(permit) => permit,
                Err(_) => return AttemptEnd::Interrupted,
            },
            _ = &mut stop => return AttemptEnd::Interrupted,
            () = activity::out_of_time(&activity, host.clock.now()) => return AttemptEnd::OutOfTime,
        },
    };
    let now = host.clock.now();
    if activity::time_left(&activity, now).is_some_and(|left| left.is_zero()) {
        return AttemptEnd::OutOfTime;
    }
    let limit = activity::time_limit(&activity, now);
    let session = host.session.clone();
    activity::run(activity::Run { entry, cx, activity, limit, permit, session, stop }).await
}
