//! Forks: a new run that begins with what another one has done, with all of it or not at all.

use std::{sync::Arc, time::Duration};

use composer_runtime::store::{
    Deleted, ForkKey, Forked, NewFork, NewRun, SessionId, Status, Store, StoreError, Written,
};
use composer_sdk::{
    id::{RunId, WorkflowId},
    journal::{Entry, Event},
};

use super::kit::*;
use crate::support::promise;

/// A fork with an id of the engine.
pub(crate) async fn fork_of(store: &dyn Store, from: RunId, upto: u32) -> NewFork {
    let run_id = RunId::new(store.now().await.unwrap());
    NewFork {
        from,
        run_id,
        key: ForkKey::OwnId,
        step: upto + 1,
        first: 1,
        upto,
        without: vec![],
        input: None,
    }
}

/// A closed run with two entries and that key.
async fn closed(store: &dyn Store, me: SessionId, key: Option<WorkflowId>) -> RunId {
    let run = NewRun { workflow_id: key, ..new_run(store).await };
    store.start(&run, Default::default(), None).await.unwrap();
    let claimed = claim(store, me).await.remove(0);
    let run = (claimed.run_id, claimed.epoch);
    write(store, me, vec![completed(run, 0, vec![done(1, "1"), done(2, "2")])]).await;
    run.0
}

async fn journal(store: &dyn Store, run: RunId) -> Vec<Entry> {
    store.journal(run, 0, 1000).await.unwrap()
}

promise! {
    async fn i7_a_fork_begins_with_what_its_original_has_done_and_leaves_it_alone(db) {
        let store = db.store();
        let me = session(&*store).await;
        let timeout = Duration::from_secs(500);
        let tags = [("shop".to_owned(), "north".to_owned())].into();
        let run = NewRun { workflow_id: Some(id("order-1")), timeout: Some(timeout), tags, ..new_run(&*store).await };
        store.start(&run, Default::default(), None).await.unwrap();
        let claimed = claim(&*store, me).await.remove(0);
        let original = (claimed.run_id, claimed.epoch);
        let entries: Vec<_> = (1..=4).map(|seq| done(seq, &format!("\"{seq}\""))).collect();
        write(&*store, me, vec![decided(original, 0, entries.clone())]).await;
        let before = store.run(original.0).await.unwrap();

        let fork = NewFork { key: ForkKey::New(id("order-1b")), ..fork_of(&*store, original.0, 3).await };
        assert_eq!(store.fork(&fork).await.unwrap(), Forked::Done);
        assert_eq!(journal(&*store, fork.run_id).await, entries[..3]);
        let (old, new) = (before.clone().unwrap(), store.run(fork.run_id).await.unwrap().unwrap());
        assert_eq!((new.status, new.epoch.0, new.workflow_id.as_str()), (Status::Pending, 0, "order-1b"));
        assert_eq!((&new.workflow, &new.tags, new.started_at), (&old.workflow, &old.tags, old.started_at));
        assert_eq!((new.forked_from, old.forked_from, new.parent), (Some((original.0, 4)), None, None));
        assert!(new.created_at > old.created_at);
        assert_eq!(new.deadline, Some(new.created_at.saturating_add(timeout)), "it begins anew");
        assert_eq!(store.input(fork.run_id).await.unwrap(), Some(bytes("[1]")));
        let epochs = format!("(select max(epoch) from {{s}}journal where run_id = {})", db.literal(fork.run_id));
        assert_eq!(db.number(&epochs).await, Some(0), "nobody who owns it wrote them");

        let claimed = claim(&*store, me).await.remove(0);
        assert_eq!((claimed.run_id, claimed.started_at), (fork.run_id, old.started_at.unwrap()));
        assert_eq!((claimed.seed, claimed.copied), (original.0, 3));
        let mine = (claimed.run_id, claimed.epoch);
        assert_eq!(write(&*store, me, vec![decided(mine, 3, vec![done(4, "new")])]).await, [Written::Accepted]);
        assert_eq!(store.run(original.0).await.unwrap(), before);
        assert_eq!(journal(&*store, original.0).await, entries);
        assert_eq!(store.find(&id("order-1")).await.unwrap().unwrap().run_id, original.0);
        assert_eq!(write(&*store, me, vec![decided(original, 4, vec![done(5, "5")])]).await, [Written::Accepted]);
    }
}

promise! {
    async fn a_fork_leaves_out_what_it_begins_afresh_and_has_no_gap(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        write(&*store, me, vec![decided(run, 0, (1..=5).map(|seq| done(seq, &seq.to_string())).collect())]).await;
        let fork = NewFork { without: vec![1, 3], ..fork_of(&*store, run.0, 4).await };
        store.fork(&fork).await.unwrap();
        let entries = journal(&*store, fork.run_id).await;
        let events: Vec<_> = entries.iter().map(|entry| (entry.seq, entry.event.step())).collect();
        assert_eq!(events, [(1, Some(2)), (2, Some(4))]);
        let claimed = claim(&*store, me).await.remove(0);
        assert_eq!((claimed.seed, claimed.copied), (run.0, 2));
    }
}

promise! {
    async fn a_fork_of_a_fork_draws_the_numbers_of_the_first_and_names_the_second(db) {
        let store = db.store();
        let me = session(&*store).await;
        let first = owned(&*store, me).await;
        let second = fork_of(&*store, first.0, 0).await;
        store.fork(&second).await.unwrap();
        claim(&*store, me).await;
        let third = fork_of(&*store, second.run_id, 0).await;
        store.fork(&third).await.unwrap();
        let claimed = claim(&*store, me).await.remove(0);
        assert_eq!((claimed.run_id, claimed.seed), (third.run_id, first.0));
        assert_eq!(store.run(third.run_id).await.unwrap().unwrap().forked_from, Some((second.run_id, 1)));
        let original = owned(&*store, me).await;
        assert_eq!(store.run(original.0).await.unwrap().unwrap().forked_from, None);
    }
}

promise! {
    async fn a_fork_of_a_run_that_no_worker_ever_took_is_a_run_that_no_worker_ever_took(db) {
        let store = db.store();
        let me = session(&*store).await;
        let never = pending(&*store).await;
        let fork = NewFork { input: Some(bytes("[2]")), ..fork_of(&*store, never, 0).await };
        store.fork(&fork).await.unwrap();
        let row = store.run(fork.run_id).await.unwrap().unwrap();
        assert_eq!((row.started_at, row.deadline), (None, None));
        let inputs: Vec<_> = claim(&*store, me).await.into_iter().map(|run| (run.run_id, run.input.unwrap())).collect();
        assert!(inputs.contains(&(fork.run_id, bytes("[2]"))) && inputs.contains(&(never, bytes("[1]"))));
    }
}

promise! {
    async fn a_fork_is_there_with_all_that_it_begins_with_or_not_at_all(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = closed(&*store, me, None).await;
        let fork = NewFork { key: ForkKey::New(id("again")), ..fork_of(&*store, run, 2).await };
        // Its second entry cannot be written.
        let there = db.literal(fork.run_id);
        db.execute(&format!(
            "insert into {{s}}journal (run_id, seq, epoch, at, kind, meta) values ({there}, 2, 0, 1, 7, '{{}}')"
        )).await;
        let refused = store.fork(&fork).await.unwrap_err();
        assert!(matches!(refused, StoreError::Conflict { .. }), "{refused:?}");
        assert_eq!(store.run(fork.run_id).await.unwrap(), None);
        assert_eq!(store.find(&id("again")).await.unwrap(), None);
        assert_eq!(db.number(&format!("select count(*) from {{s}}journal where run_id = {there}")).await, Some(1));
        db.execute(&format!("delete from {{s}}journal where run_id = {there}")).await;
        assert_eq!(store.fork(&fork).await.unwrap(), Forked::Done);
        assert_eq!(seqs(&*store, fork.run_id).await, [1, 2]);

        let beyond = NewFork { key: ForkKey::New(id("beyond")), ..fork_of(&*store, run, 3).await };
        let refused = store.fork(&beyond).await.unwrap_err();
        assert!(matches!(refused, StoreError::Rejected { .. }), "{refused:?}");
        assert_eq!(store.find(&id("beyond")).await.unwrap(), None);
        let nobody = fork_of(&*store, RunId::new(store.now().await.unwrap()), 0).await;
        assert_eq!(store.fork(&nobody).await.unwrap(), Forked::NoRun);
        assert_eq!(store.run(nobody.run_id).await.unwrap(), None);
    }
}

promise! {
    async fn a_fork_that_is_repeated_is_the_same_one(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = closed(&*store, me, Some(id("order-1"))).await;
        for key in [ForkKey::OwnId, ForkKey::New(id("again")), ForkKey::Inherit] {
            let fork = NewFork { key, ..fork_of(&*store, run, 2).await };
            assert_eq!(store.fork(&fork).await.unwrap(), Forked::Done);
            let claimed = claim(&*store, me).await.remove(0);
            let mine = (claimed.run_id, claimed.epoch);
            write(&*store, me, vec![decided(mine, 2, vec![done(3, "3")])]).await;
            let row = store.run(fork.run_id).await.unwrap();
            assert_eq!(store.fork(&fork).await.unwrap(), Forked::Done);
            assert_eq!((store.run(fork.run_id).await.unwrap(), seqs(&*store, fork.run_id).await), (row, vec![1, 2, 3]));
        }
    }
}

promise! {
    async fn a_forks_own_key_is_one_that_nobody_has(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = closed(&*store, me, Some(id("order-1"))).await;
        let other = closed(&*store, me, Some(id("order-2"))).await;
        for (key, has) in [("order-1", run), ("order-2", other)] {
            let fork = NewFork { key: ForkKey::New(id(key)), ..fork_of(&*store, run, 2).await };
            let taken = Forked::Taken { run_id: has, status: Status::Completed };
            assert_eq!(store.fork(&fork).await.unwrap(), taken);
            assert_eq!(store.run(fork.run_id).await.unwrap(), None);
            assert_eq!(seqs(&*store, fork.run_id).await, [0; 0]);
            assert_eq!(store.find(&id(key)).await.unwrap().unwrap().run_id, has);
        }
    }
}

promise! {
    async fn a_key_is_inherited_from_a_closed_run_once(db) {
        let store = db.store();
        let me = session(&*store).await;
        let open = owned(&*store, me).await;
        let heir = async |from, upto| NewFork { key: ForkKey::Inherit, ..fork_of(&*store, from, upto).await };
        let fork = heir(open.0, 0).await;
        assert_eq!(store.fork(&fork).await.unwrap(), Forked::Open(Status::Running));
        assert_eq!(store.run(fork.run_id).await.unwrap(), None);

        // With a key of the user, and with none: then the run id is the key.
        for key in [Some(id("order-1")), None] {
            let run = closed(&*store, me, key.clone()).await;
            let key = key.unwrap_or_else(|| run.into());
            let mut forks = vec![];
            for _ in 0..8 {
                forks.push(heir(run, 2).await);
            }
            let answers = futures::future::join_all(forks.iter().map(|fork| store.fork(fork))).await;
            let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
            let winner = answers.iter().position(|answer| *answer == Forked::Done).expect("one of them is the heir");
            let winner = forks[winner].run_id;
            let taken = Forked::Taken { run_id: winner, status: Status::Pending };
            assert_eq!(answers.iter().filter(|answer| **answer == taken).count(), 7, "{answers:?}");
            let row = store.find(&key).await.unwrap().unwrap();
            assert_eq!((row.run_id, &row.workflow_id), (winner, &key));
            assert_eq!(store.run(run).await.unwrap().unwrap().workflow_id, key, "the original is as it was");

            // Not even when the heir has ended: there is one line of succession.
            let claimed = claim(&*store, me).await.remove(0);
            write(&*store, me, vec![completed((claimed.run_id, claimed.epoch), 2, vec![])]).await;
            let late = heir(run, 2).await;
            let taken = Forked::Taken { run_id: winner, status: Status::Completed };
            assert_eq!(store.fork(&late).await.unwrap(), taken);
            assert_eq!(store.delete(winner).await.unwrap(), Deleted::Done);
            assert_eq!(store.fork(&late).await.unwrap(), Forked::Done);
            assert_eq!(store.find(&key).await.unwrap().unwrap().run_id, late.run_id);
            claim(&*store, me).await;
        }
    }
}

promise! {
    async fn messages_of_a_fork_and_of_its_original_are_not_mixed_up(db) {
        let store = db.store();
        let me = session(&*store).await;
        let original = owned(&*store, me).await;
        store.send(original.0, &signal("go", "1")).await.unwrap();
        let row = store.inbox(&[original.0]).await.unwrap().remove(0);
        write(&*store, me, vec![decided(original, 0, vec![signalled(1, row.id, "go", "1")])]).await;
        store.send(original.0, &signal("go", "2")).await.unwrap();
        let fork = fork_of(&*store, original.0, 1).await;
        store.fork(&fork).await.unwrap();
        assert_eq!(store.inbox(&[fork.run_id]).await.unwrap(), [], "what is not journaled is the original's alone");
        let claimed = claim(&*store, me).await.remove(0);
        let mine = (claimed.run_id, claimed.epoch);
        store.send(fork.run_id, &signal("go", "3")).await.unwrap();
        let new = store.inbox(&[fork.run_id]).await.unwrap().remove(0);
        assert_ne!(new.id, row.id);
        let written = write(&*store, me, vec![decided(mine, 1, vec![signalled(2, new.id, "go", "3")])]).await;
        assert_eq!(written, [Written::Accepted]);
        let values = journal(&*store, fork.run_id).await.into_iter().map(|entry| match entry.event {
            Event::Signal { payload, .. } => payload,
            other => panic!("{other:?}"),
        });
        assert_eq!(values.collect::<Vec<_>>(), [bytes("1"), bytes("3")]);
        assert_eq!(store.inbox(&[original.0]).await.unwrap().len(), 1);
    }
}

promise! {
    async fn what_a_codec_encoded_is_readable_in_a_fork(db) {
        let store = db.coded(Arc::new(crate::conformance::asking::Flip)).await;
        let me = session(&*store).await;
        let run = closed(&*store, me, None).await;
        let fork = fork_of(&*store, run, 2).await;
        let other = NewFork { input: Some(bytes("[22]")), ..fork_of(&*store, run, 0).await };
        store.fork(&fork).await.unwrap();
        store.fork(&other).await.unwrap();
        assert_eq!(store.input(fork.run_id).await.unwrap(), Some(bytes("[1]")));
        assert_eq!(store.input(other.run_id).await.unwrap(), Some(bytes("[22]")));
        assert_eq!(journal(&*store, fork.run_id).await, [done(1, "1"), done(2, "2")]);
    }
}

promise! {
    async fn i7_a_fork_of_a_run_that_goes_on_has_all_that_was_there_when_it_was_asked_for(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        let last = 150;
        let appending = async {
            let mut journal = db.another().await.open_journal().await.unwrap();
            for seq in 1..=last {
                let part = vec![decided(run, seq - 1, vec![done(seq, &seq.to_string())])];
                let written = journal.write(me, &batch(part)).await.unwrap().runs;
                assert_eq!(written, [Written::Accepted], "a fork is in nobody's way");
            }
        };
        let forking = async {
            loop {
                let there = seqs(&*store, run.0).await.len() as u32;
                let fork = fork_of(&*store, run.0, there).await;
                assert_eq!(store.fork(&fork).await.unwrap(), Forked::Done);
                assert_eq!(seqs(&*store, fork.run_id).await, (1..=there).collect::<Vec<_>>());
                if there == last {
                    break;
                }
            }
        };
        tokio::join!(appending, forking);
    }
}
