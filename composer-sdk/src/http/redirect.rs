//! Where a redirect leads, and what goes along.

use reqwest::{
    Method, StatusCode, Url,
    header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderValue, LOCATION, PROXY_AUTHORIZATION},
};

use super::{Error, ErrorKind, Verdict};

/// How many are followed.
pub(super) const MAX: usize = 10;

/// A URL that we can send to, or why not.
pub(super) fn parse(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|e| format!("`{text}` is no URL: {e}"))?;
    sendable(&url)?;
    Ok(url)
}

fn sendable(url: &Url) -> Result<(), String> {
    match url.scheme() {
        "http" => Ok(()),
        "https" if cfg!(feature = "tls") => Ok(()),
        "https" => Err(format!("{} needs TLS: switch on the feature `tls` of composer-sdk", shown(url))),
        other => Err(format!("`{other}` is no scheme for HTTP; write http:// or https://")),
    }
}

/// A URL for messages: without credentials, query and fragment.
pub(super) fn shown(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

/// Whether the answer is a redirect that says where to.
pub(super) fn is_one(answer: &reqwest::Response) -> bool {
    matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308) && answer.headers().contains_key(LOCATION)
}

/// One request of a chain.
pub(super) struct Hop {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
}

impl Hop {
    /// The next one.
    pub(super) fn follow(mut self, asked: &str, answer: &reqwest::Response) -> Result<Self, Error> {
        let status = answer.status();
        let refuse = |message| Error::new(asked, ErrorKind::Redirect, message, Verdict::Permanent);
        let location = answer.headers().get(LOCATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let location = String::from_utf8_lossy(location);
        let next =
            self.url.join(&location).map_err(|e| refuse(format!("{status} to `{location}`, no URL: {e}")))?;
        sendable(&next).map_err(|why| refuse(format!("{status}: {why}")))?;
        let keeps_method = matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        if !keeps_method && self.method != Method::GET {
            return Err(refuse(format!(
                "{status} to {}: following it would turn the {} into a GET; use that URL, if it is the right one",
                shown(&next),
                self.method
            )));
        }
        if next.origin() != self.url.origin() {
            drop_credentials(&mut self.headers);
        }
        self.url = next;
        Ok(self)
    }
}

fn drop_credentials(headers: &mut HeaderMap) {
    let secret: Vec<_> = headers
        .iter()
        .filter(|(name, value)| {
            [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION].contains(name) || value.is_sensitive()
        })
        .map(|(name, _)| name.clone())
        .collect();
    for name in secret {
        headers.remove(name);
    }
}
