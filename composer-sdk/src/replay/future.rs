//! A step as its future holds it: the leaf of every durable wait.

use std::{
    fmt,
    panic::Location,
    sync::Arc,
    task::{Context, Poll},
};

use super::run::{Answer, Run, Work};
use crate::{
    context::{self, Here},
    error::Failure,
    journal::{Step, StepKind},
    payload::{Digest, Payload},
};

/// A step number and how far its future got.
///
/// # Cancel safety
/// Dropping it after it was polled abandons the step: an activity is told to stop, a timer is deleted.
pub(crate) struct Leaf {
    run: Arc<Run>,
    number: u32,
    at: &'static Location<'static>,
    progress: Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Built,
    Asked,
    Ready,
}

/// What a step is: everything but its number and place.
pub(crate) struct Ask {
    pub(crate) kind: StepKind,
    pub(crate) name: &'static str,
    pub(crate) digest: Digest,
    pub(crate) work: Work,
}

impl Leaf {
    /// Takes the next number.
    pub(crate) fn new(run: Arc<Run>, at: &'static Location<'static>) -> Self {
        Self { number: run.number(), run, at, progress: Progress::Built }
    }

    pub(crate) fn run(&self) -> &Arc<Run> {
        &self.run
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Whether it was polled.
    pub(crate) fn is_asked(&self) -> bool {
        self.progress != Progress::Built
    }

    /// Whether this run is being polled; if not, refuses in words. False in `Drop` code, where nothing happens.
    pub(crate) fn is_in_place(&self, what: &str) -> bool {
        self.run.is_in_place(what)
    }

    /// A poll of a step that was asked for.
    pub(crate) fn poll_again(&mut self, cx: &mut Context<'_>) -> Poll<Answer> {
        self.poll(cx, || unreachable!("invariant: the step was asked for"))
    }

    /// Asks at the first poll; ready with the answer. The caller has checked that this run is being polled.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, ask: impl FnOnce() -> Ask) -> Poll<Answer> {
        match self.progress {
            Progress::Built => {
                let (ask, waker) = (ask(), cx.waker().clone());
                let Ask { kind, name, digest, work } = ask;
                let step =
                    Step { number: self.number, kind, name: name.into(), digest, line: self.at.into() };
                self.run.lock().ask(step, work, self.at, waker);
                self.progress = Progress::Asked;
                Poll::Pending
            }
            Progress::Asked => {
                let (answer, waker) = {
                    let mut state = self.run.lock();
                    let answer = state.answer(self.number);
                    let waker = if answer.is_none() { state.swap_waker(self.number, None) } else { None };
                    (answer, waker)
                };
                if let Some(answer) = answer {
                    self.progress = Progress::Ready;
                    return Poll::Ready(answer);
                }
                // Cloned, compared and dropped outside the lock: a waker is somebody else's code.
                let waker =
                    waker.filter(|waker| waker.will_wake(cx.waker())).unwrap_or_else(|| cx.waker().clone());
                self.run.lock().swap_waker(self.number, Some(waker));
                Poll::Pending
            }
            Progress::Ready => Poll::Pending,
        }
    }
}

impl Leaf {
    /// Records the step as one to undo what follows, in place of asking for it.
    pub(crate) fn compensate(self, ask: Ask) {
        let Ask { kind, name, digest, work } = ask;
        let step = Step { number: self.number, kind, name: name.into(), digest, line: self.at.into() };
        self.run.compensate(step, work, self.at);
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        // Elsewhere the machine is left alone: it abandons what is open by itself when the run ends.
        if self.progress == Progress::Asked && self.run.drops_here() {
            let waker = self.run.lock().abandon(self.number);
            drop(waker);
        }
    }
}

/// A wait for a signal.
///
/// # Cancel safety
/// Dropping it gives a signal back that it has not looked at.
pub(crate) struct MailboxLeaf {
    run: Arc<Run>,
    name: &'static str,
    ticket: Option<u64>,
}

impl MailboxLeaf {
    pub(crate) fn new(run: Arc<Run>, name: &'static str) -> Self {
        Self { run, name, ticket: None }
    }

    /// As [`Leaf::is_in_place`].
    pub(crate) fn is_in_place(&self) -> bool {
        in_place(&self.run, format_args!("`recv` of the signal `{}`", self.name))
    }

    /// Ends the run: the value is not what the workflow declares.
    pub(crate) fn fail(&self, failure: Failure) {
        let message = format!("the signal `{}`: {}", self.name, failure.message);
        self.run.fail(Failure::new(failure.kind, message));
    }

    /// Ready with the next value. The caller has checked that this run is being polled.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Payload> {
        let Some(ticket) = self.ticket else {
            let mut waker = Some(cx.waker().clone());
            let received = {
                let mut state = self.run.lock();
                state.moves += 1;
                state.mailboxes.receive(self.name, &mut waker)
            };
            return match received {
                Ok(value) => Poll::Ready(value),
                Err(ticket) => {
                    self.ticket = Some(ticket);
                    Poll::Pending
                }
            };
        };
        let (given, waker) = {
            let mut state = self.run.lock();
            let given = state.mailboxes.given(self.name, ticket);
            let waker =
                if given.is_none() { state.mailboxes.swap_waker(self.name, ticket, None) } else { None };
            (given, waker)
        };
        if let Some(value) = given {
            self.ticket = None;
            return Poll::Ready(value);
        }
        let waker = waker.filter(|waker| waker.will_wake(cx.waker())).unwrap_or_else(|| cx.waker().clone());
        self.run.lock().mailboxes.swap_waker(self.name, ticket, Some(waker));
        Poll::Pending
    }
}

impl Drop for MailboxLeaf {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        if self.run.drops_here() {
            let (own, next) = self.run.lock().mailboxes.leave(self.name, ticket);
            drop(own);
            if let Some(next) = next {
                self.run.deliver(next);
            }
        }
    }
}

/// Whether `run` is being polled by this thread.
pub(super) fn in_place(run: &Arc<Run>, what: fmt::Arguments<'_>) -> bool {
    if run.is_here() && !std::thread::panicking() {
        return true;
    }
    match context::here() {
        Here::Dropping(_) => false,
        Here::Workflow(_) => panic!("{what} was built in another run, or in an earlier life of this one"),
        Here::Outside | Here::Delivering(_) | Here::Activity(_) => {
            let words = format!(
                "{what} was awaited outside the workflow that built it, in a task that was spawned from there? Await \
                 it in the workflow; `join!` and `workflow::spawn` do things at the same time"
            );
            run.refuse(words.clone());
            panic!("{words}")
        }
    }
}
