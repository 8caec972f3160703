//! Branches: code of a workflow that goes on beside its body.

use std::{
    fmt,
    future::{Future, IntoFuture},
    panic::Location,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
};

use futures::future::FusedFuture;

use super::current;
use crate::replay::{Run, line};

/// Begins a branch: code of the workflow that goes on by itself while the code behind the `spawn` runs.
///
/// ```
/// # use composer_sdk::{prelude::*, workflow::spawn};
/// # #[activity] async fn render_invoice(order: u32) -> Result<String> { Ok(String::new()) }
/// # #[activity] async fn charge(order: u32) -> Result<()> { Ok(()) }
/// #[workflow]
/// async fn bill(order: u32) -> Result<String> {
///     let invoice = spawn(render_invoice(order)); // a call, an `async` block, anything that can be awaited
///     charge(order).await?;
///     invoice.await
/// }
/// ```
///
/// A branch is a part of its run and not a task: it is polled on the same thread, after the body, in the order in which
/// branches were spawned, and a replay takes the same course. `join!` does the same for what belongs together; `spawn`
/// is for what is awaited later, elsewhere, or never.
///
/// * The run is over when its **body** returns. Branches that are still open then are dropped, after the body and in
///   spawn order, and the activities and timers that they wait for are stopped. What has to be done is awaited.
/// * A panic in a branch makes the run `stuck`, as one in the body does.
/// * A branch stands for itself: outside the shields and the saga scopes around its `spawn`.
/// * What it captures is owned: `async move { … }`. What borrows from the body is joined instead.
///
/// # Cancel safety
/// Dropping the handle detaches the branch; see [`Branch::detach`].
///
/// # Panics
/// Outside a workflow. In `Drop` code it does nothing.
#[track_caller]
pub fn spawn<F>(future: F) -> Branch<F::Output>
where
    F: IntoFuture,
    F::IntoFuture: Send + 'static,
    F::Output: Send + 'static,
{
    let at = Location::caller();
    let run = current("spawn");
    let result = Arc::new(Slot(Mutex::new(Landing { value: None, waker: None })));
    if let Some(run) = &run {
        let (future, result) = (future.into_future(), result.clone());
        run.spawn(Box::pin(async move { result.land(future.await) }), at);
    }
    Branch { run, result, at, done: false }
}

/// The handle of a branch; awaited, it gives what the branch comes to. See [`spawn`].
#[must_use = "dropping the handle detaches the branch, which ends with the workflow: await it, or call `.detach()`"]
pub struct Branch<T> {
    /// None in `Drop` code, where it never ends.
    run: Option<Arc<Run>>,
    result: Arc<Slot<T>>,
    at: &'static Location<'static>,
    done: bool,
}

/// Where the branch leaves its value for the handle.
struct Slot<T>(Mutex<Landing<T>>);

struct Landing<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

impl<T> Branch<T> {
    /// Lets the branch go on without its handle, until it or the workflow ends.
    pub fn detach(self) {}
}

impl<T> Future for Branch<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let me = self.get_mut();
        let Some(run) = &me.run else { return Poll::Pending };
        if me.done || !run.is_in_place("the handle of a branch") {
            return Poll::Pending;
        }
        match me.result.take(cx.waker()) {
            Some(value) => {
                me.done = true;
                Poll::Ready(value)
            }
            None => Poll::Pending,
        }
    }
}

impl<T> FusedFuture for Branch<T> {
    fn is_terminated(&self) -> bool {
        self.done
    }
}

impl<T> fmt::Debug for Branch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "branch ({})", line(self.at))
    }
}

/// Values and wakers are dropped and woken outside the lock: they are somebody else's code.
impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, Landing<T>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The branch is done.
    fn land(&self, value: T) {
        let waker = {
            let mut landing = self.lock();
            landing.value = Some(value);
            landing.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The value, or a note of whom to wake when it is there.
    fn take(&self, waker: &Waker) -> Option<T> {
        let waker = waker.clone();
        let (value, old) = {
            let mut landing = self.lock();
            let value = landing.value.take();
            (value, landing.waker.replace(waker))
        };
        drop(old);
        value
    }
}
