//! Repair: what makes a run go on that has come to a halt.

use composer_runtime::store::{NewMessage, Sent, Status, Written};
use composer_sdk::journal::Event;

use super::kit::*;
use crate::support::promise;

promise! {
    async fn i10_a_retry_is_a_message_that_makes_a_parked_run_due(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        park(&*store, me, run).await;
        assert!(claim(&*store, me).await.is_empty());
        assert_eq!(store.send(run.0, &NewMessage::Retry).await.unwrap(), Sent::Accepted);
        let claimed = claim(&*store, me).await.remove(0);
        let run = (claimed.run_id, claimed.epoch);
        let message = store.inbox(&[run.0]).await.unwrap().remove(0);
        let asked = entry(1, Event::RetryRequested { inbox: message.id });
        let written = write(&*store, me, vec![decided(run, 0, vec![asked.clone()])]).await;
        assert_eq!(written, [Written::Accepted]);
        assert_eq!(store.inbox(&[run.0]).await.unwrap(), [], "it changed hands");
        assert_eq!(store.journal(run.0, 0, 10).await.unwrap(), [asked]);
    }
}

promise! {
    async fn i10_a_retry_that_came_too_late_is_not_listed(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        store.send(run.0, &NewMessage::Retry).await.unwrap();
        store.send(run.0, &signal("go", "1")).await.unwrap();
        write(&*store, me, vec![completed(run, 0, vec![])]).await;
        assert_eq!(store.unconsumed(run.0).await.unwrap().len(), 1, "the signal, before it is put aside");
        store.sweep(&mut Default::default()).await.unwrap();
        assert_eq!(store.unconsumed(run.0).await.unwrap().len(), 1, "and after");
    }
}

promise! {
    async fn i10_only_an_open_run_that_is_not_stuck_takes_a_retry(db) {
        let store = db.store();
        let me = session(&*store).await;
        let retry = async |run| store.send(run, &NewMessage::Retry).await.unwrap();
        let (open, stuck_run, ended_run) = (owned(&*store, me).await, owned(&*store, me).await, owned(&*store, me).await);
        write(&*store, me, vec![stuck(stuck_run, 0), completed(ended_run, 0, vec![])]).await;
        let never = pending(&*store).await;
        assert_eq!((retry(open.0).await, retry(never).await), (Sent::Accepted, Sent::Accepted));
        assert_eq!(retry(stuck_run.0).await, Sent::NotOpen(Status::Stuck));
        assert_eq!(retry(ended_run.0).await, Sent::NotOpen(Status::Completed));
        assert_eq!(store.inbox(&[stuck_run.0, ended_run.0]).await.unwrap(), []);
        assert_eq!(status(&*store, never).await, Status::Pending, "it is not taken for a request to cancel");
    }
}
