//! Children: runs that are a step of another one. Starting one twice changes nothing, and neither does asking twice.

use composer_sdk::id::RunId;

use super::{
    cast::Cast,
    memory::Stored,
    world::{Run, State},
};
use crate::{
    store::{End, MessageContent},
    task::driver::Child,
};

/// What a child is told when nobody waits for it any more.
const NOBODY_WAITS: &str = "the parent does not wait for it any more";

impl State {
    /// Starts a child, unless it is there already; its parent gets to know.
    pub(super) fn start_child(&mut self, parent: usize, child: Child, cast: &Cast) {
        let Child { step, run_id, request, .. } = child;
        let Some(workflow) = cast.workflow_named(request.workflow) else {
            let (name, line) = (request.workflow, &step.line);
            let reason = format!(
                "workflow `{name}` (awaited at {line}) is not part of this test: add `.workflow::<{name}>()` to the \
                 environment"
            );
            if let Some(hosted) = &mut self.runs[parent].hosted {
                hosted.child_unknown(step.number, reason, self.now);
            }
            return;
        };
        let other = self.runs.iter().find(|run| Some(&run.stored.workflow_id) == request.id.as_ref());
        let refused = other.filter(|other| other.stored.run_id != run_id).map(|other| {
            let Stored { workflow_id, run_id, .. } = &other.stored;
            format!("the workflow id `{workflow_id}` belongs to another run, {run_id}")
        });
        if refused.is_none() && self.index_of(run_id).is_none() {
            let mut stored = Stored::new(run_id, workflow, *request, self.now);
            stored.parent = Some((self.runs[parent].stored.run_id, step.number));
            self.runs.push(Run { stored, hosted: None });
        }
        if let Some(hosted) = &mut self.runs[parent].hosted {
            hosted.child_started(step.number, refused, self.now);
        }
    }

    /// Asks a child to cancel, once. One that is not there has settled.
    pub(super) fn cancel_child(&mut self, parent: usize, step: u32, child: RunId) {
        let Some(index) = self.index_of(child) else {
            if let Some(hosted) = &mut self.runs[parent].hosted {
                hosted.child_gone(step);
            }
            return;
        };
        if !self.runs[index].stored.was_asked_to_cancel(NOBODY_WAITS) {
            // One that is closed by now has told its parent.
            let _ = self.send(index, MessageContent::Cancel { reason: NOBODY_WAITS.into() });
        }
    }

    /// The end of a child is mail for its parent, from the moment at which it is durable.
    pub(super) fn tell_parent(&mut self, index: usize) {
        let Stored { parent, end, .. } = &self.runs[index].stored;
        if let (Some((parent, step)), Some(End::Closed { outcome, .. })) = (*parent, end) {
            let outcome = outcome.clone();
            if let Some(parent) = self.index_of(parent) {
                let _ = self.send(parent, MessageContent::Child { step, outcome });
            }
        }
    }

    /// The children that have not ended, for people.
    pub(super) fn open_children(&self, parent: usize) -> Vec<String> {
        let me = self.runs[parent].stored.run_id;
        let children = self.runs.iter().map(|run| &run.stored);
        let open = children.filter(|child| {
            child.parent.is_some_and(|(parent, _)| parent == me) && !child.status().is_closed()
        });
        open.map(|child| format!("`{}` of `{}`", child.workflow_id, child.workflow.name)).collect()
    }

    fn index_of(&self, run_id: RunId) -> Option<usize> {
        self.runs.iter().position(|run| run.stored.run_id == run_id)
    }
}
