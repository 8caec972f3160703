//! Tests of workflows: an environment in memory, with a clock that moves by itself.
//!
//! [`Testing`] is to a test what a worker and its database are in production: the same driver decides, the same replay
//! machine runs the workflow, and results cross the same journal. But rows are values, a sleep of thirty days is over at
//! once, and activities are the real ones, or closures in their place. Nothing happens unless the test drives it, one
//! thing after another on one thread, so a test is the same each time it runs.
//!
//! ```
//! use composer_runtime::testing::Testing;
//! use composer_sdk::prelude::*;
//!
//! #[activity(retry(max_attempts = 3))]
//! async fn charge_card(cents: u32) -> Result<String> {
//!     # let _ = cents;
//!     Err(Error::new("no test talks to the bank"))
//! }
//!
//! #[workflow]
//! async fn renew(cents: u32) -> Result<String> {
//!     sleep(Duration::days(30)).await;
//!     charge_card(cents).await
//! }
//!
//! let env = Testing::new()
//!     .mock::<charge_card>().with(|cents| Ok(format!("receipt over {cents}")))
//!     .fail::<charge_card>(1..=2, Error::new("the bank is closed"));
//! let run = env.start(renew(4_900)).unwrap();
//!
//! // In a test with a runtime: `run.result().await`.
//! assert_eq!(run.result().wait().unwrap().unwrap(), "receipt over 4900");
//! assert_eq!(run.journal(), [
//!     "sleep: set",
//!     "sleep: over",
//!     "charge_card: attempt 1 failed: the bank is closed",
//!     "charge_card: attempt 2 failed: the bank is closed",
//!     "charge_card: ok in attempt 3",
//!     "completed",
//! ]);
//! assert_eq!(env.attempts::<charge_card>()[0].args(|cents| cents), 4_900);
//! ```
//!
//! What a test of this kind cannot show: what a database does, and how long things take.

mod attempts;
mod cast;
mod children;
mod crash;
mod driving;
mod error;
mod hosted;
mod journal;
mod memory;
mod replay;
mod run;
#[cfg(test)]
mod tests;
mod world;

use std::{
    fmt,
    marker::PhantomData,
    ops::RangeBounds,
    rc::Rc,
    time::{Duration, SystemTime},
};

use composer_sdk::{
    __private::Lends,
    Activity, Call, Workflow,
    activity::{ActivityEntry, Attempted},
    id::Timestamp,
    workflow::WorkflowEntry,
};

pub use self::{
    attempts::Attempt,
    crash::crash_everywhere,
    driving::Driving,
    error::{Error, Waiting},
    journal::{Journal, Line},
    replay::{ReplayError, Replayed, replay},
    run::TestRun,
};
use self::{cast::Cast, crash::Plan, memory::Stored, world::World};
use crate::lists::{Activities, Workflows};

/// 1 January 2026, midnight: when a test begins unless it says otherwise.
const BEGINNING: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// An environment for tests: see the [module](self).
#[must_use = "an environment does nothing by itself: start a run in it"]
pub struct Testing {
    world: Rc<World>,
}

impl Testing {
    /// An empty environment. Its clock begins at midnight of 1 January 2026, and its seed is `COMPOSER_SEED`, or 0.
    ///
    /// # Panics
    /// When `COMPOSER_SEED` is no number.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let seed = std::env::var("COMPOSER_SEED").ok().map(|seed| {
            seed.parse()
                .unwrap_or_else(|_| panic!("COMPOSER_SEED is {seed:?}: write a whole number from 0 on"))
        });
        Self { world: World::new(BEGINNING, seed.unwrap_or(0)) }
    }

    /// Another seed, for all that is random: run ids, what the workflow draws, and the pauses before retries.
    pub fn seed(self, seed: u64) -> Self {
        self.world.state.borrow_mut().seed = seed;
        self
    }

    /// Another beginning of the clock.
    pub fn starting_at(self, now: SystemTime) -> Self {
        self.world.state.borrow_mut().now = now.into();
        self
    }

    /// A workflow that others await as a child. Those that the test starts need not be named.
    pub fn workflow<W: Workflow>(self) -> Self {
        self.cast(|cast| cast.workflow(WorkflowEntry::of::<W>()))
    }

    /// Several workflows, given as a tuple.
    pub fn workflows<W: Workflows>(self) -> Self {
        self.cast(|cast| W::entries().into_iter().for_each(|entry| cast.workflow(entry)))
    }

    /// Runs an activity for real: on the runtime of the test, or, without one, on a small one of the environment's own.
    /// The clock stands still meanwhile. A blocking activity runs on a thread of its own, and the test waits for it.
    pub fn activity<A: Activity>(self) -> Self {
        self.cast(|cast| cast.real(ActivityEntry::of::<A>()))
    }

    /// Runs several activities for real, given as a tuple.
    pub fn activities<A: Activities>(self) -> Self {
        self.cast(|cast| A::entries().into_iter().for_each(|entry| cast.real(entry)))
    }

    /// Puts a closure in an activity's place: `.mock::<charge_card>().with(|order| …)`.
    pub fn mock<A: Activity>(self) -> Mock<A> {
        Mock { env: self, activity: PhantomData }
    }

    /// Lets these attempts of an activity fail with an error, whoever plays it: `1..=2` are the first two attempts of
    /// each step, `..` is every attempt. A permanent error ends the step, as ever.
    pub fn fail<A>(self, attempts: impl RangeBounds<u32>, error: <A::Output as Fallible>::Error) -> Self
    where
        A: Activity,
        A::Output: Fallible,
    {
        let attempted = Attempted::of::<A>(&A::Output::failed(error));
        self.cast(|cast| cast.fail(A::NAME, attempts, attempted))
    }

    /// Lets these attempts of an activity hang: they end with their timeout, or when the run drops them.
    pub fn hang<A: Activity>(self, attempts: impl RangeBounds<u32>) -> Self {
        self.cast(|cast| cast.hang(A::NAME, attempts))
    }

    /// How long each attempt of an activity takes, by the virtual clock; nothing by default. One that takes longer than
    /// its timeout times out.
    pub fn takes<A: Activity>(self, time: Duration) -> Self {
        self.cast(|cast| cast.take(A::NAME, time))
    }

    /// A value for the `#[state]` parameters of its type. The last one of a type wins.
    ///
    /// # Panics
    /// After a run was driven.
    pub fn state<T: Send + Sync + 'static>(self, state: T) -> Self {
        self.cast(|cast| cast.state(state))
    }

    /// Lets the process die before its n-th journal write, from 1: what that would have said is lost. It begins again at
    /// once, with what is in the journals.
    pub fn crash_before_write(self, write: usize) -> Self {
        self.with_plan(Plan::BeforeWrite(write))
    }

    /// Lets the process die after its n-th journal write, from 1: it never gets to know that it was written.
    pub fn crash_after_write(self, write: usize) -> Self {
        self.with_plan(Plan::AfterWrite(write))
    }

    /// Lets the process die after each journal write.
    pub fn crash_after_every_write(self) -> Self {
        self.with_plan(Plan::AfterEveryWrite)
    }

    /// Drops each run from memory after each step, as soon as nothing of it is under way, and replays it.
    pub fn evict_after_every_step(self) -> Self {
        self.with_plan(Plan::Evict)
    }

    fn with_plan(self, plan: Plan) -> Self {
        self.world.state.borrow_mut().plan = plan;
        self
    }

    fn cast(self, set: impl FnOnce(&mut Cast)) -> Self {
        set(&mut self.world.cast.borrow_mut());
        self
    }

    fn world(&self) -> Rc<World> {
        self.world.clone()
    }

    /// Starts a run, as a client would: `.id(..)`, `.after(..)` and `.run_timeout(..)` of the call count. Starting an id
    /// again finds the same run. The run does nothing until it is driven.
    ///
    /// # Errors
    /// [`Error::Setup`] names everything that is missing; [`Error::Start`] says why the call cannot be started.
    pub fn start<W: Workflow>(&self, call: Call<W>) -> Result<TestRun<W>, Error> {
        let faults = self.world.cast.borrow().faults();
        if !faults.is_empty() {
            return Err(Error::Setup { faults: faults.join("\n") });
        }
        let request = call.into_start()?;
        self.world.cast.borrow_mut().workflow(WorkflowEntry::of::<W>());
        let mut state = self.world.state.borrow_mut();
        if let Some(id) = &request.id
            && let Some(index) = state.runs.iter().position(|run| run.stored.workflow_id == *id)
        {
            return match state.runs[index].stored.workflow.name {
                found if found == W::NAME => Ok(TestRun::new(self.world.clone(), index)),
                found => Err(Error::WrongWorkflow { id: id.clone(), found }),
            };
        }
        let run_id = state.new_run_id();
        let at_once = request.delay.is_zero();
        let mut stored = Stored::new(run_id, WorkflowEntry::of::<W>(), request, state.now);
        stored.started_at = at_once.then_some(state.now);
        state.runs.push(world::Run { stored, hosted: None });
        Ok(TestRun::new(self.world.clone(), state.runs.len() - 1))
    }

    /// What the clock says.
    pub fn now(&self) -> SystemTime {
        self.world.state.borrow().now.into()
    }

    /// Drives all runs until nothing more happens at this instant. The clock stands still.
    ///
    /// # Errors
    /// [`Error::Endless`] when the runs go on and on.
    pub fn settle(&self) -> Driving<'static, Result<(), Error>> {
        self.advance(Duration::ZERO)
    }

    /// Drives all runs through that much time: whatever is due until then happens at its own instant.
    ///
    /// # Errors
    /// [`Error::Endless`] when the runs go on and on without letting the time pass.
    pub fn advance(&self, by: Duration) -> Driving<'static, Result<(), Error>> {
        let world = self.world.clone();
        Driving::new(self.world.clone(), async move { world.advance(by).await })
    }

    /// The process dies, and is away for that long: attempts under way are lost, timers fire late, nothing else happens.
    pub fn outage(&self, length: Duration) {
        let mut state = self.world.state.borrow_mut();
        state.crash();
        state.attempts.forget_beginnings();
        state.now = state.now.saturating_add(length);
    }

    /// The attempts of an activity that were begun so far, in order, whoever played it.
    pub fn attempts<A: Activity>(&self) -> Vec<Attempt<A>> {
        let state = self.world.state.borrow();
        let begun = state.attempts.record.iter().filter(|begun| begun.info.name == A::NAME);
        begun.cloned().map(Attempt::new).collect()
    }
}

impl fmt::Debug for Testing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.world.state.borrow();
        write!(f, "test environment of {} runs, seed {}{}", state.runs.len(), state.seed, state.plan.words())
    }
}

/// An activity that something is to stand in for. Made by [`Testing::mock`].
#[must_use = "say what stands in for the activity: `.with(|..| ..)`"]
pub struct Mock<A> {
    env: Testing,
    activity: PhantomData<fn() -> A>,
}

impl<A: Activity> Mock<A> {
    /// With this closure: it takes the activity's arguments as they are declared, without `#[state]`, and returns what
    /// the activity returns. It may ask what an activity may ask, such as `activity::attempt()`. A panic in it is a failed
    /// attempt.
    pub fn with<F: 'static>(self, stand_in: F) -> Testing
    where
        A: Lends<F, A::Output>,
    {
        self.env.cast(|cast| cast.stand_in::<A, F>(stand_in))
    }
}

/// What an activity may return that can fail: a `Result`.
#[diagnostic::on_unimplemented(
    message = "an activity that returns `{Self}` cannot be made to fail",
    label = "this is no `Result`",
    note = "use `.mock::<…>().with(..)` to say what it returns"
)]
pub trait Fallible {
    /// Its error.
    type Error;
    #[doc(hidden)]
    fn failed(error: Self::Error) -> Self;
}

impl<T, E> Fallible for Result<T, E> {
    type Error = E;
    fn failed(error: E) -> Self {
        Err(error)
    }
}
