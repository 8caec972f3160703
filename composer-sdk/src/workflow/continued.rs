//! Going on with a journal that begins anew: for workflows that live long.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::FusedFuture;

use super::{Workflow, current};
use crate::{call::Call, replay::Run};

/// Ends this generation of the run and begins the next one with these arguments. The journal begins anew, so a workflow
/// that goes on for years replays what has happened since, and no more.
///
/// It stays the same run: id, workflow id, tags, timeout and handles stay, whoever waits for its result gets that of the last
/// generation, and a parent that of its child. Signals that were not received are there in the next generation, in their
/// order, and so is what is sent meanwhile. What is still open is stopped first, as at the end of a run; step numbers, and
/// with them idempotency keys, go on. The call may be one of another workflow with the same result: a way for a long-lived
/// run to new code.
///
/// ```
/// # use composer_sdk::{prelude::*, workflow::continue_as_new};
/// # #[activity] async fn import(page: u64) -> Result<u64> { Ok(page) }
/// #[workflow]
/// async fn follow(mut page: u64) -> Result<()> {
///     for _ in 0..1_000 {
///         page = import(page).await?;
///         sleep(Duration::from_secs(60)).await;
///     }
///     continue_as_new(follow(page)).await
/// }
/// ```
///
/// With undo steps recorded (see [`saga`](crate::saga)) it would forget them: that makes the run `stuck`, with what to do in
/// words. A run that is being cancelled, or whose time is up, ends instead.
///
/// # Panics
/// Outside a workflow.
#[track_caller]
pub fn continue_as_new<W: Workflow>(call: Call<W>) -> ContinueAsNew<W> {
    ContinueAsNew { run: current("continue_as_new"), call: Some(call) }
}

/// The future of [`continue_as_new`]. It never resolves: the body is dropped where it waits.
#[must_use = "a run goes on as it does until this is awaited"]
pub struct ContinueAsNew<W: Workflow> {
    /// None in `Drop` code, where it does nothing.
    run: Option<Arc<Run>>,
    /// Until it was polled.
    call: Option<Call<W>>,
}

impl<W: Workflow> Future for ContinueAsNew<W> {
    type Output = W::Output;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<W::Output> {
        let me = self.get_mut();
        if let Some(run) = &me.run
            && run.is_in_place("`continue_as_new`")
            && let Some(call) = me.call.take()
        {
            call.continue_in(run);
        }
        Poll::Pending
    }
}

impl<W: Workflow> FusedFuture for ContinueAsNew<W> {
    fn is_terminated(&self) -> bool {
        false
    }
}

impl<W: Workflow> fmt::Debug for ContinueAsNew<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContinueAsNew").field("call", &self.call).finish_non_exhaustive()
    }
}
