//! Asking again and again until the answer is yes.

use std::{
    fmt,
    future::{Future, IntoFuture},
    panic::Location,
    time::Duration,
};

use super::{current, now, timer::Sleep};
use crate::definition::BodyFuture;

/// Checks at once and then `every` so often until a check says that it is done; gives what was found.
///
/// ```
/// # use composer_sdk::{prelude::*, workflow::poll_until};
/// # #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)] pub struct Payout { id: u64 }
/// # #[activity] async fn find_payout(order: u64) -> Result<Option<Payout>> { Ok(None) }
/// #[workflow]
/// async fn wait_for_payout(order: u64) -> Result<Payout> {
///     poll_until(Duration::minutes(10), || find_payout(order)).await
/// }
/// ```
///
/// A check is an activity, or whatever else may be awaited. It says one of:
///
/// | the check gives | done | and then this gives |
/// |---|---|---|
/// | `bool` | `true` | `()` |
/// | `Option<T>` | `Some(value)` | `value` |
/// | `Result` of one of these | as above, and at an error | `Ok` as above, or the error |
///
/// An error is the end of it: the activity has been tried again as its policy says before that.
///
/// Between two checks lies a durable [`sleep`](super::sleep) that begins with the answer of the first: a crash neither
/// repeats a check that has answered nor begins the pause anew. Without [`for_at_most`](PollUntil::for_at_most) or
/// [`times`](PollUntil::times) it goes on for ever.
///
/// # Cancel safety
/// Dropping it drops the check or the pause that is under way.
///
/// # Panics
/// Outside a workflow.
#[track_caller]
pub fn poll_until<'a, F, Fut>(every: Duration, check: F) -> PollUntil<'a, Fut>
where
    F: FnMut() -> Fut + Send + 'a,
    Fut: Future<Output: Checked> + Send + 'a,
{
    current("poll_until");
    let at = Location::caller();
    PollUntil(Checks { check: Box::new(check), every, times: None, at_most: None, at })
}

/// What a check of [`poll_until`] says: whether it is done, and what it has found.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whether it is done",
    label = "a check of `poll_until` gives a `bool`, an `Option<T>`, or a `Result` of one of these"
)]
pub trait Checked {
    /// What is found in the end.
    type Found;

    /// What was found, if it is done.
    fn found(self) -> Option<Self::Found>;
}

impl Checked for bool {
    type Found = ();

    fn found(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Checked for Option<T> {
    type Found = T;

    fn found(self) -> Option<T> {
        self
    }
}

impl<C: Checked, E> Checked for Result<C, E> {
    type Found = Result<C::Found, E>;

    fn found(self) -> Option<Self::Found> {
        match self {
            Ok(checked) => checked.found().map(Ok),
            Err(error) => Some(Err(error)),
        }
    }
}

/// What [`poll_until`] is to do. It begins when it is awaited.
#[must_use = "this does nothing until it is awaited"]
pub struct PollUntil<'a, Fut>(Checks<'a, Fut>);

/// The same, with an end: it gives what was found, or [`NotYet`].
///
/// ```
/// # use composer_sdk::{prelude::*, workflow::{NotYet, poll_until}};
/// # #[activity] async fn is_delivered(parcel: u64) -> Result<bool> { Ok(true) }
/// #[workflow]
/// async fn watch(parcel: u64) -> Result<String> {
///     let delivered = poll_until(Duration::hours(1), || is_delivered(parcel)).for_at_most(Duration::days(7)).await;
///     match delivered {
///         Ok(checked) => checked.map(|()| "delivered".into()), // a check may have failed
///         Err(NotYet { checks, .. }) => Ok(format!("lost: it was not there at {checks} checks")),
///     }
/// }
/// ```
#[must_use = "this does nothing until it is awaited"]
pub struct PollWithin<'a, Fut>(Checks<'a, Fut>);

struct Checks<'a, Fut> {
    check: Box<dyn FnMut() -> Fut + Send + 'a>,
    every: Duration,
    times: Option<u32>,
    at_most: Option<Duration>,
    at: &'static Location<'static>,
}

/// A [`poll_until`] gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not yet, at {checks} checks in {waited:?}")]
#[non_exhaustive]
pub struct NotYet {
    /// How many checks said no.
    pub checks: u32,
    /// How long it took.
    pub waited: Duration,
}

impl<'a, Fut> PollUntil<'a, Fut> {
    /// Gives up after that long. The last pause is shortened, so that the last check begins when the time is over; a check
    /// that is under way then is waited for.
    pub fn for_at_most(self, length: Duration) -> PollWithin<'a, Fut> {
        PollWithin(self.0).for_at_most(length)
    }

    /// Gives up after that many checks.
    ///
    /// # Panics
    /// With 0; in a workflow that makes the run `stuck`.
    #[track_caller]
    pub fn times(self, checks: u32) -> PollWithin<'a, Fut> {
        PollWithin(self.0).times(checks)
    }
}

impl<Fut> PollWithin<'_, Fut> {
    /// As [`PollUntil::for_at_most`].
    pub fn for_at_most(mut self, length: Duration) -> Self {
        self.0.at_most = Some(length);
        self
    }

    /// As [`PollUntil::times`].
    ///
    /// # Panics
    /// With 0.
    #[track_caller]
    pub fn times(mut self, checks: u32) -> Self {
        assert!(checks > 0, "`poll_until(..).times(0)` would never check anything: the least is 1");
        self.0.times = Some(checks);
        self
    }
}

impl<'a, Fut> Checks<'a, Fut>
where
    Fut: Future<Output: Checked> + Send + 'a,
{
    async fn run(mut self) -> Result<<Fut::Output as Checked>::Found, NotYet> {
        let begun = now();
        let mut checks = 0;
        loop {
            if let Some(found) = (self.check)().await.found() {
                return Ok(found);
            }
            checks += 1;
            let waited = now().duration_since(begun).unwrap_or_default();
            let left = self.at_most.map(|length| length.saturating_sub(waited));
            if self.times == Some(checks) || left == Some(Duration::ZERO) {
                return Err(NotYet { checks, waited });
            }
            Sleep::after(left.map_or(self.every, |left| left.min(self.every)), self.at).await;
        }
    }
}

impl<'a, Fut, C> IntoFuture for PollUntil<'a, Fut>
where
    Fut: Future<Output = C> + Send + 'a,
    C: Checked<Found: Send + 'a> + Send + 'a,
{
    type Output = C::Found;
    type IntoFuture = BodyFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.0.run().await.expect("invariant: without an end it does not give up") })
    }
}

impl<'a, Fut, C> IntoFuture for PollWithin<'a, Fut>
where
    Fut: Future<Output = C> + Send + 'a,
    C: Checked<Found: Send + 'a> + Send + 'a,
{
    type Output = Result<C::Found, NotYet>;
    type IntoFuture = BodyFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.0.run())
    }
}

impl<Fut> fmt::Debug for PollUntil<'_, Fut> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.show("PollUntil", f)
    }
}

impl<Fut> fmt::Debug for PollWithin<'_, Fut> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.show("PollWithin", f)
    }
}

impl<Fut> Checks<'_, Fut> {
    fn show(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { every, times, at_most, .. } = self;
        f.debug_struct(name)
            .field("every", every)
            .field("times", times)
            .field("at_most", at_most)
            .finish_non_exhaustive()
    }
}
