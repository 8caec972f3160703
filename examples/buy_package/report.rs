//! The table at the end, and the promises that it must keep.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    time::{Duration, Instant},
};

use crate::{
    orders::{Case, End},
    service::{Call, Ledger},
};

/// How many steps that ran twice are shown.
const SHOWN: usize = 3;

/// How an order ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) case: Case,
    pub(crate) end: End,
    /// In the engine's words: step, attempts, last error.
    pub(crate) reason: String,
}

/// The worker that was killed.
#[derive(Debug)]
pub(crate) struct Killed {
    pub(crate) worker: String,
    pub(crate) pid: u32,
    pub(crate) at: Instant,
}

/// What happened.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) killed: Killed,
    pub(crate) ledger: Ledger,
    pub(crate) took: Duration,
}

impl Report {
    /// Every promise that was not kept, in words; none is as it should be.
    pub(crate) fn broken(&self) -> Vec<String> {
        let mut broken = vec![];
        for Outcome { case, end, reason } in &self.outcomes {
            let number = &case.order.number;
            if *end != case.expected {
                broken.push(format!("order {number} is {end}, not {}: {reason}", case.expected));
            }
            let charges = self.ledger.charges.get(number).copied().unwrap_or(0);
            let refunds = self.ledger.refunds.get(number).copied().unwrap_or(0);
            let wanted = match case.expected {
                End::Completed => (1, 0),
                End::Declined => (0, 0),
                End::Failed => (1, 1),
            };
            if (charges, refunds) != wanted {
                broken.push(format!("order {number} ({end}) has {charges} charges and {refunds} refunds"));
            }
        }
        if self.taken_over().is_empty() {
            broken.push(format!("no run of {} went on elsewhere after the kill", self.killed.worker));
        }
        if self.twice().is_empty() {
            broken.push("the charge that was under way at the kill was not asked for again".into());
        }
        broken
    }

    /// The first call for each run of the killed worker that went on elsewhere.
    fn taken_over(&self) -> BTreeMap<&str, Instant> {
        let Killed { worker, at, .. } = &self.killed;
        let calls = &self.ledger.calls;
        let had: HashSet<&str> = calls.iter().filter(|call| call.worker == *worker).map(Call::run).collect();
        let mut first = BTreeMap::new();
        for call in calls.iter().filter(|call| call.at > *at && call.worker != *worker) {
            if had.contains(call.run()) {
                let at = first.entry(call.run()).or_insert(call.at);
                *at = call.at.min(*at);
            }
        }
        first
    }

    /// From the kill to the first progress of a run that had lost its worker.
    fn take_over(&self) -> Option<Duration> {
        self.taken_over().into_values().min().map(|at| at - self.killed.at)
    }

    /// The calls that asked for something that was done already; those about money first.
    fn twice(&self) -> Vec<&Call> {
        let mut twice: Vec<_> = self.ledger.calls.iter().filter(|call| call.again).collect();
        twice.sort_by_key(|call| call.service != "charges");
        twice
    }

    fn count(&self, end: End) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.end == end).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Killed { worker, pid, .. } = &self.killed;
        let twice = self.twice();
        let most = self.ledger.charges.values().max().copied().unwrap_or(0);
        row(f, "orders", self.outcomes.len())?;
        row(f, "  completed", self.count(End::Completed))?;
        row(f, "  declined", self.count(End::Declined))?;
        row(f, "  failed", self.count(End::Failed))?;
        row(f, "charges per order, at most", most)?;
        row(f, "worker killed (SIGKILL)", format_args!("{worker}, pid {pid}"))?;
        row(f, "runs taken over", self.taken_over().len())?;
        match self.take_over() {
            Some(time) => row(f, "take-over time", format_args!("{:.2} s", time.as_secs_f64()))?,
            None => row(f, "take-over time", "never")?,
        }
        row(f, "steps executed twice", twice.len())?;
        for call in twice.iter().take(SHOWN) {
            writeln!(f, "      order {} at /{}: key {} both times", call.order, call.service, call.key)?;
        }
        row(f, "total time", format_args!("{:.2} s", self.took.as_secs_f64()))?;

        writeln!(f, "\n  completed  all five steps done, one charge")?;
        writeln!(f, "  declined   the bank said no: not retried, the balance was released")?;
        writeln!(f, "  failed     a step used up its attempts: refunded, released, and the reason kept:")?;
        for outcome in self.outcomes.iter().filter(|outcome| outcome.end == End::Failed) {
            writeln!(f, "             order {}: {}", outcome.case.order.number, outcome.reason)?;
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "  {name:<28}{value}")
}
