//! H: starting and identity. R-04: one id at the same moment. R-24: one database at the same moment. R-25: shutting
//! down.

use std::time::{Duration, Instant};

use composer_runtime::{Error, IdPolicy, Status};
use composer_tests::kit::{
    Command, Setup, Start, step, wait,
    workflow::{GO, interpret},
};
use futures::future::join_all;
use serde_json::json;

use super::{
    Process, projection, scenario,
    world::{start, until_lines, until_status},
};
use crate::support::{
    block_on,
    postgres::{admin_url, drop_database, empty_database},
    sqlite::Folder,
};

scenario! {
    async fn h1_a_second_start_of_an_id_finds_the_first(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        let order = || composer.start(interpret(vec![step("once").into()])).id("order-1");
        let (first, second) = (order().await.unwrap(), order().await.unwrap());
        assert!(!first.already() && second.already());
        assert_eq!(first.run_id(), second.run_id());
        assert_eq!(second.result().await.unwrap().unwrap(), [json!("once")]);
        let third = order().await.unwrap();
        assert!(third.already(), "also when it has ended");
        assert_eq!(third.run_id(), first.run_id());
        assert_eq!(world.effects.count("once"), 1);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn h3_each_policy_for_a_taken_id_does_what_its_name_says(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        let order = |commands: Vec<Command>| composer.start(interpret(commands)).id("order-1");
        let first = order(vec![wait()]).await.unwrap();

        let refused = order(vec![]).policy(IdPolicy::Reject).await.unwrap_err();
        let Error::AlreadyExists { id, run_id, .. } = refused else { panic!("{refused}") };
        assert_eq!((id.as_str(), run_id), ("order-1", first.run_id()));
        let open = order(vec![]).policy(IdPolicy::NewWhenClosed).await.unwrap();
        assert!(open.already() && open.run_id() == first.run_id(), "it is not closed");
        first.signal(&GO, json!(1)).await.unwrap();
        first.result().await.unwrap().unwrap();

        let refused = order(vec![]).policy(IdPolicy::Reject).await.unwrap_err();
        assert!(matches!(refused, Error::AlreadyExists { status: Status::Completed, .. }), "{refused}");
        let existing = order(vec![]).policy(IdPolicy::UseExisting).await.unwrap();
        assert!(existing.already() && existing.run_id() == first.run_id());
        let new = order(vec![step("anew").into()]).policy(IdPolicy::NewWhenClosed).await.unwrap();
        assert!(!new.already() && new.run_id() != first.run_id());
        assert_eq!(new.result().await.unwrap().unwrap(), [json!("anew")]);
        let named = composer.get::<interpret>("order-1").await.unwrap();
        assert_eq!(named.run_id(), new.run_id(), "the id names the newest");
        assert_eq!(first.result().await.unwrap().unwrap(), [json!(1)], "and the old one is still there");
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn h3_an_id_of_another_workflow_is_a_typed_error(world) {
        let composer = world.composer().await;
        composer.start_json("other", json!([])).id("order-1").await.unwrap();
        let wrong = composer.start(interpret(vec![])).id("order-1").await.unwrap_err();
        assert!(matches!(&wrong, Error::WrongWorkflow { found, .. } if found == "other"), "{wrong}");
        let wrong = composer.get::<interpret>("order-1").await.unwrap_err();
        assert!(matches!(&wrong, Error::WrongWorkflow { found, .. } if found == "other"), "{wrong}");
    }
}

scenario! {
    async fn h6_a_delayed_start_begins_no_sooner_and_can_be_cancelled_before(world) {
        let worker = world.at_work().await;
        let composer = world.composer().await;
        let delay = Duration::from_millis(1_200);
        let delayed = |name: &str| composer.start(interpret(vec![step(name).into()])).after(delay);
        let (run, cancelled) = (delayed("later").await.unwrap(), delayed("never").await.unwrap());
        let row = run.status().await.unwrap();
        assert_eq!(row.status, Status::Pending);
        assert_eq!(row.due_at.unwrap().since(row.created_at), delay);
        cancelled.cancel("changed our mind").await.unwrap();
        until_status(&cancelled, Status::Cancelled).await;
        let gone = cancelled.status().await.unwrap();
        assert!(gone.closed_at.unwrap() < row.due_at.unwrap(), "it did not wait for its time");

        assert_eq!(run.result().await.unwrap().unwrap(), [json!("later")]);
        let begun = run.status().await.unwrap().started_at.unwrap();
        assert!(begun >= row.due_at.unwrap(), "{begun:?} {row:?}");
        assert_eq!(world.effects.count("never"), 0);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn h7_another_client_attaches_to_the_run_of_a_dead_one(world) {
        let order = Start { id: Some("order-1".into()), commands: vec![wait(), step("s").into()] };
        let mut client = world.process_with(|setup| {
            setup.work = false;
            setup.start = vec![order];
        });
        client.line().await;
        client.kill();

        let worker = world.at_work().await;
        let run = world.composer().await.get::<interpret>("order-1").await.unwrap();
        assert!(run.already());
        let waiting = tokio::spawn({
            let run = run.clone();
            async move { run.result().await.unwrap().unwrap() }
        });
        run.signal(&GO, json!("go")).await.unwrap();
        assert_eq!(waiting.await.unwrap(), [json!("go"), json!("s")]);
        let late = world.composer().await.get::<interpret>("order-1").await.unwrap();
        assert_eq!(late.result().await.unwrap().unwrap(), [json!("go"), json!("s")], "also after its end");
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r04_fifty_starts_of_one_id_from_two_processes_are_one_run(world) {
        let commands = vec![Command::from(step("once"))];
        let start = Start { id: Some("order-1".into()), commands: commands.clone() };
        let mut other = world.process_with(|setup| setup.start = vec![start; 25]);
        let worker = world.at_work().await;
        let clients = [world.composer().await, world.composer().await];
        let ours = (0..25).map(|n| {
            let start = clients[n % 2].start(interpret(commands.clone())).id("order-1");
            async { start.await.expect("no start fails") }
        });
        let ours = join_all(ours).await;
        let mut found: Vec<_> =
            ours.iter().map(|run| (run.run_id().to_string(), run.already())).collect();
        for _ in 0..25 {
            let line = other.line().await;
            let words: Vec<_> = line.split(' ').collect();
            found.push((words[0].to_owned(), words[1] == "already"));
        }
        assert!(found.iter().all(|(id, _)| *id == found[0].0), "one run: {found:?}");
        assert_eq!(found.iter().filter(|(_, already)| !already).count(), 1, "one start made it: {found:?}");
        assert_eq!(ours[0].result().await.unwrap().unwrap(), [json!("once")]);
        assert_eq!(world.effects.count("once"), 1, "its body ran once");
        other.kill();
        worker.shutdown().await.unwrap();
    }
}

mod r24_eight_workers_that_start_at_once_on_an_empty_database_all_work {
    use super::*;

    #[test]
    fn postgres() {
        let Some(admin) = admin_url() else { return };
        block_on(async {
            let (name, url) = empty_database(&admin).await;
            eight(url).await;
            drop_database(&admin, &name).await;
        });
    }

    #[test]
    fn sqlite() {
        let folder = Folder::new();
        block_on(eight(format!("sqlite:{}", folder.file().display())));
    }

    async fn eight(url: String) {
        let start =
            |n| Start { id: Some(format!("from-{n}")), commands: vec![Command::Wait { ms: Some(1) }] };
        let setup = |n| Setup { url: url.clone(), start: vec![start(n)], ..Setup::default() };
        let mut workers: Vec<_> = (0..8).map(|n| Process::spawn(&setup(n))).collect();
        for worker in &mut workers {
            assert!(worker.line().await.contains(" new "));
        }
        let composer = composer_tests::kit::composer(&setup(0)).await.unwrap();
        for n in 0..8 {
            let run = composer.get::<interpret>(&format!("from-{n}")).await.unwrap();
            assert_eq!(run.result().await.unwrap().unwrap(), [json!("nothing")]);
        }
        assert!(workers.iter_mut().all(Process::is_running));
    }
}

scenario! {
    async fn r25_sigterm_lets_the_quick_end_and_gives_the_rest_back(world) {
        let grace = Duration::from_millis(800);
        let mut first = world.process_with(|setup| {
            setup.grace_ms = grace.as_millis() as u64;
            setup.lease_ms = 30_000;
        });
        let composer = world.composer().await;
        for name in ["quick", "long"] {
            world.effects.hold(name);
        }
        let quick = join_all((0..2).map(|_| start(&composer, [step("quick").into(), step("then").into()]))).await;
        let long = join_all((0..8).map(|_| start(&composer, [step("long").into()]))).await;
        world.effects.arrived("quick", 2).await;
        world.effects.arrived("long", 8).await;
        let began = Instant::now();
        first.signal("TERM");
        world.effects.open("quick");
        for run in &quick {
            until_lines(run, "step_completed", 1).await;
        }
        let other = start(&composer, [step("new").into()]).await;
        let status = first.ended().await;
        assert!(status.success(), "{status:?}");
        let took = began.elapsed();
        assert!(took >= grace && took < grace + Duration::from_secs(2), "{took:?}");
        assert_eq!(world.effects.count("then"), 0, "nothing was begun after the signal");
        assert_eq!(world.effects.count("new"), 0);

        // The lease of 30 s has nothing to do with it.
        world.effects.open("long");
        let back = Instant::now();
        let mut second = world.process();
        for run in quick.iter().chain(&long).chain([&other]) {
            run.result().await.unwrap().unwrap();
        }
        assert!(back.elapsed() < Duration::from_secs(5), "{:?}", back.elapsed());
        let attempts: Vec<_> = world.effects.calls("long").iter().map(|call| call.attempt).collect();
        assert_eq!(attempts, [1; 16], "an interruption is no attempt");
        assert_eq!(world.effects.keys("long").len(), 8);
        assert_eq!(world.effects.count("quick"), 2, "journaled within the grace time");
        assert_eq!(projection(&long[0]).await[2], "step_completed effect #1");
        second.kill();
    }
}

scenario! {
    async fn r25_an_idle_worker_ends_at_once_and_a_second_signal_does_not_wait(world) {
        let mut idle = world.process_with(|setup| setup.grace_ms = 60_000);
        let composer = world.composer().await;
        // It hosts a run that waits: that is idle, too.
        let run = start(&composer, [step("s").into(), wait()]).await;
        until_lines(&run, "step_completed", 1).await;
        let began = Instant::now();
        idle.signal("TERM");
        assert!(idle.ended().await.success());
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());

        let mut busy = world.process_with(|setup| setup.grace_ms = 60_000);
        world.effects.hold("held");
        let held = start(&composer, [step("held").into()]).await;
        world.effects.arrived("held", 1).await;
        busy.signal("TERM");
        busy.signal("INT");
        busy.ended().await;

        world.effects.open("held");
        let mut last = world.process();
        held.result().await.unwrap().unwrap();
        run.signal(&GO, json!(1)).await.unwrap();
        run.result().await.unwrap().unwrap();
        last.kill();
    }
}
