//! What an annotated function is to the engine: its definition.
//!
//! `#[activity]` and `#[workflow]` write these implementations; nobody writes them by hand. A definition says how the
//! function is named, how its arguments become its body, and how its result crosses the journal. Results always
//! cross as bytes, also the first time, so a first run and a replay see the same values.

use std::{any::TypeId, future::Future, marker::PhantomData, pin::Pin, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    activity::{ActivityCx, Need, Verdict},
    error::{Failure, FailureKind},
    journal::Outcome,
    options::ActivityOptions,
    payload::Payload,
};

/// The future of a body.
pub type BodyFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A type whose values may stand in the journal: everything that serde can write and read back.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot cross the journal",
    label = "not `Serialize + Deserialize`",
    note = "add `#[derive(serde::Serialize, serde::Deserialize)]` to `{Self}`"
)]
pub trait Journaled: Serialize + DeserializeOwned {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Journaled for T {}

/// A type whose values may be lent to an activity: written from behind a reference, read back into a box.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot cross the journal",
    label = "not `Serialize`, or `Box<{Self}>` is not `Deserialize`",
    note = "add `#[derive(serde::Serialize, serde::Deserialize)]` to it, or to what it is made of"
)]
pub trait JournaledRef: Serialize {
    /// One value from its JSON.
    ///
    /// # Errors
    /// When it is none.
    fn read(json: &[u8]) -> serde_json::Result<Box<Self>>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + ?Sized> JournaledRef for T
where
    Box<T>: DeserializeOwned,
{
    fn read(json: &[u8]) -> serde_json::Result<Box<T>> {
        serde_json::from_slice(json)
    }
}

/// An error type with a place for what only the engine can say.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no place for an engine failure (timed out, cancelled, attempts exhausted)",
    label = "this error type needs `From<composer_sdk::Failure>`",
    note = "add a variant: `#[from] Engine(composer_sdk::Failure)`",
    note = "or return `composer_sdk::Result<T>`, which takes any error"
)]
pub trait FromFailure: Sized {
    /// The failure as this type.
    fn from_failure(failure: Failure) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<Failure>> FromFailure for E {
    fn from_failure(failure: Failure) -> Self {
        failure.into()
    }
}

/// What an annotated function is, whether activity or workflow.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither an activity nor a workflow",
    note = "put `#[activity]` or `#[workflow]` on the function"
)]
pub trait Definition: Sized + 'static {
    /// The name under which the journal knows it.
    const NAME: &'static str;
    /// Where it is written, `file:line`.
    const SOURCE: &'static str;
    /// Which of the two it is.
    #[doc(hidden)]
    const ROLE: Role<Self>;
    /// What the function returns, as declared.
    type Output: Send + 'static;

    /// A result as bytes.
    #[doc(hidden)]
    fn encode(output: &Self::Output) -> Outcome;

    /// The bytes as a result again.
    ///
    /// # Errors
    /// What the declared type has no place for.
    #[doc(hidden)]
    fn decode(outcome: &Outcome) -> Result<Self::Output, Failure>;

    /// What a result says about itself: whether it is an error, which, and whether trying again can help.
    #[doc(hidden)]
    fn judge(output: &Self::Output) -> Judgement;
}

/// An `#[activity]` function.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an activity",
    label = "only an `#[activity]` function can stand here",
    note = "put `#[activity]` on the function, or use `.workflow::<{Self}>()` if it is a workflow"
)]
pub trait Activity: Definition {
    /// Whether it is a plain `fn` that may block its thread.
    const BLOCKING: bool = false;

    /// The options of its attribute.
    fn options() -> ActivityOptions {
        ActivityOptions::DEFAULT
    }

    /// What it wants from the worker besides its arguments.
    fn needs() -> Vec<Need> {
        Vec::new()
    }

    /// The function, applied to journaled arguments.
    ///
    /// # Errors
    /// When the arguments cannot be read, or a state is missing.
    #[doc(hidden)]
    fn body<'a>(input: &Payload, env: Env<'a>) -> Result<BodyFuture<'a, Self::Output>, Failure> {
        let _ = (input, env);
        Err(Failure::new(
            FailureKind::Refused,
            format_args!("`{}` runs on a blocking thread only", Self::NAME),
        ))
    }

    /// The same for a blocking one: runs to its end.
    ///
    /// # Errors
    /// As [`Activity::body`].
    #[doc(hidden)]
    fn body_blocking(input: &Payload, env: Env<'_>) -> Result<Self::Output, Failure> {
        let _ = (input, env);
        Err(Failure::new(FailureKind::Refused, format_args!("`{}` is async and does not block", Self::NAME)))
    }

    /// Whether another attempt may follow this result: what the result says, and `retry(on = …)` of the attribute.
    #[doc(hidden)]
    fn retryable(output: &Self::Output) -> Verdict {
        Self::judge(output).retry
    }
}

/// An activity whose arguments, as they are declared, are those of `F`.
///
/// A parameter and no associated type, so that a public function may have arguments of private types.
#[doc(hidden)]
pub trait Lends<F, R> {
    /// Lends journaled arguments to a closure: `#[state]` is not among them.
    ///
    /// # Errors
    /// When they cannot be read.
    fn lend(input: &Payload, to: &mut F) -> Result<R, Failure>;
}

/// A `#[workflow]` function.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a workflow",
    label = "only a `#[workflow]` function can be started or registered as one",
    note = "put `#[workflow]` on the function, or use `.activity::<{Self}>()` if it is an activity"
)]
pub trait Workflow: Definition {
    /// The version of its attribute, for people and for telling builds apart.
    const VERSION: u32 = 0;

    /// The function, applied to journaled arguments.
    ///
    /// # Errors
    /// When the arguments cannot be read.
    #[doc(hidden)]
    fn body(input: &Payload) -> Result<BodyFuture<'static, Self::Output>, Failure>;
}

/// What a worker may share with activities as `#[state]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be given to an activity by value",
    label = "a `#[state]` parameter must be `Clone + Send + Sync + 'static`",
    note = "wrap it in `Arc`, or take `&{Self}`"
)]
pub trait State: Clone + Send + Sync + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Clone + Send + Sync + 'static> State for T {}

/// What a result says about itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// The error's chain as `{:#}` shows it; empty for a value.
    pub error: String,
    /// Whether another attempt may follow.
    pub retry: Verdict,
}

impl Judgement {
    /// Of a value.
    pub const fn value() -> Self {
        Self { error: String::new(), retry: Verdict::Final }
    }
}

/// What an activity's body gets from where it runs.
#[doc(hidden)]
pub struct Env<'a> {
    cx: Arc<ActivityCx>,
    borrowed: PhantomData<&'a mut ()>,
}

impl<'a> Env<'a> {
    /// Of one attempt.
    pub fn new(cx: Arc<ActivityCx>) -> Self {
        Self { cx, borrowed: PhantomData }
    }

    /// A `#[state]` parameter by value.
    ///
    /// # Errors
    /// When the worker has none of that type.
    pub fn state<T: State>(&self) -> Result<T, Failure> {
        self.state_ref::<T>().map(|state| T::clone(&state))
    }

    /// A `#[state]` parameter by reference.
    ///
    /// # Errors
    /// When the worker has none of that type.
    pub fn state_ref<T: Send + Sync + 'static>(&self) -> Result<Arc<T>, Failure> {
        self.cx.states().get::<T>().ok_or_else(|| {
            let name = std::any::type_name::<T>();
            Failure::new(
                FailureKind::Refused,
                format_args!(
                    "there is no state of type `{name}` here; give the worker one with `.state(..)`"
                ),
            )
        })
    }
}

/// An activity's body as a plain call.
type PlainBody<D> =
    fn(&Payload, Env<'static>) -> Result<BodyFuture<'static, <D as Definition>::Output>, Failure>;

/// Which of the two a definition is, and what a call needs to know of it.
#[doc(hidden)]
pub enum Role<D: Definition> {
    /// An activity.
    Activity {
        /// The options of its attribute.
        options: fn() -> ActivityOptions,
        /// Its body as a plain call.
        body: PlainBody<D>,
        /// Whether it blocks its thread.
        blocking: bool,
    },
    /// A workflow.
    Workflow,
}

impl<A: Activity> Role<A> {
    /// Of an activity.
    pub const fn activity() -> Self {
        Role::Activity { options: A::options, body: A::body, blocking: A::BLOCKING }
    }
}

impl<W: Workflow> Role<W> {
    /// Of a workflow.
    pub const fn workflow() -> Self {
        Role::Workflow
    }
}

impl Need {
    /// A `#[state]` of that type.
    pub fn state<T: 'static>() -> Self {
        Self {
            ty: TypeId::of::<T>(),
            type_name: std::any::type_name::<T>(),
            what: crate::activity::NeedKind::State,
        }
    }
}
