//! How a kit worker is set up, in the test and in a process of its own.

use std::time::Duration;

use composer_runtime::{Composer, Error, WorkerBuilder};
use serde::{Deserialize, Serialize};

use super::{
    Command, Ledger, variant,
    workflow::{apple, block, effect, fruit, interpret, pear, plum},
};

/// Everything that a kit process is told. Lengths are scaled down: a test waits for conditions, but the engine waits
/// for time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Setup {
    /// The database.
    pub url: String,
    /// Its schema.
    pub schema: String,
    /// The URL of the effect server.
    pub effects: String,
    /// Where the process ends at once: `after_effect:3`.
    pub exit_at: Option<String>,
    /// Whether it works, and not only starts runs.
    pub work: bool,
    /// What it starts by itself, all at once, printing a line for each start that was acknowledged: the run's id,
    /// `new` or `already`, and the workflow id.
    pub start: Vec<Start>,
    /// Which body the workflow `changing` has.
    pub variant: Option<String>,
    /// Whether it prints what workflows say, a line each.
    pub lines: bool,
    /// The build.
    pub build: String,
    /// See [`WorkerBuilder`].
    pub lease_ms: u64,
    /// See [`WorkerBuilder`].
    pub linger_ms: u64,
    /// See [`WorkerBuilder`].
    pub poll_ms: u64,
    /// See [`WorkerBuilder`].
    pub grace_ms: u64,
    /// See [`WorkerBuilder`].
    pub max_runs: usize,
    /// See [`WorkerBuilder`].
    pub max_activities: usize,
}

/// A start of [`interpret`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The workflow id; without one, the engine makes one.
    pub id: Option<String>,
    /// The input.
    pub commands: Vec<Command>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            url: String::new(),
            schema: "composer".into(),
            effects: String::new(),
            exit_at: None,
            work: true,
            start: vec![],
            variant: None,
            lines: false,
            build: "kit".into(),
            lease_ms: 3_000,
            linger_ms: 100,
            poll_ms: 50,
            grace_ms: 1_000,
            max_runs: 1_000,
            max_activities: 500,
        }
    }
}

/// Connects as the setup says.
///
/// # Errors
/// As [`Composer::connect`].
pub async fn composer(setup: &Setup) -> Result<Composer, Error> {
    let poll = Duration::from_millis(setup.poll_ms);
    Composer::builder().url(&setup.url).schema(&setup.schema).pool_size(4).poll(poll).connect().await
}

/// A worker as the setup says, with the kit's workflows and activities.
pub fn worker(composer: &Composer, setup: &Setup) -> WorkerBuilder {
    let exit_at = setup.exit_at.as_ref().map(|text| text.parse().expect("a test knows its exit points"));
    let worker = composer
        .worker()
        .workflow::<interpret>()
        .workflow::<fruit>()
        .activity::<effect>()
        .activity::<block>()
        .activity::<pear>()
        .activity::<apple>()
        .activity::<plum>()
        .state(Ledger::new(&setup.effects, exit_at))
        .lease(Duration::from_millis(setup.lease_ms))
        .linger(Duration::from_millis(setup.linger_ms))
        .poll(Duration::from_millis(setup.poll_ms))
        .grace(Duration::from_millis(setup.grace_ms))
        .stuck_backoff(Duration::from_millis(200))
        .max_runs(setup.max_runs)
        .max_activities(setup.max_activities)
        .build_id(&setup.build);
    match &setup.variant {
        Some(name) => variant::register(worker, name),
        None => worker,
    }
}
