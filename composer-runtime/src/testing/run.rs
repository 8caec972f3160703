//! A run of a test.

use std::{fmt, marker::PhantomData, rc::Rc};

use composer_sdk::{
    Definition, Journaled, Signal, Workflow,
    id::{RunId, WorkflowId},
    journal::Event,
    message::Published,
};

use super::{
    Driving, Error, Journal, Waiting,
    world::{Run, State, World},
};
use crate::{
    journal_file::{JournalFile, generation},
    store::{End, MessageContent, Status},
};

/// A run of a test: signal it, cancel it, wait for it, look at it. Cheap to clone.
pub struct TestRun<W> {
    world: Rc<World>,
    /// Its place in the environment.
    index: usize,
    workflow: PhantomData<fn() -> W>,
}

impl<W: Workflow> TestRun<W> {
    pub(super) fn new(world: Rc<World>, index: usize) -> Self {
        Self { world, index, workflow: PhantomData }
    }

    /// Your key for it; for a run without one, the run id as text.
    pub fn workflow_id(&self) -> WorkflowId {
        self.look(|run| run.stored.workflow_id.clone())
    }

    /// The run's own id: the same each time the test runs with the same seed.
    pub fn run_id(&self) -> RunId {
        self.look(|run| run.stored.run_id)
    }

    /// Where the run stands.
    pub fn status(&self) -> Status {
        self.look(|run| run.stored.status())
    }

    /// What its journal says so far.
    pub fn journal(&self) -> Journal {
        self.look(Run::journal)
    }

    /// The run and its journal, to be written into a file: see [`replay`](super::replay()).
    pub fn export(&self) -> JournalFile {
        self.look(|run| JournalFile {
            run_id: run.stored.run_id,
            seed: run.stored.run_id,
            workflow_id: run.stored.workflow_id.clone(),
            workflow: W::NAME.into(),
            started_at: run.stored.started_at.unwrap_or(run.stored.due_at),
            input: run.stored.input.clone(),
            status: run.stored.status(),
            end: match &run.stored.end {
                Some(End::Closed { outcome, .. }) => Some(outcome.clone()),
                _ => None,
            },
            entries: generation(run.stored.journal.clone()),
        })
    }

    /// What the run shows under that name, if it has shown anything yet.
    ///
    /// # Errors
    /// [`Error::Run`] when the value is no `T`.
    pub fn published<T: Journaled>(&self, state: &Published<T>) -> Result<Option<T>, Error> {
        let shown = self.look(|run| run.stored.published.get(state.name()).cloned());
        Ok(shown.map(|value| state.decode(&value)).transpose()?)
    }

    /// Sends a signal. The run sees it when it is driven.
    ///
    /// # Errors
    /// [`Error::Closed`] when the run has ended; [`Error::Run`] when the value cannot be encoded.
    pub fn signal<T: Journaled>(&self, signal: &Signal<T>, value: T) -> Result<(), Error> {
        let payload = signal.encode(&value)?;
        self.send(MessageContent::Signal { name: signal.name().to_owned(), payload })
    }

    /// Asks the run to cancel. It sees that when it is driven; one that has not begun, or is stuck, is closed at once.
    ///
    /// # Errors
    /// [`Error::Closed`] when the run had ended before.
    pub fn cancel(&self, reason: &str) -> Result<(), Error> {
        self.send(MessageContent::Cancel { reason: reason.to_owned() })
    }

    fn send(&self, content: MessageContent) -> Result<(), Error> {
        let sent = self.world.state.borrow_mut().send(self.index, content);
        // A result may be awaited meanwhile, which waits for an activity.
        self.world.alarm.ring();
        sent.map_err(|status| Error::Closed { id: self.workflow_id(), status })
    }

    /// Its children of that workflow so far, in the order in which they were started.
    pub fn children<C: Workflow>(&self) -> Vec<TestRun<C>> {
        let state = self.world.state.borrow();
        let me = state.runs[self.index].stored.run_id;
        let runs = state.runs.iter().enumerate();
        let children = runs.filter(|(_, run)| {
            run.stored.parent.is_some_and(|(parent, _)| parent == me) && run.stored.workflow.name == C::NAME
        });
        children.map(|(index, _)| TestRun::new(self.world.clone(), index)).collect()
    }

    /// Drives the environment until the run has ended: activities are carried out, and the clock moves to whatever is
    /// next. What the workflow returned, also its declared error, is the value.
    ///
    /// # Errors
    /// [`Error::Waits`] says what for, when nothing is to come that could wake the run; [`Error::Stuck`] why;
    /// [`Error::Endless`] when it goes on and on; [`Error::Run`] what the engine has to say to a workflow that returns no
    /// `Result`.
    pub fn result(&self) -> Driving<'static, Result<W::Output, Error>> {
        let run = self.clone();
        Driving::new(self.world.clone(), async move {
            let ended =
                run.world.drive(run.index, &|state| state.runs[run.index].stored.end.is_some()).await?;
            if ended { run.end() } else { Err(run.waits()) }
        })
    }

    fn end(&self) -> Result<W::Output, Error> {
        match self.look(|run| run.stored.end.clone()) {
            Some(End::Closed { outcome, .. }) => Ok(<W as Definition>::decode(&outcome)?),
            Some(End::Stuck { reason, .. }) => {
                Err(Error::Stuck { id: self.workflow_id(), workflow: W::NAME, reason })
            }
            Some(End::Continued { .. }) | None => Err(self.waits()),
        }
    }

    fn waits(&self) -> Error {
        let state = self.world.state.borrow();
        let run = &state.runs[self.index];
        Error::Waits(Box::new(Waiting {
            id: run.stored.workflow_id.clone(),
            workflow: W::NAME,
            signals: run.hosted.as_ref().map(|hosted| hosted.awaited_signals()).unwrap_or_default(),
            hanging: state.attempts.hanging(self.index),
            children: state.open_children(self.index),
            journal: run.journal(),
        }))
    }

    /// Drives the environment until the run's journal is as asked for, and stops right there: nothing that would follow
    /// has begun. For what is to happen at a certain place, such as a cancel.
    ///
    /// ```
    /// # use composer_runtime::testing::Testing;
    /// # use composer_sdk::prelude::*;
    /// # #[activity] async fn reserve(n: u32) -> Result<u32> { Ok(n) }
    /// # #[activity] async fn charge(n: u32) -> Result<u32> { Ok(n) }
    /// # #[workflow] async fn buy(n: u32) -> Result<u32> { charge(reserve(n).await?).await }
    /// let env = Testing::new().activity::<reserve>().activity::<charge>();
    /// let run = env.start(buy(1)).unwrap();
    /// run.until(|journal| journal.contains("reserve: ok")).wait().unwrap();
    /// run.cancel("changed my mind").unwrap();
    /// assert!(run.result().wait().unwrap().is_err());
    /// assert!(env.attempts::<charge>().is_empty());
    /// ```
    ///
    /// # Errors
    /// [`Error::NeverCame`] when the run ended before; the others as [`TestRun::result`].
    pub fn until<'a>(&self, reached: impl Fn(&Journal) -> bool + 'a) -> Driving<'a, Result<(), Error>> {
        let index = self.index;
        self.drive_until(move |state| reached(&state.runs[index].journal()))
    }

    /// Drives the environment until the step of that number has its outcome: see [`TestRun::until`]. Steps are numbered
    /// from 1 in the order in which the workflow's code builds them.
    ///
    /// # Errors
    /// As [`TestRun::until`].
    pub fn until_step(&self, step: u32) -> Driving<'static, Result<(), Error>> {
        let index = self.index;
        self.drive_until(move |state| {
            let entries = state.runs[index].entries().iter().rev();
            let of_step = |event: &Event| event.step() == Some(step);
            let decides = |event: &Event| matches!(event, Event::StepDone { .. } | Event::TimerFired { .. });
            entries.into_iter().any(|entry| of_step(&entry.event) && decides(&entry.event))
        })
    }

    fn drive_until<'a>(&self, goal: impl Fn(&State) -> bool + 'a) -> Driving<'a, Result<(), Error>> {
        let run = self.clone();
        Driving::new(self.world.clone(), async move {
            if run.world.drive(run.index, &goal).await? {
                return Ok(());
            }
            match run.status() {
                Status::Stuck => run.end().map(drop),
                status if status.is_closed() => Err(Error::NeverCame {
                    id: run.workflow_id(),
                    workflow: W::NAME,
                    status,
                    journal: run.journal(),
                }),
                _ => Err(run.waits()),
            }
        })
    }

    fn look<T>(&self, look: impl FnOnce(&Run) -> T) -> T {
        look(&self.world.state.borrow().runs[self.index])
    }
}

impl<W> Clone for TestRun<W> {
    fn clone(&self) -> Self {
        Self { world: self.world.clone(), index: self.index, workflow: PhantomData }
    }
}

impl<W: Workflow> fmt::Debug for TestRun<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run `{}` of `{}`", self.workflow_id(), W::NAME)
    }
}
