//! A future that drives the environment, for tests with a runtime and for tests without one.

use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use futures::{FutureExt, future::LocalBoxFuture};
use tokio::runtime::Handle;

use super::world::World;

/// Something that happens when it is driven: await it, or, in a plain `#[test]`, [`wait`](Driving::wait) for it.
///
/// # Cancel safety
/// May be dropped; what has happened by then has happened, and the next one goes on from there.
#[must_use = "nothing happens until it is awaited; in a plain `#[test]`, write `.wait()`"]
pub struct Driving<'a, T> {
    world: Rc<World>,
    future: LocalBoxFuture<'a, T>,
}

impl<'a, T> Driving<'a, T> {
    pub(super) fn new(world: Rc<World>, future: impl Future<Output = T> + 'a) -> Self {
        // Outside tokio's cooperative budget: inside a workflow that would look like a wait on nothing durable.
        Self { world, future: tokio::task::unconstrained(future).boxed_local() }
    }

    /// Drives it to its end on this thread, without a runtime of yours. Real activities run on a small one of the
    /// environment's own.
    ///
    /// # Panics
    /// Inside a runtime, when an activity waits for something real: there, `.await`.
    pub fn wait(self) -> T {
        if Handle::try_current().is_err() {
            return self.world.runtime().block_on(self.future);
        }
        self.future.now_or_never().unwrap_or_else(|| {
            panic!(
                "an activity waits for the runtime that this test runs on, and `.wait()` blocks it: write `.await`"
            )
        })
    }
}

impl<T> Future for Driving<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.future.poll_unpin(cx)
    }
}
