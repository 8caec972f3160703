//! How a declared result crosses the journal, judged by its type and not by how it is spelled.
//!
//! A macro cannot see that `Aliased` is a `Result`. The compiler can: the expansion asks `codec!(Ty)`, which picks by
//! autoref among four codecs (typed `Result`, `Result` with an opaque error such as `anyhow::Error`, any other
//! `Result`, anything else), and hands it to a *function with a bound*, so that what is missing is said once and in our
//! words. `judge!(Ty)` picks in the same way how an error is described.

use std::{error::Error as StdError, fmt, marker::PhantomData};

use crate::{
    activity::Verdict,
    definition::{FromFailure, Journaled, Judgement, State},
    error::{Error, Failure, FailureKind, Foreign},
    journal::Outcome,
    payload::Payload,
};

/// Stands for a type whose codec is looked for.
pub struct Probe<T>(PhantomData<fn() -> T>);

impl<T> Probe<T> {
    /// The probe of `T`.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

/// Picks the codec of a type: `codec!(Self::Output)`.
#[doc(hidden)]
#[macro_export]
macro_rules! __codec {
    ($ty:ty) => {{
        use $crate::__private::{OpaqueProbe as _, PlainProbe as _, ResultProbe as _, TypedProbe as _};
        (&&&&$crate::__private::Probe::<$ty>::new()).codec()
    }};
}

/// Picks how a result is described: `judge!(Self::Output)(output)`.
#[doc(hidden)]
#[macro_export]
macro_rules! __judge {
    ($ty:ty) => {{
        use $crate::__private::{
            JudgeAsError as _, JudgeDebug as _, JudgeDisplay as _, JudgeDurable as _, JudgePlain as _,
            JudgeResult as _, JudgeStd as _,
        };
        (&&&&&&&$crate::__private::Probe::<$ty>::new()).judge()
    }};
}

/// How values of one type become an [`Outcome`] and back.
pub trait Codec {
    /// The declared type.
    type Out;
    /// A result as bytes.
    fn encode(output: &Self::Out) -> Outcome;
    /// The bytes as a result again.
    ///
    /// # Errors
    /// What the declared type has no place for, and what cannot be read: that is no answer of the function, and another
    /// build may well read it.
    fn decode(outcome: &Outcome) -> Result<Self::Out, Failure>;
}

/// Of a value that is no `Result`.
pub struct PlainCodec<T>(PhantomData<fn() -> T>);
/// Of a `Result` whose error crosses the journal as itself.
pub struct TypedCodec<T, E>(PhantomData<fn() -> (T, E)>);
/// Of a `Result` whose error crosses the journal as its chain.
pub struct OpaqueCodec<T, E>(PhantomData<fn() -> (T, E)>);

/// The first choice: a `Result` of journaled types.
pub trait TypedProbe<T, E> {
    /// The codec.
    fn codec(&self) -> TypedCodec<T, E>;
}
impl<T: Journaled, E: Journaled + FromFailure> TypedProbe<T, E> for &&&Probe<Result<T, E>> {
    fn codec(&self) -> TypedCodec<T, E> {
        TypedCodec(PhantomData)
    }
}

/// The second: a `Result` with an `anyhow`-like or boxed error.
pub trait OpaqueProbe<T, E> {
    /// The codec.
    fn codec(&self) -> OpaqueCodec<T, E>;
}
impl<T: Journaled, E: Opaque> OpaqueProbe<T, E> for &&Probe<Result<T, E>> {
    fn codec(&self) -> OpaqueCodec<T, E> {
        OpaqueCodec(PhantomData)
    }
}

/// The third: any other `Result`, so that the message speaks of the typed form.
pub trait ResultProbe<T, E> {
    /// The codec.
    fn codec(&self) -> TypedCodec<T, E>;
}
impl<T, E> ResultProbe<T, E> for &Probe<Result<T, E>> {
    fn codec(&self) -> TypedCodec<T, E> {
        TypedCodec(PhantomData)
    }
}

/// The last: everything else.
pub trait PlainProbe<T> {
    /// The codec.
    fn codec(&self) -> PlainCodec<T>;
}
impl<T> PlainProbe<T> for Probe<T> {
    fn codec(&self) -> PlainCodec<T> {
        PlainCodec(PhantomData)
    }
}

/// `anyhow::Error`, `eyre::Report`, `Box<dyn Error + Send + Sync>`: shows its chain and can be made of one.
pub trait Opaque: AsRef<dyn StdError + Send + Sync + 'static> + From<Foreign> {}
impl<E: AsRef<dyn StdError + Send + Sync + 'static> + From<Foreign>> Opaque for E {}

impl<T: Journaled> Codec for PlainCodec<T> {
    type Out = T;
    fn encode(output: &T) -> Outcome {
        Payload::encode(output).map_or_else(Outcome::Failed, Outcome::Ok)
    }
    fn decode(outcome: &Outcome) -> Result<T, Failure> {
        match outcome {
            Outcome::Ok(value) => value.decode(),
            Outcome::Err(_) => Err(Failure::new(
                FailureKind::Decode,
                format_args!(
                    "the journal holds an error, but the function returns `{}`, which is no `Result`",
                    std::any::type_name::<T>()
                ),
            )),
            Outcome::Failed(failure) => Err(failure.clone()),
        }
    }
}

impl<T: Journaled, E: Journaled + FromFailure> Codec for TypedCodec<T, E> {
    type Out = Result<T, E>;
    fn encode(output: &Self::Out) -> Outcome {
        match output {
            Ok(value) => Payload::encode(value).map_or_else(Outcome::Failed, Outcome::Ok),
            Err(error) => Payload::encode(error).map_or_else(Outcome::Failed, Outcome::Err),
        }
    }
    fn decode(outcome: &Outcome) -> Result<Self::Out, Failure> {
        Ok(match outcome {
            Outcome::Ok(value) => Ok(value.decode()?),
            Outcome::Err(error) => Err(error.decode()?),
            Outcome::Failed(failure) => Err(E::from_failure(failure.clone())),
        })
    }
}

impl<T: Journaled, E: Opaque> Codec for OpaqueCodec<T, E> {
    type Out = Result<T, E>;
    fn encode(output: &Self::Out) -> Outcome {
        match output {
            Ok(value) => Payload::encode(value).map_or_else(Outcome::Failed, Outcome::Ok),
            Err(error) => {
                Payload::encode(&Error::of_chain(error.as_ref())).map_or_else(Outcome::Failed, Outcome::Err)
            }
        }
    }
    fn decode(outcome: &Outcome) -> Result<Self::Out, Failure> {
        let foreign = |error: Error| E::from(Foreign::from(error));
        Ok(match outcome {
            Outcome::Ok(value) => Ok(value.decode()?),
            Outcome::Err(error) => Err(foreign(error.decode()?)),
            Outcome::Failed(failure) => Err(foreign(failure.clone().into())),
        })
    }
}

/// What takes results of one type across the journal.
pub struct Picked<O> {
    encode: fn(&O) -> Outcome,
    decode: fn(&Outcome) -> Result<O, Failure>,
}

/// Takes the codec that was picked: the one place of the bound, so that what is missing is said once.
pub fn picked<C: Codec>(_: C) -> Picked<C::Out> {
    Picked { encode: C::encode, decode: C::decode }
}

impl<O> Picked<O> {
    /// A result as bytes.
    pub fn encode(&self, output: &O) -> Outcome {
        (self.encode)(output)
    }

    /// The bytes as a result again.
    ///
    /// # Errors
    /// What the declared type has no place for.
    pub fn decode(&self, outcome: &Outcome) -> Result<O, Failure> {
        (self.decode)(outcome)
    }
}

/// Checks at compile time that a declared result can cross the journal, at the tokens of the caller.
pub const fn assert_output<C: Codec>(_: &C) {}

/// Checks at compile time that a parameter can cross the journal, at the tokens of the caller.
pub const fn assert_journaled<T: Journaled>() {}

/// Checks at compile time that a `#[state]` parameter can be given by value, at the tokens of the caller.
pub const fn assert_state<T: State>() {}

/// What `retry(on = predicate)` makes of a result's own verdict: the predicate can only say no.
pub fn retry_on<T, E>(output: &Result<T, E>, own: Verdict, on: impl FnOnce(&E) -> bool) -> Verdict {
    match output {
        Err(error) if own != Verdict::Final && !on(error) => Verdict::Final,
        _ => own,
    }
}

macro_rules! judges {
    ($($(#[$doc:meta])* $name:ident: [$($refs:tt)*] $error:ident $(: $bound:path)? $(= $ty:ty)?, |$e:ident| $text:expr;)*) => { $(
        $(#[$doc])*
        pub trait $name<O> {
            /// How such a result is described.
            fn judge(&self) -> fn(&O) -> Judgement;
        }
        judges!(@impl $name [$($refs)*] $error $(: $bound)? $(= $ty)?, |$e| $text);
    )* };
    (@impl $name:ident [$($refs:tt)*] $error:ident = $ty:ty, |$e:ident| $text:expr) => {
        impl<T> $name<Result<T, $ty>> for $($refs)* Probe<Result<T, $ty>> {
            fn judge(&self) -> fn(&Result<T, $ty>) -> Judgement {
                |output| match output { Ok(_) => Judgement::value(), Err($e) => $text }
            }
        }
    };
    (@impl $name:ident [$($refs:tt)*] $error:ident $(: $bound:path)?, |$e:ident| $text:expr) => {
        impl<T, $error $(: $bound)?> $name<Result<T, $error>> for $($refs)* Probe<Result<T, $error>> {
            fn judge(&self) -> fn(&Result<T, $error>) -> Judgement {
                |output| match output { Ok(_) => Judgement::value(), Err($e) => $text }
            }
        }
    };
}

/// A standard error that can be walked.
pub trait StaticError: StdError + 'static {}
impl<E: StdError + 'static> StaticError for E {}

/// What `AsRef` shows of an opaque error.
pub trait ShowsError: AsRef<dyn StdError + Send + Sync + 'static> {}
impl<E: AsRef<dyn StdError + Send + Sync + 'static>> ShowsError for E {}

judges! {
    /// Our own error knows.
    JudgeDurable: [&&&&&&] E = Error, |e| Error::judge(&**e);
    /// A standard error: its chain is walked.
    JudgeStd: [&&&&&] E: StaticError, |e| Error::judge(e);
    /// An opaque error: so is the chain of what it shows.
    JudgeAsError: [&&&&] E: ShowsError, |e| Error::judge(e.as_ref());
    /// A text.
    JudgeDisplay: [&&&] E: fmt::Display, |e| Judgement { error: e.to_string(), retry: Verdict::Retry { after: None } };
    /// At least something to read.
    JudgeDebug: [&&] E: fmt::Debug, |e| Judgement { error: format!("{e:?}"), retry: Verdict::Retry { after: None } };
    /// Nothing to read but its type.
    JudgeResult: [&] E, |_e| Judgement {
        error: format!("an error of type `{}`", std::any::type_name::<E>()),
        retry: Verdict::Retry { after: None },
    };
}

/// No `Result`: a value.
pub trait JudgePlain<O> {
    /// How such a result is described.
    fn judge(&self) -> fn(&O) -> Judgement;
}
impl<T> JudgePlain<T> for Probe<T> {
    fn judge(&self) -> fn(&T) -> Judgement {
        |_| Judgement::value()
    }
}
