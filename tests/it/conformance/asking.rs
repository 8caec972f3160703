//! A client's side: starting, sending, finding.

use composer_runtime::store::{Sent, Started, Status};

use super::kit::*;
use crate::support::promise;

promise! {
    async fn a_new_run_is_pending_and_can_be_read(db) {
        let store = db.store();
        let run = new_run(&*store).await;
        let started = store.start(&run, Default::default(), None).await.unwrap();
        assert!(matches!(started, Started::New { owned: None, .. }), "{started:?}");
        let row = store.run(run.run_id).await.unwrap().unwrap();
        assert_eq!(row.status, Status::Pending);
        assert_eq!(row.workflow_id.as_str(), run.run_id.to_string());
        assert_eq!(store.input(run.run_id).await.unwrap(), Some(run.input));
    }
}

promise! {
    async fn a_signal_to_an_open_run_waits_in_its_inbox(db) {
        let store = db.store();
        let run = pending(&*store).await;
        assert_eq!(store.send(run, &signal("go", "1")).await.unwrap(), Sent::Accepted);
        let inbox = store.inbox(&[run]).await.unwrap();
        assert_eq!(inbox.len(), 1);
        store.sweep(&mut Default::default()).await.unwrap();
        store.unhosted().await.unwrap();
    }
}
