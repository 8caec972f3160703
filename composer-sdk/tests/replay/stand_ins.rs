//! What stands in for an activity gets the arguments as they are declared.

use std::{marker::PhantomData, sync::Arc};

use composer_sdk::{
    __private::Lends,
    Activity,
    activity::{ActivityCx, ActivityInfo, Attempted, States, Verdict},
    id::Timestamp,
    journal::Outcome,
    payload::Payload,
    prelude::*,
};

#[activity]
async fn nothing() -> u32 {
    0
}
#[activity]
async fn one(order: &[u32]) -> Result<u32> {
    Ok(order.len() as u32)
}
#[activity(blocking)]
fn many(#[state] _unit: &String, address: &str, grams: u32) -> u32 {
    address.len() as u32 + grams
}
/// Its list of types depends on the build.
#[activity]
async fn conditional(n: u32, #[cfg(any())] gone: u8) -> u32 {
    n
}

/// One attempt by a stand-in.
struct By<A>(PhantomData<A>);

fn by<A: Activity>() -> By<A> {
    By(PhantomData)
}

impl<A: Activity> By<A> {
    fn with<F>(self, input: &str, mut stand_in: F) -> Attempted
    where
        A: Lends<F, A::Output>,
    {
        let info = ActivityInfo {
            run_id: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
            workflow_id: "id".parse().unwrap(),
            workflow: "w",
            step: 7,
            name: A::NAME,
            attempt: 2,
            scheduled_at: Timestamp::from_micros(0),
        };
        let cx = ActivityCx::new(info, Arc::new(States::default()));
        Attempted::by::<A, F>(&Payload::from(input.as_bytes()), cx, &mut stand_in)
    }
}

#[track_caller]
fn gives(attempted: Attempted, json: &str) {
    assert_eq!(attempted.outcome, Outcome::Ok(Payload::from(json.as_bytes())), "{attempted:?}");
}

#[test]
fn no_argument_one_and_many_arrive_as_they_are_declared() {
    gives(by::<nothing>().with("[]", || 3), "3");
    gives(by::<one>().with("[[1,2]]", |order| Ok(order[1])), "2");
    gives(by::<many>().with("[\"abc\",4]", |address, grams| address.len() as u32 * grams), "12");
    gives(by::<conditional>().with("[5]", |list| list.decode::<[u32; 1]>().unwrap()[0]), "5");
}

#[test]
fn its_errors_are_judged_as_those_of_the_activity() {
    let failed = by::<one>().with("[[]]", |_| Err(Error::permanent("no")));
    assert_eq!((failed.error.as_str(), failed.retry), ("no", Verdict::Final));
    let failed = by::<one>().with("[[]]", |_| Err(Error::new("no")));
    assert_eq!(failed.retry, Verdict::Retry { after: None });
}

#[test]
fn arguments_that_cannot_be_read_are_an_outcome_and_it_is_not_called() {
    let refused = by::<one>().with("[\"x\"]", |_| panic!("called"));
    assert!(refused.error.contains("the argument `order` cannot be read as"), "{}", refused.error);
    let refused = by::<nothing>().with("[1]", || panic!("called"));
    assert!(refused.error.contains("more arguments than the 0"), "{}", refused.error);
}

#[test]
fn it_may_ask_what_the_activity_may_ask() {
    let key = "01890a5d-ac96-774b-bcce-b302099a8057-7";
    gives(
        by::<nothing>().with("[]", || activity::attempt() + u32::from(activity::idempotency_key() == key)),
        "3",
    );
}
