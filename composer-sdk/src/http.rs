//! HTTP for activities: a request whose repetition the service can recognise.
//!
//! ```
//! # use composer_sdk::{http, Result};
//! # #[derive(serde::Serialize)] struct Order { euros: u32 }
//! # #[derive(serde::Deserialize)] struct Receipt { id: String }
//! async fn charge(order: Order) -> Result<Receipt> {
//!     Ok(http::post("https://pay.example/charges").json(&order).send().await?.json().await?)
//! }
//! ```
//!
//! * **The same key on every attempt.** Each request carries `Idempotency-Key`: the activity's key (see
//!   [`idempotency_key`](crate::activity::idempotency_key)) for its first request, `…-2`, `…-3` for those that
//!   follow, in the order in which they are built. So build them in the same order on every attempt.
//! * **An answer is a success, or an error that knows.** [`send`](Request::send) gives an error for every status that
//!   is no success. 408, 425, 429 and 5xx may be retried, as may whatever went wrong on the way; other statuses are
//!   permanent. `Retry-After` is what the engine waits, up to an hour. The knowledge survives `?`, contexts and
//!   `thiserror` wrappers.
//! * **It ends.** Connecting may take 10 s ([`CONNECT_TIMEOUT`]), silence 30 s ([`STALL_TIMEOUT`]: before the headers
//!   or within the body), all together 5 minutes ([`TOTAL_TIMEOUT`], or [`timeout`](Request::timeout)). A body may
//!   have 16 MiB ([`MAX_BODY`], or [`max_body`](Request::max_body)).
//! * **Redirects change nothing.** 307 and 308 repeat method, body and key; 301, 302 and 303 are followed for `get`
//!   alone and are an error otherwise. Credentials do not go to another origin. Ten are followed.
//!
//! `https` needs the feature `tls`, which is on by default. Bodies are taken as they come: no compression is asked for.

mod error;
mod redirect;
mod retry_after;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::OnceLock,
    time::{Duration, Instant},
};

use reqwest::{
    Client, Method, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use serde::{Serialize, de::DeserializeOwned};

pub use error::{Error, ErrorKind};
pub(crate) use error::{Marked, Verdict};

use crate::context::{self, Here};

/// How long connecting may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the service may say nothing: before the headers, or between two pieces of the body.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a request and its answer may take together, unless [`Request::timeout`] says otherwise.
pub const TOTAL_TIMEOUT: Duration = Duration::from_secs(300);

/// How large an answer's body may be, unless [`Request::max_body`] says otherwise.
pub const MAX_BODY: usize = 16 << 20;

/// How much of a refusal's body its error shows.
const EXCERPT: usize = 512;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A `GET`.
pub fn get(url: impl AsRef<str>) -> Request {
    Request::new(Method::GET, url.as_ref())
}

/// A `POST`.
pub fn post(url: impl AsRef<str>) -> Request {
    Request::new(Method::POST, url.as_ref())
}

/// A `PUT`.
pub fn put(url: impl AsRef<str>) -> Request {
    Request::new(Method::PUT, url.as_ref())
}

/// A `PATCH`.
pub fn patch(url: impl AsRef<str>) -> Request {
    Request::new(Method::PATCH, url.as_ref())
}

/// A `DELETE`.
pub fn delete(url: impl AsRef<str>) -> Request {
    Request::new(Method::DELETE, url.as_ref())
}

/// A request that is being built. What is wrong with it is said by [`send`](Request::send).
#[must_use = "a request does nothing until it is sent"]
pub struct Request {
    method: Method,
    url: Result<Url, String>,
    headers: HeaderMap,
    body: Vec<u8>,
    key: Option<String>,
    timeout: Duration,
    max_body: usize,
    mistake: Option<String>,
}

impl Request {
    fn new(method: Method, url: &str) -> Self {
        let key = match context::here() {
            Here::Activity(cx) => Some(cx.next_request_key()),
            _ => None,
        };
        Self {
            method,
            url: redirect::parse(url),
            headers: HeaderMap::new(),
            body: Vec::new(),
            key,
            timeout: TOTAL_TIMEOUT,
            max_body: MAX_BODY,
            mistake: None,
        }
    }

    /// The body: this value as JSON, with the matching `Content-Type`.
    pub fn json<T: Serialize + ?Sized>(mut self, value: &T) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => self.body = body,
            Err(e) => return self.wrong(format!("the value for the body cannot be written as JSON: {e}")),
        }
        self.headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        self
    }

    /// The body: these bytes.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// A header, in place of one of the same name. An `Idempotency-Key` of your own replaces ours.
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        let name = name.as_ref();
        let Ok(header) = HeaderName::try_from(name) else {
            return self.wrong(format!("`{name}` is no name for a header"));
        };
        match HeaderValue::try_from(value.as_ref()) {
            Ok(value) => self.headers.insert(header, value),
            Err(_) => {
                return self
                    .wrong(format!("the value for the header `{name}` contains characters that it may not"));
            }
        };
        self
    }

    /// `Authorization: Bearer …`.
    pub fn bearer(mut self, token: impl AsRef<str>) -> Self {
        match HeaderValue::try_from(format!("Bearer {}", token.as_ref())) {
            Ok(mut value) => {
                value.set_sensitive(true);
                self.headers.insert(AUTHORIZATION, value);
                self
            }
            Err(_) => self.wrong("the bearer token contains characters that a header may not".into()),
        }
    }

    /// A parameter of the URL, behind those that are there.
    pub fn query(mut self, name: impl AsRef<str>, value: impl fmt::Display) -> Self {
        if let Ok(url) = &mut self.url {
            url.query_pairs_mut().append_pair(name.as_ref(), &value.to_string());
        }
        self
    }

    /// How long the request and its answer may take together, redirects included.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How many bytes the answer's body may have.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Sends the request and waits for the head of the answer.
    ///
    /// # Errors
    /// Every status that is no success, and whatever went wrong on the way. [`Error::is_retryable`] says whether
    /// another attempt may help; the engine acts on it by itself. Outside an activity: always.
    ///
    /// # Cancel safety
    /// A request whose future is dropped may have reached the service; the next attempt carries the same key.
    pub async fn send(self) -> Result<Response, Error> {
        let shown = self.shown();
        let (url, headers) = self.checked(&shown)?;
        let until = Instant::now().checked_add(self.timeout);
        let mut hop = redirect::Hop { method: self.method, url, headers };
        for _ in 0..=redirect::MAX {
            let answer = client()
                .request(hop.method.clone(), hop.url.clone())
                .headers(hop.headers.clone())
                .timeout(until.map_or(self.timeout, |until| until.saturating_duration_since(Instant::now())))
                .body(self.body.clone())
                .send()
                .await
                .map_err(|e| Error::on_the_way(&shown, "no answer", &e))?;
            if answer.status().is_success() {
                return Ok(Response { shown, answer, max_body: self.max_body });
            }
            if !answer.status().is_redirection() || !redirect::is_one(&answer) {
                return Err(refused(shown, answer).await);
            }
            hop = hop.follow(&shown, &answer)?;
        }
        let message =
            format!("more than {} redirects, the last to {}", redirect::MAX, redirect::shown(&hop.url));
        Err(Error::new(&shown, ErrorKind::Redirect, message, Verdict::Permanent))
    }

    fn wrong(mut self, mistake: String) -> Self {
        self.mistake.get_or_insert(mistake);
        self
    }

    /// Method and place, for messages: no query, no credentials.
    fn shown(&self) -> String {
        let url = self.url.as_ref().map_or_else(|_| "(no URL)".to_owned(), redirect::shown);
        format!("{} {url}", self.method)
    }

    /// The URL and the headers, or the mistake that was made.
    fn checked(&self, shown: &str) -> Result<(Url, HeaderMap), Error> {
        let request = |message: String| Error::new(shown, ErrorKind::Request, message, Verdict::Permanent);
        if let Some(mistake) = &self.mistake {
            return Err(request(mistake.clone()));
        }
        let url = self.url.clone().map_err(request)?;
        let Some(key) = &self.key else {
            let message = "`composer_sdk::http` is for activities, and this is none: there is no key to send. Build the \
                           request in the activity itself, not in a workflow or in a spawned task";
            return Err(Error::new(shown, ErrorKind::OutsideActivity, message.into(), Verdict::Permanent));
        };
        let mut headers = self.headers.clone();
        let key = HeaderValue::try_from(key)
            .map_err(|_| request("the idempotency key is no header value".into()))?;
        headers.entry(IDEMPOTENCY_KEY).or_insert(key);
        Ok((url, headers))
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Request").field(&self.shown()).finish()
    }
}

/// One for the process: connections are kept and shared.
fn client() -> &'static Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(|| {
        #[cfg(feature = "tls")]
        // Refused when the program has chosen another one, which is fine, too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Client::builder()
            .user_agent(concat!("composer/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(STALL_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .expect("invariant: these settings make a client")
    })
}

/// The error of an answer that is no success, with the beginning of what it says.
async fn refused(shown: String, mut answer: reqwest::Response) -> Error {
    let status = answer.status();
    let mut said = Vec::new();
    // What stops here is not worth losing the status for.
    while let Ok(Some(piece)) = answer.chunk().await {
        said.extend_from_slice(&piece);
        if said.len() >= EXCERPT {
            break;
        }
    }
    let verdict = match status.as_u16() {
        408 | 425 | 429 | 500..=599 => Verdict::Retry { after: retry_after::of(answer.headers()) },
        _ => Verdict::Permanent,
    };
    Error::new(&shown, ErrorKind::Status(status.as_u16()), status_message(status, &said), verdict)
}

fn status_message(status: reqwest::StatusCode, said: &[u8]) -> String {
    let cut = &said[..said.len().min(EXCERPT)];
    let text = String::from_utf8_lossy(cut);
    let text = text.trim().trim_end_matches('\u{fffd}');
    let more = if said.len() > cut.len() { "…" } else { "" };
    if text.is_empty() { status.to_string() } else { format!("{status}: {text}{more}") }
}

/// The answer to a request that succeeded. The body is read when it is asked for.
pub struct Response {
    shown: String,
    answer: reqwest::Response,
    max_body: usize,
}

impl Response {
    /// The status, from 200 to 299.
    pub fn status(&self) -> u16 {
        self.answer.status().as_u16()
    }

    /// A header, if it is there and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.answer.headers().get(name)?.to_str().ok()
    }

    /// All headers that are text.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.answer.headers().iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
    }

    /// The body, from JSON.
    ///
    /// # Errors
    /// As [`bytes`](Response::bytes), and when it is not what `T` is read from.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T, Error> {
        let shown = self.shown.clone();
        let body = self.bytes().await?;
        serde_json::from_slice(&body).map_err(|e| {
            let begins = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
            let message = format!(
                "the answer is not JSON of a `{}`: {e}; it begins {begins:?}",
                std::any::type_name::<T>()
            );
            Error::new(&shown, ErrorKind::Decode, message, Verdict::Retry { after: None })
        })
    }

    /// The body, as text.
    ///
    /// # Errors
    /// As [`bytes`](Response::bytes), and when it is not UTF-8.
    pub async fn text(self) -> Result<String, Error> {
        let shown = self.shown.clone();
        String::from_utf8(self.bytes().await?).map_err(|e| {
            let message = format!("the answer is not UTF-8: {e}");
            Error::new(&shown, ErrorKind::Decode, message, Verdict::Retry { after: None })
        })
    }

    /// The body.
    ///
    /// # Errors
    /// When it stalls, ends early, takes too long, or is larger than it may be.
    pub async fn bytes(mut self) -> Result<Vec<u8>, Error> {
        let announced = self.answer.content_length().unwrap_or(0);
        if announced > self.max_body as u64 {
            return Err(self.too_large());
        }
        let mut body = Vec::with_capacity(usize::try_from(announced).unwrap_or(0));
        loop {
            let piece = self.answer.chunk().await;
            match piece.map_err(|e| Error::on_the_way(&self.shown, "the body of the answer broke off", &e))? {
                Some(piece) if body.len() + piece.len() > self.max_body => return Err(self.too_large()),
                Some(piece) => body.extend_from_slice(&piece),
                None => return Ok(body),
            }
        }
    }

    fn too_large(&self) -> Error {
        let message = format!("the body of the answer is larger than {} bytes (`max_body`)", self.max_body);
        Error::new(&self.shown, ErrorKind::TooLarge, message, Verdict::Retry { after: None })
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("request", &self.shown).field("status", &self.status()).finish()
    }
}
