//! The driver's promises, each shown on a small workflow.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use composer_sdk::{
    Workflow,
    activity::{ActivityCx, ActivityEntry, ActivityInfo, Attempted, States, Verdict},
    id::RunId,
    prelude::*,
    workflow::WorkflowEntry,
};
use futures::executor::block_on;

use super::*;

#[activity(retry(max_attempts = 3, first = "1s", jitter = 0.0))]
async fn double(n: u32) -> Result<u32> {
    if n == 13 {
        return Err(Error::new("thirteen"));
    }
    Ok(n * 2)
}

#[workflow]
async fn chain(n: u32) -> Result<u32> {
    double(double(n).await?).await
}

#[workflow]
async fn race() -> Result<u32> {
    select! {
        () = sleep(Duration::from_secs(5)) => Ok(0),
        n = double(1) => n,
    }
}

#[workflow]
async fn nap() -> u32 {
    sleep(Duration::from_secs(60)).await;
    1
}

#[workflow]
async fn saga() -> Result<u32> {
    compensate(double(3));
    double(1).await
}

#[workflow]
async fn both() -> Result<u32> {
    let (a, b) = join!(double(1), double(2));
    Ok(a? + b?)
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000).saturating_add(Duration::from_secs(seconds))
}

fn start<W: Workflow>(input: &str) -> Start {
    let run_id = RunId::new(at(0));
    Start {
        run_id,
        seed: run_id,
        workflow_id: run_id.into(),
        workflow: WorkflowEntry::of::<W>(),
        input: Payload::from(input.as_bytes().to_vec()),
        started_at: at(0),
        alarm: Arc::new(|| {}),
    }
}

fn fresh<W: Workflow>(input: &str) -> Driver {
    Driver::new(start::<W>(input), &[], 0, at(0), None, "build".into())
}

/// What a worker would do: run the activity for real.
fn perform(attempt: &Attempt) -> AttemptEnd {
    let info = ActivityInfo {
        run_id: RunId::new(at(0)),
        workflow_id: RunId::new(at(0)).into(),
        workflow: "w",
        step: attempt.activity.step.number,
        name: "double",
        attempt: attempt.attempt,
        scheduled_at: attempt.activity.scheduled_at,
    };
    let cx = ActivityCx::new(info, Arc::new(States::default()));
    let entry = ActivityEntry::of::<double>();
    AttemptEnd::Done(block_on(entry.attempt(&attempt.activity.input, cx)))
}

fn report(driver: &mut Driver, attempt: &Attempt, end: AttemptEnd, now: Timestamp) -> Todo {
    driver.attempt_ended(attempt.activity.step.number, attempt.attempt, end, now, 0.5);
    driver.take(now)
}

fn seqs(todo: &Todo) -> Vec<u32> {
    todo.write.iter().flat_map(|write| &write.entries).map(|entry| entry.seq).collect()
}

#[test]
fn a_step_starts_only_when_what_it_depends_on_is_durable() {
    let mut driver = fresh::<chain>("[2]");
    let first = driver.take(at(0));
    assert_eq!((first.start.len(), first.write.is_none()), (1, true));
    let after = report(&mut driver, &first.start[0], perform(&first.start[0]), at(1));
    assert_eq!(seqs(&after), [1]);
    assert!(after.start.is_empty(), "the second step depends on an entry that is not durable yet");
    driver.written(1, u64::MAX, at(1));
    assert_eq!(driver.take(at(1)).start.len(), 1);
}

#[test]
fn the_last_result_and_the_end_share_a_write() {
    let mut driver = fresh::<chain>("[2]");
    let first = driver.take(at(0)).start.remove(0);
    report(&mut driver, &first, perform(&first), at(1));
    driver.written(1, u64::MAX, at(1));
    let second = driver.take(at(1)).start.remove(0);
    let last = report(&mut driver, &second, perform(&second), at(2));
    let write = last.write.expect("the run has ended");
    assert_eq!((write.prev, write.entries.len()), (1, 1));
    let Some(End::Closed { status: Status::Completed, outcome: Outcome::Ok(value), .. }) = write.end else {
        panic!("{:?}", write.end)
    };
    assert_eq!(value.as_bytes(), b"8");
}

#[test]
fn a_failed_attempt_is_journaled_and_rests_before_the_next_one() {
    let mut driver = fresh::<chain>("[13]");
    let first = driver.take(at(0)).start.remove(0);
    let failed = report(&mut driver, &first, perform(&first), at(1));
    let write = failed.write.expect("the failure is journaled");
    assert!(matches!(write.entries[0].event, Event::AttemptFailed { attempt: 1, .. }));
    driver.written(1, u64::MAX, at(1));
    assert!(driver.take(at(1)).start.is_empty(), "it rests for a second");
    assert_eq!(driver.next_instant(), Some(at(2)));
    driver.tick(at(2));
    let second = driver.take(at(2)).start.remove(0);
    assert_eq!(second.attempt, 2);
}

#[test]
fn attempts_are_counted_across_a_crash_and_the_rest_stays_absolute() {
    let mut driver = fresh::<chain>("[13]");
    let first = driver.take(at(0)).start.remove(0);
    let entries = report(&mut driver, &first, perform(&first), at(1)).write.unwrap().entries;
    let mut heir = Driver::new(start::<chain>("[13]"), &entries, 0, at(1), None, "build".into());
    assert!(heir.take(at(1)).start.is_empty());
    heir.tick(at(2));
    assert_eq!(heir.take(at(2)).start[0].attempt, 2);
}

#[test]
fn when_attempts_are_used_up_the_error_reaches_the_workflow_with_its_count() {
    let mut driver = fresh::<chain>("[13]");
    for attempt in 1..=3 {
        let now = at(attempt * 100);
        driver.tick(now);
        let start = driver.take(now).start.remove(0);
        assert_eq!(u64::from(start.attempt), attempt);
        let todo = report(&mut driver, &start, perform(&start), now);
        driver.written(attempt as u32, u64::MAX, now);
        let write = todo.write.unwrap();
        if attempt == 3 {
            let Some(End::Closed { status: Status::Failed, reason: Some(reason), .. }) = write.end else {
                panic!("{:?}", write.end)
            };
            assert!(
                reason.contains("double") && reason.contains("3 attempts") && reason.contains("thirteen"),
                "{reason}"
            );
        }
    }
}

#[test]
fn a_run_ends_only_when_the_loser_of_a_race_has_stopped() {
    let mut driver = fresh::<race>("[]");
    let todo = driver.take(at(0));
    assert!(matches!(todo.write.unwrap().entries[0].event, Event::TimerSet { .. }));
    // The timer was armed before the activity was asked for: the activity waits for that entry.
    driver.written(1, u64::MAX, at(0));
    let start = driver.take(at(0)).start.remove(0);
    driver.tick(at(5));
    let fired = driver.take(at(5));
    assert_eq!(fired.stop, [start.activity.step.number]);
    assert!(fired.write.unwrap().end.is_none(), "the loser is still under way");
    let stopped = report(&mut driver, &start, AttemptEnd::Interrupted, at(5));
    assert!(stopped.write.unwrap().end.is_some());
}

#[test]
fn a_late_result_of_a_loser_changes_nothing() {
    let mut driver = fresh::<race>("[]");
    driver.take(at(0));
    driver.written(1, u64::MAX, at(0));
    let start = driver.take(at(0)).start.remove(0);
    driver.tick(at(5));
    driver.take(at(5));
    let late = report(&mut driver, &start, perform(&start), at(5));
    assert_eq!(seqs(&late), [0_u32; 0]);
}

#[test]
fn a_timer_never_armed_counts_from_the_claim_and_an_armed_one_does_not() {
    let mut late = Driver::new(start::<nap>("[]"), &[], 0, at(1000), None, "build".into());
    let set = late.take(at(1000)).write.unwrap().entries;
    assert!(matches!(set[0].event, Event::TimerSet { due, .. } if due == at(1060)));
    let heir = Driver::new(start::<nap>("[]"), &set, 0, at(5000), None, "build".into());
    assert_eq!(heir.next_instant(), Some(at(1060)));
}

#[test]
fn a_draining_run_begins_nothing_and_says_what_is_left() {
    let mut driver = fresh::<chain>("[2]");
    let first = driver.take(at(0)).start.remove(0);
    driver.drain();
    report(&mut driver, &first, perform(&first), at(1));
    driver.written(1, u64::MAX, at(1));
    assert!(driver.take(at(1)).start.is_empty());
    assert!(driver.is_idle());
    assert_eq!(driver.due(), Err(AtOnce));
}

#[test]
fn a_stopped_attempt_is_not_counted() {
    let mut driver = fresh::<chain>("[2]");
    let first = driver.take(at(0)).start.remove(0);
    driver.stop_all();
    assert_eq!(driver.take(at(0)).stop, [first.activity.step.number]);
    let todo = report(&mut driver, &first, AttemptEnd::Interrupted, at(0));
    assert!(todo.write.is_none() && todo.start.is_empty());
    assert!(driver.is_idle());
}

#[test]
fn a_waiting_run_is_idle_and_due_when_its_timer_is() {
    let mut driver = fresh::<nap>("[]");
    driver.take(at(0));
    assert!(!driver.is_idle(), "the timer is not durable yet");
    driver.written(1, u64::MAX, at(0));
    driver.take(at(0));
    assert!(driver.is_idle());
    assert_eq!(driver.due(), Ok(Some(at(60))));
}

#[test]
fn a_cancelled_run_stops_what_is_under_way_first() {
    let mut driver = fresh::<both>("[]");
    let starts = driver.take(at(0)).start;
    let cancel = Message {
        id: 7,
        run_id: RunId::new(at(0)),
        content: MessageContent::Cancel { reason: "no more".into() },
    };
    driver.mail(vec![cancel.clone(), cancel], at(1));
    let mut todo = driver.take(at(1));
    todo.stop.sort_unstable();
    assert_eq!((seqs(&todo).len(), todo.stop.len()), (1, 2), "one entry for one message, both steps stopped");
    let half = report(&mut driver, &starts[0], AttemptEnd::Interrupted, at(1));
    assert!(half.write.is_none());
    let last = report(&mut driver, &starts[1], AttemptEnd::Interrupted, at(1));
    assert!(matches!(last.write.unwrap().end, Some(End::Closed { status: Status::Cancelled, .. })));
}

#[test]
fn the_runs_own_timeout_ends_it() {
    let mut driver = Driver::new(start::<nap>("[]"), &[], 0, at(0), Some(at(30)), "build".into());
    driver.take(at(0));
    driver.written(1, u64::MAX, at(0));
    assert_eq!(driver.next_instant(), Some(at(30)));
    driver.tick(at(30));
    let end = driver.take(at(30)).write.unwrap().end;
    assert!(matches!(end, Some(End::Closed { status: Status::Failed, .. })), "{end:?}");
}

#[test]
fn other_code_is_stuck_and_starts_nothing() {
    let mut driver = fresh::<chain>("[2]");
    let first = driver.take(at(0)).start.remove(0);
    let entries = report(&mut driver, &first, perform(&first), at(1)).write.unwrap().entries;
    let mut other = Driver::new(start::<nap>("[]"), &entries, 0, at(1), None, "other".into());
    let todo = other.take(at(1));
    assert!(todo.start.is_empty());
    let write = todo.write.unwrap();
    assert!(write.entries.is_empty());
    let Some(End::Stuck { reason, build }) = write.end else { panic!("{:?}", write.end) };
    assert!(reason.contains("double") && reason.contains("a timer"), "{reason}");
    assert_eq!(build, "other");
}

#[test]
fn a_step_that_was_given_up_before_it_left_is_not_waited_for() {
    let mut driver = fresh::<both>("[]");
    // Both attempts are decided, but nobody has taken them yet.
    driver.open_gates(at(0));
    driver.give_up("no such activity".into());
    let todo = driver.take(at(0));
    assert!(todo.start.is_empty() && todo.stop.is_empty());
    assert!(matches!(todo.write.unwrap().end, Some(End::Stuck { .. })));
}

#[test]
fn an_activity_out_of_time_is_not_tried_again() {
    let mut driver = fresh::<chain>("[13]");
    let mut first = driver.take(at(0)).start.remove(0);
    first.activity.options.total_timeout = Some(Duration::from_secs(1));
    let Decision::Deliver(Event::StepDone { gave_up, .. }) =
        decide(&first.activity, 1, perform(&first), at(1), 0.0)
    else {
        panic!("it has no time left")
    };
    assert_eq!(gave_up, Some(composer_sdk::journal::GaveUp::Time));
}

#[test]
fn an_errors_own_delay_replaces_the_policys() {
    let mut driver = fresh::<chain>("[13]");
    let first = driver.take(at(0)).start.remove(0);
    let AttemptEnd::Done(done) = perform(&first) else { unreachable!() };
    let asked = Attempted { retry: Verdict::Retry { after: Some(Duration::from_secs(3)) }, ..done };
    let decision = decide(&first.activity, 1, AttemptEnd::Done(asked), at(0), 0.0);
    assert!(matches!(decision, Decision::Retry { retry_at, .. } if retry_at == at(3)));
}

#[test]
fn a_run_whose_writes_are_refused_rests_for_nobody_and_ticks_no_more() {
    let mut driver = Driver::new(start::<nap>("[]"), &[], 0, at(0), Some(at(10)), "build".into());
    driver.take(at(0));
    driver.forget_unwritten();
    assert!(!driver.is_idle(), "it would be let go before it is set stuck");
    driver.tick(at(20));
    assert_eq!(driver.next_instant(), None, "its deadline would come again and again");
}

#[test]
fn a_journal_that_cannot_be_read_ends_in_stuck_without_a_step() {
    let mut driver = Driver::unreadable("entry 3 is nonsense".into(), at(0), "build".into());
    let todo = driver.take(at(0));
    assert!(todo.start.is_empty());
    let write = todo.write.unwrap();
    assert!(write.entries.is_empty());
    assert!(matches!(write.end, Some(End::Stuck { reason, .. }) if reason.contains("nonsense")));
}

#[test]
fn a_step_whose_time_was_over_before_it_began_says_so() {
    let mut driver = fresh::<chain>("[13]");
    let mut first = driver.take(at(0)).start.remove(0);
    first.activity.options.total_timeout = Some(Duration::from_secs(5));
    assert_eq!(crate::task::activity::time_left(&first.activity, at(9)), Some(Duration::ZERO));
    let Decision::Deliver(Event::StepDone { gave_up, error, .. }) =
        decide(&first.activity, 3, AttemptEnd::OutOfTime, at(9), 0.0)
    else {
        panic!("it has no time left")
    };
    assert_eq!(gave_up, Some(composer_sdk::journal::GaveUp::Time));
    assert!(error.contains("before attempt 3 began"), "{error}");
}

#[test]
fn an_undo_step_begins_only_when_what_it_undoes_has_stopped() {
    let mut driver = fresh::<saga>("[]");
    let step = driver.take(at(0)).start.remove(0);
    let content = MessageContent::Cancel { reason: String::new() };
    driver.mail(vec![Message { id: 1, run_id: RunId::new(at(0)), content }], at(1));
    let cancelled = driver.take(at(1));
    assert_eq!(cancelled.stop, [2]);
    driver.written(1, u64::MAX, at(1));
    assert!(driver.take(at(1)).start.is_empty(), "the step is still under way");
    let undo = report(&mut driver, &step, AttemptEnd::Interrupted, at(2)).start.remove(0);
    assert_eq!(undo.activity.step.number, 1);
    let end = report(&mut driver, &undo, perform(&undo), at(3)).write.unwrap().end;
    assert!(matches!(end, Some(End::Closed { status: Status::Cancelled, .. })), "{end:?}");
}

#[test]
fn a_run_that_is_being_undone_is_past_its_deadline_once() {
    let mut driver = Driver::new(start::<saga>("[]"), &[], 0, at(0), Some(at(10)), "build".into());
    let step = driver.take(at(0)).start.remove(0);
    driver.tick(at(10));
    driver.tick(at(11));
    assert_eq!(seqs(&driver.take(at(11))), [1]);
    assert_eq!(driver.next_instant(), None);
    driver.written(1, u64::MAX, at(11));
    let undo = report(&mut driver, &step, AttemptEnd::Interrupted, at(12)).start.remove(0);
    let Some(End::Closed { status: Status::Failed, reason: Some(reason), .. }) =
        report(&mut driver, &undo, perform(&undo), at(13)).write.unwrap().end
    else {
        panic!("it timed out")
    };
    assert!(reason.contains("timeout"), "{reason}");
}

fn retry(id: i64) -> Message {
    Message { id, run_id: RunId::new(at(0)), content: MessageContent::Retry }
}

#[test]
fn i10_a_retry_request_ends_a_rest_as_soon_as_it_is_durable() {
    let mut driver = fresh::<chain>("[13]");
    let first = driver.take(at(0)).start.remove(0);
    report(&mut driver, &first, perform(&first), at(1));
    driver.written(1, u64::MAX, at(1));
    assert!(driver.take(at(1)).start.is_empty(), "it rests for a second");
    driver.mail(vec![retry(7), retry(7)], at(1));
    let asked = driver.take(at(1));
    assert_eq!(
        (seqs(&asked), asked.start.len()),
        (vec![2], 0),
        "one entry for one message, and no attempt before it"
    );
    assert_eq!(driver.next_instant(), None);
    driver.written(2, u64::MAX, at(1));
    let second = driver.take(at(1)).start.remove(0);
    assert_eq!(second.attempt, 2, "the count is as it was");
    let todo = report(&mut driver, &second, perform(&second), at(1));
    let failed = &todo.write.unwrap().entries[0].event;
    assert!(
        matches!(failed, Event::AttemptFailed { retry_at, .. } if *retry_at == at(3)),
        "{failed:?}: two seconds"
    );
}

#[test]
fn i10_a_retry_request_reaches_a_rest_that_is_not_durable_yet() {
    let mut driver = fresh::<chain>("[13]");
    let first = driver.take(at(0)).start.remove(0);
    report(&mut driver, &first, perform(&first), at(1));
    driver.mail(vec![retry(7)], at(1));
    driver.take(at(1));
    driver.written(1, u64::MAX, at(1));
    assert!(driver.take(at(1)).start.is_empty(), "the request is not durable");
    driver.written(2, u64::MAX, at(1));
    assert_eq!(driver.take(at(1)).start[0].attempt, 2);
    assert_eq!(driver.next_instant(), None);
}

#[test]
fn i10_a_replay_knows_that_a_rest_was_ended() {
    let mut driver = fresh::<chain>("[13]");
    let first = driver.take(at(0)).start.remove(0);
    let mut entries = report(&mut driver, &first, perform(&first), at(1)).write.unwrap().entries;
    driver.mail(vec![retry(7)], at(1));
    entries.extend(driver.take(at(1)).write.unwrap().entries);
    let mut heir = Driver::new(start::<chain>("[13]"), &entries, 0, at(1), None, "build".into());
    assert_eq!(heir.take(at(1)).start[0].attempt, 2);
}

#[test]
fn i10_a_retry_request_changes_nothing_where_nothing_rests() {
    let mut driver = fresh::<both>("[]");
    let starts = driver.take(at(0)).start;
    driver.mail(vec![retry(7)], at(0));
    let asked = driver.take(at(0));
    assert_eq!((seqs(&asked), asked.start.len(), asked.stop.len()), (vec![1], 0, 0));
    driver.written(1, u64::MAX, at(0));
    assert!(driver.take(at(0)).start.is_empty());
    for attempt in &starts {
        report(&mut driver, attempt, perform(attempt), at(1));
    }
    assert!(matches!(driver.end, Some(End::Closed { status: Status::Completed, .. })), "{:?}", driver.end);
}

#[test]
fn i10_an_undo_step_that_waits_for_what_it_undoes_is_begun_once() {
    let mut driver = fresh::<saga>("[]");
    let step = driver.take(at(0)).start.remove(0);
    let content = MessageContent::Cancel { reason: String::new() };
    driver.mail(vec![Message { id: 1, run_id: RunId::new(at(0)), content }, retry(2)], at(1));
    driver.take(at(1));
    driver.written(2, u64::MAX, at(1));
    driver.take(at(1));
    let undo = report(&mut driver, &step, AttemptEnd::Interrupted, at(2)).start;
    assert_eq!(undo.len(), 1);
}

#[workflow]
async fn asks_the_world(n: u32) -> Result<u32> {
    let found = workflow::side_effect(|| 20).await;
    sleep(Duration::from_secs(60)).await;
    double(found + n).await
}

static ASKED: AtomicU32 = AtomicU32::new(0);

#[workflow]
async fn asks_once() -> u32 {
    workflow::side_effect(|| ASKED.fetch_add(1, Ordering::SeqCst)).await;
    workflow::side_effect(|| ASKED.fetch_add(1, Ordering::SeqCst)).await;
    sleep(Duration::from_secs(60)).await;
    0
}

#[workflow]
async fn only_asks_the_world() -> u32 {
    let mut sum = 0;
    for n in 0..1_000 {
        sum += workflow::side_effect(move || n).await;
    }
    sum
}

#[test]
fn what_a_side_effect_gave_is_journaled_and_the_run_goes_on_in_the_same_turn() {
    let mut driver = fresh::<asks_the_world>("[1]");
    let write = driver.take(at(0)).write.expect("two entries");
    let [first, second] = &write.entries[..] else { panic!("{:?}", write.entries) };
    let Event::StepDone { step, attempt: 0, gave_up: None, outcome: Outcome::Ok(value), .. } = &first.event
    else {
        panic!("{first:?}")
    };
    assert_eq!((step.kind, step.number, value.as_bytes()), (StepKind::SideEffect, 1, &b"20"[..]));
    assert!(matches!(&second.event, Event::TimerSet { due, .. } if *due == at(60)));
    driver.written(2, u64::MAX, at(0));
    driver.tick(at(60));
    assert!(driver.take(at(60)).start.is_empty(), "the activity waits for the timer's entry");
    driver.written(3, u64::MAX, at(60));
    let attempt = driver.take(at(60)).start.remove(0);
    assert_eq!(attempt.activity.input.as_bytes(), b"[21]");
}

#[test]
fn a_side_effect_of_which_the_journal_knows_nothing_counts_from_the_claim() {
    let start = start::<asks_the_world>("[1]");
    let mut driver = Driver::new(start.clone(), &[], 0, at(500), None, "build".into());
    let entries = driver.take(at(500)).write.expect("two entries").entries;
    assert_eq!(entries[0].at, at(500));
    assert!(matches!(&entries[1].event, Event::TimerSet { due, .. } if *due == at(560)));
    // With its entry there is nothing to do but to wait.
    let mut driver = Driver::new(start, &entries, 0, at(520), None, "build".into());
    assert!(driver.take(at(520)).write.is_none());
    assert_eq!(driver.next_instant(), Some(at(560)));
}

#[test]
fn a_side_effect_whose_value_the_journal_holds_does_not_run_again() {
    let start = start::<asks_once>("[]");
    let entries =
        Driver::new(start.clone(), &[], 0, at(0), None, "build".into()).take(at(0)).write.unwrap().entries;
    assert_eq!((entries.len(), ASKED.load(Ordering::SeqCst)), (3, 2));
    Driver::new(start.clone(), &entries, 0, at(0), None, "build".into());
    assert_eq!(ASKED.load(Ordering::SeqCst), 2);
    // Of the second the journal knows nothing.
    let mut driver = Driver::new(start, &entries[..1], 0, at(1), None, "build".into());
    assert_eq!((ASKED.load(Ordering::SeqCst), seqs(&driver.take(at(1)))), (3, vec![2, 3]));
}

#[test]
fn a_workflow_that_does_nothing_but_side_effects_waits_for_the_journal_now_and_then() {
    let mut driver = fresh::<only_asks_the_world>("[]");
    let (mut written, mut writes) = (0, 0);
    let end = loop {
        let write = driver.take(at(0)).write.expect("it goes on");
        assert!(write.entries.len() <= AHEAD as usize, "{}", write.entries.len());
        assert!(!driver.is_idle());
        written += write.entries.len() as u32;
        writes += 1;
        if let Some(end) = write.end {
            break end;
        }
        driver.written(written, write.mark, at(0));
    };
    assert_eq!((written, writes), (1_000, 4));
    let End::Closed { outcome: Outcome::Ok(sum), .. } = end else { panic!("{end:?}") };
    assert_eq!(sum.as_bytes(), b"499500");
}

/// Goes on as new while a branch is under way.
#[workflow]
async fn again(n: u32) -> Result<u32> {
    let _branch = composer_sdk::workflow::spawn(async { double(100).await });
    let n = double(n).await?;
    composer_sdk::workflow::continue_as_new(again(n)).await
}

#[test]
fn a_generation_begins_behind_everything_that_was_open() {
    let mut driver = fresh::<again>("[1]");
    let mut begun = driver.take(at(0)).start;
    begun.sort_by_key(|attempt| attempt.activity.input.as_bytes().len());
    let (step, branch) = (&begun[0], &begun[1]);
    let todo = report(&mut driver, step, perform(step), at(1));
    assert_eq!((seqs(&todo), &todo.stop[..]), (vec![1], &[branch.activity.step.number][..]));
    assert!(todo.write.unwrap().end.is_none(), "the branch has not stopped yet");
    driver.written(1, u64::MAX, at(1));
    let todo = report(&mut driver, branch, AttemptEnd::Interrupted, at(2));
    let write = todo.write.expect("now the generation is over");
    assert!(matches!(write.end, Some(End::Continued { base: 2, .. })), "{:?}", write.end);
    assert!(matches!(
        write.entries[..],
        [Entry { seq: 2, event: Event::Continued { generation: 1, steps: 3, .. }, .. }]
    ));
    assert!(driver.take(at(2)).write.is_none(), "once");

    let mut next = Driver::new(start::<again>("[]"), &write.entries, 0, at(2), None, "build".into());
    assert_eq!(next.take(at(2)).start.len(), 2);
}

#[test]
fn a_message_that_was_read_twice_is_taken_once_also_over_a_generations_end() {
    let mut old = fresh::<nap>("[]");
    let message = || {
        let content = MessageContent::Signal { name: "go".into(), payload: Payload::from(b"1".to_vec()) };
        vec![Message { id: 7, run_id: RunId::new(at(0)), content }]
    };
    old.mail(message(), at(1));
    let mut next = fresh::<nap>("[]");
    next.has_heard(old.heard());
    next.take(at(1));
    next.mail(message(), at(1));
    assert!(next.take(at(1)).write.is_none());
}

static STATE: Published<u32> = Published::new("state");

#[workflow]
async fn shows() -> Result<u32> {
    STATE.set(&0);
    let n = double(1).await?;
    STATE.set(&n);
    double(n).await
}

#[test]
fn i7_a_fork_shows_what_its_original_had_shown_by_then() {
    let mut driver = fresh::<shows>("[]");
    let first = driver.take(at(0)).start.remove(0);
    let entries = report(&mut driver, &first, perform(&first), at(1)).write.unwrap().entries;
    let replay =
        |copied| Driver::new(start::<shows>("[]"), &entries, copied, at(1), None, "build".into()).take(at(1));
    let write = replay(1).write.expect("nobody has written it for the fork");
    assert_eq!((write.prev, write.entries.len(), write.published[0].1.as_bytes()), (1, 0, &b"2"[..]));
    assert!(replay(0).write.is_none(), "an heir finds it written");
}

/// Shows something at once, and again after a step.
#[workflow]
async fn shows_again(n: u32) -> Result<u32> {
    STATE.set(&n);
    double(n).await?;
    composer_sdk::workflow::continue_as_new(shows_again(n + 1)).await
}

#[test]
fn what_a_generation_shows_at_once_is_written_also_after_a_crash_in_between() {
    let mut driver = fresh::<shows_again>("[1]");
    let step = driver.take(at(0)).start.remove(0);
    let entries = report(&mut driver, &step, perform(&step), at(1)).write.unwrap().entries;
    let begins = &entries[1..];
    for claimed_at in [begins[0].at, at(100)] {
        let mut next = Driver::new(start::<shows_again>("[]"), begins, 0, claimed_at, None, "build".into());
        let write = next.take(claimed_at).write.expect("nobody has written it");
        assert_eq!((write.entries.len(), write.published[0].1.as_bytes()), (0, &b"2"[..]));
    }
}
