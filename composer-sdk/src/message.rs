//! Typed names that a workflow and those outside share.
//!
//! A [`Signal`] is a `static` that both sides use: the workflow receives from it, a client sends to it. Signals are
//! journaled when the run's owner takes them in, whether or not anybody waits, and are received first in, first out.

mod published;
mod recv;

use std::{fmt, marker::PhantomData, time::Duration};

use crate::{definition::Journaled, error::Failure, payload::Payload, workflow};
pub use published::Published;
pub use recv::{Recv, RecvTimeout};

/// A typed name under which a run can be told something.
///
/// ```
/// use composer_sdk::Signal;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// enum Decision {
///     Yes,
///     No,
/// }
///
/// static APPROVAL: Signal<Decision> = Signal::new("approval");
///
/// # async fn body() {
/// let decision = APPROVAL.recv().await;
/// # }
/// ```
pub struct Signal<T> {
    name: &'static str,
    value: PhantomData<fn(T) -> T>,
}

impl<T: Journaled> Signal<T> {
    /// The signal of that name.
    pub const fn new(name: &'static str) -> Self {
        Self { name, value: PhantomData }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// A value of it as bytes, for whoever sends it.
    ///
    /// # Errors
    /// When the value cannot be journaled.
    pub fn encode(&self, value: &T) -> Result<Payload, Failure> {
        Payload::encode(value)
    }

    /// Waits for the next value. Each value is received once, by the wait that was polled first.
    ///
    /// A value that is no `T` ends the run with a [`Failure`] that names the signal.
    #[track_caller]
    pub fn recv(&self) -> Recv<T> {
        Recv::new(workflow::current("recv"), self.name)
    }

    /// Waits for the next value, but not longer than that: `None` when the time is up first.
    #[track_caller]
    pub fn recv_timeout(&self, length: Duration) -> RecvTimeout<T> {
        RecvTimeout::new(self.recv(), workflow::sleep(length))
    }
}

impl<T> fmt::Debug for Signal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "signal `{}`", self.name)
    }
}
