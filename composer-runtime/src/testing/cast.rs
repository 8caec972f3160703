//! Who plays which activity: the real one, a stand-in, or a fault.

use std::{
    cell::RefCell,
    collections::HashMap,
    ops::{Bound, RangeBounds},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use composer_sdk::{
    __private::Lends,
    Activity,
    activity::{ActivityCx, ActivityEntry, Attempted, Need, States},
    payload::Payload,
    workflow::WorkflowEntry,
};

use crate::registry::twice;

/// What stands in for an activity: one attempt.
pub(super) type StandIn = Rc<RefCell<dyn FnMut(&Payload, Arc<ActivityCx>) -> Attempted>>;

/// Which attempts, from 1.
type Attempts = (Bound<u32>, Bound<u32>);

/// The parts of all activities.
#[derive(Default)]
pub(super) struct Cast {
    players: HashMap<&'static str, Player>,
    faults: HashMap<&'static str, Vec<(Attempts, Part)>>,
    takes: HashMap<&'static str, Duration>,
    workflows: HashMap<&'static str, WorkflowEntry>,
    states: Arc<States>,
    twice: Vec<String>,
}

struct Player {
    source: &'static str,
    part: Part,
}

/// What is done in an attempt.
#[derive(Clone)]
pub(super) enum Part {
    /// The activity itself.
    Real(ActivityEntry),
    /// A closure in its place.
    StandIn(StandIn),
    /// Nothing but this outcome.
    Outcome(Attempted),
    /// Nothing: it never answers.
    Hangs,
}

impl Cast {
    /// A workflow that others may await.
    pub(super) fn workflow(&mut self, entry: WorkflowEntry) {
        if let Some(other) = self.workflows.insert(entry.name, entry)
            && other.source != entry.source
        {
            self.twice.push(twice("workflows", entry.name, other.source, entry.source));
        }
    }

    pub(super) fn workflow_named(&self, name: &str) -> Option<WorkflowEntry> {
        self.workflows.get(name).copied()
    }

    /// The activity itself.
    pub(super) fn real(&mut self, entry: ActivityEntry) {
        self.play(entry.name, entry.source, Part::Real(entry));
    }

    /// A closure in its place.
    pub(super) fn stand_in<A, F>(&mut self, mut stand_in: F)
    where
        A: Activity + Lends<F, A::Output>,
        F: 'static,
    {
        let attempt =
            move |input: &Payload, cx: Arc<ActivityCx>| Attempted::by::<A, F>(input, cx, &mut stand_in);
        self.play(A::NAME, A::SOURCE, Part::StandIn(Rc::new(RefCell::new(attempt))));
    }

    /// The last one counts, so that a test can take over what its neighbours set up; but two activities of one name are
    /// a mistake.
    fn play(&mut self, name: &'static str, source: &'static str, part: Part) {
        if let Some(other) = self.players.insert(name, Player { source, part })
            && other.source != source
        {
            self.twice.push(twice("activities", name, other.source, source));
        }
    }

    /// These attempts have this outcome.
    pub(super) fn fail(&mut self, name: &'static str, attempts: impl RangeBounds<u32>, with: Attempted) {
        self.fault(name, attempts, Part::Outcome(with));
    }

    /// These attempts never answer.
    pub(super) fn hang(&mut self, name: &'static str, attempts: impl RangeBounds<u32>) {
        self.fault(name, attempts, Part::Hangs);
    }

    fn fault(&mut self, name: &'static str, attempts: impl RangeBounds<u32>, fault: Part) {
        let attempts = (attempts.start_bound().cloned(), attempts.end_bound().cloned());
        self.faults.entry(name).or_default().push((attempts, fault));
    }

    /// How long an attempt takes by the virtual clock.
    pub(super) fn take(&mut self, name: &'static str, time: Duration) {
        self.takes.insert(name, time);
    }

    /// A value for `#[state]` parameters.
    pub(super) fn state<T: Send + Sync + 'static>(&mut self, state: T) {
        let states = Arc::get_mut(&mut self.states);
        states.expect("`.state(..)` comes before the first run is driven").insert(state);
    }

    pub(super) fn states(&self) -> Arc<States> {
        self.states.clone()
    }

    pub(super) fn time_of(&self, name: &str) -> Duration {
        self.takes.get(name).copied().unwrap_or_default()
    }

    /// What is done in an attempt of that activity; none when nobody plays it. The last fault that was set counts.
    pub(super) fn part(&self, name: &str, attempt: u32) -> Option<(&'static str, Part)> {
        if let Some((name, faults)) = self.faults.get_key_value(name)
            && let Some((_, part)) = faults.iter().rev().find(|(attempts, _)| attempts.contains(&attempt))
        {
            return Some((name, part.clone()));
        }
        self.players.get_key_value(name).map(|(name, player)| (*name, player.part.clone()))
    }

    /// Everything that is missing, in words.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut missing: Vec<String> =
            self.players.iter().flat_map(|(name, player)| self.missing(name, player)).collect();
        missing.sort();
        self.twice.iter().cloned().chain(missing).collect()
    }

    fn missing(&self, name: &str, player: &Player) -> Vec<String> {
        let Part::Real(entry) = &player.part else { return vec![] };
        let needs = entry.needs();
        let missing = needs.iter().filter(|need| !self.states.has(need));
        let words = |need: &Need| {
            format!(
                "activity `{name}` needs a `#[state]` of type `{}`: add `.state(…)` with one, or `.mock::<{name}>()`",
                need.type_name
            )
        };
        missing.map(words).collect()
    }
}
