//! Starting a run.

use std::{collections::BTreeMap, marker::PhantomData, pin::Pin, time::Duration};

use composer_sdk::{
    Call, Journaled, Workflow,
    id::{RunId, WorkflowId},
    message::Signal,
    payload::Payload,
};

use super::{Composer, Json, RunHandle, handle::check_name};
use crate::{
    error::Error,
    store::{Claimed, Epoch, IdPolicy, NewMessage, NewRun, Started, StoreError, Topic},
};

/// Tags of one run, and bytes of a tag's name or value, at most.
const TAGS: usize = 32;
const TAG_BYTES: usize = 256;

/// A start that is being put together; `.await` makes it happen.
#[derive(Debug)]
#[must_use = "nothing is started until this is awaited"]
pub struct Start<W> {
    composer: Composer,
    workflow: String,
    input: Result<Payload, Error>,
    id: Option<String>,
    policy: IdPolicy,
    delay: Duration,
    timeout: Option<Duration>,
    tags: BTreeMap<String, String>,
    signal: Option<Result<(String, Payload), Error>>,
    _returns: PhantomData<fn() -> W>,
}

impl<W: Workflow> Start<W> {
    pub(super) fn typed(composer: Composer, call: Call<W>) -> Self {
        let mut start = Self::new(composer, W::NAME.into(), Ok(Payload::from(vec![])));
        match call.into_start() {
            Ok(request) => {
                start.input = Ok(request.input);
                start.id = request.id.map(String::from);
                start.tags = request.tags;
                start.timeout = request.timeout;
                start.delay = request.delay;
            }
            Err(refusal) => start.input = Err(Error::Start(refusal.to_string())),
        }
        start
    }
}

impl Start<Json> {
    pub(super) fn untyped(composer: Composer, workflow: String, input: &serde_json::Value) -> Self {
        let input = arguments(&format!("workflow `{workflow}`"), input);
        let input = match workflow.is_empty() || workflow.len() > 256 || workflow.contains('\0') {
            true => Err(Error::Start("a workflow's name has 1 to 256 bytes, without NUL".into())),
            false => input,
        };
        Self::new(composer, workflow, input)
    }
}

impl<W> Start<W> {
    fn new(composer: Composer, workflow: String, input: Result<Payload, Error>) -> Self {
        Self {
            composer,
            workflow,
            input,
            id: None,
            policy: IdPolicy::default(),
            delay: Duration::ZERO,
            timeout: None,
            tags: BTreeMap::new(),
            signal: None,
            _returns: PhantomData,
        }
    }

    /// The run's id in your words, 1 to 512 bytes. Starting the same id again finds the same run.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// What to do when the id is taken; [`IdPolicy::UseExisting`] by default.
    pub fn policy(mut self, policy: IdPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Not before this long from now. It can be cancelled until then.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Ends the run as failed when it is still open this long after it was asked for.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// A tag, to find the run by: at most 32, names and values of 1 to 256 bytes.
    pub fn tag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.tags.insert(name.into(), value.into());
        self
    }

    /// Sends a signal with the start: to the new run, in the transaction that starts it, or to the open run that has the
    /// id. So whoever comes first starts the run, and no signal is lost.
    ///
    /// ```
    /// # use composer_runtime::{Composer, Error};
    /// # use composer_sdk::prelude::*;
    /// static ITEM: Signal<String> = Signal::new("item");
    ///
    /// # #[workflow] async fn cart() {}
    /// # async fn add(composer: Composer) -> Result<(), Error> {
    /// composer.start(cart()).id("cart-of-ada").with_signal(&ITEM, "a lamp".into()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When awaited: [`Error::Closed`] when the id belongs to a closed run and the policy is not
    /// [`IdPolicy::NewWhenClosed`].
    pub fn with_signal<T: Journaled>(mut self, signal: &Signal<T>, value: T) -> Self {
        let message = check_name(signal.name()).and_then(|name| Ok((name, signal.encode(&value)?)));
        self.signal = Some(message);
        self
    }

    async fn start(self) -> Result<RunHandle<W>, Error> {
        let Self { composer, workflow, input, id, policy, delay, timeout, tags, signal, _returns } = self;
        let signal = signal.transpose()?;
        let workflow_id = id.map(WorkflowId::try_from).transpose()?;
        check_tags(&tags)?;
        let run_id = RunId::new(composer.clock().now());
        let input = input?;
        let build = String::new();
        let run = NewRun { run_id, workflow_id, workflow, input, delay, timeout, tags, build, signal };
        let key = run.workflow_id.clone().unwrap_or_else(|| run_id.into());
        // Each round ends unless the run that has the id closes between two looks.
        for _ in 0..32 {
            let handle = Self::once(&composer, &run, &key, policy).await?;
            let Some((name, payload)) = run.signal.clone().filter(|_| handle.already()) else {
                if run.signal.is_some() {
                    composer.hub().notify(Topic::Inbox);
                }
                return Ok(handle);
            };
            match handle.send(NewMessage::Signal { name, payload }).await {
                Err(Error::Closed { .. }) if policy == IdPolicy::NewWhenClosed => {}
                sent => return sent.map(|_| handle),
            }
        }
        Err(Error::Start(format!("the runs of workflow id `{key}` end as fast as they are started")))
    }

    async fn once(
        composer: &Composer,
        run: &NewRun,
        key: &WorkflowId,
        policy: IdPolicy,
    ) -> Result<RunHandle<W>, Error> {
        let (composer, key, run_id) = (composer.clone(), key.clone(), run.run_id);
        match place(&composer, run.clone(), policy).await? {
            Started::New { .. } => Ok(RunHandle::new(composer, run_id, key, false)),
            Started::Exists { workflow, .. } if workflow != run.workflow => {
                Err(Error::WrongWorkflow { id: key.into(), asked: run.workflow.clone(), found: workflow })
            }
            Started::Exists { run_id, status, .. } if policy == IdPolicy::Reject => {
                Err(Error::AlreadyExists { id: key.into(), run_id, status })
            }
            Started::Exists { run_id, .. } => Ok(RunHandle::new(composer, run_id, key, true)),
        }
    }
}

/// A list of arguments.
pub(super) fn arguments(of: &str, input: &serde_json::Value) -> Result<Payload, Error> {
    match input {
        serde_json::Value::Array(_) => Ok(Payload::encode(input)?),
        other => Err(Error::Start(format!(
            "the input of {of} is the list of its arguments, a JSON array: write [{other}]"
        ))),
    }
}

/// Writes the start: handed to the worker of this process where there is one with room, else left for any worker.
async fn place(composer: &Composer, run: NewRun, policy: IdPolicy) -> Result<Started, Error> {
    let host = composer
        .hub()
        .host()
        .filter(|host| run.delay.is_zero() && host.registry.workflow(&run.workflow).is_some());
    let expected = host.as_ref().and_then(|host| host.expect(run.run_id));
    let (Some(host), Some(expected)) = (host, expected) else {
        let started = composer.store().start(&run, policy, None).await?;
        composer.hub().start(composer.store(), composer.poll());
        composer.hub().notify(Topic::Runs);
        return Ok(started);
    };
    let run = NewRun { build: host.build.clone(), ..run };
    let started = match run.workflow_id {
        // Only ids of our own making ride in the journal's batches: another id can wait for a stranger (PROTOCOL 36).
        None if run.signal.is_none() => match host.writer.start(run.clone()).await {
            Err(StoreError::Unavailable { .. }) => start_once_more(composer, &run).await?,
            started => started?,
        },
        _ => composer.store().start(&run, policy, Some(host.session.id())).await?,
    };
    match started {
        Started::New { owned: Some(epoch), at } => expected.arrived(claimed(run, epoch, at)),
        Started::New { owned: None, .. } => composer.hub().notify(Topic::Runs),
        Started::Exists { .. } => {}
    }
    Ok(started)
}

/// The worker lost its session over a start: the run's own id says whether it is there, and any worker may have it.
async fn start_once_more(composer: &Composer, run: &NewRun) -> Result<Started, Error> {
    match composer.store().start(run, IdPolicy::UseExisting, None).await? {
        Started::Exists { .. } => Ok(Started::New { owned: None, at: composer.clock().now() }),
        new => Ok(new),
    }
}

fn claimed(run: NewRun, epoch: Epoch, at: composer_sdk::id::Timestamp) -> Claimed {
    Claimed {
        run_id: run.run_id,
        workflow_id: run.workflow_id.unwrap_or_else(|| run.run_id.into()),
        workflow: run.workflow,
        epoch,
        input: Ok(run.input),
        started_at: at,
        claimed_at: at,
        deadline: run.timeout.map(|timeout| at.saturating_add(timeout)),
        is_child: false,
        seed: run.run_id,
        copied: 0,
        taken_over: false,
        strikes: 0,
    }
}

pub(crate) fn check_tags(tags: &BTreeMap<String, String>) -> Result<(), Error> {
    if tags.len() > TAGS {
        return Err(Error::Start(format!("a run has at most {TAGS} tags, not {}", tags.len())));
    }
    let wrong = |text: &String| text.is_empty() || text.len() > TAG_BYTES || text.contains('\0');
    match tags.iter().find(|(name, value)| wrong(name) || wrong(value)) {
        Some((name, _)) => Err(Error::Start(format!(
            "tag `{}`: names and values have 1 to {TAG_BYTES} bytes, without NUL",
            name.chars().take(40).collect::<String>().escape_debug()
        ))),
        None => Ok(()),
    }
}

impl<W: 'static> IntoFuture for Start<W> {
    type Output = Result<RunHandle<W>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// # Cancel safety
    /// A start whose future is dropped may or may not have happened: start again with the same id.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start())
    }
}
