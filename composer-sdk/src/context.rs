//! Where the running code is: outside, in a workflow, in an activity, or in a body that is being dropped.
//!
//! A thread-local says so. It is set around each poll and put back on return and on unwind, so a machine that is
//! driven inside another machine's poll leaves the outer one intact. Nothing durable is ever lost silently because of
//! it: what is awaited in the wrong place refuses in words (see [`crate::call`]).

use std::{cell::RefCell, sync::Arc};

use crate::{activity::ActivityCx, replay::Run};

/// Where the running code is.
#[derive(Clone, Default)]
pub(crate) enum Here {
    /// In no workflow and no activity.
    #[default]
    Outside,
    /// In the body of a run that is being polled.
    Workflow(Arc<Run>),
    /// In the machine of a run that wakes what an event makes ready.
    Delivering(Arc<Run>),
    /// In an activity.
    Activity(Arc<ActivityCx>),
    /// In the `Drop` code of a body (of that run, if it is known): calls are inert and nothing panics.
    Dropping(Option<Arc<Run>>),
}

thread_local! {
    static HERE: RefCell<Here> = const { RefCell::new(Here::Outside) };
}

/// Puts back what was there before.
pub(crate) struct Guard(Here);

impl Drop for Guard {
    fn drop(&mut self) {
        let before = std::mem::take(&mut self.0);
        // The replaced value may be the last owner of its run, whose drop may look here: so it is dropped outside.
        let now = HERE.try_with(|here| here.replace(before));
        drop(now);
    }
}

/// Sets where the code is until the guard is dropped.
#[must_use]
pub(crate) fn enter(here: Here) -> Guard {
    Guard(HERE.with(|now| now.replace(here)))
}

/// Where the code is. While a thread unwinds nothing may panic again, so that counts as dropping.
pub(crate) fn here() -> Here {
    let here = HERE.try_with(|here| here.borrow().clone()).unwrap_or_default();
    match here {
        Here::Workflow(run) if std::thread::panicking() => Here::Dropping(Some(run)),
        Here::Outside if std::thread::panicking() => Here::Dropping(None),
        here => here,
    }
}

/// Looks at where the code is without taking part in owning it.
pub(crate) fn look<T>(look: impl FnOnce(&Here) -> T) -> T {
    let mut look = Some(look);
    let mut answer = |here: &Here| (look.take().expect("invariant: one of the two ways is taken"))(here);
    match HERE.try_with(|here| answer(&here.borrow())) {
        Ok(answer) => answer,
        // The thread is going away: its locals are gone already.
        Err(_) => answer(&Here::Outside),
    }
}
