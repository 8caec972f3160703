//! The error that takes any other, keeps its chain, and crosses the journal.
//!
//! [`Error`] is not `std::error::Error` itself (so that `?` can take every type that is), but derefs to one: a private
//! type that carries the marks. A wrapper made with `thiserror` or `anyhow` therefore holds the marks in its
//! `source()` chain, where [`Marks::of`] finds them. `#[error(transparent)]` hides the wrapped error from that chain;
//! there the marks are noticed while the error is written for the journal ([`met_while`]).

use std::{cell::Cell, error::Error as StdError, fmt, ops::Deref, sync::Arc, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Failure;
use crate::{activity::Verdict, definition::Judgement};

type BoxError = Box<dyn StdError + Send + Sync>;

/// Any error, durable: its chain and its marks are the same live and replayed.
///
/// `?` takes every `std::error::Error`; for boxed and `anyhow` errors there is [`ResultExt::durable`]. `{}` shows the
/// outermost message, `{:#}` and `{:?}` the whole chain. An activity's error is retried unless it is marked permanent.
///
/// ```
/// use composer_sdk::{Error, Result, ResultExt};
///
/// fn parse(text: &str) -> Result<u32> {
///     text.parse::<u32>().context("the amount is no number")
/// }
///
/// let error = parse("ten").unwrap_err();
/// assert_eq!(format!("{error:#}"), "the amount is no number: invalid digit found in string");
/// assert!(!error.is_permanent() && Error::permanent(error).is_permanent());
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

/// `Result` with [`Error`] as the default error.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// What an [`Error`] derefs to: the marks, and the error they belong to.
struct Inner {
    error: BoxError,
    marks: Marks,
}

/// What an error says about trying again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    permanent: bool,
    retry_after: Option<Duration>,
}

impl Error {
    /// An error that may be retried: a message, or anything that is an error.
    pub fn new(error: impl Into<BoxError>) -> Self {
        Self::marked(error, Marks::default())
    }

    /// An error that trying again cannot heal: the activity is not retried.
    pub fn permanent(error: impl Into<BoxError>) -> Self {
        Self::marked(error, Marks { permanent: true, retry_after: None })
    }

    /// An error that says itself when the next attempt may follow, in place of the computed delay.
    pub fn retry_after(error: impl Into<BoxError>, delay: Duration) -> Self {
        Self::marked(error, Marks { permanent: false, retry_after: Some(delay) })
    }

    /// The same error under a message that says what was being done.
    pub fn context(self, context: impl fmt::Display) -> Self {
        let marks = self.0.marks;
        let error = Box::new(Link { text: context.to_string(), source: Some(Box::new(Foreign(self))) });
        Self(Arc::new(Inner { error, marks }))
    }

    /// Whether this error, or one that it wraps, is marked permanent.
    pub fn is_permanent(&self) -> bool {
        self.0.marks.permanent
    }

    /// The delay that this error asks for.
    pub fn retry_delay(&self) -> Option<Duration> {
        self.0.marks.retry_after
    }

    /// What the engine had to say, when that is what this error wraps.
    pub fn failure(&self) -> Option<&Failure> {
        self.downcast_ref()
    }

    /// The first `E` of the chain. What has crossed the journal keeps its words, not its type;
    /// a [`Failure`] alone stays one.
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        links(&**self).find_map(|error| bare(error).downcast_ref())
    }

    /// The messages, outermost first.
    pub fn chain(&self) -> impl Iterator<Item = String> {
        texts(&**self)
    }

    fn marked(error: impl Into<BoxError>, marks: Marks) -> Self {
        let error = error.into();
        match error.downcast::<Foreign>() {
            Ok(foreign) if marks == Marks::default() => foreign.0,
            Ok(foreign) => {
                let marks = marks.or(foreign.0.0.marks);
                Self(Arc::new(Inner { error: foreign, marks }))
            }
            Err(error) => {
                let marks = marks.or(Marks::of(&*error));
                Self(Arc::new(Inner { error, marks }))
            }
        }
    }

    /// The chain of a borrowed error, and its marks: what is left of an opaque error in the journal.
    pub(crate) fn of_chain(error: &(dyn StdError + 'static)) -> Self {
        let texts = texts(error).collect();
        let failure = failure(error).cloned();
        Self::from_texts(texts, failure, Marks::of(error)).expect("invariant: a chain has its first link")
    }

    /// How any error is described, and whether trying again can help.
    pub(crate) fn judge(error: &(dyn StdError + 'static)) -> Judgement {
        let error_text = texts(error).collect::<Vec<_>>().join(": ");
        Judgement { error: error_text, retry: Marks::of(error).verdict() }
    }

    /// A chain of its texts; the last of them is what the engine had to say, if it had.
    fn from_texts(mut texts: Vec<String>, failure: Option<Failure>, marks: Marks) -> Option<Self> {
        let failure = failure.filter(|failure| texts.last() == Some(&failure.message));
        if failure.is_some() {
            texts.pop();
        }
        let innermost = failure.map(|failure| Box::new(failure) as BoxError);
        let chain =
            texts.into_iter().rev().fold(innermost, |source, text| Some(Box::new(Link { text, source })));
        chain.map(|error| Self(Arc::new(Inner { error, marks })))
    }
}

impl Marks {
    /// The marks of an error and of everything in its `source()` chain; the outermost delay wins.
    pub(crate) fn of(error: &(dyn StdError + 'static)) -> Self {
        links(error).fold(Self::default(), |marks, link| marks.or(Self::of_link(link)))
    }

    fn of_link(error: &(dyn StdError + 'static)) -> Self {
        if let Some(inner) = error.downcast_ref::<Inner>() {
            inner.marks
        } else if let Some(foreign) = error.downcast_ref::<Foreign>() {
            foreign.0.0.marks
        } else if let Some(failure) = error.downcast_ref::<Failure>() {
            Self { permanent: failure.is_permanent(), retry_after: None }
        } else {
            Self::of_http(error)
        }
    }

    #[cfg(feature = "http")]
    fn of_http(error: &(dyn StdError + 'static)) -> Self {
        use crate::http::{Marked, Verdict};
        match error.downcast_ref::<Marked>() {
            Some(Marked(Verdict::Permanent)) => Self { permanent: true, retry_after: None },
            Some(Marked(Verdict::Retry { after })) => Self { permanent: false, retry_after: *after },
            None => Self::default(),
        }
    }

    #[cfg(not(feature = "http"))]
    fn of_http(_: &(dyn StdError + 'static)) -> Self {
        Self::default()
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            permanent: self.permanent || other.permanent,
            retry_after: self.retry_after.or(other.retry_after),
        }
    }

    /// What the marks mean for the next attempt.
    pub(crate) fn verdict(self) -> Verdict {
        if self.permanent { Verdict::Final } else { Verdict::Retry { after: self.retry_after } }
    }
}

thread_local! {
    static MET: Cell<Marks> = const { Cell::new(Marks { permanent: false, retry_after: None }) };
}

/// Adds to what [`met_while`] has met.
pub(crate) fn note(marks: Marks) {
    MET.set(MET.get().or(marks));
}

/// Runs `write` and returns the marks of every [`Error`] that it wrote, however deep it was wrapped.
pub(crate) fn met_while<T>(write: impl FnOnce() -> T) -> (T, Marks) {
    /// Puts back what an outer call had met, also on unwind.
    struct Restore(Marks);
    impl Drop for Restore {
        fn drop(&mut self) {
            MET.set(self.0);
        }
    }
    let _restore = Restore(MET.replace(Marks::default()));
    let value = write();
    (value, MET.get())
}

/// The error itself, out of the types of ours that carry it.
fn bare<'a>(error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    if let Some(inner) = error.downcast_ref::<Inner>() {
        bare(&*inner.error)
    } else if let Some(foreign) = error.downcast_ref::<Foreign>() {
        bare(&*foreign.0.0.error)
    } else {
        error
    }
}

/// The errors of a `source()` chain, outermost first.
fn links<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| (*error).source())
}

/// What the engine had to say, if that is one of them.
fn failure<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Failure> {
    links(error).find_map(|link| bare(link).downcast_ref())
}

/// Their messages. A link that is nothing but a mark has none of its own.
fn texts(error: &(dyn StdError + 'static)) -> impl Iterator<Item = String> {
    links(error).filter(|link| !is_mark(*link)).map(ToString::to_string)
}

#[cfg(feature = "http")]
fn is_mark(link: &(dyn StdError + 'static)) -> bool {
    link.is::<crate::http::Marked>()
}

#[cfg(not(feature = "http"))]
fn is_mark(_: &(dyn StdError + 'static)) -> bool {
    false
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

impl Deref for Error {
    type Target = dyn StdError + Send + Sync + 'static;
    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return write!(f, "{}", self.0.error);
        }
        for (n, text) in self.chain().enumerate() {
            write!(f, "{}{text}", if n > 0 { ": " } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        self.0.marks == other.0.marks && self.chain().eq(other.chain())
    }
}

impl Eq for Error {}

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl StdError for Inner {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

/// An [`Error`] where a `std::error::Error` is wanted: inside a box, an `anyhow::Error`, or below a context.
pub struct Foreign(Error);

impl From<Error> for Foreign {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.0.error.fmt(f)
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl StdError for Foreign {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.0.error.source()
    }
}

impl From<Error> for BoxError {
    fn from(error: Error) -> Self {
        Box::new(Foreign(error))
    }
}

impl From<Error> for Box<dyn StdError> {
    fn from(error: Error) -> Self {
        Box::new(Foreign(error))
    }
}

#[cfg(feature = "anyhow")]
impl From<Error> for anyhow::Error {
    fn from(error: Error) -> Self {
        anyhow::Error::new(Foreign(error))
    }
}

/// A message in a chain whose original type is not needed, or was left on the other side of the journal.
struct Link {
    text: String,
    source: Option<BoxError>,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Link {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// The journaled form.
#[derive(Serialize, Deserialize)]
struct Written {
    chain: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    permanent: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
}

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let marks = self.0.marks;
        note(marks);
        let retry_after_ms =
            marks.retry_after.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        Written {
            chain: self.chain().collect(),
            permanent: marks.permanent,
            retry_after_ms,
            failure: self.failure().cloned(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Error {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let marks = Marks {
            permanent: written.permanent,
            retry_after: written.retry_after_ms.map(Duration::from_millis),
        };
        Self::from_texts(written.chain, written.failure, marks)
            .ok_or_else(|| serde::de::Error::custom("an error without a message"))
    }
}

/// Turns the error of any `Result` into a durable [`Error`]: also boxed and `anyhow` errors and texts, which `?` alone
/// cannot take.
pub trait ResultExt<T> {
    /// The same result, with an error that crosses the journal.
    ///
    /// # Errors
    /// The same error.
    fn durable(self) -> Result<T>;

    /// The same result, with an error that is not retried.
    ///
    /// # Errors
    /// The same error, marked.
    fn permanent(self) -> Result<T>;

    /// The same result, with a message above the error that says what was being done.
    ///
    /// # Errors
    /// The same error, below the message.
    fn context<C: fmt::Display>(self, context: C) -> Result<T>;
}

impl<T, E: Into<BoxError>> ResultExt<T> for core::result::Result<T, E> {
    fn durable(self) -> Result<T> {
        self.map_err(Error::new)
    }

    fn permanent(self) -> Result<T> {
        self.map_err(Error::permanent)
    }

    fn context<C: fmt::Display>(self, context: C) -> Result<T> {
        self.map_err(|error| Error::new(error).context(context))
    }
}
