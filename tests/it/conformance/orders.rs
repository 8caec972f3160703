//! An operator's orders: take-overs that fence whoever owns the run.

use composer_runtime::store::{Order, Ordered, Sent, Status, Written};
use composer_sdk::{error::FailureKind, id::RunId, journal::Outcome};

use super::kit::*;
use crate::support::promise;

fn terminate() -> Order {
    Order::Terminate { reason: "enough".into() }
}

fn pause() -> Order {
    Order::Pause { reason: "a look".into() }
}

promise! {
    async fn p22_a_terminated_run_is_closed_whatever_its_owner_writes_next(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        write(&*store, me, vec![decided(run, 0, vec![done(1, "1")])]).await;
        assert_eq!(store.order(run.0, &terminate()).await.unwrap(), Ordered::Done);
        for late in [decided(run, 1, vec![done(2, "2")]), completed(run, 1, vec![]), stuck(run, 1)] {
            assert_eq!(write(&*store, me, vec![late]).await, [Written::Fenced]);
        }
        let row = store.run(run.0).await.unwrap().unwrap();
        assert_eq!((row.status, row.reason.as_deref()), (Status::Terminated, Some("enough")));
        assert_eq!((row.epoch.0, row.session, row.closed_at.is_some()), (run.1.0 + 1, None, true));
        let (_, end) = store.ends(&[run.0]).await.unwrap().remove(0);
        let Outcome::Failed(failure) = end.outcome else { panic!("{end:?}") };
        assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::Terminated, "enough"));
        assert_eq!(seqs(&*store, run.0).await, [1], "what it did stays");
        assert_eq!(store.send(run.0, &signal("go", "1")).await.unwrap(), Sent::NotOpen(Status::Terminated));
        assert!(claim(&*store, me).await.is_empty());
    }
}

promise! {
    async fn p22_no_order_changes_a_closed_run_and_an_unknown_one_is_unknown(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        write(&*store, me, vec![completed(run, 0, vec![])]).await;
        for order in [terminate(), pause(), Order::Resume] {
            assert_eq!(store.order(run.0, &order).await.unwrap(), Ordered::Not(Status::Completed));
            let nobody = RunId::new(store.now().await.unwrap());
            assert_eq!(store.order(nobody, &order).await.unwrap(), Ordered::NoRun);
        }
        assert_eq!(status(&*store, run.0).await, Status::Completed);
    }
}

promise! {
    async fn an_open_run_is_terminated_wherever_it_stands(db) {
        let store = db.store();
        let me = session(&*store).await;
        let (parked, stuck_run, paused) = (owned(&*store, me).await, owned(&*store, me).await, owned(&*store, me).await);
        let waiting = pending(&*store).await;
        park(&*store, me, parked).await;
        write(&*store, me, vec![stuck(stuck_run, 0)]).await;
        store.order(paused.0, &pause()).await.unwrap();
        for run in [parked.0, stuck_run.0, paused.0, waiting] {
            assert_eq!(store.order(run, &terminate()).await.unwrap(), Ordered::Done);
            assert_eq!(status(&*store, run).await, Status::Terminated);
            assert_eq!(store.order(run, &terminate()).await.unwrap(), Ordered::Not(Status::Terminated));
        }
    }
}

promise! {
    async fn i5_a_paused_run_is_nobodys_and_keeps_its_messages(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        assert_eq!(store.order(run.0, &pause()).await.unwrap(), Ordered::Done);
        assert_eq!(write(&*store, me, vec![decided(run, 0, vec![done(1, "1")])]).await, [Written::Fenced]);
        assert_eq!(store.order(run.0, &pause()).await.unwrap(), Ordered::Not(Status::Paused));
        assert_eq!(store.send(run.0, &signal("go", "1")).await.unwrap(), Sent::Accepted);
        assert!(claim(&*store, me).await.is_empty(), "a message does not wake it");
        assert_eq!(store.owned(me).await.unwrap(), []);
        assert_eq!(store.order(run.0, &Order::Resume).await.unwrap(), Ordered::Done);
        assert_eq!(store.order(run.0, &Order::Resume).await.unwrap(), Ordered::Not(Status::Parked));
        let claimed = claim(&*store, me).await;
        assert_eq!((claimed[0].run_id, claimed[0].epoch.0), (run.0, run.1.0 + 3));
        assert_eq!(store.inbox(&[run.0]).await.unwrap().len(), 1);
    }
}

promise! {
    async fn a_paused_run_that_waited_for_an_instant_or_a_message_waits_for_it_again(db) {
        let store = db.store();
        let me = session(&*store).await;
        let (waits, never) = (owned(&*store, me).await, pending(&*store).await);
        park(&*store, me, waits).await;
        for run in [waits.0, never] {
            store.order(run, &pause()).await.unwrap();
        }
        assert!(claim(&*store, me).await.is_empty());
        for run in [waits.0, never] {
            store.order(run, &Order::Resume).await.unwrap();
        }
        let due: Vec<_> = claim(&*store, me).await.into_iter().map(|claimed| claimed.run_id).collect();
        assert_eq!(due, [never], "the one that waits for a message is not due");
        assert_eq!(status(&*store, waits.0).await, Status::Parked);
        store.send(waits.0, &signal("go", "1")).await.unwrap();
        assert_eq!(claim(&*store, me).await.len(), 1);
    }
}

promise! {
    async fn a_stuck_run_that_is_resumed_is_due_for_the_same_build(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        write(&*store, me, vec![stuck(run, 0)]).await;
        assert!(claim(&*store, me).await.is_empty(), "this build could not go on with it");
        assert_eq!(store.order(run.0, &pause()).await.unwrap(), Ordered::Not(Status::Stuck));
        assert_eq!(store.order(run.0, &Order::Resume).await.unwrap(), Ordered::Done);
        let row = store.run(run.0).await.unwrap().unwrap();
        assert_eq!((row.reason, row.strikes), (None, 0));
        assert_eq!(claim(&*store, me).await.len(), 1);
    }
}
