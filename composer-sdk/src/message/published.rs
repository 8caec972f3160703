//! State that a run shows.

use std::{fmt, marker::PhantomData};

use crate::{definition::Journaled, error::Failure, payload::Payload, workflow};

/// A typed name under which a run shows something: set in the workflow, read by anybody, also with no worker alive and
/// after the run's end. The last value counts.
///
/// A value becomes visible in the transaction that makes durable what the workflow had decided when it set it, so nobody
/// sees a state that a crash could take back. Setting a value is no step: it takes no number and has no entry in the
/// journal, and a replay does not write it again.
///
/// ```
/// use composer_sdk::{prelude::*, Published};
///
/// static PROGRESS: Published<u32> = Published::new("progress");
///
/// # #[activity] async fn import(part: u32) {}
/// #[workflow]
/// async fn import_all(parts: u32) {
///     for part in 0..parts {
///         import(part).await;
///         PROGRESS.set(&(part + 1));
///     }
/// }
/// ```
pub struct Published<T> {
    name: &'static str,
    value: PhantomData<fn(T) -> T>,
}

impl<T: Journaled> Published<T> {
    /// The state of that name.
    pub const fn new(name: &'static str) -> Self {
        Self { name, value: PhantomData }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Shows a value in place of the one before. One that cannot be stored ends the run with a [`Failure`] that names
    /// the state.
    ///
    /// # Panics
    /// Outside a workflow; in `Drop` code it does nothing.
    #[track_caller]
    pub fn set(&self, value: &T) {
        let Some(run) = workflow::current("Published::set") else { return };
        match Payload::encode(value) {
            Ok(payload) => run.publish(self.name, payload),
            Err(failure) => {
                let words = format!("the published state `{}`: {}", self.name, failure.message);
                run.fail(Failure::new(failure.kind, words));
            }
        }
    }

    /// A stored value, for whoever reads it.
    ///
    /// # Errors
    /// When the bytes are no `T`.
    pub fn decode(&self, payload: &Payload) -> Result<T, Failure> {
        payload.decode()
    }
}

impl<T> fmt::Debug for Published<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "published state `{}`", self.name)
    }
}
