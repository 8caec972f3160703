//! Chains and marks survive wrapping and the journal.

// What `codec!` and `judge!` leave unused is silent in other crates only.
#![allow(unused_imports)]

use std::{error::Error as StdError, io, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Error, Failure, FailureKind, Result, ResultExt};
use crate::{
    __codec, __judge, __private::picked, activity::Verdict, definition::Judgement, error::met_while,
    journal::Outcome,
};

type BoxError = Box<dyn StdError + Send + Sync>;

#[derive(Debug, thiserror::Error)]
#[error("top")]
struct Top(#[source] Middle);
#[derive(Debug, thiserror::Error)]
#[error("middle")]
struct Middle(#[source] io::Error);

fn nested() -> Top {
    Top(Middle(io::Error::other("root")))
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
enum Typed {
    #[error("declined")]
    Declined,
    #[error("a step failed")]
    Step(#[from] Error),
    #[error(transparent)]
    Engine(#[from] Failure),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
enum Transparent {
    #[error(transparent)]
    Step(#[from] Error),
    #[error(transparent)]
    Engine(#[from] Failure),
}

fn across<T: Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    crate::payload::Payload::encode(value).unwrap().decode().unwrap()
}

#[test]
fn a_chain_is_the_same_live_and_replayed() {
    let live = Error::from(nested()).context("placing the order");
    let replayed = across(&live);
    assert_eq!(format!("{live}"), "placing the order");
    assert_eq!(format!("{live:#}"), "placing the order: top: middle: root");
    assert_eq!(format!("{live:?}"), format!("{live:#}"));
    assert_eq!(format!("{replayed:#}"), format!("{live:#}"));
    assert_eq!(replayed, live);
    assert_eq!(across(&replayed), live);
    let sources: Vec<String> = replayed.chain().collect();
    assert_eq!(sources, ["placing the order", "top", "middle", "root"]);
    assert_ne!(Error::new("a"), Error::permanent("a"));
    assert_ne!(Error::new("a"), Error::new("a").context("b"));
}

#[test]
fn any_error_becomes_durable() {
    fn standard() -> Result<u8> {
        Ok("x".parse::<u8>()?)
    }
    fn boxed() -> Result<u8> {
        Err::<u8, BoxError>("boxed".into()).durable()
    }
    fn text() -> Result<u8> {
        Err("text").context("above")
    }
    fn any() -> Result<u8> {
        Err(anyhow::anyhow!("root").context("top")).durable()
    }
    fn ours() -> Result<u8> {
        Err(Error::permanent("ours")).context("above").durable()
    }
    let words = |result: Result<u8>| format!("{:#}", result.unwrap_err());
    assert_eq!(words(standard()), "invalid digit found in string");
    assert_eq!(words(boxed()), "boxed");
    assert_eq!(words(text()), "above: text");
    assert_eq!(words(any()), "top: root");
    assert_eq!(words(ours()), "above: ours");
    assert!(ours().unwrap_err().is_permanent());
}

#[test]
fn an_error_goes_into_a_box_and_back_without_loss() {
    let error = Error::permanent(nested());
    let boxed: BoxError = error.clone().into();
    assert_eq!(boxed.to_string(), "top");
    assert_eq!(Error::new(boxed), error);
    let main: Box<dyn StdError> = error.clone().into();
    assert_eq!(main.source().unwrap().to_string(), "middle");
    assert_eq!(String::from(Failure::new(FailureKind::TimedOut, "late")), "late");
}

#[test]
fn what_the_engine_had_to_say_crosses_the_journal() {
    let late = Failure::new(FailureKind::TimedOut, "late").attempts(2);
    for error in [Error::from(late.clone()), Error::from(late.clone()).context("a").context("b")] {
        assert_eq!(error.failure(), Some(&late));
        assert_eq!(across(&error).failure(), Some(&late), "{error:#}");
        assert_eq!(across(&error), error);
    }
    assert_eq!(across(&Error::new("late")).failure(), None);
}

#[test]
fn r17_permanent_survives_every_wrapping() {
    let permanent = || Error::permanent("never");
    for (how, error) in [
        ("as it is", permanent()),
        ("context", permanent().context("a").context("b")),
        ("variant", Typed::from(permanent()).into()),
        ("variant in a box", Error::new(BoxError::from(Typed::from(permanent())))),
        ("variant, context", Error::from(Typed::from(permanent())).context("a")),
        ("box", Error::new(BoxError::from(permanent()))),
        ("retried later, wrapped around", Error::retry_after(permanent(), Duration::from_secs(1))),
        ("io", io::Error::other(BoxError::from(Typed::from(permanent()))).into()),
        ("result", Err::<(), _>(Typed::from(permanent())).durable().unwrap_err()),
        ("decode failure", Failure::new(FailureKind::Decode, "x").into()),
    ] {
        assert!(error.is_permanent(), "{how}");
        assert!(across(&error).is_permanent(), "{how}, replayed");
    }
    for error in [Error::new("x"), Typed::Declined.into(), Failure::new(FailureKind::TimedOut, "x").into()] {
        assert!(!error.is_permanent(), "{error}");
    }
}

#[cfg(feature = "anyhow")]
#[test]
fn r17_permanent_survives_anyhow() {
    let any: anyhow::Error = Error::permanent("never").into();
    let any = any.context("above");
    assert_eq!(format!("{any:#}"), "above: never");
    let back = Err::<(), _>(any).durable().unwrap_err();
    assert!(back.is_permanent());
}

fn judged<T, E>(judge: fn(&std::result::Result<T, E>) -> Judgement, error: E) -> (String, Verdict) {
    let Judgement { error, retry } = judge(&Err(error));
    (error, retry)
}

const RETRY: Verdict = Verdict::Retry { after: None };

#[test]
fn errors_are_judged_by_their_type() {
    struct Opaque;
    #[derive(Debug)]
    struct Debugged;

    assert_eq!(__judge!(Result<u8>)(&Ok(1)), Judgement::value());
    assert_eq!(__judge!(u8)(&1), Judgement::value());
    assert_eq!(judged(__judge!(Result<u8>), Error::new(nested())), ("top: middle: root".into(), RETRY));
    assert_eq!(judged(__judge!(Result<u8, Top>), nested()), ("top: middle: root".into(), RETRY));
    assert_eq!(judged(__judge!(Result<u8, String>), "text".into()), ("text".into(), RETRY));
    assert_eq!(judged(__judge!(Result<u8, Debugged>), Debugged), ("Debugged".into(), RETRY));
    let (words, verdict) = judged(__judge!(Result<u8, Opaque>), Opaque);
    assert!(words.contains("Opaque") && verdict == RETRY, "{words}");
    let any = anyhow::anyhow!("root").context("top");
    assert_eq!(judged(__judge!(anyhow::Result<u8>), any), ("top: root".into(), RETRY));
    assert_eq!(judged(__judge!(Result<u8, BoxError>), "boxed".into()), ("boxed".into(), RETRY));
}

#[test]
fn r17_marks_are_found_in_typed_and_opaque_errors() {
    let never = || Error::permanent("never");
    assert_eq!(judged(__judge!(Result<u8>), never()).1, Verdict::Final);
    let (words, verdict) = judged(__judge!(Result<u8, Typed>), Typed::from(never()));
    assert_eq!((words.as_str(), verdict), ("a step failed: never", Verdict::Final));
    assert_eq!(
        judged(__judge!(anyhow::Result<u8>), anyhow::Error::from(Typed::from(never()))).1,
        Verdict::Final
    );
    assert_eq!(judged(__judge!(Result<u8, BoxError>), never().into()).1, Verdict::Final);
    assert_eq!(judged(__judge!(Result<u8, Typed>), Typed::Declined).1, RETRY);
}

#[test]
fn r17_a_transparent_variant_hides_the_source_but_not_the_mark() {
    // `#[error(transparent)]` leaves the wrapped error out of the chain; it is met when it is written.
    let error = Transparent::from(Error::permanent("never"));
    let (_, marks) = met_while(|| crate::payload::Payload::encode(&error).unwrap());
    assert_eq!(marks.verdict(), Verdict::Final);
    let (_, marks) =
        met_while(|| crate::payload::Payload::encode(&Transparent::from(Error::new("x"))).unwrap());
    assert_eq!(marks.verdict(), RETRY);
}

#[test]
fn b9_an_error_says_when_to_try_again() {
    let late = Duration::from_secs(3);
    let after = Verdict::Retry { after: Some(late) };
    let error = Error::retry_after("busy", late).context("asking");
    assert_eq!(error.retry_delay(), Some(late));
    assert_eq!(across(&error).retry_delay(), Some(late));
    assert_eq!(judged(__judge!(Result<u8>), error.clone()).1, after);
    assert_eq!(judged(__judge!(Result<u8, Typed>), Typed::from(error)).1, after);
}

#[test]
fn a_failure_is_found_in_the_chain() {
    let failure = Failure::new(FailureKind::TimedOut, "late").attempts(3);
    let error = Error::from(failure.clone()).context("charging");
    assert_eq!(error.failure(), Some(&failure));
    assert_eq!(Error::permanent(error).failure(), Some(&failure));
    assert_eq!(Error::new("x").failure(), None);
    assert!(Error::from(nested()).context("a").downcast_ref::<Middle>().is_some());
}

type Aliased<T> = std::result::Result<T, Typed>;

#[test]
fn results_cross_the_journal_by_type_and_not_by_spelling() {
    macro_rules! trip {
        ($ty:ty, $value:expr) => {{
            let codec = picked(__codec!($ty));
            codec.decode(&codec.encode(&$value)).unwrap()
        }};
    }
    assert_eq!(trip!(u8, 1), 1);
    assert_eq!(trip!(Option<u8>, None), None);
    assert_eq!(trip!(Aliased<u8>, Ok(1)), Ok(1));
    assert_eq!(trip!(Aliased<u8>, Err(Typed::Declined)), Err(Typed::Declined));
    assert_eq!(trip!(Result<u8, String>, Err("no".to_owned())), Err("no".to_owned()));
    assert_eq!(trip!(Result<u8>, Err(Error::permanent("no"))), Err(Error::permanent("no")));
    let any = trip!(anyhow::Result<u8>, Err(anyhow::anyhow!("root").context("top"))).unwrap_err();
    assert_eq!(format!("{any:#}"), "top: root");
    let boxed = trip!(Result<u8, BoxError>, Err(Error::permanent("no").into())).unwrap_err();
    assert!(Error::new(boxed).is_permanent());
}

#[test]
fn a_failure_reaches_the_caller_through_the_declared_type_and_what_cannot_be_read_does_not() {
    let failed = || Outcome::Failed(Failure::new(FailureKind::TimedOut, "late"));
    let late = Failure::new(FailureKind::TimedOut, "late");
    assert_eq!(picked(__codec!(Aliased<u8>)).decode(&failed()), Ok(Err(Typed::Engine(late.clone()))));
    assert_eq!(picked(__codec!(Result<u8, String>)).decode(&failed()), Ok(Err("late".to_owned())));
    assert_eq!(picked(__codec!(u8)).decode(&failed()), Err(late));
    let any = picked(__codec!(anyhow::Result<u8>)).decode(&failed()).unwrap().unwrap_err();
    assert_eq!(any.to_string(), "late");

    let wrong = Outcome::Ok(crate::payload::Payload::from(b"\"x\"".as_slice()));
    let failure = picked(__codec!(Aliased<u8>)).decode(&wrong).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Decode);
    assert!(failure.message.contains("`u8`"), "{failure}");
    let wrong = Outcome::Err(crate::payload::Payload::from(b"1".as_slice()));
    assert!(picked(__codec!(Aliased<u8>)).decode(&wrong).is_err());
    assert!(picked(__codec!(anyhow::Result<u8>)).decode(&wrong).is_err());
}

#[test]
fn a_result_that_cannot_be_journaled_is_a_failure() {
    let Outcome::Failed(failure) = picked(__codec!(Result<f64>)).encode(&Ok(f64::NAN)) else { panic!() };
    assert_eq!(failure.kind, FailureKind::Encode);
}
