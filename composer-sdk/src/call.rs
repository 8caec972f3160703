//! The value that describes a call: what `charge_card(order)` returns.
//!
//! A [`Call`] takes its step number and its arguments when it is built, and does nothing until it is awaited. Where it
//! was built and where it is awaited decide what it is:
//!
//! | built in | awaited in | is |
//! |---|---|---|
//! | a workflow | the same run | a durable step, asked for at the first poll |
//! | an activity | the same activity | a plain call: no step, no retry |
//! | anywhere | nowhere; given to a client | the start of a workflow |
//! | anything else | | refused, with a message that says what to write |
//!
//! A lost context never silently loses durability: the refusal panics where it happens and, where the run is known,
//! makes that run `stuck` with the same words.

mod refusal;
mod start;

use std::{
    fmt,
    future::Future,
    panic::Location,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::FusedFuture;

use crate::{
    activity::ActivityCx,
    context::{self, Here},
    definition::{Activity, BodyFuture, Definition, Env, Role, Workflow},
    error::{Failure, FailureKind},
    journal::{Outcome, StepKind},
    options::{ActivityOptions, Retry},
    payload::{Digest, Payload},
    replay::{Answer, Ask, Leaf, Run, Work, line},
};
pub use start::{StartRefused, StartRequest};

/// A call of an activity or a workflow: durable when it is awaited in a workflow.
///
/// # Cancel safety
/// Dropping a call that was polled abandons its step: the activity is told to stop, and its result is not delivered.
#[must_use = "a call does nothing until it is awaited; add `.await`, or hand it to a client"]
pub struct Call<D: Definition> {
    origin: Origin,
    input: Result<Payload, Failure>,
    options: Options,
    at: &'static Location<'static>,
    /// Polled at least once: options come too late.
    polled: bool,
    done: bool,
    /// The body, where this is a plain call. The mutex makes the call `Sync`; it is never locked.
    plain: Mutex<Option<BodyFuture<'static, D::Output>>>,
}

/// Where a call was built.
enum Origin {
    Outside,
    Workflow(Leaf),
    Activity(Arc<ActivityCx>),
    /// In `Drop` code: does nothing, never ends.
    Inert,
}

/// What was set at the call.
enum Options {
    Default,
    Activity(Box<ActivityOptions>),
    Start(Box<start::StartOptions>),
}

impl<D: Definition> Call<D> {
    #[track_caller]
    pub(crate) fn new(input: Result<Payload, Failure>) -> Self {
        let at = Location::caller();
        let origin = match context::here() {
            Here::Outside | Here::Delivering(_) => Origin::Outside,
            Here::Workflow(run) => Origin::Workflow(Leaf::new(run, at)),
            Here::Activity(cx) => Origin::Activity(cx),
            Here::Dropping(_) => Origin::Inert,
        };
        let plain = Mutex::new(None);
        Self { origin, input, options: Options::Default, at, polled: false, done: false, plain }
    }

    /// `file:line` of the call.
    fn line(&self) -> String {
        line(self.at)
    }

    #[track_caller]
    fn too_late_for(&self, option: &str) {
        assert!(
            !self.polled,
            "`.{option}(..)` on a call of `{}` that was polled already (built at {}): set options before the first \
             `.await`",
            D::NAME,
            self.line()
        );
    }

    /// A setting that cannot work is the call's own failure.
    fn refuse(&mut self, why: impl Into<Failure>) {
        let Failure { kind, message, .. } = why.into();
        if self.input.is_ok() {
            self.input = Err(Failure::new(kind, format_args!("the call of `{}`: {message}", D::NAME)));
        }
    }
}

impl<A: Activity> Call<A> {
    /// Carried out by whichever worker serves that task queue.
    #[track_caller]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.set("queue").queue = Some(queue.into());
        self
    }

    /// With this retry policy in place of the activity's own. One that cannot work is the call's failure.
    #[track_caller]
    pub fn retry(mut self, retry: Retry) -> Self {
        match retry.check() {
            Ok(retry) => self.set("retry").retry = retry,
            Err(why) => self.refuse(why),
        }
        self
    }

    /// With this time for one attempt; `None` for no limit.
    #[track_caller]
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        let timeout = self.positive("timeout", timeout.into());
        self.set("timeout").timeout = timeout;
        self
    }

    /// With this time for all attempts and the delays between them; `None` for no limit.
    #[track_caller]
    pub fn total_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        let timeout = self.positive("total_timeout", timeout.into());
        self.set("total_timeout").total_timeout = timeout;
        self
    }

    #[track_caller]
    fn set(&mut self, option: &str) -> &mut ActivityOptions {
        self.too_late_for(option);
        if !matches!(self.options, Options::Activity(_)) {
            self.options = Options::Activity(Box::new(A::options()));
        }
        match &mut self.options {
            Options::Activity(options) => options,
            _ => unreachable!("invariant: it was just set"),
        }
    }

    fn positive(&mut self, option: &str, time: Option<Duration>) -> Option<Duration> {
        if time.is_some_and(|time| time.is_zero()) {
            let words = format!("`.{option}(..)` of zero leaves no time at all; use `None` for no limit");
            self.refuse(Failure::new(FailureKind::Refused, words));
        }
        time
    }
}

impl<A: Activity> Call<A> {
    /// Hands the call to the run as a step to undo what follows.
    pub(crate) fn undo_in(mut self, run: &Arc<Run>) {
        let input = std::mem::replace(&mut self.input, Ok(Payload::from(Vec::new())));
        let options = match std::mem::replace(&mut self.options, Options::Default) {
            Options::Activity(set) => *set,
            _ => A::options(),
        };
        match std::mem::replace(&mut self.origin, Origin::Inert) {
            Origin::Workflow(leaf) if Arc::ptr_eq(leaf.run(), run) && !leaf.is_asked() => match input {
                Ok(input) => leaf.compensate(Ask {
                    kind: StepKind::Undo,
                    name: A::NAME,
                    digest: Digest::of(&input),
                    work: Work::Activity { input, options },
                }),
                Err(failure) => run.fail(failure),
            },
            Origin::Inert => {}
            _ => {
                let words = format!(
                    "`compensate` was given a call of `{}` ({}) that was polled already, or built elsewhere: build it in \
                     the argument, `compensate({}(..))`",
                    A::NAME,
                    self.line(),
                    A::NAME
                );
                run.refuse(words.clone());
                panic!("{words}")
            }
        }
    }
}

impl<W: Workflow> Call<W> {
    /// Hands the call to the run as what it goes on with.
    pub(crate) fn continue_in(mut self, run: &Arc<Run>) {
        let ours = matches!(&self.origin, Origin::Workflow(leaf) if Arc::ptr_eq(leaf.run(), run) && !leaf.is_asked());
        let plain = matches!(self.options, Options::Default);
        let line = self.line();
        self.origin = Origin::Inert;
        let done = match (ours, plain, self.input.clone()) {
            (true, true, Ok(input)) => run.continue_as(W::NAME, input),
            (true, true, Err(failure)) => return run.fail(failure),
            (true, false, _) => Err(format!(
                "`continue_as_new` was given a call of `{}` ({line}) with options: the run keeps its id, its tags and its \
                 timeout",
                W::NAME
            )),
            (false, ..) => Err(format!(
                "`continue_as_new` was given a call of `{}` ({line}) that was polled already, or built elsewhere: build it \
                 in the argument, `continue_as_new({}(..))`",
                W::NAME,
                W::NAME
            )),
        };
        if let Err(words) = done {
            run.refuse(words);
        }
    }
}

/// Where a call is awaited, as seen from where it was built.
enum Place {
    /// In its own run.
    Step,
    /// In its own activity.
    Plain,
    /// In `Drop` code.
    Nowhere,
    /// Anywhere else.
    Wrong,
}

impl Origin {
    /// Compared at every poll, by identity: the run of the same id in another life is another one.
    fn place(&self) -> Place {
        context::look(|here| match (self, here) {
            (Origin::Workflow(leaf), Here::Workflow(run)) if Arc::ptr_eq(leaf.run(), run) => {
                if std::thread::panicking() {
                    Place::Nowhere
                } else {
                    Place::Step
                }
            }
            (Origin::Activity(built), Here::Activity(cx)) if Arc::ptr_eq(built, cx) => Place::Plain,
            (Origin::Inert, _) | (_, Here::Dropping(_)) => Place::Nowhere,
            _ if std::thread::panicking() => Place::Nowhere,
            _ => Place::Wrong,
        })
    }

    fn run(&self) -> Option<&Arc<Run>> {
        match self {
            Origin::Workflow(leaf) => Some(leaf.run()),
            _ => None,
        }
    }
}

impl<D: Definition> Future for Call<D> {
    type Output = D::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<D::Output> {
        let me = self.get_mut();
        assert!(!me.done, "the call of `{}` built at {} was polled after it was ready", D::NAME, me.line());
        me.polled = true;
        let polled = match me.origin.place() {
            Place::Step => me.poll_step(cx),
            Place::Plain => me.poll_plain(cx),
            Place::Nowhere => Poll::Pending,
            Place::Wrong => me.refuse_place(),
        };
        me.done = polled.is_ready();
        polled
    }
}

impl<D: Definition> Call<D> {
    /// In a workflow: a durable step.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<D::Output> {
        let Role::Activity { options, .. } = D::ROLE else { return self.poll_child(cx) };
        let Origin::Workflow(leaf) = &mut self.origin else { return Poll::Pending };
        let input = match &self.input {
            Ok(input) => input,
            Err(failure) => {
                let outcome = Outcome::Failed(failure.clone());
                return self.finish(&outcome);
            }
        };
        let set = &mut self.options;
        let answer = leaf.poll(cx, || Ask {
            kind: StepKind::Activity,
            name: D::NAME,
            digest: Digest::of(input),
            work: Work::Activity {
                input: input.clone(),
                options: match std::mem::replace(set, Options::Default) {
                    Options::Activity(set) => *set,
                    _ => options(),
                },
            },
        });
        match answer {
            Poll::Ready(Answer::Done(outcome)) => self.finish(&outcome),
            Poll::Ready(Answer::Fired) | Poll::Pending => Poll::Pending,
        }
    }

    /// In a workflow: a child workflow.
    fn poll_child(&mut self, cx: &mut Context<'_>) -> Poll<D::Output> {
        let request = (!self.is_asked()).then(|| self.request());
        let Origin::Workflow(leaf) = &mut self.origin else { return Poll::Pending };
        let answer = match request {
            Some(Err(why)) => return self.finish(&Outcome::Failed(why.into())),
            Some(Ok((request, detached))) => leaf.poll(cx, || Ask {
                kind: StepKind::Child,
                name: D::NAME,
                digest: Digest::of(&request.input),
                work: Work::Child { request: Box::new(request), detached },
            }),
            None => leaf.poll_again(cx),
        };
        match answer {
            Poll::Ready(Answer::Done(outcome)) => self.finish(&outcome),
            Poll::Ready(Answer::Fired) | Poll::Pending => Poll::Pending,
        }
    }

    fn is_asked(&self) -> bool {
        matches!(&self.origin, Origin::Workflow(leaf) if leaf.is_asked())
    }

    /// The declared result. Where the declared type has no place for what happened, the run ends with that; where the
    /// journal cannot be read as the declared type, the run is stuck, since the build that wrote it can.
    fn finish(&mut self, outcome: &Outcome) -> Poll<D::Output> {
        match D::decode(outcome) {
            Ok(output) => Poll::Ready(output),
            Err(mut failure) => {
                failure.message = format!("`{}` ({}): {}", D::NAME, self.line(), failure.message);
                match (self.origin.run(), outcome) {
                    (Some(run), Outcome::Failed(_)) => run.fail(failure),
                    (Some(run), _) => run.refuse(failure.message),
                    (None, _) => {}
                }
                Poll::Pending
            }
        }
    }

    /// In an activity: a plain call, in the activity's own attempt.
    fn poll_plain(&mut self, cx: &mut Context<'_>) -> Poll<D::Output> {
        let Origin::Activity(activity) = &self.origin else { return Poll::Pending };
        let plain = self.plain.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        if plain.is_none() {
            *plain = Some(refusal::plain_body::<D>(
                &self.input,
                &self.options,
                self.at,
                Env::new(activity.clone()),
            ));
        }
        let Some(body) = plain else { return Poll::Pending };
        let polled = body.as_mut().poll(cx);
        if polled.is_ready() {
            *plain = None;
        }
        polled
    }
}

impl<D: Definition> FusedFuture for Call<D> {
    fn is_terminated(&self) -> bool {
        self.done
    }
}

/// A call that nobody awaited is work that its author may believe done: remembered, for the first run to warn about.
impl<D: Definition> Drop for Call<D> {
    fn drop(&mut self) {
        let Origin::Workflow(leaf) = &self.origin else { return };
        if !leaf.is_asked() && !self.done && leaf.run().is_here() && !std::thread::panicking() {
            leaf.run().forgot(format!(
                "`{}` ({}) was called, but never awaited: it was not done",
                D::NAME,
                self.line()
            ));
        }
    }
}

impl<D: Definition> fmt::Debug for Call<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call of `{}` ({})", D::NAME, self.line())
    }
}
