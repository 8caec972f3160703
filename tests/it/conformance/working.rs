//! A worker's side: claiming, writing, parking.

use composer_runtime::store::{Status, Written};

use super::kit::*;
use crate::support::promise;

promise! {
    async fn a_started_run_is_claimed_written_and_completed(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        assert_eq!(write(&*store, me, vec![decided(run, 0, vec![done(1, "1")])]).await, [Written::Accepted]);
        assert_eq!(write(&*store, me, vec![completed(run, 1, vec![done(2, "2")])]).await, [Written::Accepted]);
        assert_eq!(seqs(&*store, run.0).await, [1, 2]);
        assert_eq!(status(&*store, run.0).await, Status::Completed);
        let ends = store.ends(&[run.0]).await.unwrap();
        assert_eq!(ends.len(), 1);
        assert_eq!(store.load(&[run.0]).await.unwrap()[0].1.len(), 2);
    }
}
