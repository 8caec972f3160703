//! The client: start runs, and talk to them.
//!
//! A client needs no worker and no workflow code beyond the types. Everything acknowledged here is durable: a start
//! that returned a handle will be executed, a signal that returned will be seen or listed as unconsumed.

mod builder;
mod fork;
mod handle;
mod start;

use std::{sync::Arc, time::Duration};

use composer_sdk::{
    Call, Workflow,
    id::{RunId, WorkflowId},
};

pub(crate) use self::start::check_tags;
pub use self::{
    builder::ComposerBuilder,
    fork::Fork,
    handle::{Json, Line, Returns, RunHandle},
    start::Start,
};
use crate::{
    WorkerBuilder,
    clock::Clock,
    error::Error,
    hub::Hub,
    metrics::Metrics,
    store::{Deleted, RunFilter, RunRow, Store},
};

/// Runs in one page of [`Composer::list`].
const PAGE: u32 = 100;

/// The engine, as a process holds it: a database, and what it takes to talk to it. Cheap to clone.
///
/// ```no_run
/// # async fn main_() -> Result<(), composer_runtime::Error> {
/// use composer_runtime::Composer;
///
/// let composer = Composer::connect("postgres://localhost/shop").await?;
/// let run = composer.start_json("buy_package", serde_json::json!([{ "order": 102 }])).id("order-102").await?;
/// println!("{:?}", run.status().await?.status);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Composer(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    clock: Arc<Clock>,
    hub: Arc<Hub>,
    metrics: Arc<Metrics>,
    poll: Duration,
}

impl Composer {
    /// Connects to `postgres://…`, or opens the file of `sqlite:path`. The schema is brought up to date if it is
    /// behind and the user may; [`ComposerBuilder::migrate`] switches that off.
    ///
    /// # Errors
    /// [`Error::Store`]: the database cannot be reached, or its schema needs attention; the message says what to do.
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error> {
        Self::builder().url(url).connect().await
    }

    /// Connects to what `COMPOSER_URL` names; without it, opens the embedded store `composer.db` in the current
    /// directory, and says so on stderr.
    ///
    /// # Errors
    /// As [`Composer::connect`].
    pub async fn connect_from_env() -> Result<Self, Error> {
        Self::builder().connect().await
    }

    /// More to choose: schema, pool, codec, migrations.
    pub fn builder() -> ComposerBuilder {
        ComposerBuilder::default()
    }

    fn assemble(store: Arc<dyn Store>, clock: Clock, poll: Duration) -> Self {
        Self(Arc::new(Inner {
            store,
            clock: Arc::new(clock),
            hub: Arc::default(),
            metrics: Arc::default(),
            poll,
        }))
    }

    /// A worker on this database.
    pub fn worker(&self) -> WorkerBuilder {
        WorkerBuilder::new(self.clone())
    }

    /// Starts a workflow: `composer.start(buy_package(order)).id("order-102").await?`. When it returns, the start is
    /// durable.
    pub fn start<W: Workflow>(&self, call: Call<W>) -> Start<W> {
        Start::typed(self.clone(), call)
    }

    /// Starts a workflow by its name, without its code. `input` is the list of its arguments, as JSON.
    pub fn start_json(&self, workflow: impl Into<String>, input: serde_json::Value) -> Start<Json> {
        Start::untyped(self.clone(), workflow.into(), &input)
    }

    /// The run that a workflow id names now: the newest of that id.
    ///
    /// # Errors
    /// [`Error::NoRun`]; [`Error::WrongWorkflow`] when it is a run of another workflow.
    pub async fn get<W: Workflow>(&self, id: &str) -> Result<RunHandle<W>, Error> {
        let row = self.row(id).await?;
        if row.workflow != W::NAME {
            return Err(Error::WrongWorkflow { id: id.into(), asked: W::NAME.into(), found: row.workflow });
        }
        Ok(RunHandle::new(self.clone(), row.run_id, row.workflow_id, true))
    }

    /// The run that a workflow id names now, of whatever workflow.
    ///
    /// # Errors
    /// [`Error::NoRun`].
    pub async fn get_json(&self, id: &str) -> Result<RunHandle<Json>, Error> {
        let row = self.row(id).await?;
        Ok(RunHandle::new(self.clone(), row.run_id, row.workflow_id, true))
    }

    async fn row(&self, id: &str) -> Result<RunRow, Error> {
        let id: WorkflowId = id.parse()?;
        self.store().find(&id).await?.ok_or_else(|| Error::NoRun { id: id.into() })
    }

    /// A page of runs, newest first: at most 100, those older than `before`. The last one's `run_id` asks for the
    /// next page.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn list(&self, filter: &RunFilter, before: Option<RunId>) -> Result<Vec<RunRow>, Error> {
        Ok(self.store().list(filter, before, PAGE).await?)
    }

    /// Deletes a closed run, its journal, and its id.
    ///
    /// # Errors
    /// [`Error::Open`] while it is open, [`Error::NoRun`].
    pub async fn delete(&self, id: &str) -> Result<(), Error> {
        let run = self.row(id).await?.run_id;
        match self.store().delete(run).await? {
            Deleted::Done => Ok(()),
            Deleted::Open(status) => Err(Error::Open { id: id.into(), status }),
            _ => Err(Error::NoRun { id: id.into() }),
        }
    }

    /// What this process has done so far.
    pub fn counts(&self) -> crate::Counts {
        self.0.metrics.counts()
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }
    pub(crate) fn clock(&self) -> &Arc<Clock> {
        &self.0.clock
    }
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.0.hub
    }
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }
    pub(crate) fn poll(&self) -> Duration {
        self.0.poll
    }
}

impl std::fmt::Debug for Composer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Composer").field(&self.0.store.location()).finish()
    }
}
