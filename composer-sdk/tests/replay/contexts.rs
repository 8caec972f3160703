//! Where a call is built and where it is awaited decide what it is; what cannot be durable is refused in words.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
};

use composer_sdk::{
    Call,
    activity::{ActivityCx, ActivityEntry, ActivityInfo, Attempted, States, Verdict},
    call::StartRefused,
    id::Timestamp,
    journal::Outcome,
    options::Retry,
    payload::Payload,
    prelude::*,
    replay::Command,
};
use futures::{executor::block_on, future::FusedFuture};

use crate::sim::{Alarm, Sim, start, start_with};

#[activity]
async fn add(a: u32, b: u32) -> u32 {
    a + b
}

#[activity]
async fn fact(n: u64) -> u64 {
    if n < 2 { 1 } else { n * fact(n - 1).await }
}

#[workflow]
async fn child(n: u32) -> u32 {
    n
}

fn panic_of<T>(f: impl FnOnce() -> T) -> String {
    let panic = std::panic::catch_unwind(AssertUnwindSafe(|| drop(f()))).unwrap_err();
    match panic.downcast::<String>() {
        Ok(words) => *words,
        Err(panic) => (*panic.downcast::<&'static str>().unwrap()).to_owned(),
    }
}

#[track_caller]
fn says(words: &str, wanted: &[&str]) {
    for word in wanted {
        assert!(words.contains(word), "`{word}` is missing in: {words}");
    }
}

fn cx() -> Arc<ActivityCx> {
    let info = ActivityInfo {
        run_id: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
        workflow_id: "order-1".parse().unwrap(),
        workflow: "w",
        step: 3,
        name: "a",
        attempt: 2,
        scheduled_at: Timestamp::from_micros(5),
    };
    ActivityCx::new(info, Arc::new(States::default()))
}

/// One attempt with these arguments.
fn attempt<A: composer_sdk::Activity>(input: &str) -> Attempted {
    block_on(ActivityEntry::of::<A>().attempt(&Payload::from(input.as_bytes()), cx()))
}

#[test]
fn a_call_may_go_anywhere() {
    fn anywhere<T: Send + Sync + Unpin + FusedFuture + std::fmt::Debug + 'static>(_: T) {}
    anywhere(add(1, 2));
    anywhere(child(1));
}

#[test]
fn a_call_awaited_nowhere_durable_says_what_to_write() {
    let words = panic_of(|| block_on(add(1, 2)));
    says(
        &words,
        &[
            "`add` was awaited outside a workflow",
            "contexts.rs:",
            "`add::run(..)`",
            "composer.start",
            "cargo tree",
        ],
    );
}

#[test]
fn a_call_built_in_one_run_and_awaited_in_another_is_refused() {
    static KEPT: Mutex<Option<Call<add>>> = Mutex::new(None);
    #[workflow]
    async fn keeps() -> u32 {
        *KEPT.lock().unwrap() = Some(add(1, 1));
        add(2, 2).await
    }
    #[workflow]
    async fn uses() -> u32 {
        let call = KEPT.lock().unwrap().take().unwrap();
        call.await
    }
    let keeps = Sim::of(keeps());
    let uses = Sim::of(uses());
    says(&uses.stuck(), &["panicked", "built in one run", "contexts.rs:"]);
    drop(keeps);
}

#[test]
fn a_call_polled_by_a_spawned_task_makes_its_run_stuck_with_its_line() {
    static KEPT: Mutex<Option<Call<add>>> = Mutex::new(None);
    #[workflow]
    async fn spawns() -> u32 {
        *KEPT.lock().unwrap() = Some(add(1, 1));
        add(2, 2).await
    }
    let alarm = Alarm::default();
    let mut sim = Sim::new(start_with(spawns(), &alarm), 0);
    let call = KEPT.lock().unwrap().take().unwrap();
    let words = panic_of(|| block_on(call));
    says(&words, &["built in a workflow", "spawned task"]);
    assert_eq!(alarm.rings(), 1);
    sim.drive();
    assert_eq!(sim.stuck(), words);
}

#[test]
fn a_start_inside_a_workflow_is_refused() {
    #[workflow]
    async fn starts() -> String {
        let refused = child(1).into_start().unwrap_err();
        assert!(matches!(refused, StartRefused::InsideWorkflow { workflow: "child", .. }));
        refused.to_string()
    }
    says(&Sim::of(starts()).value::<String>(), &["cannot be started from there"]);
    let request = child(7).id("seven").tag("team", "a").run_timeout(Duration::days(1)).into_start().unwrap();
    assert_eq!(request.workflow, "child");
    assert_eq!(request.input.as_bytes(), b"[7]");
    assert_eq!(request.id.unwrap().as_str(), "seven");
    assert_eq!(request.tags["team"], "a");
    assert!(matches!(child(1).id("").into_start(), Err(StartRefused::Id(_))));
}

#[test]
fn a11_a_call_inside_an_activity_is_a_plain_call() {
    let attempted = attempt::<fact>("[5]");
    assert_eq!(attempted.outcome, Outcome::Ok(Payload::encode(&120_u64).unwrap()));
    assert_eq!(attempted.retry, Verdict::Final);

    #[workflow]
    async fn body() -> (u64, u32) {
        (fact(5).await, add(1, 1).await)
    }
    let sim = Sim::of(body()).with::<fact>().with::<add>().run();
    assert_eq!(sim.value::<(u64, u32)>(), (120, 2));
    let numbers: Vec<u32> = sim.commands.iter().map(Command::step).collect();
    assert_eq!(numbers, [1, 2]);
}

#[test]
fn a_plain_call_refuses_what_it_would_ignore() {
    #[activity]
    async fn with_options() -> u32 {
        add(1, 1).queue("far").await
    }
    #[activity]
    async fn with_a_workflow() -> u32 {
        child(1).await
    }
    #[activity(blocking)]
    fn blocks() -> u32 {
        1
    }
    #[activity]
    async fn with_blocking() -> u32 {
        blocks().await
    }
    #[activity]
    async fn spawned() -> u32 {
        let call = add(1, 1);
        std::thread::spawn(|| block_on(call)).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
    says(&panic_of(|| attempt::<with_options>("[]")), &["`add`", "would be ignored"]);
    says(
        &panic_of(|| attempt::<with_a_workflow>("[]")),
        &["`child` was awaited inside an activity", "through a client"],
    );
    says(&panic_of(|| attempt::<with_blocking>("[]")), &["`blocks::run(..)`"]);
    says(&panic_of(|| attempt::<spawned>("[]")), &["spawned from there", "`add::run(..)`"]);
}

#[test]
fn an_activity_knows_its_attempt_and_hears_that_it_should_stop() {
    #[activity]
    async fn asks() -> (u32, String, bool, String) {
        let info = activity::info();
        (
            activity::attempt(),
            activity::idempotency_key(),
            activity::is_cancelled(),
            info.workflow_id.to_string(),
        )
    }
    let attempted = attempt::<asks>("[]");
    let Outcome::Ok(value) = attempted.outcome else { panic!() };
    let wanted = (2, "01890a5d-ac96-774b-bcce-b302099a8057-3".to_owned(), false, "order-1".to_owned());
    assert_eq!(value.decode::<(u32, String, bool, String)>().unwrap(), wanted);

    #[activity]
    async fn waits() -> u8 {
        activity::cancelled().await;
        7
    }
    let cx = cx();
    let mut attempt = ActivityEntry::of::<waits>().attempt(&Payload::from(b"[]".as_slice()), cx.clone());
    let mut task = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(attempt.as_mut().poll(&mut task).is_pending());
    cx.cancel();
    assert!(attempt.as_mut().poll(&mut task).is_ready());
    says(&panic_of(activity::info), &["outside an activity"]);
}

#[test]
fn state_is_found_by_type() {
    #[derive(Clone)]
    struct Partner(u32);
    #[activity]
    async fn uses(#[state] by_value: Partner, #[state] by_ref: &Partner, n: u32) -> u32 {
        by_value.0 + by_ref.0 + n
    }
    let entry = ActivityEntry::of::<uses>();
    let mut states = States::default();
    assert!(entry.needs().iter().all(|need| !states.has(need)));
    assert!(entry.needs()[0].type_name.ends_with("Partner"));
    let input = Payload::from(b"[1]".as_slice());
    let missing = block_on(entry.attempt(&input, cx()));
    says(&missing.error, &["no state of type", "Partner", ".state(..)"]);
    // The last one of a type wins.
    assert!(states.insert(Partner(1)) && !states.insert(Partner(20)));
    assert!(entry.needs().iter().all(|need| states.has(need)));
    let cx = ActivityCx::new(cx().info().clone(), Arc::new(states));
    let attempted = block_on(entry.attempt(&input, cx));
    assert_eq!(attempted.outcome, Outcome::Ok(Payload::encode(&41).unwrap()));
}

#[test]
fn r03_input_that_cannot_be_read_is_an_outcome_and_a_panic_unwinds() {
    let attempted = attempt::<add>("[1,\"x\"]");
    says(&attempted.error, &["argument `b`", "u32"]);
    assert_eq!(attempted.retry, Verdict::Final);
    assert!(matches!(attempted.outcome, Outcome::Failed(_)));

    #[activity]
    async fn panics() -> u8 {
        panic!("boom {}", 1)
    }
    assert_eq!(panic_of(|| attempt::<panics>("[]")), "boom 1");
}

#[test]
fn r17_attempts_are_final_or_not_by_mark_predicate_and_type() {
    #[derive(Debug, serde::Serialize, serde::Deserialize, thiserror::Error)]
    enum Hidden {
        #[error(transparent)]
        Step(#[from] Error),
        #[error(transparent)]
        Engine(#[from] composer_sdk::Failure),
    }
    #[activity]
    async fn transparent(permanent: bool) -> Result<u8, Hidden> {
        Err(if permanent { Error::permanent("never") } else { Error::new("later") })?
    }
    #[activity(retry(on = |e: &Error| e.to_string() == "again"))]
    async fn predicate(words: String) -> Result<u8> {
        Err(Error::new(words))
    }
    #[activity]
    async fn nan() -> Result<f64> {
        Ok(f64::NAN)
    }
    let again = Verdict::Retry { after: None };
    assert_eq!(attempt::<transparent>("[true]").retry, Verdict::Final);
    assert_eq!(attempt::<transparent>("[false]").retry, again);
    assert_eq!(attempt::<predicate>("[\"again\"]").retry, again);
    assert_eq!(attempt::<predicate>("[\"no\"]").retry, Verdict::Final);
    assert_eq!(attempt::<nan>("[]").retry, Verdict::Final);
}

#[test]
fn r16_a_bad_policy_is_the_calls_own_failure() {
    #[activity]
    async fn may_fail() -> Result<u8> {
        Ok(1)
    }
    #[workflow]
    async fn body() -> (String, String) {
        let policy = may_fail().retry(Retry::DEFAULT.max_attempts(0)).await.unwrap_err();
        let time = may_fail().timeout(Duration::ZERO).await.unwrap_err();
        (policy.to_string(), time.to_string())
    }
    let sim = Sim::of(body());
    let (policy, time) = sim.value::<(String, String)>();
    says(&policy, &["`may_fail`", "`max_attempts` is 0"]);
    says(&time, &["`.timeout(..)` of zero"]);
    assert!(sim.commands.is_empty(), "no half-made step");
}

#[test]
fn options_after_the_first_poll_are_refused() {
    #[workflow]
    async fn body() -> u32 {
        let mut call = add(1, 1);
        assert!(futures::poll!(&mut call).is_pending());
        call.queue("late").await
    }
    says(&Sim::of(body()).stuck(), &["`.queue(..)`", "polled already", "contexts.rs:"]);
}

#[test]
fn options_at_the_call_reach_the_command() {
    #[activity(timeout = "5s", queue = "own")]
    async fn configured() -> u32 {
        1
    }
    #[workflow]
    async fn body() -> u32 {
        configured().timeout(None).total_timeout(Duration::hours(1)).retry(Retry::NONE).await
            + configured().await
    }
    let sim = Sim::of(body()).with::<configured>();
    let Command::RunActivity { options, .. } = &sim.commands[0] else { panic!() };
    assert_eq!((options.timeout, options.total_timeout), (None, Some(Duration::hours(1))));
    assert_eq!((options.retry, options.queue.as_deref()), (Retry::NONE, Some("own")));
    let sim = sim.run();
    let Command::RunActivity { options, .. } = &sim.commands[1] else { panic!() };
    assert_eq!(options.timeout, Some(Duration::from_secs(5)));
}

#[test]
fn a_call_that_nobody_awaits_is_reported_with_its_line() {
    #[workflow]
    async fn body() -> u32 {
        drop(add(1, 1));
        let _kept = add(2, 2);
        add(3, 3).await
    }
    let mut sim = Sim::of(body()).with::<add>();
    let forgotten = sim.machine.take_forgotten();
    assert_eq!(forgotten.len(), 1);
    says(&forgotten[0], &["`add`", "contexts.rs:", "never awaited"]);
    sim.carry_out(3);
    assert_eq!(sim.machine.take_forgotten().len(), 1, "also what is left at the end");
    assert_eq!(sim.value::<u32>(), 6);
}

#[test]
fn r11_a_refused_argument_fails_that_call_and_nothing_is_asked() {
    #[activity]
    async fn takes(amount: f64) -> Result<u8> {
        Ok(amount as u8)
    }
    #[activity]
    async fn cannot_be_told(amount: f64) -> u8 {
        amount as u8
    }
    #[workflow]
    async fn told() -> String {
        takes(f64::NAN).await.unwrap_err().to_string()
    }
    #[workflow]
    async fn not_told() -> u8 {
        cannot_be_told(f64::NAN).await
    }
    let sim = Sim::of(told());
    says(&sim.value::<String>(), &["the argument `amount`", "NaN"]);
    assert!(sim.commands.is_empty());
    let sim = Sim::of(not_told());
    let reason = sim.finished().reason.clone().unwrap();
    says(&reason, &["`cannot_be_told`", "contexts.rs:", "the argument `amount`"]);
}

#[test]
fn r03_a_panic_makes_the_run_stuck_with_its_text_and_line() {
    #[workflow]
    async fn body() -> u32 {
        let (a, b) = join!(add(1, 1), async {
            if add(2, 2).await == 4 {
                panic!("the answer was {}", 4)
            }
            1
        });
        a + b
    }
    let mut sim = Sim::of(body()).with::<add>();
    sim.carry_out(2);
    says(&sim.stuck(), &["panicked: the answer was 4", "contexts.rs:"]);
    #[workflow]
    async fn odd() -> u32 {
        std::panic::panic_any(5_u8)
    }
    says(&Sim::of(odd()).stuck(), &["carries no text"]);
}

#[test]
fn a_poll_that_panicked_commits_nothing() {
    #[workflow]
    async fn body() -> u32 {
        let call = async { add(1, 1).await };
        join!(call, async { panic!("boom") }).0
    }
    let sim = Sim::of(body());
    assert!(sim.commands.is_empty() && sim.stuck().contains("boom"));
}

#[test]
fn r03_input_of_a_run_that_cannot_be_read_makes_it_stuck() {
    let mut start = start(child(1));
    start.input = Payload::from(b"[\"x\"]".as_slice());
    says(
        &Sim::new(start, 0).stuck(),
        &["input cannot be read by this build", "argument `n`", "u32", "contexts.rs:"],
    );
}
