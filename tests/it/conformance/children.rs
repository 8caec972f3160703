//! Children: started as their parent's owner, told of in the transaction that ends them.

use composer_runtime::store::{
    ChildStarted, End, Epoch, IdPolicy, MessageContent, NewRun, Order, Parent, RunFilter, Status, Store,
    Written,
};
use composer_sdk::{
    id::RunId,
    journal::{Event, Outcome},
};

use super::kit::*;
use crate::support::promise;

fn parent_of(session: composer_runtime::SessionId, (run_id, epoch): (RunId, Epoch)) -> Parent {
    Parent { run_id, session, epoch, step: 3, abandoned: false }
}

/// The ends of children in a run's inbox: the steps.
async fn told(store: &dyn Store, run: RunId) -> Vec<u32> {
    let messages = store.inbox(&[run]).await.unwrap();
    messages
        .into_iter()
        .map(|message| match message.content {
            MessageContent::Child { step, .. } => step,
            other => panic!("{other:?}"),
        })
        .collect()
}

promise! {
    async fn p35_a_child_is_started_once_by_its_parents_owner_and_by_nobody_else(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        let parent = parent_of(me, run);
        for key in [None, Some(id("key of a child"))] {
            let child = NewRun { workflow_id: key, ..new_run(&*store).await };
            for stranger in [
                Parent { epoch: Epoch(run.1.0 - 1), ..parent },
                Parent { session: session(&*store).await, ..parent },
                Parent { run_id: RunId::new(store.now().await.unwrap()), ..parent },
            ] {
                assert_eq!(store.start_child(&child, &stranger).await.unwrap(), ChildStarted::Fenced);
            }
            assert!(store.run(child.run_id).await.unwrap().is_none(), "nothing of it is written");
            for _ in 0..2 {
                assert_eq!(store.start_child(&child, &parent).await.unwrap(), ChildStarted::Started);
            }
            let row = store.run(child.run_id).await.unwrap().unwrap();
            assert_eq!((row.status, row.parent), (Status::Pending, Some((run.0, 3))));
            assert_eq!(store.input(child.run_id).await.unwrap(), Some(child.input));
        }
        let filter = RunFilter { parent: Some(run.0), ..RunFilter::default() };
        assert_eq!(store.list(&filter, None, 10).await.unwrap().len(), 2);
        write(&*store, me, vec![completed(run, 0, vec![])]).await;
        let late = new_run(&*store).await;
        assert_eq!(store.start_child(&late, &parent).await.unwrap(), ChildStarted::Fenced);
    }
}

promise! {
    async fn p35_a_child_whose_id_another_run_has_is_not_started(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        let other = NewRun { workflow_id: Some(id("taken")), ..new_run(&*store).await };
        store.start(&other, IdPolicy::default(), None).await.unwrap();
        let child = NewRun { workflow_id: Some(id("taken")), ..new_run(&*store).await };
        let answer = store.start_child(&child, &parent_of(me, run)).await.unwrap();
        assert_eq!(answer, ChildStarted::Taken { run_id: other.run_id });
        assert!(store.run(child.run_id).await.unwrap().is_none());
    }
}

promise! {
    async fn a_child_that_ends_in_whatever_way_tells_its_parent_with_its_end(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        let mut expected = 0;
        for way in 0..4 {
            let child = new_run(&*store).await;
            store.start_child(&child, &parent_of(me, run)).await.unwrap();
            match way {
                // By its owner, by an operator, by a cancel before it began, and not at all.
                0 => {
                    let claimed = claim(&*store, me).await.remove(0);
                    assert!(claimed.is_child);
                    let end = End::Closed {
                        status: Status::Completed,
                        outcome: Outcome::Ok(bytes("42")),
                        reason: None,
                        unconsumed: vec![],
                    };
                    let part = decided((claimed.run_id, claimed.epoch), 0, vec![]);
                    let part = composer_runtime::store::RunBatch { end: Some(end), ..part };
                    assert_eq!(write(&*store, me, vec![part]).await, [Written::Accepted]);
                }
                1 => drop(store.order(child.run_id, &Order::Terminate { reason: "x".into() }).await.unwrap()),
                2 => drop(store.send(child.run_id, &cancel("x")).await.unwrap()),
                _ => {
                    let claimed = claim(&*store, me).await.remove(0);
                    write(&*store, me, vec![stuck((claimed.run_id, claimed.epoch), 0)]).await;
                    continue;
                }
            }
            expected += 1;
            assert_eq!(told(&*store, run.0).await, vec![3; expected], "way {way}");
        }
        let first = store.inbox(&[run.0]).await.unwrap().remove(0);
        let MessageContent::Child { outcome: Outcome::Ok(value), .. } = first.content else { panic!() };
        assert_eq!(value, bytes("42"));
        // The row and the entry change hands in one statement, with the value.
        let outcome = Outcome::Ok(value.clone());
        let entry = entry(1, Event::ChildDone { step: 3, inbox: first.id, outcome });
        assert_eq!(write(&*store, me, vec![decided(run, 0, vec![entry.clone()])]).await, [Written::Accepted]);
        assert_eq!(told(&*store, run.0).await, [3, 3]);
        assert_eq!(store.journal(run.0, 0, 10).await.unwrap()[0].event, entry.event);
    }
}

promise! {
    async fn a_parked_parent_is_due_when_its_child_has_ended(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        let child = new_run(&*store).await;
        store.start_child(&child, &parent_of(me, run)).await.unwrap();
        let claimed = claim(&*store, me).await.remove(0);
        park(&*store, me, run).await;
        assert!(claim(&*store, me).await.is_empty());
        write(&*store, me, vec![completed((claimed.run_id, claimed.epoch), 0, vec![])]).await;
        assert_eq!(claim(&*store, me).await[0].run_id, run.0);
    }
}

promise! {
    async fn a_terminated_parents_children_are_asked_to_cancel_unless_they_are_detached(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        let (child, detached) = (new_run(&*store).await, new_run(&*store).await);
        store.start_child(&child, &parent_of(me, run)).await.unwrap();
        store.start_child(&detached, &Parent { abandoned: true, ..parent_of(me, run) }).await.unwrap();
        store.order(run.0, &Order::Terminate { reason: "enough".into() }).await.unwrap();
        let asked = store.inbox(&[child.run_id]).await.unwrap();
        assert!(matches!(asked[..], [composer_runtime::store::Message { content: MessageContent::Cancel { .. }, .. }]));
        assert_eq!(store.inbox(&[detached.run_id]).await.unwrap(), []);
        // Nobody is told of the end of a child whose parent is closed.
        store.order(child.run_id, &Order::Terminate { reason: "enough".into() }).await.unwrap();
        assert_eq!(store.inbox(&[run.0]).await.unwrap(), []);
        assert_eq!(store.unconsumed(run.0).await.unwrap(), []);
    }
}
