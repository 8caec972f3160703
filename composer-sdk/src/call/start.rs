//! A call of a workflow as the start of a run.

use std::{collections::BTreeMap, time::Duration};

use super::{Call, Options, Origin};
use crate::{
    definition::{Definition, Workflow},
    error::{Failure, FailureKind},
    id::{InvalidWorkflowId, WorkflowId},
    payload::Payload,
};

/// What a call says about the run that it would start.
#[derive(Debug, Clone, Default)]
pub(super) struct StartOptions {
    id: Option<String>,
    tags: BTreeMap<String, String>,
    timeout: Option<Duration>,
    delay: Duration,
    detached: bool,
}

/// A run that is asked for: what a client needs of a call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StartRequest {
    /// The workflow's name.
    pub workflow: &'static str,
    /// Its arguments.
    pub input: Payload,
    /// The user's key, if it was given.
    pub id: Option<WorkflowId>,
    /// For finding the run again.
    pub tags: BTreeMap<String, String>,
    /// Closed as failed when it is still open that long after its start.
    pub timeout: Option<Duration>,
    /// Not before that long from now.
    pub delay: Duration,
}

impl StartRequest {
    /// Whether the call says more about the run than its arguments.
    pub fn has_options(&self) -> bool {
        self.id.is_some() || !self.tags.is_empty() || self.timeout.is_some() || !self.delay.is_zero()
    }
}

/// Why a call cannot start a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartRefused {
    /// An argument cannot be journaled.
    #[error(transparent)]
    Input(#[from] Failure),
    /// The id is none.
    #[error(transparent)]
    Id(#[from] InvalidWorkflowId),
    /// The call was built inside a workflow.
    #[error(
        "`{workflow}` ({line}) was built inside a workflow and cannot be started from there: a replay would start it \
         again. Start it from an activity"
    )]
    InsideWorkflow {
        /// The workflow that was to be started.
        workflow: &'static str,
        /// `file:line` of the call.
        line: String,
    },
}

impl From<StartRefused> for Failure {
    fn from(why: StartRefused) -> Self {
        match why {
            StartRefused::Input(failure) => failure,
            other => Failure::new(FailureKind::Refused, other),
        }
    }
}

impl<D: Definition> Call<D> {
    /// The run that this call asks for, and whether it is detached.
    pub(super) fn request(&mut self) -> Result<(StartRequest, bool), StartRefused> {
        let options = match std::mem::replace(&mut self.options, Options::Default) {
            Options::Start(options) => *options,
            _ => StartOptions::default(),
        };
        let id = options.id.map(WorkflowId::try_from).transpose()?;
        let input = self.input.clone()?;
        let StartOptions { tags, timeout, delay, detached, .. } = options;
        Ok((StartRequest { workflow: D::NAME, input, id, tags, timeout, delay }, detached))
    }
}

impl<W: Workflow> Call<W> {
    /// The user's key of the run: 1 to 512 bytes. Starting an id that exists returns the run that has it.
    #[track_caller]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.start_options("id").id = Some(id.into());
        self
    }

    /// A name and a value by which the run can be found.
    #[track_caller]
    pub fn tag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.start_options("tag").tags.insert(name.into(), value.into());
        self
    }

    /// The run is closed as failed when it is still open that long after its start.
    #[track_caller]
    pub fn run_timeout(mut self, timeout: Duration) -> Self {
        self.start_options("run_timeout").timeout = Some(timeout);
        self
    }

    /// The run begins that long from now.
    #[track_caller]
    pub fn after(mut self, delay: Duration) -> Self {
        self.start_options("after").delay = delay;
        self
    }

    /// As a child: it goes on when its parent ends, or stops waiting for it, and is not asked to cancel then. A client's
    /// start is always so.
    #[track_caller]
    pub fn detached(mut self) -> Self {
        self.start_options("detached").detached = true;
        self
    }

    /// The start that this call describes: for clients.
    ///
    /// # Errors
    /// When an argument cannot be journaled, the id is none, or the call was built inside a workflow.
    pub fn into_start(mut self) -> Result<StartRequest, StartRefused> {
        if matches!(self.origin, Origin::Workflow(_) | Origin::Inert) {
            return Err(StartRefused::InsideWorkflow { workflow: W::NAME, line: self.line() });
        }
        Ok(self.request()?.0)
    }

    #[track_caller]
    fn start_options(&mut self, option: &str) -> &mut StartOptions {
        self.too_late_for(option);
        if !matches!(self.options, Options::Start(_)) {
            self.options = Options::Start(Box::default());
        }
        match &mut self.options {
            Options::Start(options) => options,
            _ => unreachable!("invariant: it was just set"),
        }
    }
}
