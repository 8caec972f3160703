//! From a name to its workflow or activity.

use std::{collections::HashMap, sync::Arc};

use composer_sdk::{
    activity::{ActivityEntry, States},
    workflow::WorkflowEntry,
};

/// What a worker hosts.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    workflows: HashMap<&'static str, WorkflowEntry>,
    activities: HashMap<&'static str, ActivityEntry>,
    states: Arc<States>,
}

/// Why a worker cannot be built: every fault at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Faults(pub(crate) Vec<String>);

impl Registry {
    /// Checks what was registered: two of one name, and missing states, are refused together.
    pub(crate) fn build(
        workflows: Vec<WorkflowEntry>,
        activities: Vec<ActivityEntry>,
        states: States,
    ) -> Result<Self, Faults> {
        let mut faults = vec![];
        let mut registry = Self { states: Arc::new(states), ..Self::default() };
        for workflow in workflows {
            if let Some(other) = registry.workflows.insert(workflow.name, workflow)
                && other.source != workflow.source
            {
                faults.push(twice("workflows", workflow.name, other.source, workflow.source));
            }
        }
        for activity in activities {
            for need in activity.needs() {
                if !registry.states.has(&need) {
                    faults.push(format!(
                        "activity `{}` needs a `#[state]` of type `{}`: add `.state(…)` with one to the worker",
                        activity.name, need.type_name
                    ));
                }
            }
            let (name, source) = (activity.name, activity.source);
            if let Some(other) = registry.activities.insert(name, activity)
                && other.source != source
            {
                faults.push(twice("activities", name, other.source, source));
            }
        }
        if faults.is_empty() { Ok(registry) } else { Err(Faults(faults)) }
    }

    pub(crate) fn workflow(&self, name: &str) -> Option<WorkflowEntry> {
        self.workflows.get(name).copied()
    }

    pub(crate) fn activity(&self, name: &str) -> Option<&ActivityEntry> {
        self.activities.get(name)
    }

    pub(crate) fn states(&self) -> Arc<States> {
        self.states.clone()
    }

    /// The workflows' names, sorted.
    pub(crate) fn workflows(&self) -> Vec<String> {
        let mut names: Vec<String> = self.workflows.keys().map(|name| (*name).to_owned()).collect();
        names.sort();
        names
    }

    /// Everything that is registered, sorted: part of what tells one build from another.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.workflows.keys().chain(self.activities.keys()).copied().collect();
        names.sort_unstable();
        names
    }
}

pub(crate) fn twice(what: &str, name: &str, one: &str, other: &str) -> String {
    format!("two {what} are named `{name}`: at {one} and at {other}; give one of them `name = \"…\"`")
}
