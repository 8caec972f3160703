//! What waits for a signal.

use std::{
    future::Future,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::FusedFuture;

use crate::{
    definition::Journaled,
    payload::Payload,
    replay::{MailboxLeaf, Run},
    workflow::Sleep,
};

/// The future of [`Signal::recv`](crate::Signal::recv).
///
/// # Cancel safety
/// A value that was not received yet stays for the next wait.
#[must_use = "a receive does nothing until it is awaited"]
pub struct Recv<T> {
    /// None in `Drop` code, where it never ends.
    leaf: Option<MailboxLeaf>,
    done: bool,
    value: PhantomData<fn() -> T>,
}

impl<T> Recv<T> {
    pub(super) fn new(run: Option<Arc<Run>>, name: &'static str) -> Self {
        Self { leaf: run.map(|run| MailboxLeaf::new(run, name)), done: false, value: PhantomData }
    }
}

impl<T: Journaled> Future for Recv<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let me = self.get_mut();
        let Some(leaf) = &mut me.leaf else { return Poll::Pending };
        if me.done || !leaf.is_in_place() {
            return Poll::Pending;
        }
        let Poll::Ready(payload) = leaf.poll(cx) else { return Poll::Pending };
        me.done = true;
        match Payload::decode(&payload) {
            Ok(value) => Poll::Ready(value),
            Err(failure) => {
                leaf.fail(failure);
                Poll::Pending
            }
        }
    }
}

impl<T: Journaled> FusedFuture for Recv<T> {
    fn is_terminated(&self) -> bool {
        self.done
    }
}

/// The future of [`Signal::recv_timeout`](crate::Signal::recv_timeout).
///
/// # Cancel safety
/// A value that was not received yet stays for the next wait; the timer is deleted.
#[must_use = "a receive does nothing until it is awaited"]
pub struct RecvTimeout<T> {
    /// Both, until one of them is ready.
    race: Option<(Recv<T>, Sleep)>,
}

impl<T> RecvTimeout<T> {
    pub(super) fn new(recv: Recv<T>, sleep: Sleep) -> Self {
        Self { race: Some((recv, sleep)) }
    }
}

impl<T: Journaled> Future for RecvTimeout<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let me = self.get_mut();
        let Some((recv, sleep)) = &mut me.race else { return Poll::Pending };
        let result = match Pin::new(recv).poll(cx) {
            Poll::Ready(value) => Some(value),
            Poll::Pending if Pin::new(sleep).poll(cx).is_ready() => None,
            Poll::Pending => return Poll::Pending,
        };
        me.race = None;
        Poll::Ready(result)
    }
}

impl<T: Journaled> FusedFuture for RecvTimeout<T> {
    fn is_terminated(&self) -> bool {
        self.race.is_none()
    }
}
