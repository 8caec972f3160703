//! Sagas: undo steps that cannot be forgotten.
//!
//! [`compensate`] records, before a step, the activity that undoes it. When the workflow returns an error, is cancelled
//! or times out, its undo steps run in reverse: each durable, retried by its own policy, visible in the journal, and out
//! of a cancellation's reach. They begin once everything that was under way has settled, so an undo step never overtakes
//! what it undoes. One that fails for good leaves the run `stuck`, not closed as if it had been undone.
//!
//! An undo step must be idempotent, and must do nothing when there is nothing to undo: it is recorded before the step,
//! so it also runs when that step has failed, or was never begun.
//!
//! ```
//! use composer_sdk::{prelude::*, saga};
//!
//! # #[activity] async fn reserve(order: u32) -> Result<()> { Ok(()) }
//! # #[activity] async fn release(order: u32) -> Result<()> { Ok(()) }
//! # #[activity] async fn charge(order: u32) -> Result<()> { Ok(()) }
//! # #[activity] async fn refund(order: u32) -> Result<()> { Ok(()) }
//! # #[activity] async fn ship(order: u32) -> Result<()> { Ok(()) }
//! # #[activity] async fn thank(order: u32) -> Result<()> { Ok(()) }
//! #[workflow]
//! async fn buy(order: u32) -> Result<()> {
//!     compensate(release(order));
//!     reserve(order).await?;
//!     compensate(refund(order));
//!     charge(order).await?;
//!     ship(order).await?;      // if this fails: refund, then release
//!     saga::commit();          // it is on its way: from here on there is nothing to undo
//!     thank(order).await?;
//!     Ok(())
//! }
//! ```

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use pin_project::{pin_project, pinned_drop};

use crate::{
    call::Call,
    definition::Activity,
    replay::{Run, Undoing},
    workflow::{Shield, current, shield},
};

/// Records an activity that undoes what the workflow does next. It runs only if the run, or the [`scope`] around this
/// line, fails; until then it is not asked for. Its options (retry, timeouts) are those of the call.
///
/// # Panics
/// Outside a workflow, and for a call that was built elsewhere or polled already; that makes the run `stuck`. In `Drop`
/// code it does nothing.
#[track_caller]
pub fn compensate<A: Activity>(call: Call<A>) {
    if let Some(run) = current("compensate") {
        call.undo_in(&run);
    }
}

/// Forgets the undo steps that were recorded so far in the current [`scope`], or in the run outside of all scopes: a
/// point of no return is passed.
///
/// # Panics
/// Outside a workflow.
#[track_caller]
pub fn commit() {
    if let Some(run) = current("commit") {
        run.commit();
    }
}

/// A part of a workflow that is undone by itself: when `future` gives an error, the undo steps that were recorded inside
/// run, in reverse, before the error comes out here. With a value they stay, for the case that what is around fails.
///
/// ```
/// # use composer_sdk::{prelude::*, saga};
/// # #[activity] async fn hold_seat(seat: u32) -> Result<()> { Ok(()) }
/// # #[activity] async fn free_seat(seat: u32) -> Result<()> { Ok(()) }
/// # #[activity] async fn charge() -> Result<()> { Ok(()) }
/// #[workflow]
/// async fn book(seats: Vec<u32>) -> Result<Option<u32>> {
///     for seat in seats {
///         let held = saga::scope(async {
///             compensate(free_seat(seat));
///             hold_seat(seat).await?;
///             charge().await
///         });
///         if held.await.is_ok() {
///             return Ok(Some(seat)); // what failed before is undone by now
///         }
///     }
///     Ok(None)
/// }
/// ```
///
/// # Cancel safety
/// Dropping it leaves its undo steps to what is around it. While it undoes, a cancellation waits.
///
/// # Panics
/// Outside a workflow.
#[track_caller]
pub fn scope<F, T, E>(future: F) -> Scope<F::IntoFuture, T, E>
where
    F: IntoFuture<Output = Result<T, E>>,
{
    let run = current("saga::scope");
    let id = run.as_ref().map_or(0, |run| run.open_scope());
    Scope { run, id, around: None, future: Some(future.into_future()), undoing: None }
}

/// The future of [`scope`].
#[pin_project(PinnedDrop)]
#[must_use = "a scope does nothing until it is awaited"]
pub struct Scope<F, T, E> {
    /// None in `Drop` code, where it never ends.
    run: Option<Arc<Run>>,
    id: u32,
    /// The scope around it, known from the first poll on; none once it is over.
    around: Option<u32>,
    #[pin]
    future: Option<F>,
    /// What it failed with, and the rest of the way back.
    #[pin]
    undoing: Option<Shield<Undo<T, E>>>,
}

impl<F: Future<Output = Result<T, E>>, T, E> Future for Scope<F, T, E> {
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        let mut me = self.project();
        let Some(run) = me.run else { return Poll::Pending };
        if !run.is_in_place("`saga::scope`") {
            return Poll::Pending;
        }
        if let Some(future) = me.future.as_mut().as_pin_mut() {
            let polled = {
                let inside = run.inside_scope(*me.id);
                me.around.get_or_insert(inside.before());
                future.poll(cx)
            };
            match polled {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) if run.has_undos(*me.id) => {
                    // With what it still has under way: that settles before the first undo step begins.
                    me.future.set(None);
                    let undo = Undo { run: run.clone(), scope: *me.id, result: Some(Err(error)) };
                    me.undoing.set(Some(shield(undo)));
                }
                Poll::Ready(result) => {
                    me.future.set(None);
                    run.close_scope(*me.id, me.around.take());
                    return Poll::Ready(result);
                }
            }
        }
        let Some(undoing) = me.undoing.as_pin_mut() else { return Poll::Pending };
        let undone = undoing.poll(cx);
        if undone.is_ready() {
            *me.around = None;
        }
        undone
    }
}

#[pinned_drop]
impl<F, T, E> PinnedDrop for Scope<F, T, E> {
    fn drop(self: Pin<&mut Self>) {
        let me = self.project();
        if let Some(run) = me.run
            && run.drops_here()
        {
            run.close_scope(*me.id, me.around.take());
        }
    }
}

/// Undoes a scope, then gives its error.
struct Undo<T, E> {
    run: Arc<Run>,
    scope: u32,
    result: Option<Result<T, E>>,
}

impl<T, E> Unpin for Undo<T, E> {}

impl<T, E> Future for Undo<T, E> {
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        let me = self.get_mut();
        match me.run.undo(Some(me.scope), Some(cx.waker().clone())) {
            Undoing::Done => match me.result.take() {
                Some(result) => Poll::Ready(result),
                None => Poll::Pending,
            },
            Undoing::Running => Poll::Pending,
            Undoing::Failed(step) => {
                me.run.undo_failed(&step);
                Poll::Pending
            }
        }
    }
}
