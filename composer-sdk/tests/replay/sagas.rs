//! Undo steps: recorded before what they undo, run in reverse when the run or its scope fails.

use composer_sdk::{
    journal::{Event, GaveUp, Outcome},
    payload::Payload,
    prelude::*,
    replay::{Command, FinishedStatus, Progress, StuckReason},
    saga,
    workflow::{cancelled, shield},
};

use crate::sim::{Sim, describe, seeds};

#[activity]
async fn work(n: u32) -> Result<u32> {
    if n == 13 { Err(Error::new("thirteen")) } else { Ok(n) }
}

#[activity]
async fn undo(n: u32) -> Result<()> {
    let _ = n;
    Ok(())
}

fn cancel() -> Event {
    Event::CancelRequested { inbox: 1, reason: String::new() }
}

/// The inputs of the undo steps that were asked for, in that order.
fn undone(sim: &Sim) -> Vec<String> {
    let undo = |command: &Command| match command {
        Command::RunActivity { step, input, .. } if step.name == "undo" => {
            Some(String::from_utf8(input.as_bytes().to_vec()).unwrap())
        }
        _ => None,
    };
    sim.commands.iter().filter_map(undo).collect()
}

#[workflow]
async fn order() -> Result<u32> {
    compensate(undo(1));
    let a = work(1).await?;
    compensate(undo(2));
    let b = work(13).await?;
    compensate(undo(3));
    Ok(a + b)
}

#[test]
fn a_failed_run_is_undone_in_reverse_up_to_the_step_that_failed() {
    let sim = Sim::of(order()).with::<work>().with::<undo>().run();
    assert_eq!(sim.finished().status, FinishedStatus::Failed);
    assert_eq!(undone(&sim), ["[2]", "[1]"]);
    sim.check_replays();
}

#[test]
fn a_run_that_succeeds_is_not_undone() {
    #[workflow]
    async fn fine() -> Result<u32> {
        compensate(undo(1));
        work(1).await
    }
    let sim = Sim::of(fine()).with::<work>().with::<undo>().run();
    assert_eq!(sim.finished().status, FinishedStatus::Completed);
    assert_eq!(undone(&sim), [""; 0]);
    sim.check_replays();
}

#[test]
fn a_cancelled_run_stops_what_is_open_and_is_undone() {
    let mut sim = Sim::of(order()).with::<work>().with::<undo>();
    sim.happen(cancel());
    assert_eq!(sim.progress, Progress::Waiting, "it is not over before it is undone");
    let last: Vec<String> = sim.commands.iter().skip(1).map(describe).collect();
    assert_eq!(last, ["1 undo", "2 abandoned"]);
    let sim = sim.run();
    assert_eq!(sim.finished().status, FinishedStatus::Cancelled);
    sim.check_replays();
}

#[test]
fn a_timed_out_run_is_undone_and_a_cancellation_meanwhile_changes_nothing() {
    let mut sim = Sim::of(order()).with::<work>().with::<undo>();
    sim.happen(Event::RunTimedOut);
    sim.happen(cancel());
    let sim = sim.run();
    assert_eq!(sim.finished().status, FinishedStatus::TimedOut);
    assert_eq!(undone(&sim), ["[1]"]);
    sim.check_replays();
}

#[test]
fn what_only_the_last_poll_asked_for_is_never_begun() {
    #[workflow]
    async fn hasty() -> Result<u32> {
        compensate(undo(1));
        let mut late = work(2);
        let _ = futures::poll!(&mut late);
        Err(Error::new("no"))
    }
    let sim = Sim::of(hasty()).with::<work>().with::<undo>().run();
    assert_eq!(sim.commands.iter().map(describe).collect::<Vec<_>>(), ["1 undo"]);
    sim.check_replays();
}

#[test]
fn an_undo_step_that_fails_leaves_the_run_stuck_with_both_reasons() {
    let mut sim = Sim::of(order()).with::<work>().with::<undo>();
    sim.happen(cancel());
    let Command::RunActivity { step, .. } = sim.open[&1].clone() else { panic!() };
    let outcome = Outcome::Err(Payload::from(b"{}".to_vec()));
    let gave_up = Some(GaveUp::Attempts);
    sim.happen(Event::StepDone { step, attempt: 20, error: "the bank is closed".into(), gave_up, outcome });
    let Progress::Stuck(reason @ StuckReason::UndoFailed { .. }) = &sim.progress else {
        panic!("{:?}", sim.progress)
    };
    let words = reason.to_string();
    for part in ["undo", "20 attempts", "the bank is closed", "cancelled", "sagas.rs"] {
        assert!(words.contains(part), "{words}");
    }
    sim.check_replays();
}

#[test]
fn a_scope_undoes_its_own_part_and_gives_its_error() {
    #[workflow]
    async fn body() -> Result<u32> {
        compensate(undo(1));
        let part = saga::scope(async {
            compensate(undo(2));
            compensate(undo(3));
            work(13).await
        });
        if part.await.is_ok() {
            return Ok(0);
        }
        work(4).await
    }
    let sim = Sim::of(body()).with::<work>().with::<undo>().run();
    assert_eq!(sim.finished().status, FinishedStatus::Completed);
    assert_eq!(undone(&sim), ["[3]", "[2]"]);
    sim.check_replays();
}

#[test]
fn a_scope_that_succeeds_leaves_its_undo_steps_to_what_is_around_it() {
    #[workflow]
    async fn body() -> Result<u32> {
        saga::scope(async {
            compensate(undo(1));
            saga::scope(async {
                compensate(undo(2));
                work(2).await
            })
            .await?;
            compensate(undo(3));
            work(3).await
        })
        .await?;
        work(13).await
    }
    let sim = Sim::of(body()).with::<work>().with::<undo>().run();
    assert_eq!(undone(&sim), ["[3]", "[2]", "[1]"]);
    sim.check_replays();
}

#[test]
fn a_commit_forgets_the_undo_steps_of_its_scope_alone() {
    #[workflow]
    async fn body() -> Result<u32> {
        compensate(undo(1));
        saga::scope(async {
            compensate(undo(2));
            work(2).await?;
            saga::commit();
            compensate(undo(3));
            work(13).await
        })
        .await
    }
    let sim = Sim::of(body()).with::<work>().with::<undo>().run();
    assert_eq!(undone(&sim), ["[3]", "[1]"]);
    sim.check_replays();
}

#[test]
fn a_scope_that_loses_a_race_is_undone_with_the_run() {
    #[workflow]
    async fn body() -> Result<u32> {
        let part = saga::scope(async {
            compensate(undo(1));
            sleep(Duration::days(1)).await;
            work(1).await
        });
        select! {
            _ = part => Ok(0),
            n = work(13) => n,
        }
    }
    let mut sim = Sim::of(body()).with::<work>().with::<undo>();
    sim.carry_out(1);
    let sim = sim.run();
    assert_eq!(undone(&sim), ["[1]"]);
    sim.check_replays();
}

#[test]
fn an_undo_step_that_the_last_poll_asked_for_still_runs() {
    #[workflow]
    async fn body() -> Result<u32> {
        let part = saga::scope(async {
            compensate(undo(1));
            Err::<u32, Error>(Error::new("first"))
        });
        try_join!(part, async { Err::<u32, Error>(Error::new("second")) })?;
        Ok(0)
    }
    let sim = Sim::of(body()).with::<work>().with::<undo>().run();
    assert_eq!(sim.finished().status, FinishedStatus::Failed);
    assert_eq!(undone(&sim), ["[1]"]);
    sim.check_replays();
}

#[test]
fn a_cancellation_waits_while_a_scope_undoes() {
    #[workflow]
    async fn body() -> Result<u32> {
        compensate(undo(1));
        let _ = saga::scope(async {
            compensate(undo(2));
            compensate(undo(3));
            Err::<u32, _>(Error::new("no"))
        })
        .await;
        work(4).await
    }
    let mut sim = Sim::of(body()).with::<work>().with::<undo>();
    sim.happen(cancel());
    let sim = sim.run();
    assert_eq!(sim.finished().status, FinishedStatus::Cancelled);
    // Each once, and nothing behind the scope.
    assert_eq!(undone(&sim), ["[3]", "[2]", "[1]"]);
    assert!(sim.commands.iter().all(|command| !describe(command).contains("work")));
    sim.check_replays();
}

#[test]
fn sagas_replay_with_a_cancellation_at_any_moment() {
    #[workflow]
    async fn body() -> Result<u32> {
        compensate(undo(1));
        let part = |n: u32| {
            saga::scope(async move {
                compensate(undo(n));
                let a = work(n).await?;
                compensate(undo(n + 1));
                Ok::<_, Error>(a + work(if n == 10 { 13 } else { n }).await?)
            })
        };
        let (a, b) = join!(part(10), part(20));
        let c = shield(async {
            select! {
                n = work(30) => n,
                () = cancelled() => work(31).await,
            }
        });
        Ok(a.unwrap_or(0) + b? + c.await? + work(13).await?)
    }
    seeds(300, |seed| {
        let mut sim = Sim::new(crate::sim::start(body()), seed).with::<work>().with::<undo>();
        let cancelled_after = seed % 12;
        let mut steps = 0;
        while sim.progress == Progress::Waiting {
            if steps == cancelled_after {
                sim.happen(cancel());
            } else {
                let n = (seed as usize + steps as usize) % sim.open.len();
                let step = *sim.open.keys().nth(n).unwrap();
                sim.carry_out(step);
            }
            steps += 1;
        }
        assert!(matches!(sim.progress, Progress::Done(_)), "seed {seed}: {:?}", sim.progress);
        let undone = undone(&sim);
        let mut once = undone.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), undone.len(), "seed {seed}: {undone:?}");
        assert_eq!(undone.last().map(String::as_str), Some("[1]"), "seed {seed}: {undone:?}");
        sim.check_replays();
    });
}

#[test]
fn a_shield_is_finished_and_nothing_behind_it_runs() {
    #[workflow]
    async fn body() -> Result<u32> {
        shield(async {
            work(1).await?;
            work(2).await
        })
        .await?;
        work(3).await
    }
    let mut sim = Sim::of(body()).with::<work>();
    sim.happen(cancel());
    assert_eq!(sim.progress, Progress::Waiting);
    let sim = sim.run();
    assert_eq!(sim.finished().status, FinishedStatus::Cancelled);
    assert_eq!(sim.commands.iter().map(describe).collect::<Vec<_>>(), ["1 work", "2 work"]);
    sim.check_replays();
}

#[test]
fn a_shield_in_a_shield_lets_the_outer_one_finish() {
    #[workflow]
    async fn body() -> Result<u32> {
        shield(async {
            shield(work(1)).await?;
            work(2).await
        })
        .await
    }
    let mut sim = Sim::of(body()).with::<work>();
    sim.happen(cancel());
    let sim = sim.run();
    assert_eq!(sim.finished().status, FinishedStatus::Cancelled);
    assert_eq!(sim.commands.len(), 2);
    sim.check_replays();
}

#[test]
fn a_shield_beside_another_goes_no_further_than_its_own_end() {
    #[workflow]
    async fn body() -> Result<u32> {
        let (a, b) = join!(
            async {
                shield(work(1)).await?;
                work(3).await
            },
            shield(work(2)),
        );
        Ok(a? + b?)
    }
    let mut sim = Sim::of(body()).with::<work>();
    sim.happen(cancel());
    sim.carry_out(1);
    assert_eq!(sim.progress, Progress::Waiting, "the other shield holds the body");
    let sim = sim.run();
    assert_eq!(sim.commands.iter().map(describe).collect::<Vec<_>>(), ["1 work", "2 work"]);
    sim.check_replays();
}

#[test]
fn a_shield_that_loses_a_race_holds_nothing_up() {
    #[workflow]
    async fn body() -> Result<u32> {
        select! {
            _ = shield(sleep(Duration::days(1))) => {}
            _ = work(1) => {}
        }
        work(2).await
    }
    let mut sim = Sim::of(body()).with::<work>();
    sim.carry_out(2);
    sim.happen(cancel());
    assert_eq!(sim.finished().status, FinishedStatus::Cancelled);
    sim.check_replays();
}

#[test]
fn a_wait_for_the_cancellation_is_woken_by_it_and_by_the_timeout() {
    #[workflow]
    async fn body() -> Result<u32> {
        shield(async {
            cancelled().await;
            work(7).await
        })
        .await
    }
    for event in [cancel(), Event::RunTimedOut] {
        let mut sim = Sim::of(body()).with::<work>();
        assert_eq!(sim.progress, Progress::Waiting, "it waits for something durable");
        sim.happen(event);
        assert_eq!(sim.commands.iter().map(describe).collect::<Vec<_>>(), ["1 work"]);
        sim.run().check_replays();
    }
}

#[test]
fn an_undo_step_that_was_built_elsewhere_or_polled_is_refused_in_words() {
    #[workflow]
    async fn body() {
        let mut call = undo(1);
        let _ = futures::poll!(&mut call);
        compensate(call);
    }
    let sim = Sim::of(body()).with::<undo>();
    let Progress::Stuck(reason) = &sim.progress else { panic!("{:?}", sim.progress) };
    assert!(reason.to_string().contains("compensate(undo(..))"), "{reason}");
}

#[test]
fn drop_code_records_nothing() {
    #[workflow]
    async fn body() -> Result<u32> {
        struct Guard;
        impl Drop for Guard {
            fn drop(&mut self) {
                compensate(undo(9));
                saga::commit();
                drop((shield(work(1)), cancelled(), saga::scope(work(1))));
            }
        }
        compensate(undo(1));
        let _guard = Guard;
        work(2).await
    }
    let mut sim = Sim::of(body()).with::<work>().with::<undo>();
    sim.happen(cancel());
    let sim = sim.run();
    assert_eq!(undone(&sim), ["[1]"]);
    sim.check_replays();
}
