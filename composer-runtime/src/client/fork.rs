//! Forking and redriving a run: a new one that begins with what the old one has done.
//!
//! What is taken over is decided here ([`plan`]), from a journal that may be growing meanwhile: entries never change,
//! so what was read stays true. The store then makes the new run with all of it, or nothing.

mod plan;

use std::{fmt, pin::Pin};

use composer_sdk::{
    Call, Workflow,
    id::{RunId, WorkflowId},
    payload::Payload,
};

use self::plan::{Mark, Prefix};
use super::{RunHandle, handle::READ, start::arguments};
use crate::{
    error::Error,
    store::{ForkKey, Forked, NewFork, Status, StoreError, Topic},
};

/// A fork that is being put together; `.await` makes it happen.
#[must_use = "nothing is forked until this is awaited"]
pub struct Fork<W> {
    original: RunHandle<W>,
    step: u32,
    id: Option<String>,
    input: Option<Result<Payload, Error>>,
}

impl<W> RunHandle<W> {
    /// A new run of the same workflow that begins with what this one has done before a step: the results from before
    /// are taken over and not made again, that step and all that follows are made anew. This run stays as it is; it may
    /// be open or closed.
    ///
    /// ```no_run
    /// # async fn example(composer: composer_runtime::Composer) -> Result<(), composer_runtime::Error> {
    /// let run = composer.get_json("order-102").await?;
    /// // Whatever came of step 4, it and all that follows is made once more.
    /// let again = run.fork(4).id("order-102-again").await?;
    /// println!("{:?}", again.result().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The journal says which number a step has ([`RunHandle::journal`]). What is taken over ends with the first result
    /// that is not: of branches side by side, what ended after a later step's result is made again. What has no result
    /// by then begins afresh: with the first attempt, with a new timer, with a child of its own. Neither is a request
    /// to cancel taken over, nor what came after it; nor is a signal that came later, or was never journaled. Undo
    /// steps that ran at the run's end are not known to the fork: fork before what they have undone.
    ///
    /// The fork's workflow sees the same `now()`, random numbers and uuids up to there. Its activities have idempotency
    /// keys of their own, it is nobody's child, and its timeout begins anew.
    pub fn fork(&self, step: u32) -> Fork<W> {
        Fork { original: self.clone(), step, id: None, input: None }
    }

    /// A new run under the same workflow id that goes on where this one ended without a value: what it has done is
    /// taken over, and what ended it gets another chance. From now on the id names the new run; this one stays as it
    /// is.
    ///
    /// ```no_run
    /// # async fn example(composer: composer_runtime::Composer) -> Result<(), composer_runtime::Error> {
    /// // The number of the card was wrong, and no attempt to charge it went through. By now it is right.
    /// let again = composer.get_json("order-102").await?.redrive().await?;
    /// println!("{:?}", again.result().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// * After a failure, the last step that ended with an error is made again, with its first attempt. Without such a
    ///   step the workflow itself said no, and will again unless its code is another one by now.
    /// * After a cancellation or the run's timeout, it goes on as if that had not been; the timeout begins anew.
    /// * After [`RunHandle::terminate`], it goes on where it was. If an undo step could not be made, that one is made
    ///   again.
    ///
    /// What was undone at the end is done again. All else is as with a [fork](RunHandle::fork), which the new run is.
    ///
    /// # Errors
    /// [`Error::NothingToRedrive`] when the run has completed, [`Error::Open`] when it has not ended;
    /// [`Error::AlreadyExists`] when the id names another run by now, as after a redrive: of two at once, one succeeds.
    /// [`Error::NoRun`] when it was deleted.
    ///
    /// # Cancel safety
    /// A redrive whose future is dropped may or may not have happened: a second one finds that the id names another
    /// run.
    pub async fn redrive(&self) -> Result<RunHandle<W>, Error> {
        let id = || self.workflow_id().to_string();
        let status = self.status().await?.status;
        match status {
            Status::Completed => return Err(Error::NothingToRedrive { id: id() }),
            status if !status.is_closed() => return Err(Error::Open { id: id(), status }),
            _ => {}
        }
        let marks = self.marks(|_| false).await?;
        self.begin_with(plan::after_end(&marks, status), ForkKey::Inherit, None).await
    }

    /// Reads the journal of a generation, until a mark is as much as it takes. An entry that cannot be read is no obstacle
    /// behind that.
    async fn marks(&self, enough: impl Fn(&Mark) -> bool) -> Result<Vec<Mark>, Error> {
        let (mut marks, mut after, mut limit) = (vec![], 0, READ);
        loop {
            let page = match self.composer().store().journal(self.run_id(), after, limit).await {
                Err(StoreError::Unreadable { .. }) if limit > 1 => {
                    limit = 1;
                    continue;
                }
                page => page?,
            };
            for mark in page.iter().map(Mark::of) {
                if mark.taken().is_some() {
                    marks.clear();
                }
                marks.push(mark);
            }
            match page.last() {
                Some(last) if page.len() == limit as usize && !marks.iter().any(&enough) => {
                    after = last.seq;
                }
                _ => return Ok(marks),
            }
        }
    }

    /// Makes the new run.
    async fn begin_with(
        &self,
        prefix: Prefix,
        key: ForkKey,
        input: Option<Payload>,
    ) -> Result<RunHandle<W>, Error> {
        let composer = self.composer();
        let run_id = RunId::new(composer.clock().now());
        let workflow_id = match &key {
            ForkKey::OwnId => run_id.into(),
            ForkKey::New(id) => id.clone(),
            ForkKey::Inherit => self.workflow_id().clone(),
        };
        let Prefix { step, first, upto, without } = prefix;
        let fork = NewFork { from: self.run_id(), run_id, key, step, first, upto, without, input };
        let id = || workflow_id.to_string();
        match composer.store().fork(&fork).await? {
            Forked::Done => {}
            Forked::Taken { run_id, status } => {
                return Err(Error::AlreadyExists { id: id(), run_id, status });
            }
            Forked::Open(status) => return Err(Error::Open { id: id(), status }),
            Forked::NoRun => return Err(Error::NoRun { id: self.workflow_id().to_string() }),
        }
        composer.hub().start(composer.store(), composer.poll());
        composer.hub().notify(Topic::Runs);
        Ok(RunHandle::new(composer.clone(), run_id, workflow_id, false))
    }
}

impl<W> Fork<W> {
    /// The new run's id in your words, 1 to 512 bytes, which no run may have. Without one the fork is known by its run
    /// id.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Other arguments: the list of them, as JSON. A step whose result is taken over must be asked for by them as it
    /// was, or the new run is stuck, as after a change of the code; before step 1 there is none.
    pub fn input_json(mut self, input: &serde_json::Value) -> Self {
        self.input = Some(arguments("the workflow", input));
        self
    }

    async fn make(self) -> Result<RunHandle<W>, Error> {
        let Self { original, step, id, input } = self;
        let key = id.map(WorkflowId::try_from).transpose()?.map_or(ForkKey::OwnId, ForkKey::New);
        let input = input.transpose()?;
        let marks = original.marks(|mark| mark.is_result_from(step)).await?;
        let steps = plan::steps(&marks);
        if !steps.contains(&step) {
            // Of a run that is gone there is more to say.
            original.status().await?;
            return Err(Error::NoStep {
                id: original.workflow_id().to_string(),
                step,
                first: *steps.start(),
                last: steps.end() - 1,
            });
        }
        original.begin_with(plan::before_step(&marks, step), key, input).await
    }
}

impl<W: Workflow> Fork<W> {
    /// Other arguments: those of a call, which gives none of its options. A step whose result is taken over must be
    /// asked for by them as it was, or the new run is stuck, as after a change of the code; before step 1 there is
    /// none.
    ///
    /// ```no_run
    /// # use composer_sdk::prelude::*;
    /// # #[workflow] async fn order(id: u32, express: bool) -> Result<()> { Ok(()) }
    /// # async fn example(run: composer_runtime::RunHandle<order>) -> Result<(), composer_runtime::Error> {
    /// let express = run.fork(4).input(order(102, true)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn input(mut self, call: Call<W>) -> Self {
        self.input = Some(match call.into_start() {
            Ok(request) if request.has_options() => Err(Error::Start(
                "a call gives a fork its arguments and nothing else: name the id at the fork; tags are those of the \
                 original"
                    .into(),
            )),
            Ok(request) => Ok(request.input),
            Err(refusal) => Err(Error::Start(refusal.to_string())),
        });
        self
    }
}

impl<W: 'static> IntoFuture for Fork<W> {
    type Output = Result<RunHandle<W>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// # Errors
    /// [`Error::NoStep`] when the run has made no such step and does not come to it next; [`Error::AlreadyExists`] when
    /// the id is taken; [`Error::NoRun`] when the original was deleted.
    ///
    /// # Cancel safety
    /// A fork whose future is dropped may or may not have happened: with an id, a second one finds it taken.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.make())
    }
}

impl<W> fmt::Debug for Fork<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fork")
            .field("original", &self.original)
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}
