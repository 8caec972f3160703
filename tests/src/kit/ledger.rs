//! Effects: requests to the test's effect server, and the points at which this process may die.

use std::{
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use composer_sdk::{http, prelude::*};
use serde_json::Value;

/// The effect server, as an activity sees it.
#[derive(Debug, Clone)]
pub struct Ledger(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    url: String,
    exit_at: Option<ExitAt>,
    begun: AtomicU32,
    done: AtomicU32,
}

/// A point at which the process ends at once, as if it were killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitAt {
    /// Before this process asks for its nth effect.
    BeforeEffect(u32),
    /// When its nth effect has happened and nothing was journaled of it.
    AfterEffect(u32),
}

impl FromStr for ExitAt {
    type Err = String;

    /// `before_effect:3`, `after_effect:3`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (point, n) = text.split_once(':').ok_or("an exit point is `after_effect:3` or the like")?;
        let n = n.parse().map_err(|e| format!("`{n}`: {e}"))?;
        match point {
            "before_effect" => Ok(Self::BeforeEffect(n)),
            "after_effect" => Ok(Self::AfterEffect(n)),
            _ => Err(format!("`{point}` is no exit point")),
        }
    }
}

impl Ledger {
    /// The server at a URL.
    pub fn new(url: impl Into<String>, exit_at: Option<ExitAt>) -> Self {
        let (begun, done) = Default::default();
        Self(Arc::new(Inner { url: url.into(), exit_at, begun, done }))
    }

    /// One effect, under the current activity's key. For activities alone.
    ///
    /// # Errors
    /// What the server answers, in its own words: permanent for a 4xx, with the server's delay for a 429.
    pub async fn effect(&self, name: &str, value: &Value) -> Result<Value> {
        let inner = &*self.0;
        let begun = inner.begun.fetch_add(1, Ordering::Relaxed) + 1;
        exit_if(inner.exit_at == Some(ExitAt::BeforeEffect(begun)));
        let request = http::post(format!("{}/{name}", inner.url))
            .header("attempt", activity::attempt().to_string())
            .json(value);
        let answer = request.send().await?.json().await?;
        let done = inner.done.fetch_add(1, Ordering::Relaxed) + 1;
        exit_if(inner.exit_at == Some(ExitAt::AfterEffect(done)));
        Ok(answer)
    }
}

fn exit_if(now: bool) {
    if now {
        // Nothing of ours runs after this: no destructor, no flush, no farewell to the database.
        std::process::abort();
    }
}
