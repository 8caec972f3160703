//! Values that a workflow takes from the world by itself: taken once, journaled, and the same ever after.

use std::{
    fmt,
    future::Future,
    panic::Location,
    pin::Pin,
    task::{Context, Poll},
};

use futures::future::FusedFuture;

use super::current;
use crate::{
    codec::{Codec, PlainCodec, TypedCodec},
    context::{self, Here},
    definition::{FromFailure, Journaled},
    error::Failure,
    journal::{Outcome, StepKind},
    payload::{Digest, Payload},
    replay::{Answer, Ask, Leaf, Work, line},
};

/// Runs the closure once and journals its value: every life of the run sees the same.
///
/// ```
/// # use composer_sdk::{prelude::*, workflow::side_effect};
/// # #[activity] async fn ship(from: &str) {}
/// #[workflow]
/// async fn send() {
///     let warehouse = side_effect(|| std::env::var("WAREHOUSE").unwrap_or_else(|_| "main".into())).await;
///     ship(&warehouse).await;
/// }
/// ```
///
/// For what is quick and cannot fail in an interesting way: a setting, the name of the host, a random number that has to
/// be a secret. It costs one journal entry, which shares its commit with what follows, and no task. What it is **not**
/// for is changing the world: if the process dies before the value is journaled, the closure runs again, and there is no
/// idempotency key, no retry and no timeout. That is an activity's work.
///
/// * The closure stands outside the workflow: no steps, no `now()`, no `random` in it. Take those before, and capture
///   them. It blocks the worker while it runs.
/// * What it does to variables of the workflow is lost when the run is replayed: whatever is needed is in the value.
/// * A panic in it makes the run `stuck`, as any in a workflow does.
/// * A value that cannot be journaled ends the run with a [`Failure`] of the kind `Encode`. Where that should be an
///   error, and for closures that give a `Result`, there is [`try_side_effect`].
///
/// # Cancel safety
/// Once polled it has run, or will run before anything else happens. Dropped then, its value is journaled and not used.
///
/// # Panics
/// Outside a workflow.
#[track_caller]
pub fn side_effect<F, T>(effect: F) -> SideEffect<F, T>
where
    F: FnOnce() -> T,
    T: Journaled,
{
    let codec = Crossing {
        encode: PlainCodec::<T>::encode,
        decode: PlainCodec::<T>::decode,
        words: |_| String::new(),
    };
    SideEffect::new(effect, "side_effect", Location::caller(), codec)
}

/// The same for a closure that gives a `Result`: both sides are journaled, and what the engine has to say becomes an error
/// of that type.
///
/// ```
/// # use composer_sdk::{prelude::*, workflow::try_side_effect};
/// #[workflow]
/// async fn region() -> Result<String> {
///     let region = try_side_effect(|| Ok::<_, Error>(std::env::var("REGION")?)).await?;
///     Ok(region)
/// }
/// ```
///
/// An error is journaled, and not tried again.
///
/// # Panics
/// Outside a workflow.
#[track_caller]
pub fn try_side_effect<F, T, E>(effect: F) -> SideEffect<F, Result<T, E>>
where
    F: FnOnce() -> Result<T, E>,
    T: Journaled,
    E: Journaled + FromFailure + fmt::Display,
{
    let codec = Crossing {
        encode: TypedCodec::<T, E>::encode,
        decode: TypedCodec::<T, E>::decode,
        words: |output| output.as_ref().err().map(|error| format!("{error:#}")).unwrap_or_default(),
    };
    SideEffect::new(effect, "try_side_effect", Location::caller(), codec)
}

/// The future of [`side_effect`] and [`try_side_effect`].
#[must_use = "a side effect does not run until it is awaited"]
pub struct SideEffect<F, O> {
    /// None in `Drop` code, where it never ends.
    leaf: Option<Leaf>,
    /// Until it runs.
    effect: Option<F>,
    at: &'static Location<'static>,
    codec: Crossing<O>,
    done: bool,
}

/// How a value crosses the journal.
struct Crossing<O> {
    encode: fn(&O) -> Outcome,
    decode: fn(&Outcome) -> Result<O, Failure>,
    /// An error in words.
    words: fn(&O) -> String,
}

impl<F: FnOnce() -> O, O> SideEffect<F, O> {
    #[track_caller]
    fn new(effect: F, what: &str, at: &'static Location<'static>, codec: Crossing<O>) -> Self {
        let leaf = current(what).map(|run| Leaf::new(run, at));
        Self { leaf, effect: Some(effect), at, codec, done: false }
    }

    fn ask() -> Ask {
        Ask {
            kind: StepKind::SideEffect,
            name: "side_effect",
            digest: Digest::of(&Payload::from(b"[]".as_slice())),
            work: Work::SideEffect(None),
        }
    }

    /// Runs it. What it gives is encoded out there, too: that is code of the user's as well.
    fn run(effect: F, codec: &Crossing<O>) -> (Outcome, String) {
        let _outside = context::enter(Here::Outside);
        let output = effect();
        let outcome = (codec.encode)(&output);
        let error = match &outcome {
            Outcome::Failed(failure) => failure.to_string(),
            _ => (codec.words)(&output),
        };
        (outcome, error)
    }

    /// The value, as the journal has it. What has no place in its type ends the run; what cannot be read leaves it to
    /// another build.
    fn finish(&self, leaf: &Leaf, outcome: &Outcome) -> Poll<O> {
        match (self.codec.decode)(outcome) {
            Ok(output) => return Poll::Ready(output),
            Err(mut failure) => {
                failure.message = format!("`side_effect` ({}): {}", line(self.at), failure.message);
                match outcome {
                    Outcome::Failed(_) => leaf.run().fail(failure),
                    _ => leaf.run().refuse(failure.message),
                }
            }
        }
        Poll::Pending
    }
}

/// Nothing in it is ever pinned.
impl<F, O> Unpin for SideEffect<F, O> {}

impl<F: FnOnce() -> O, O> Future for SideEffect<F, O> {
    type Output = O;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O> {
        let me = self.get_mut();
        let Some(mut leaf) = me.leaf.take_if(|leaf| !me.done && leaf.is_in_place("`side_effect`")) else {
            return Poll::Pending;
        };
        let polled = match leaf.poll(cx, Self::ask) {
            Poll::Ready(Answer::Done(outcome)) => {
                me.done = true;
                me.finish(&leaf, &outcome)
            }
            _ => Poll::Pending,
        };
        // In a replay the journal may hold the value: then it is not run.
        if !me.done
            && !leaf.run().is_replaying()
            && let Some(effect) = me.effect.take()
        {
            let (outcome, error) = Self::run(effect, &me.codec);
            leaf.ran(outcome, error);
        }
        me.leaf = Some(leaf);
        polled
    }
}

impl<F: FnOnce() -> O, O> FusedFuture for SideEffect<F, O> {
    fn is_terminated(&self) -> bool {
        self.done
    }
}

impl<F, O> fmt::Debug for SideEffect<F, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "side effect ({})", line(self.at))
    }
}
