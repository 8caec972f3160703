//! What generated code calls. Hidden, and outside semver: nobody writes these paths by hand.
//!
//! The functions take encoded bytes or codecs, and have the bounds at one place each, so that a type that cannot
//! cross the journal is reported once, at the user's tokens.

use crate::{call::Call, error::Failure};

pub use crate::{
    __codec as codec, __judge as judge,
    activity::{Need, Verdict},
    codec::{
        Codec, JudgeAsError, JudgeDebug, JudgeDisplay, JudgeDurable, JudgePlain, JudgeResult, JudgeStd,
        OpaqueProbe, PlainProbe, Probe, ResultProbe, TypedProbe, assert_journaled, assert_output,
        assert_state, picked, retry_on,
    },
    definition::{BodyFuture, Definition, Env, Judgement, Lends, Role},
    journal::Outcome,
    options::{ActivityOptions, Retry},
    payload::{Arg, Args, Given, Payload, arg, arg_ref},
};

/// The call that the annotated function's constructor returns.
#[track_caller]
pub fn call<D: Definition>(input: Result<Payload, Failure>) -> Call<D> {
    Call::new(input)
}

/// The policy of an attribute, checked by the compiler.
pub const fn checked_retry(retry: Retry) -> Retry {
    retry.checked()
}

/// Stands in the place of a function that its attribute refused: never called, since that is a compile error.
pub fn refused() -> ! {
    unreachable!("invariant: a function that was refused does not compile")
}
