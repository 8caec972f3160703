//! What can go wrong with a request, and whether another attempt may help.
//!
//! The verdict is a link of its own at the end of the error's chain ([`Marked`]): a wrapper made with
//! `#[error(transparent)]` hides the error itself from the chain, but not what is below it.

use std::{error::Error as StdError, fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A request that failed.
///
/// `{}` is the whole story: the request (without its query), the status and the beginning of what the service said.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    request: String,
    kind: ErrorKind,
    message: String,
    marked: Marked,
}

/// The kinds of [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The service answered with this status, which is no success.
    Status(u16),
    /// A redirect that is not followed.
    Redirect,
    /// No connection.
    Connect,
    /// Connecting, silence or everything together took too long.
    Timeout,
    /// The connection broke, or what came is not HTTP.
    Transport,
    /// The body of the answer is larger than it may be.
    TooLarge,
    /// The body of the answer is not what was expected.
    Decode,
    /// The request itself: its URL, a header, the value for its body.
    Request,
    /// It was not built in an activity.
    OutsideActivity,
}

/// Whether another attempt may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The same request would fail again.
    Permanent,
    /// It may.
    Retry {
        /// Not before that long, if the service says so.
        after: Option<Duration>,
    },
}

/// The verdict as a link of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marked(pub(crate) Verdict);

impl Error {
    pub(super) fn new(request: &str, kind: ErrorKind, message: String, verdict: Verdict) -> Self {
        Self(Box::new(Inner { request: request.to_owned(), kind, message, marked: Marked(verdict) }))
    }

    /// Something that went wrong between us and the service.
    pub(super) fn on_the_way(request: &str, what: &str, error: &reqwest::Error) -> Self {
        let kind = match error {
            e if e.is_timeout() => ErrorKind::Timeout,
            e if e.is_connect() => ErrorKind::Connect,
            e if e.is_builder() => ErrorKind::Request,
            _ => ErrorKind::Transport,
        };
        let verdict = match kind {
            ErrorKind::Request => Verdict::Permanent,
            _ => Verdict::Retry { after: None },
        };
        // The outermost text names the URL with its query: the causes below say what happened.
        let mut causes = Vec::new();
        let mut cause = error.source();
        while let Some(error) = cause {
            causes.push(error.to_string());
            cause = error.source();
        }
        let causes = if causes.is_empty() { kind_text(kind).to_owned() } else { causes.join(": ") };
        Self::new(request, kind, format!("{what}: {causes}"), verdict)
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The status, when the service answered with one that is no success.
    pub fn status(&self) -> Option<u16> {
        match self.0.kind {
            ErrorKind::Status(status) => Some(status),
            _ => None,
        }
    }

    /// Whether another attempt may help. The engine asks by itself.
    pub fn is_retryable(&self) -> bool {
        matches!(self.0.marked.0, Verdict::Retry { .. })
    }

    /// How long the service asks us to wait before the next attempt. The engine waits by itself.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.0.marked.0 {
            Verdict::Retry { after } => after,
            Verdict::Permanent => None,
        }
    }
}

fn kind_text(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Timeout => "it took too long",
        ErrorKind::Connect => "no connection",
        _ => "the connection broke",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.request, self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0.marked)
    }
}

impl fmt::Display for Marked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Verdict::Permanent => f.write_str("another attempt would not help"),
            Verdict::Retry { after: None } => f.write_str("another attempt may help"),
            Verdict::Retry { after: Some(after) } => write!(f, "another attempt may help in {after:?}"),
        }
    }
}

impl StdError for Marked {}

/// The journaled form, inside a declared error.
#[derive(Serialize, Deserialize)]
struct Written {
    request: String,
    kind: ErrorKind,
    message: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    permanent: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        crate::error::note(crate::error::Marks::of(self));
        Written {
            request: self.0.request.clone(),
            kind: self.0.kind,
            message: self.0.message.clone(),
            permanent: !self.is_retryable(),
            retry_after_ms: self
                .retry_after()
                .map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Error {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let verdict = if written.permanent {
            Verdict::Permanent
        } else {
            Verdict::Retry { after: written.retry_after_ms.map(Duration::from_millis) }
        };
        Ok(Self::new(&written.request, written.kind, written.message, verdict))
    }
}
