//! Fan-out over a list: the same thing for every item, so many at a time, and what to do about errors.
//!
//! The futures of the items are made in the list's order and looked at in the order in which events make them ready, so
//! a replay takes the same course. Iterator and closure are boxed: with their own types in the future of a workflow,
//! rustc cannot tell that the future of a closure over borrowed items is `Send`.

use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    task::{Context, Poll},
};

use futures::{Stream, StreamExt, stream::FuturesUnordered};
use pin_project::pin_project;

use crate::definition::BodyFuture;

/// Does the same for every item, at the same time, and gives the results in the order of the items.
///
/// ```
/// # use composer_sdk::{prelude::*, workflow::map};
/// # #[activity] async fn resize(picture: &str, width: u32) -> Result<String> { Ok(String::new()) }
/// #[workflow]
/// async fn thumbnails(pictures: Vec<String>, width: u32) -> Result<Vec<String>> {
///     // At most ten at a time; at the first error the others are told to stop.
///     map(&pictures, |picture| resize(picture, width)).limit(10).fail_fast().await
/// }
/// ```
///
/// The items may be borrowed, and the closure may borrow from the workflow: `|item| async move { … }`, `async |item|`,
/// a path such as `map(orders, charge)`. It is called in the order of the items: for each when its turn comes, for all
/// at once without a [`limit`](Map::limit). No items are an empty result at once, of which the journal knows nothing.
///
/// Awaited as it is, it waits for all. Where each item gives a `Result`, there is a choice:
///
/// | | comes to | ends |
/// |---|---|---|
/// | `.await` | the results | when all are there |
/// | [`.fail_fast()`](Map::fail_fast) | the values, or the first error | at the first error |
/// | [`.tolerate(n)`](Map::tolerate) | the values and at most `n` errors | when all are there |
/// | [`.first(n)`](Map::first) | the first `n` values | when they are there, or cannot be any more |
///
/// What is still under way at the end is dropped: calls are told to stop. "First" is the order of the journal, the same
/// in every life of the run.
///
/// # Cancel safety
/// If the future around it is dropped, all items are.
pub fn map<'a, I, F, Fut>(items: I, f: F) -> Map<'a, Fut>
where
    I: IntoIterator<IntoIter: Send + 'a>,
    F: FnMut(I::Item) -> Fut + Send + 'a,
    Fut: Future + Send + 'a,
{
    Map { items: Box::new(items.into_iter().map(f)), limit: None }
}

/// What [`map`] is to do. It begins when it is awaited.
#[must_use = "a map does nothing until it is awaited"]
pub struct Map<'a, Fut> {
    items: Box<dyn Iterator<Item = Fut> + Send + 'a>,
    limit: Option<usize>,
}

impl<'a, Fut: Future + Send + 'a> Map<'a, Fut> {
    /// At most that many at a time. When one is done, the next in line begins.
    ///
    /// # Panics
    /// With a limit of 0; in a workflow that makes the run `stuck`.
    #[track_caller]
    pub fn limit(self, limit: usize) -> Self {
        assert!(limit > 0, "`map(..).limit(0)` would never begin anything: the least is 1");
        Self { limit: Some(limit), ..self }
    }

    fn begin(self) -> InFlight<'a, Fut> {
        let limit = self.limit.unwrap_or(usize::MAX);
        InFlight { items: Some(self.items), open: FuturesUnordered::new(), begun: 0, limit }
    }
}

impl<'a, Fut> IntoFuture for Map<'a, Fut>
where
    Fut: Future<Output: Send + 'a> + Send + 'a,
{
    type Output = Vec<Fut::Output>;
    type IntoFuture = BodyFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let mut items = self.begin();
        Box::pin(async move {
            let mut results = Places::default();
            while let Some((place, result)) = items.next().await {
                results.put(place, result);
            }
            results.in_order()
        })
    }
}

impl<'a, T, E, Fut> Map<'a, Fut>
where
    Fut: Future<Output = Result<T, E>> + Send + 'a,
    T: Send + 'a,
    E: Send + 'a,
{
    /// The values, or the first error; the other items are dropped then.
    ///
    /// ```
    /// # use composer_sdk::workflow::map;
    /// # futures::executor::block_on(async {
    /// let parsed = map(["1", "two", "3"], async |text| text.parse::<u32>()).fail_fast().await;
    /// assert_eq!(parsed.unwrap_err().to_string(), "invalid digit found in string");
    /// # });
    /// ```
    pub fn fail_fast(self) -> BodyFuture<'a, Result<Vec<T>, E>> {
        let mut items = self.begin();
        Box::pin(async move {
            let mut values = Places::default();
            while let Some((place, result)) = items.next().await {
                values.put(place, result?);
            }
            Ok(values.in_order())
        })
    }

    /// Waits for all, and puts up with so many errors.
    ///
    /// ```
    /// # use composer_sdk::workflow::map;
    /// # futures::executor::block_on(async {
    /// let settled = map(["1", "two", "3"], async |text| text.parse::<u32>()).tolerate(1).await.unwrap();
    /// assert_eq!(settled.values, [(0, 1), (2, 3)]);
    /// assert_eq!(settled.errors.len(), 1);
    /// # });
    /// ```
    ///
    /// The future's error says how many failed and why, and holds all that came of the items.
    pub fn tolerate(self, errors: usize) -> BodyFuture<'a, Result<Settled<T, E>, TooManyFailed<T, E>>> {
        let mut items = self.begin();
        Box::pin(async move {
            let mut settled = Settled::default();
            while let Some((place, result)) = items.next().await {
                settled.put(place, result);
            }
            settled.sort();
            match settled.errors.len() > errors {
                true => Err(TooManyFailed { settled, allowed: Allowed::Errors(errors) }),
                false => Ok(settled),
            }
        })
    }

    /// Waits for so many values: in the order in which they came. The other items are dropped then.
    ///
    /// ```
    /// # use composer_sdk::workflow::map;
    /// # futures::executor::block_on(async {
    /// let first = map(["one", "2", "3"], async |text| text.parse::<u32>()).first(1).await.unwrap();
    /// assert_eq!(first.values, [(1, 2)]);
    /// # });
    /// ```
    ///
    /// The future fails as soon as so many items failed that there cannot be enough values.
    pub fn first(self, values: usize) -> BodyFuture<'a, Result<Settled<T, E>, TooManyFailed<T, E>>> {
        let mut items = self.begin();
        Box::pin(async move {
            let mut settled = Settled::default();
            while settled.values.len() < values {
                let missing = values - settled.values.len();
                let next = if items.can_give(missing) { items.next().await } else { None };
                let Some((place, result)) = next else {
                    settled.sort();
                    return Err(TooManyFailed { settled, allowed: Allowed::AllBut(values) });
                };
                settled.put(place, result);
            }
            Ok(settled)
        })
    }
}

impl<Fut> fmt::Debug for Map<'_, Fut> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// What came of the items of a [`map`]: values and errors, each with the place of its item, in the order of the items
/// (the values of [`Map::first`] in the order in which they came).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled<T, E> {
    /// The values.
    pub values: Vec<(usize, T)>,
    /// The errors.
    pub errors: Vec<(usize, E)>,
}

impl<T, E> Settled<T, E> {
    /// The values alone.
    pub fn into_values(self) -> Vec<T> {
        self.values.into_iter().map(|(_, value)| value).collect()
    }

    fn put(&mut self, place: usize, result: Result<T, E>) {
        match result {
            Ok(value) => self.values.push((place, value)),
            Err(error) => self.errors.push((place, error)),
        }
    }

    fn sort(&mut self) {
        self.values.sort_unstable_by_key(|(place, _)| *place);
        self.errors.sort_unstable_by_key(|(place, _)| *place);
    }
}

impl<T, E> Default for Settled<T, E> {
    fn default() -> Self {
        Self { values: Vec::new(), errors: Vec::new() }
    }
}

/// More items of a [`map`] failed than it puts up with.
#[derive(Clone, PartialEq, Eq)]
pub struct TooManyFailed<T, E> {
    /// What came of the items by then.
    pub settled: Settled<T, E>,
    allowed: Allowed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Allowed {
    /// So many errors.
    Errors(usize),
    /// As many as leave so many values.
    AllBut(usize),
}

/// As many errors are told in words.
const TOLD: usize = 3;

impl<T, E: fmt::Display> fmt::Display for TooManyFailed<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settled { values, errors } = &self.settled;
        match self.allowed {
            Allowed::Errors(n) => {
                write!(
                    f,
                    "{} of {} items failed, and at most {n} may",
                    errors.len(),
                    values.len() + errors.len()
                )?;
            }
            Allowed::AllBut(n) => {
                write!(f, "too many items failed ({}) for {n} to succeed", errors.len())?;
            }
        }
        for (n, (place, error)) in errors.iter().take(TOLD).enumerate() {
            // The whole chain, where an error has one.
            write!(f, "{} item {place}: {error:#}", if n == 0 { ":" } else { ";" })?;
        }
        if errors.len() > TOLD { write!(f, "; and {} more", errors.len() - TOLD) } else { Ok(()) }
    }
}

/// As the words: values need not be `Debug` for that.
impl<T, E: fmt::Display> fmt::Debug for TooManyFailed<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TooManyFailed({self})")
    }
}

impl<T, E: fmt::Display> std::error::Error for TooManyFailed<T, E> {}

/// Results by place.
struct Places<T>(Vec<Option<T>>);

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Places<T> {
    fn put(&mut self, place: usize, value: T) {
        if self.0.len() <= place {
            self.0.resize_with(place + 1, || None);
        }
        self.0[place] = Some(value);
    }

    /// All of them; the caller has seen the last one.
    fn in_order(self) -> Vec<T> {
        self.0.into_iter().flatten().collect()
    }
}

/// The items under way.
struct InFlight<'a, Fut: Future> {
    /// None when all have begun.
    items: Option<Box<dyn Iterator<Item = Fut> + Send + 'a>>,
    open: FuturesUnordered<Placed<Fut>>,
    begun: usize,
    limit: usize,
}

/// An item that is under way.
#[pin_project]
struct Placed<Fut> {
    place: usize,
    #[pin]
    future: Fut,
}

impl<Fut: Future> Future for Placed<Fut> {
    type Output = (usize, Fut::Output);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let me = self.project();
        let place = *me.place;
        me.future.poll(cx).map(|output| (place, output))
    }
}

impl<Fut: Future> InFlight<'_, Fut> {
    /// Whether so many results may still come. Begins nothing when they cannot.
    fn can_give(&mut self, results: usize) -> bool {
        self.left() >= results && {
            // Shows the end of an iterator that does not know its length.
            self.fill();
            self.left() >= results
        }
    }

    /// At most so many results are still to come.
    fn left(&self) -> usize {
        let ahead = self.items.as_ref().map_or(Some(0), |items| items.size_hint().1);
        ahead.unwrap_or(usize::MAX).saturating_add(self.open.len())
    }

    /// Begins what there is room for.
    fn fill(&mut self) {
        while self.open.len() < self.limit {
            let Some(future) = self.items.as_mut().and_then(Iterator::next) else {
                self.items = None;
                return;
            };
            self.open.push(Placed { place: self.begun, future });
            self.begun += 1;
        }
    }
}

/// The results in the order in which they come.
impl<Fut: Future> Stream for InFlight<'_, Fut> {
    type Item = (usize, Fut::Output);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.fill();
        self.open.poll_next_unpin(cx)
    }
}
