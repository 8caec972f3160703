//! A worker's side: sessions, claiming, writing, parking.

use std::{collections::HashSet, time::Duration};

use composer_runtime::store::{
    Batch, Claim, Epoch, IdPolicy, NewRun, NewSession, Release, Released, Renewed, Settled, Started, Status,
    StoreError, Suspects, Topic, Until, Written,
};
use composer_sdk::id::{RunId, Timestamp};

use super::kit::*;
use crate::support::{eventually, promise};

fn park(run: (RunId, Epoch), until: Option<Timestamp>) -> Release {
    Release { run_id: run.0, epoch: run.1, until: Until::Due(until) }
}

fn give_back(run: (RunId, Epoch)) -> Release {
    Release { run_id: run.0, epoch: run.1, until: Until::Now }
}

promise! {
    async fn a_started_run_is_claimed_written_and_completed(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        assert_eq!(write(&*store, me, vec![decided(run, 0, vec![done(1, "1")])]).await, [Written::Accepted]);
        assert_eq!(write(&*store, me, vec![completed(run, 1, vec![done(2, "2")])]).await, [Written::Accepted]);
        assert_eq!(seqs(&*store, run.0).await, [1, 2]);
        assert_eq!(status(&*store, run.0).await, Status::Completed);
        assert_eq!(store.owned(me).await.unwrap(), []);
    }
}

promise! {
    async fn each_claim_raises_the_epoch_and_the_first_one_starts_the_clock(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = pending(&*store).await;
        let first = claim(&*store, me).await.remove(0);
        assert_eq!((first.run_id, first.started_at, first.taken_over), (run, first.claimed_at, false));
        assert_eq!(store.release(me, &[give_back((run, first.epoch))]).await.unwrap(), [Released::Done]);
        assert_eq!(status(&*store, run).await, Status::Pending);
        let second = claim(&*store, me).await.remove(0);
        assert!(second.epoch > first.epoch && second.claimed_at > first.claimed_at);
        assert_eq!((second.started_at, second.strikes), (first.started_at, 0));
        assert_eq!(store.owned(me).await.unwrap(), [(run, second.epoch)]);
    }
}

promise! {
    async fn a_claim_takes_only_what_the_session_hosts(db) {
        let store = db.store();
        let me = session_of(&*store, BUILD, &["other"]).await;
        let run = pending(&*store).await;
        let others = Claim { workflows: vec!["other".into()], ..claim_for(me) };
        assert!(store.claim(&others).await.unwrap().is_empty());
        assert_eq!(store.next_due(&others.workflows).await.unwrap(), None);
        let all = Claim { workflows: vec!["other".into(), "order".into()], ..claim_for(me) };
        assert_eq!(store.claim(&all).await.unwrap()[0].run_id, run);
    }
}

promise! {
    async fn p46_a_claim_never_takes_more_than_its_limit_and_no_run_twice(db) {
        let store = db.store();
        for _ in 0..60 {
            pending(&*store).await;
        }
        let mut claims = Vec::new();
        for _ in 0..10 {
            let me = session(&*store).await;
            let claim = Claim { limit: 3, ..claim_for(me) };
            let store = store.clone();
            claims.push(async move { store.claim(&claim).await.unwrap() });
        }
        let answers = futures::future::join_all(claims).await;
        assert!(answers.iter().all(|claimed| claimed.len() <= 3), "{answers:?}");
        let runs: Vec<RunId> = answers.iter().flatten().map(|claimed| claimed.run_id).collect();
        assert_eq!(runs.iter().collect::<HashSet<_>>().len(), runs.len());
        assert_eq!(db.number("(select count(*) from {s}runs where status = 2)").await, Some(runs.len() as i64));
    }
}

promise! {
    async fn a_parked_run_is_due_by_time_or_mail_alone(db) {
        let store = db.store();
        let me = session(&*store).await;
        let later = store.now().await.unwrap().saturating_add(Duration::from_secs(3600));
        let runs = owned_many(&*store, me, 3).await;
        let parks = [park(runs[0], Some(later)), park(runs[1], None), park(runs[2], None)];
        assert_eq!(store.release(me, &parks).await.unwrap(), [Released::Done; 3]);
        assert!(claim(&*store, me).await.is_empty());
        assert_eq!(store.next_due(&["order".into()]).await.unwrap(), Some(later));
        let row = store.run(runs[0].0).await.unwrap().unwrap();
        assert_eq!((row.status, row.due_at, row.session), (Status::Parked, Some(later), None));
        db.make_due(runs[0].0).await;
        store.send(runs[1].0, &signal("go", "1")).await.unwrap();
        let claimed: HashSet<RunId> = claim(&*store, me).await.iter().map(|claimed| claimed.run_id).collect();
        assert_eq!(claimed, HashSet::from([runs[0].0, runs[1].0]));
        assert!(claim(&*store, me).await.is_empty());
    }
}

promise! {
    async fn a_parked_run_wakes_at_its_deadline_at_the_latest(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = NewRun { timeout: Some(Duration::from_secs(60)), ..new_run(&*store).await };
        store.start(&run, Default::default(), None).await.unwrap();
        let claimed = claim(&*store, me).await.remove(0);
        let owned = (run.run_id, claimed.epoch);
        assert_eq!(store.release(me, &[park(owned, None)]).await.unwrap(), [Released::Done]);
        assert_eq!(store.run(run.run_id).await.unwrap().unwrap().due_at, claimed.deadline);
        db.make_due(run.run_id).await;
        let owned = (run.run_id, claim(&*store, me).await[0].epoch);
        let earlier = Timestamp::from_micros(claimed.deadline.unwrap().as_micros() - 1);
        store.release(me, &[park(owned, Some(earlier))]).await.unwrap();
        assert_eq!(store.run(run.run_id).await.unwrap().unwrap().due_at, Some(earlier));
    }
}

promise! {
    async fn a_run_with_mail_is_not_parked_but_can_be_given_back(db) {
        let store = db.store();
        let me = session(&*store).await;
        let runs = owned_many(&*store, me, 2).await;
        store.send(runs[0].0, &signal("go", "1")).await.unwrap();
        assert_eq!(store.release(me, &[park(runs[0], None), park(runs[1], None)]).await.unwrap(), [Released::Mail, Released::Done]);
        assert_eq!(store.owned(me).await.unwrap(), [runs[0]]);
        assert_eq!(store.release(me, &[give_back(runs[0])]).await.unwrap(), [Released::Done]);
    }
}

promise! {
    async fn a_release_by_anybody_but_the_owner_is_fenced(db) {
        let store = db.store();
        let (me, other) = (session(&*store).await, session(&*store).await);
        let run = owned(&*store, me).await;
        let stale = (run.0, Epoch(run.1.0 - 1));
        for release in [park(run, None), give_back(run)] {
            assert_eq!(store.release(other, &[release]).await.unwrap(), [Released::Fenced]);
        }
        for release in [park(stale, None), give_back(stale)] {
            assert_eq!(store.release(me, &[release]).await.unwrap(), [Released::Fenced]);
        }
        assert_eq!(store.owned(me).await.unwrap(), [run]);
    }
}

promise! {
    async fn p02_a_run_that_was_given_back_accepts_nothing(db) {
        let store = db.store();
        let me = session(&*store).await;
        let runs = owned_many(&*store, me, 4).await;
        store.release(me, &[park(runs[0], None), give_back(runs[1])]).await.unwrap();
        write(&*store, me, vec![completed(runs[2], 0, vec![]), stuck(runs[3], 0)]).await;
        for run in runs {
            let before = status(&*store, run.0).await;
            assert_eq!(write(&*store, me, vec![decided(run, 0, vec![done(1, "1")])]).await, [Written::Fenced]);
            assert_eq!(write(&*store, me, vec![completed(run, 0, vec![done(1, "1")])]).await, [Written::Fenced]);
            assert_eq!(write(&*store, me, vec![stuck(run, 0)]).await, [Written::Fenced]);
            assert_eq!((seqs(&*store, run.0).await, status(&*store, run.0).await), (vec![], before));
        }
    }
}

promise! {
    async fn p02_the_epoch_alone_does_not_make_an_owner(db) {
        let store = db.store();
        let (me, other) = (session(&*store).await, session(&*store).await);
        let run = owned(&*store, me).await;
        assert_eq!(write(&*store, other, vec![decided(run, 0, vec![done(1, "1")])]).await, [Written::Fenced]);
        let stale = (run.0, Epoch(run.1.0 - 1));
        assert_eq!(write(&*store, me, vec![decided(stale, 0, vec![done(1, "1")])]).await, [Written::Fenced]);
        assert_eq!(write(&*store, me, vec![decided(run, 0, vec![done(1, "1")])]).await, [Written::Accepted]);
    }
}

promise! {
    async fn p03_nothing_of_a_fenced_run_is_written_and_its_neighbours_are(db) {
        let store = db.store();
        let me = session(&*store).await;
        let runs = owned_many(&*store, me, 3).await;
        store.send(runs[1].0, &signal("go", "7")).await.unwrap();
        let mail = store.inbox(&[runs[1].0]).await.unwrap()[0].id;
        let stale = (runs[1].0, Epoch(runs[1].1.0 - 1));
        let batch = vec![
            decided(runs[0], 0, vec![done(1, "1"), done(2, "2")]),
            completed(stale, 0, vec![signalled(1, mail, "go", "7"), done(2, "2")]),
            completed(runs[2], 0, vec![done(1, "1")]),
        ];
        assert_eq!(write(&*store, me, batch).await, [Written::Accepted, Written::Fenced, Written::Accepted]);
        assert_eq!(seqs(&*store, runs[0].0).await, [1, 2]);
        assert_eq!((seqs(&*store, runs[1].0).await, status(&*store, runs[1].0).await), (vec![], Status::Running));
        assert_eq!(store.inbox(&[runs[1].0]).await.unwrap().len(), 1);
        assert_eq!((seqs(&*store, runs[2].0).await, status(&*store, runs[2].0).await), (vec![1], Status::Completed));
    }
}

promise! {
    async fn p04_a_gap_is_refused(db) {
        let store = db.store();
        let me = session(&*store).await;
        let runs = owned_many(&*store, me, 2).await;
        write(&*store, me, vec![decided(runs[0], 0, vec![done(1, "1")])]).await;
        for part in [
            decided(runs[0], 2, vec![done(3, "3")]),
            completed(runs[0], 2, vec![done(3, "3")]),
            completed(runs[0], 2, vec![]),
        ] {
            let neighbour = decided(runs[1], seqs(&*store, runs[1].0).await.len() as u32, vec![]);
            let next = neighbour.prev + 1;
            let neighbour = decided(runs[1], neighbour.prev, vec![done(next, "n")]);
            assert_eq!(write(&*store, me, vec![part, neighbour]).await, [Written::Fenced, Written::Accepted]);
        }
        let alone = decided(runs[0], 2, vec![done(3, "3")]);
        assert_eq!(write(&*store, me, vec![alone]).await, [Written::Fenced]);
        assert_eq!((seqs(&*store, runs[0].0).await, status(&*store, runs[0].0).await), (vec![1], Status::Running));
    }
}

promise! {
    async fn p07_another_entry_at_the_same_place_is_a_conflict_and_not_a_repetition(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        write(&*store, me, vec![decided(run, 0, vec![done(1, "\"mine\"")])]).await;
        let mut journal = store.open_journal().await.unwrap();
        let other = batch(vec![decided(run, 0, vec![done(1, "\"other\"")])]);
        let error = journal.write(me, &other).await.unwrap_err();
        assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");
        assert_eq!(store.journal(run.0, 0, 10).await.unwrap(), [done(1, "\"mine\"")]);
        // The connection goes on.
        let next = batch(vec![decided(run, 1, vec![done(2, "2")])]);
        assert_eq!(journal.write(me, &next).await.unwrap().runs, [Written::Accepted]);
    }
}

promise! {
    async fn p11_a_poisonous_part_is_refused_for_good_and_the_rest_goes_without_it(db) {
        let store = db.store();
        let me = session(&*store).await;
        let mut journal = store.open_journal().await.unwrap();
        // No month holds this run.
        let far = NewRun { run_id: RunId::new(Timestamp::MAX), ..new_run(&*store).await };
        let near = new_run(&*store).await;
        let error = journal.write(me, &Batch { starts: vec![near.clone(), far], runs: vec![] }).await;
        match error {
            Err(StoreError::Rejected { .. }) => {}
            // A store without months takes it.
            Ok(_) => return,
            Err(error) => panic!("{error:?}"),
        }
        assert_eq!(store.run(near.run_id).await.unwrap(), None);
        assert!(journal.write(me, &Batch { starts: vec![near.clone()], runs: vec![] }).await.unwrap().started);
    }
}

promise! {
    async fn started_runs_ride_in_a_batch_and_are_owned(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        let mut starts = vec![new_run(&*store).await, NewRun { timeout: Some(Duration::from_secs(60)), ..new_run(&*store).await }];
        starts[0].tags.insert("a".into(), "b".into());
        let mut journal = store.open_journal().await.unwrap();
        let written = journal
            .write(me, &Batch { starts: starts.clone(), runs: vec![decided(run, 0, vec![done(1, "1")])] })
            .await
            .unwrap();
        assert!(written.started);
        assert_eq!(written.runs, [Written::Accepted]);
        for start in &starts {
            let row = store.run(start.run_id).await.unwrap().unwrap();
            assert_eq!((row.status, row.session), (Status::Running, Some(me)));
            assert_eq!(row.started_at, Some(written.started_at));
            assert_eq!(row.deadline, start.timeout.map(|by| written.started_at.saturating_add(by)));
            assert_eq!(row.tags, start.tags);
            let part = completed((start.run_id, row.epoch), 0, vec![done(1, "1")]);
            assert_eq!(journal.write(me, &batch(vec![part])).await.unwrap().runs, [Written::Accepted]);
        }
    }
}

promise! {
    async fn p14_a_session_can_ask_what_it_owns(db) {
        let store = db.store();
        let (me, other) = (session(&*store).await, session(&*store).await);
        // The answers to these were lost.
        let claimed = owned_many(&*store, me, 2).await;
        let eager = new_run(&*store).await;
        let Started::New { owned: Some(epoch), .. } = store.start(&eager, Default::default(), Some(me)).await.unwrap()
        else { panic!("not owned") };
        let mut expected = claimed;
        expected.push((eager.run_id, epoch));
        expected.sort();
        let mut owned = store.owned(me).await.unwrap();
        owned.sort();
        assert_eq!(owned, expected);
        assert_eq!(store.owned(other).await.unwrap(), []);
    }
}

promise! {
    async fn p15_a_dead_session_gets_nothing(db) {
        let store = db.store();
        let me = session(&*store).await;
        db.lapse(me).await;
        assert_eq!(store.sweep(&mut Suspects::default()).await.unwrap().expired, 1);
        let run = pending(&*store).await;
        assert!(claim(&*store, me).await.is_empty());
        let mut journal = store.open_journal().await.unwrap();
        let start = new_run(&*store).await;
        let written = journal.write(me, &Batch { starts: vec![start.clone()], runs: vec![] }).await.unwrap();
        assert!(!written.started);
        assert_eq!(store.run(start.run_id).await.unwrap(), None);
        assert_eq!(status(&*store, run).await, Status::Pending);
    }
}

promise! {
    async fn p16_a_session_lives_until_it_is_declared_dead_and_then_never_again(db) {
        let store = db.store();
        let new = NewSession { name: "t".into(), build: BUILD.into(), workflows: vec![], lease: Duration::from_secs(60) };
        let (me, opened, mut conn) = store.open_session(&new).await.unwrap();
        db.lapse(me).await;
        let Renewed::Alive { now } = conn.renew().await.unwrap() else { panic!("nobody declared it dead") };
        assert!(now >= opened);
        assert_eq!(store.sweep(&mut Suspects::default()).await.unwrap().expired, 0, "the renewal came first");
        db.lapse(me).await;
        assert_eq!(store.sweep(&mut Suspects::default()).await.unwrap().expired, 1);
        assert_eq!(conn.renew().await.unwrap(), Renewed::Dead);
        let (next, ..) = store.open_session(&new).await.unwrap();
        assert!(next > me, "ids are never used again");
    }
}

promise! {
    async fn runs_of_a_dead_session_are_taken_over_and_then_it_is_forgotten(db) {
        let store = db.store();
        let (dead, me) = (session(&*store).await, session(&*store).await);
        let run = owned(&*store, dead).await;
        write(&*store, dead, vec![decided(run, 0, vec![done(1, "1")])]).await;
        assert!(claim(&*store, me).await.is_empty(), "its owner lives");
        db.lapse(dead).await;
        let swept = store.sweep(&mut Suspects::default()).await.unwrap();
        assert_eq!((swept.expired, swept.removed), (1, 0));
        let taken = claim(&*store, me).await.remove(0);
        assert_eq!((taken.run_id, taken.taken_over, taken.strikes), (run.0, true, 1));
        assert!(taken.epoch > run.1);
        assert_eq!(store.load(&[run.0]).await.unwrap(), [(run.0, vec![done(1, "1")])]);
        assert_eq!(write(&*store, dead, vec![decided(run, 1, vec![done(2, "2")])]).await, [Written::Fenced]);
        assert_eq!(store.sweep(&mut Suspects::default()).await.unwrap().removed, 1);
    }
}

promise! {
    async fn a_backlog_does_not_hold_up_the_runs_of_a_dead_session(db) {
        let store = db.store();
        let (dead, me) = (session(&*store).await, session(&*store).await);
        let run = owned(&*store, dead).await;
        for _ in 0..3 {
            pending(&*store).await;
        }
        db.lapse(dead).await;
        store.sweep(&mut Suspects::default()).await.unwrap();
        let one = Claim { limit: 1, ..claim_for(me) };
        assert_eq!(store.claim(&one).await.unwrap()[0].run_id, run.0, "what was begun goes first");
        assert_ne!(store.claim(&one).await.unwrap()[0].run_id, run.0);
    }
}

promise! {
    async fn runs_of_a_session_without_a_row_are_taken_over(db) {
        let store = db.store();
        let (lost, me) = (session(&*store).await, session(&*store).await);
        let run = owned(&*store, lost).await;
        db.execute(&format!("delete from {{s}}sessions where id = {}", lost.0)).await;
        store.sweep(&mut Suspects::default()).await.unwrap();
        assert_eq!(claim(&*store, me).await[0].run_id, run.0);
    }
}

promise! {
    async fn a_session_that_ends_leaves_nothing_or_is_dead(db) {
        let store = db.store();
        let (one, two, me) = (session(&*store).await, session(&*store).await, session(&*store).await);
        store.close_session(one).await.unwrap();
        assert_eq!(db.number("(select count(*) from {s}sessions)").await, Some(2));
        let run = owned(&*store, two).await;
        store.close_session(two).await.unwrap();
        assert_eq!(claim(&*store, me).await[0].run_id, run.0);
    }
}

promise! {
    async fn p18_a_session_whose_process_let_go_is_gone_at_the_second_look(db) {
        let store = db.store();
        let new = NewSession { name: "t".into(), build: BUILD.into(), workflows: vec![], lease: Duration::from_secs(1) };
        let (me, ..) = store.open_session(&new).await.unwrap();
        let (quiet, ..) = store.open_session(&new).await.unwrap();
        db.outlive(me).await;
        db.outlive(quiet).await;
        let listener = store.listen(Some(me)).await.unwrap();
        let mut seen = Suspects::default();
        assert_eq!(store.sweep(&mut seen).await.unwrap().gone, 0);
        drop(listener);
        // A new connection takes hold again: whoever looked in between changes nothing.
        let sweep = |seen: Suspects| {
            let store = store.clone();
            async move {
                let mut seen = seen;
                let gone = store.sweep(&mut seen).await.unwrap().gone;
                (gone, seen)
            }
        };
        let (gone, after) = sweep(seen).await;
        assert_eq!(gone, 0, "one look is not enough");
        let listener = store.listen(Some(me)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(600)).await;
        let (gone, after) = sweep(after).await;
        assert_eq!(gone, 0, "its owner took hold again in time");
        drop(listener);
        let seen = std::sync::Arc::new(tokio::sync::Mutex::new(after));
        eventually("the session is declared dead early", || {
            let (store, seen) = (store.clone(), seen.clone());
            async move { (store.sweep(&mut *seen.lock().await).await.unwrap().gone == 1).then_some(()) }
        })
        .await;
        let alive = format!("(select count(*) from {{s}}sessions where id = {} and dead_at is null)", quiet.0);
        assert_eq!(db.number(&alive).await, Some(1), "a session that never held anything is left to its lease");
    }
}

promise! {
    async fn p21_a_run_that_kills_its_workers_is_set_stuck(db) {
        let store = db.store();
        let run = pending(&*store).await;
        let mut length = 0;
        let mut strikes = Vec::new();
        for round in 0..6 {
            let victim = session(&*store).await;
            let claimed = claim(&*store, victim).await;
            let Some(claimed) = claimed.first() else { break };
            strikes.push(claimed.strikes);
            if round == 2 {
                length += 1;
                write(&*store, victim, vec![decided((run, claimed.epoch), 0, vec![done(length, "1")])]).await;
            }
            db.lapse(victim).await;
            store.sweep(&mut Suspects::default()).await.unwrap();
        }
        // 0: not taken over. 1, 2: no progress. 1: progress. 2, 3: none again.
        assert_eq!(strikes, [0, 1, 2, 1, 2, 3]);
        let me = session(&*store).await;
        let claim_of = Claim { max_strikes: 4, ..claim_for(me) };
        assert_eq!(store.claim(&claim_of).await.unwrap(), []);
        let row = store.run(run).await.unwrap().unwrap();
        assert_eq!((row.status, row.strikes), (Status::Stuck, 4));
        let reason = row.reason.unwrap();
        assert!(reason.contains('4') && reason.contains("died") && reason.contains("journal"), "{reason}");
        assert_eq!(store.owned(me).await.unwrap(), []);
    }
}

promise! {
    async fn p22_a_take_over_by_an_operator_fences_the_owner(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        write(&*store, me, vec![stuck(run, 0)]).await;
        let before = store.run(run.0).await.unwrap().unwrap().epoch;
        store.send(run.0, &cancel("enough")).await.unwrap();
        let after = store.run(run.0).await.unwrap().unwrap();
        assert!(after.epoch > before);
        let late = (run.0, after.epoch);
        for epoch in [run, late] {
            assert_eq!(write(&*store, me, vec![completed(epoch, 0, vec![done(1, "1")])]).await, [Written::Fenced]);
        }
        assert_eq!(status(&*store, run.0).await, Status::Cancelled);
    }
}

promise! {
    async fn a_stuck_run_is_offered_to_other_builds_after_a_rest(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        write(&*store, me, vec![stuck(run, 0)]).await;
        let row = store.run(run.0).await.unwrap().unwrap();
        assert_eq!((row.status, row.reason.as_deref()), (Status::Stuck, Some("no such step")));
        let newer = session_of(&*store, "build-2", &["order"]).await;
        let offer = Claim { build: "build-2".into(), ..claim_for(newer) };
        assert!(store.claim(&offer).await.unwrap().is_empty(), "it rests");
        db.rest(run.0).await;
        assert!(claim(&*store, me).await.is_empty(), "its own build failed it");
        let claimed = store.claim(&offer).await.unwrap().remove(0);
        assert_eq!((claimed.run_id, claimed.strikes), (run.0, 0));
        assert_eq!(store.run(run.0).await.unwrap().unwrap().reason, None);
    }
}

promise! {
    async fn p31_a_message_becomes_an_entry_or_stays(db) {
        let store = db.store();
        let me = session(&*store).await;
        let runs = owned_many(&*store, me, 2).await;
        for run in &runs {
            store.send(run.0, &signal("go", "\"7\"")).await.unwrap();
        }
        let mail = store.inbox(&[runs[0].0]).await.unwrap()[0].id;
        let part = decided(runs[0], 0, vec![signalled(1, mail, "go", "\"7\""), done(2, "2")]);
        assert_eq!(write(&*store, me, vec![part]).await, [Written::Accepted]);
        assert_eq!(store.journal(runs[0].0, 0, 1).await.unwrap(), [signalled(1, mail, "go", "\"7\"")]);
        assert_eq!(store.inbox(&[runs[0].0]).await.unwrap(), []);
        // Queued twice: the row is gone, nothing of the run is written.
        let twice = completed(runs[0], 2, vec![done(3, "3"), signalled(4, mail, "go", "1")]);
        // Another run's row is not this run's.
        let strange = store.inbox(&[runs[1].0]).await.unwrap()[0].id;
        assert_eq!(write(&*store, me, vec![twice]).await, [Written::Fenced]);
        let stolen = decided(runs[0], 2, vec![signalled(3, strange, "go", "1")]);
        assert_eq!(write(&*store, me, vec![stolen]).await, [Written::Fenced]);
        // One of two rows is gone: the other one stays.
        let half = decided(runs[1], 0, vec![signalled(1, strange, "go", "1"), signalled(2, mail, "go", "1")]);
        assert_eq!(write(&*store, me, vec![half]).await, [Written::Fenced]);
        assert_eq!(store.inbox(&[runs[1].0]).await.unwrap().len(), 1);
        assert_eq!((seqs(&*store, runs[0].0).await, seqs(&*store, runs[1].0).await), (vec![1, 2], vec![]));
        assert_eq!(status(&*store, runs[0].0).await, Status::Running);
    }
}

promise! {
    async fn settling_says_what_is_certain(db) {
        let store = db.store();
        let (me, other) = (session(&*store).await, session(&*store).await);
        let runs = owned_many(&*store, me, 4).await;
        write(&*store, me, vec![
            decided(runs[0], 0, vec![done(1, "1")]),
            completed(runs[1], 0, vec![done(1, "1")]),
            stuck(runs[2], 0),
        ]).await;
        store.release(me, &[give_back(runs[3])]).await.unwrap();
        let strange = owned(&*store, other).await;
        let nobody = (RunId::new(store.now().await.unwrap()), Epoch(1));
        let mut asked = runs.clone();
        asked.extend([strange, nobody]);
        let mut journal = store.open_journal().await.unwrap();
        let settled = journal.settle(me, &asked).await.unwrap();
        let Settled::Owned { epoch, last: 1 } = settled[0] else { panic!("{settled:?}") };
        assert!(epoch > runs[0].1);
        assert_eq!(settled[1..], [
            Settled::Ended(Status::Completed),
            Settled::Ended(Status::Stuck),
            Settled::Lost,
            Settled::Lost,
            Settled::Lost,
        ]);
        // What arrives late is fenced; the owner goes on at the new epoch.
        assert_eq!(write(&*store, me, vec![decided(runs[0], 1, vec![done(2, "late")])]).await, [Written::Fenced]);
        let now = (runs[0].0, epoch);
        assert_eq!(write(&*store, me, vec![decided(now, 1, vec![done(2, "2")])]).await, [Written::Accepted]);
        assert_eq!(write(&*store, other, vec![decided(strange, 0, vec![done(1, "1")])]).await, [Written::Accepted]);
    }
}

promise! {
    async fn p10_two_who_settle_the_same_runs_in_another_order_do_not_deadlock(db) {
        let store = db.store();
        let me = session(&*store).await;
        let runs = owned_many(&*store, me, 8).await;
        let mut settles = Vec::new();
        for n in 0..8 {
            let mut runs = runs.clone();
            if n % 2 == 0 {
                runs.reverse();
            }
            let mut journal = store.open_journal().await.unwrap();
            settles.push(async move { journal.settle(me, &runs).await.unwrap() });
        }
        let answers = futures::future::join_all(settles).await;
        let owned = answers.iter().flatten().filter(|settled| matches!(settled, Settled::Owned { .. })).count();
        assert_eq!(owned, runs.len(), "each run was settled once: {answers:?}");
    }
}

promise! {
    async fn others_hear_what_is_told(db) {
        let (store, other) = (db.store(), db.another().await);
        let mut listener = store.listen(None).await.unwrap();
        for topic in [Topic::Runs, Topic::Inbox, Topic::Ends] {
            let heard = async {
                loop {
                    other.notify(&[topic]).await.unwrap();
                    let next = tokio::time::timeout(Duration::from_secs(1), listener.next());
                    match next.await {
                        Ok(heard) if heard.as_ref().is_ok_and(|heard| *heard == topic) => break,
                        Ok(Err(error)) => panic!("{error}"),
                        _ => {}
                    }
                }
            };
            tokio::time::timeout(Duration::from_secs(10), heard).await.expect("it is heard");
        }
    }
}

promise! {
    async fn an_empty_batch_and_empty_lists_are_nothing_special(db) {
        let store = db.store();
        let me = session(&*store).await;
        let mut journal = store.open_journal().await.unwrap();
        assert_eq!(journal.write(me, &Batch::default()).await.unwrap().runs, []);
        assert_eq!(journal.settle(me, &[]).await.unwrap(), []);
        assert_eq!(store.load(&[]).await.unwrap(), []);
        assert_eq!(store.inbox(&[]).await.unwrap(), []);
        assert_eq!(store.ends(&[]).await.unwrap(), []);
        assert_eq!(store.release(me, &[]).await.unwrap(), []);
        assert_eq!(store.next_due(&[]).await.unwrap(), None);
        store.notify(&[]).await.unwrap();
    }
}

promise! {
    /// Where a store keeps months apart, each batch finds the rows that it is about, whichever months they are in.
    async fn a_batch_over_a_months_end_is_written_whole(db) {
        let store = db.store();
        let me = session(&*store).await;
        let (now, month) = (store.now().await.unwrap(), Duration::from_secs(31 * 24 * 3600));
        let mut runs = vec![];
        for at in [now, now.saturating_add(month), now.saturating_add(2 * month)] {
            let run = NewRun { run_id: RunId::new(at), ..new_run(&*store).await };
            store.start(&run, IdPolicy::UseExisting, Some(me)).await.unwrap();
            runs.push(run.run_id);
        }
        let mut journal = store.open_journal().await.unwrap();
        let write = |run: RunId, seq: u32| decided((run, Epoch(1)), seq - 1, vec![done(seq, "1")]);
        let batches = [
            vec![write(runs[0], 1), write(runs[1], 1), write(runs[2], 1)],
            vec![write(runs[1], 2)],
            vec![write(runs[0], 2), write(runs[1], 3)],
        ];
        for runs in batches {
            let count = runs.len();
            let written = journal.write(me, &batch(runs)).await.unwrap();
            assert_eq!(written.runs, vec![Written::Accepted; count]);
        }
        for (run, length) in runs.iter().zip([2, 3, 1]) {
            assert_eq!(store.journal(*run, 0, 10).await.unwrap().len(), length);
        }
    }
}
