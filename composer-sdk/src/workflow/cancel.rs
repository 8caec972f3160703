//! Cancelling, as the code of a workflow meets it.
//!
//! A cancelled run's body is dropped where it waits: Rust's own cancellation. [`shield`] holds that up for what must be
//! finished, and inside it [`cancelled`] tells code that wants to know.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use pin_project::{pin_project, pinned_drop};

use super::current;
use crate::replay::Run;

/// Finishes `future` even if the run is cancelled, or times out, meanwhile.
///
/// When that has happened the shield's own future never resolves: the body stops exactly there and is dropped, before
/// the code behind the shield runs. What else the body does at the same time (the other branches of a `join!`) goes on
/// as long as the shield does.
///
/// ```
/// # use composer_sdk::{prelude::*, workflow::shield};
/// # #[activity] async fn print_label(order: u32) {}
/// # #[activity] async fn book_courier(order: u32) {}
/// #[workflow]
/// async fn ship(order: u32) {
///     // Either both or none.
///     shield(async {
///         print_label(order).await;
///         book_courier(order).await;
///     })
///     .await;
/// }
/// ```
///
/// # Cancel safety
/// Dropping it, as a lost `select!` does, ends the shield.
///
/// # Panics
/// Outside a workflow.
#[track_caller]
pub fn shield<F: IntoFuture>(future: F) -> Shield<F::IntoFuture> {
    Shield { run: current("shield"), future: future.into_future(), raised: false, done: false }
}

/// The future of [`shield`].
#[pin_project(PinnedDrop)]
#[must_use = "a shield does nothing until it is awaited"]
pub struct Shield<F> {
    /// None in `Drop` code, where it never ends.
    run: Option<Arc<Run>>,
    #[pin]
    future: F,
    raised: bool,
    done: bool,
}

impl<F: Future> Future for Shield<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let me = self.project();
        let Some(run) = me.run else { return Poll::Pending };
        if *me.done || !run.is_in_place("`shield`") {
            return Poll::Pending;
        }
        if !*me.raised {
            *me.raised = true;
            run.raise_shield();
        }
        let polled = {
            let _inside = run.inside_shield();
            me.future.poll(cx)
        };
        let Poll::Ready(output) = polled else { return Poll::Pending };
        *me.done = true;
        *me.raised = false;
        // A run that is to end goes no further than this.
        if run.lower_shield() { Poll::Ready(output) } else { Poll::Pending }
    }
}

#[pinned_drop]
impl<F> PinnedDrop for Shield<F> {
    fn drop(self: Pin<&mut Self>) {
        let me = self.project();
        if let Some(run) = me.run
            && *me.raised
            && run.drops_here()
        {
            run.lower_shield();
        }
    }
}

/// Waits for the run's cancellation, or its timeout. Inside a [`shield`] only: elsewhere the body is dropped before this
/// could resolve.
///
/// ```
/// # use composer_sdk::{prelude::*, workflow::{cancelled, shield}};
/// # #[activity] async fn transfer() {}
/// # #[activity] async fn tell_customer(words: &str) {}
/// #[workflow]
/// async fn pay() {
///     shield(async {
///         select! {
///             () = transfer() => {}
///             () = cancelled() => tell_customer("the transfer is being stopped").await,
///         }
///     })
///     .await;
/// }
/// ```
///
/// # Panics
/// Outside a workflow.
#[track_caller]
pub fn cancelled() -> Cancelled {
    Cancelled { run: current("cancelled"), ticket: None, done: false }
}

/// The future of [`cancelled`].
///
/// # Cancel safety
/// Dropping it forgets the wait.
#[must_use = "this does nothing until it is awaited"]
pub struct Cancelled {
    run: Option<Arc<Run>>,
    ticket: Option<u64>,
    done: bool,
}

impl Future for Cancelled {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let me = self.get_mut();
        let Some(run) = &me.run else { return Poll::Pending };
        if me.done || !run.is_in_place("`cancelled`") {
            return Poll::Pending;
        }
        me.done = run.wait_for_cancel(&mut me.ticket, cx.waker().clone());
        if me.done { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl futures::future::FusedFuture for Cancelled {
    fn is_terminated(&self) -> bool {
        self.done
    }
}

impl Drop for Cancelled {
    fn drop(&mut self) {
        if let (Some(run), Some(ticket)) = (&self.run, self.ticket)
            && run.drops_here()
        {
            run.leave_cancel(ticket);
        }
    }
}
