//! The words for calls that are awaited where they cannot be durable.
//!
//! Each says what happened, where the call was built, and what to write instead.

use std::{panic::Location, task::Poll};

use super::{Call, Options, Origin};
use crate::{
    context::{self, Here},
    definition::{BodyFuture, Definition, Env, Role},
    error::Failure,
    journal::Outcome,
    payload::Payload,
    replay::line,
};

/// How this crate looks when it is there twice.
const TWICE: &str = "(Two versions of composer-sdk in one binary look the same: see `cargo tree -d`.)";

impl<D: Definition> Call<D> {
    /// Panics with the words for this place, and leaves them with the run, if there is one.
    pub(super) fn refuse_place(&self) -> Poll<D::Output> {
        let words = self.words();
        if let Some(run) = self.origin.run() {
            run.refuse(words.clone());
        }
        panic!("{words}")
    }

    fn words(&self) -> String {
        let (name, at) = (D::NAME, self.line());
        let here = context::look(|here| match here {
            Here::Workflow(_) => "a workflow",
            Here::Activity(_) => "an activity",
            _ => "",
        });
        match (&self.origin, here) {
            (Origin::Outside, "") => format!(
                "`{name}` was awaited outside a workflow ({at}). In a workflow, await it there, not in a spawned \
                 task; a client starts a workflow with `composer.start(..)`; to run the function itself, write \
                 `{name}::run(..)`. {TWICE}"
            ),
            (Origin::Outside, place) => format!(
                "`{name}` was built outside ({at}) and awaited in {place}: build it where it is awaited. {TWICE}"
            ),
            (Origin::Workflow(_), "") => format!(
                "`{name}`, built in a workflow ({at}), was awaited outside of it, in a spawned task? Await it in the \
                 workflow; `join!` and `workflow::spawn` do things at the same time"
            ),
            (Origin::Workflow(_), "a workflow") => format!(
                "`{name}` was built in one run ({at}) and awaited in another, or in a later life of its own: build it \
                 where it is awaited"
            ),
            (Origin::Workflow(_), _) => {
                format!(
                    "`{name}`, built in a workflow ({at}), was awaited in an activity: build it where it is awaited"
                )
            }
            (Origin::Activity(_), "") => format!(
                "`{name}`, built in an activity ({at}), was awaited in a task that was spawned from there. To run the \
                 function itself, write `{name}::run(..)`"
            ),
            (Origin::Activity(_), place) => {
                format!(
                    "`{name}`, built in one activity ({at}), was awaited in {place}: build it where it is awaited"
                )
            }
            (Origin::Inert, _) => format!("`{name}`, built in `Drop` code ({at}), does nothing"),
        }
    }
}

/// The body of a plain call inside an activity.
///
/// # Panics
/// With the words for what cannot be called plainly; in an activity that is a failed attempt.
pub(super) fn plain_body<D: Definition>(
    input: &Result<Payload, Failure>,
    options: &Options,
    at: &'static Location<'static>,
    env: Env<'static>,
) -> BodyFuture<'static, D::Output> {
    let (name, at) = (D::NAME, line(at));
    let Role::Activity { body, blocking, .. } = D::ROLE else {
        panic!(
            "the workflow `{name}` was awaited inside an activity ({at}): start it through a client, or write \
             `{name}::run(..)` to run the function itself"
        )
    };
    assert!(
        !blocking,
        "`{name}` blocks its thread and was awaited inside an activity ({at}): write `{name}::run(..)`"
    );
    assert!(
        matches!(options, Options::Default),
        "`{name}` was awaited inside an activity ({at}), where it is a plain call: `queue`, `retry` and the timeouts \
         would be ignored. Leave them out, or call `{name}` from the workflow"
    );
    match input.as_ref().map_err(Clone::clone).and_then(|input| body(input, env)) {
        Ok(body) => body,
        Err(failure) => Box::pin(async move {
            D::decode(&Outcome::Failed(failure))
                .unwrap_or_else(|failure| panic!("`{name}` ({at}): {failure}"))
        }),
    }
}
