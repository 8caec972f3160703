//! D: timers. R-08: deadlines are absolute. R-09: timers at the edges.

use std::time::{Duration, SystemTime};

use composer_runtime::{RunFilter, Status};
use composer_sdk::{
    FailureKind,
    id::Timestamp,
    prelude::*,
    workflow::{now, sleep_until},
};
use composer_tests::kit::{Command, note, sleep as nap, step, wait, workflow::GO};
use serde_json::{Value, json};

use super::{
    Answer, projection, scenario,
    world::{details, due_of, parked, start, until_line, until_lines, until_status},
};

scenario! {
    async fn d1_a_sleep_ends_no_sooner_than_its_instant_in_the_journal(world) {
        let worker = world.at_work().await;
        let run = start(&world.composer().await, [nap(1_000)]).await;
        parked(&run).await;
        let due = run.status().await.unwrap().due_at.expect("a sleeping run has its wake-up time");
        assert_eq!(details(&run, "timer_set").await, [format!("due {}", due.as_micros())]);
        assert_eq!(run.result().await.unwrap().unwrap(), [Value::Null]);
        let row = run.status().await.unwrap();
        let length = due.since(row.started_at.unwrap());
        assert_eq!(length, Duration::from_secs(1));
        assert!(row.closed_at.unwrap() >= due, "{row:?}");
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn d3_an_hours_sleep_is_a_row_and_takes_no_place(world) {
        let worker = world.worker().await.max_runs(1).max_activities(1).start().await.unwrap();
        let composer = world.composer().await;
        let run = start(&composer, [nap(3_600_000)]).await;
        parked(&run).await;
        let waiting = RunFilter { statuses: vec![Status::Parked], ..RunFilter::default() };
        let listed = composer.list(&waiting, None).await.unwrap();
        assert_eq!(listed.iter().map(|row| row.run_id).collect::<Vec<_>>(), [run.run_id()]);
        let row = &listed[0];
        let left = row.due_at.unwrap().since(row.created_at);
        assert!((3_590..3_700).contains(&left.as_secs()), "{left:?}");
        assert_eq!(row.session, None);
        // There is room for one run, and it is free.
        let other = start(&composer, [step("other").into()]).await;
        assert_eq!(other.result().await.unwrap().unwrap(), [json!("other")]);
        run.cancel("seen enough").await.unwrap();
        until_status(&run, Status::Cancelled).await;
        worker.shutdown().await.unwrap();
    }
}

/// Timers that are ready at once, and one that is not, in one life and the next.
#[workflow]
async fn at_once() -> Result<u64> {
    sleep(Duration::ZERO).await;
    sleep_until(SystemTime::UNIX_EPOCH).await;
    sleep_until(now() - Duration::days(1)).await;
    sleep(Duration::from_nanos(1)).await;
    let before = now();
    sleep(Duration::from_millis(500)).await;
    let slept = now().duration_since(before).expect("time goes forward");
    GO.recv().await;
    Ok(slept.as_millis() as u64)
}

scenario! {
    async fn d5_r09_zero_and_past_pass_at_once_and_are_journaled_alike_on_replay(world) {
        let worker = world.worker().await.workflow::<at_once>().start().await.unwrap();
        let run = world.composer().await.start(at_once()).await.unwrap();
        until_lines(&run, "timer_fired", 5).await;
        parked(&run).await;
        run.signal(&GO, json!(1)).await.unwrap();
        let slept = run.result().await.unwrap().unwrap();
        assert!((500..5_000).contains(&slept), "{slept} ms");
        let timer = ["timer_set sleep", "timer_fired"];
        let lines = [vec!["started at_once"], timer.repeat(5), vec!["signal go", "run_completed"]].concat();
        assert_eq!(projection(&run).await, lines);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn d7_clock_and_randomness_are_the_same_after_a_kill(world) {
        let mut first = world.process();
        let commands = [note("a"), note("b"), wait(), note("c"), nap(10), note("d")];
        let run = start(&world.composer().await, commands).await;
        world.effects.arrived("b", 1).await;
        parked(&run).await;
        first.kill();

        let mut second = world.process();
        run.signal(&GO, json!(1)).await.unwrap();
        let values = run.result().await.unwrap().unwrap();
        for (place, name) in [(0, "a"), (1, "b"), (3, "c"), (5, "d")] {
            let calls = world.effects.calls(name);
            assert_eq!(calls.len(), 1, "{name}");
            assert_eq!(values[place], calls[0].body, "{name}: sent live, returned by the last replay");
        }
        let numbers: Vec<_> = [0, 1, 3, 5].map(|place| values[place][1].as_u64().unwrap()).to_vec();
        let mut different = numbers.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), 4, "random numbers differ: {numbers:?}");
        let times = [0, 1, 3, 5].map(|place| values[place][0].as_i64().unwrap());
        assert!(times.is_sorted(), "{times:?}");
        second.kill();
    }
}

scenario! {
    async fn d7_a_side_effect_gives_the_same_after_a_kill_and_is_one_line(world) {
        let mut first = world.process();
        world.effects.hold("sent");
        let commands = [Command::Ask("sent".into()), Command::AskInVain("no such thing".into()), wait()];
        let run = start(&world.composer().await, commands).await;
        world.effects.arrived("sent", 1).await;
        first.kill();
        world.effects.open("sent");

        let mut second = world.process();
        world.effects.arrived("sent", 2).await;
        parked(&run).await;
        run.signal(&GO, json!(1)).await.unwrap();
        let values = run.result().await.unwrap().unwrap();
        let sent: Vec<_> = world.effects.calls("sent").into_iter().map(|call| call.body).collect();
        assert_eq!(sent, [json!([first.id(), 0]), json!([first.id(), 0])], "of the process that is dead");
        assert_eq!(values, [sent[0].clone(), json!("no such thing"), json!(1)]);
        assert_eq!(
            projection(&run).await,
            [
                "started interpret",
                "side_effect",
                "step_scheduled effect",
                "step_completed effect #1",
                "side_effect_failed",
                "signal go",
                "run_completed",
            ]
        );
        let details = [details(&run, "side_effect").await, details(&run, "side_effect_failed").await];
        assert!(details[0][0].contains("workflow.rs:"), "{details:?}");
        assert_eq!(details[1], ["no such thing"]);
        second.kill();
    }
}

scenario! {
    async fn r08_a_timer_that_came_due_while_all_were_down_fires_at_once(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        // Overdue timers fire in the order of their instants, whatever that of the code.
        let branches = [700, 500, 600].map(|ms| vec![nap(ms), step("woken").into()]);
        let run = start(&composer, [Command::Join(branches.to_vec())]).await;
        parked(&run).await;
        let armed = due_of(&run, 0).await;
        worker.shutdown().await.unwrap();
        world.until(armed.saturating_add(Duration::from_millis(300))).await;

        let worker = world.at_work().await;
        run.result().await.unwrap().unwrap();
        let fired: Vec<_> = run.journal().await.unwrap();
        let fired: Vec<_> =
            fired.iter().filter(|line| line.kind == "timer_fired").map(|line| line.step.unwrap()).collect();
        assert_eq!(fired, [2, 3, 1], "in due order");
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r08_a_wait_keeps_its_deadline_across_a_kill(world) {
        let mut first = world.process();
        let run = start(&world.composer().await, [Command::Wait { ms: Some(2_000) }]).await;
        until_line(&run, "timer_set").await;
        let due = due_of(&run, 0).await;
        world.until(Timestamp::from_micros(due.as_micros() - 1_000_000)).await;
        first.kill();

        let mut second = world.process();
        assert_eq!(run.result().await.unwrap().unwrap(), [json!("nothing")]);
        let late = run.status().await.unwrap().closed_at.unwrap().since(due);
        assert!(late < Duration::from_millis(1_500), "late by {late:?}: the wait began anew");
        assert_eq!(details(&run, "timer_set").await.len(), 1);
        second.kill();
    }
}

scenario! {
    async fn r08_a_run_timeout_passes_while_all_are_down(world) {
        let composer = world.composer().await;
        let start = composer.start_json("interpret", json!([[{ "wait": { "ms": null } }]]));
        let run = start.id("late").timeout(Duration::from_millis(400)).await.unwrap();
        let deadline = run.status().await.unwrap().deadline.expect("a run with a timeout has a deadline");
        world.until(deadline).await;

        let worker = world.at_work().await;
        until_status(&run, Status::Failed).await;
        let run = composer.get::<composer_tests::kit::workflow::interpret>("late").await.unwrap();
        let error = run.result().await.unwrap().unwrap_err();
        assert_eq!(error.failure().unwrap().kind, FailureKind::TimedOut, "{error:#}");
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r08_a_parked_run_ends_at_its_timeout(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        let start = composer.start_json("interpret", json!([[{ "wait": { "ms": null } }]]));
        let run = start.timeout(Duration::from_millis(900)).await.unwrap();
        parked(&run).await;
        until_status(&run, Status::Failed).await;
        let row = run.status().await.unwrap();
        assert!(row.closed_at.unwrap() >= row.deadline.unwrap(), "{row:?}");
        worker.shutdown().await.unwrap();
    }
}

#[workflow]
async fn far_away() -> Result<()> {
    // Dropped without a poll: not even asked for.
    drop(sleep(Duration::from_secs(1)));
    sleep(Duration::days(3_653)).await;
    Ok(())
}

#[workflow]
async fn beyond(seconds: u64) -> Result<()> {
    sleep(Duration::from_secs(seconds)).await;
    Ok(())
}

scenario! {
    async fn r09_ten_years_are_exact_and_the_end_of_time_is_an_error_in_words(world) {
        let worker = world.worker().await.workflow::<far_away>().workflow::<beyond>().start().await.unwrap();
        let composer = world.composer().await;
        let far = composer.start(far_away()).await.unwrap();
        parked(&far).await;
        let row = far.status().await.unwrap();
        assert_eq!(row.due_at.unwrap().since(row.started_at.unwrap()), Duration::days(3_653));
        far.cancel("nobody waits that long").await.unwrap();

        let never = composer.start(beyond(u64::MAX)).await.unwrap();
        let error = never.result().await.unwrap().unwrap_err();
        assert_eq!(error.failure().unwrap().kind, FailureKind::Refused, "{error:#}");
        let reason = never.status().await.unwrap().reason.unwrap();
        assert!(reason.contains("sleep") && reason.contains("timers.rs"), "{reason}");
        assert_eq!(projection(&never).await, ["started beyond", "run_failed"], "nothing was armed");
        until_status(&far, Status::Cancelled).await;
        worker.shutdown().await.unwrap();
    }
}

#[workflow]
async fn crowd(timers: u32, until: Timestamp) -> Result<usize> {
    let timers =
        (0..timers).map(|n| sleep_until((until.saturating_add(Duration::from_micros(u64::from(n)))).into()));
    Ok(futures::future::join_all(timers).await.len())
}

scenario! {
    async fn r09_ten_thousand_timers_of_one_second_fire(world) {
        let worker = world.worker().await.workflow::<crowd>().start().await.unwrap();
        let composer = world.composer().await;
        let until = Timestamp::from(SystemTime::now()).saturating_add(Duration::from_secs(2));
        let mut runs = vec![];
        for _ in 0..10 {
            runs.push(composer.start(crowd(1_000, until)).await.unwrap());
        }
        for run in &runs {
            assert_eq!(run.result().await.unwrap().unwrap(), 1_000);
            let late = run.status().await.unwrap().closed_at.unwrap().since(until);
            assert!(late < Duration::from_secs(30), "{late:?}");
        }
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r08_a_retry_that_came_due_while_all_were_down_begins_at_once(world) {
        let worker = world.at_work().await;
        world.effects.script("again", [Answer::Status(500, "not now")]);
        let retried = step("again").first(Duration::from_millis(1_500));
        let run = start(&world.composer().await, [retried.into()]).await;
        until_line(&run, "attempt_failed").await;
        let due = {
            // The delay is long enough for the run to be parked over it.
            parked(&run).await;
            run.status().await.unwrap().due_at.unwrap()
        };
        worker.shutdown().await.unwrap();
        world.until(due).await;

        let worker = world.at_work().await;
        run.result().await.unwrap().unwrap();
        let late = run.status().await.unwrap().closed_at.unwrap().since(due);
        assert!(late < Duration::from_millis(1_400), "the delay began anew: {late:?}");
        assert_eq!(world.effects.count("again"), 2);
        worker.shutdown().await.unwrap();
    }
}
