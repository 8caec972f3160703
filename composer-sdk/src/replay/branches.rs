//! The branches of a run: what `workflow::spawn` has begun beside the body.
//!
//! The machine owns them. It polls the body and then those branches that something has woken since, in the order in
//! which they were spawned: a round costs what there is to do, however many branches wait, and takes the same course in
//! every life of the run. Branches are dropped after the body, in the same order.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, Location, catch_unwind},
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Wake, Waker},
};

use super::run::{Run, line};
use crate::definition::BodyFuture;

/// What a run's code and wakers leave for its machine.
#[derive(Default)]
pub(super) struct Arrivals(Mutex<Arrived>);

#[derive(Default)]
struct Arrived {
    /// How many there were.
    count: u32,
    spawned: Vec<(u32, Branch)>,
    woken: BTreeSet<u32>,
}

struct Branch {
    future: BodyFuture<'static, ()>,
    waker: Waker,
    at: &'static Location<'static>,
}

/// The branches that have begun and not ended, by number.
#[derive(Default)]
pub(super) struct Branches(BTreeMap<u32, Branch>);

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, Arrived> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Run {
    /// Adds a branch. It is polled for the first time after the code that adds it has been.
    pub(crate) fn spawn(self: &Arc<Self>, future: BodyFuture<'static, ()>, at: &'static Location<'static>) {
        let mut arrived = self.branches.lock();
        arrived.count += 1;
        let number = arrived.count;
        let waker = Waker::from(Arc::new(BranchWaker { run: self.clone(), number }));
        arrived.spawned.push((number, Branch { future, waker, at }));
        arrived.woken.insert(number);
        drop(arrived);
        self.wake_by_ref();
    }
}

impl Branches {
    /// Polls what was woken, in spawn order.
    pub(super) fn poll(&mut self, run: &Run) {
        let (spawned, woken) = {
            let mut arrived = run.branches.lock();
            (std::mem::take(&mut arrived.spawned), std::mem::take(&mut arrived.woken))
        };
        self.0.extend(spawned);
        for number in woken {
            let Some(Branch { future, waker, .. }) = self.0.get_mut(&number) else { continue };
            if future.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
                drop(self.0.remove(&number));
            }
        }
    }

    /// The body has returned. What it has just spawned never begins, which its author may not have meant.
    pub(super) fn report_unbegun(run: &Run) {
        let unbegun: Vec<_> = run.branches.lock().spawned.iter().map(|(_, branch)| branch.at).collect();
        for at in unbegun {
            run.forgot(format!(
                "a branch was spawned ({}), but the workflow returned before it began: nothing of it was done",
                line(at)
            ));
        }
    }

    /// Drops all of them, in spawn order. A panic in their `Drop` code ends there.
    pub(super) fn drop_all(&mut self, run: &Run) {
        let spawned = std::mem::take(&mut run.branches.lock().spawned);
        let begun = std::mem::take(&mut self.0);
        for (_, branch) in begun.into_iter().chain(spawned) {
            let _ = catch_unwind(AssertUnwindSafe(move || drop(branch)));
        }
    }
}

/// Wakes one branch of a run.
struct BranchWaker {
    run: Arc<Run>,
    number: u32,
}

impl Wake for BranchWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.run.branches.lock().woken.insert(self.number);
        self.run.wake_by_ref();
    }
}
