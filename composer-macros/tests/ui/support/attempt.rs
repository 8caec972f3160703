//! One attempt of an activity, from JSON to JSON.

use std::sync::Arc;

use composer_sdk::{
    activity::{Activity, ActivityCx, ActivityEntry, ActivityInfo, Attempted, States},
    id::{RunId, Timestamp},
    journal::Outcome,
    payload::Payload,
};

/// What the workflow would get; `!` stands before an error.
pub(crate) fn attempt<A: Activity>(input: &str) -> String {
    text(&attempt_with::<A>(input, States::default()).outcome)
}

pub(crate) fn attempt_with<A: Activity>(input: &str, states: States) -> Attempted {
    let entry = ActivityEntry::of::<A>();
    let at = Timestamp::from_micros(0);
    let info = ActivityInfo {
        run_id: RunId::new(at),
        workflow_id: "test".parse().expect("it is an id"),
        workflow: "test".into(),
        step: 1,
        name: entry.name.into(),
        attempt: 1,
        scheduled_at: at,
    };
    assert!(entry.needs().iter().all(|need| states.has(need)), "a state is missing");
    let (input, cx) = (Payload::from(input.as_bytes()), ActivityCx::new(info, Arc::new(states)));
    if entry.blocking {
        entry.attempt_blocking(&input, cx)
    } else {
        futures::executor::block_on(entry.attempt(&input, cx))
    }
}

pub(crate) fn text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Ok(value) => String::from_utf8_lossy(value.as_bytes()).into_owned(),
        Outcome::Err(error) => format!("!{}", String::from_utf8_lossy(error.as_bytes())),
        Outcome::Failed(failure) => format!("!! {failure}"),
    }
}
