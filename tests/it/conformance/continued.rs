//! Generations: a run that continues as new is the same row, with a journal that begins further down.

use composer_runtime::store::{
    End, Epoch, Release, Released, RunBatch, SessionId, Settled, Status, Store, Until, Written,
};
use composer_sdk::{id::RunId, journal::Event};

use super::kit::*;
use crate::support::promise;

/// Two entries, then a generation that begins with the third.
fn continues(run: (RunId, Epoch)) -> RunBatch {
    let begins = Event::Continued { generation: 1, steps: 2, workflow: "order".into(), input: bytes("[2]") };
    let entries = vec![done(1, "1"), done(2, "2"), entry(3, begins)];
    RunBatch { end: Some(End::Continued { workflow: "order".into(), base: 3 }), ..decided(run, 0, entries) }
}

async fn loaded(store: &dyn Store, run: RunId) -> Vec<u32> {
    let journals = store.load(&[run]).await.unwrap();
    journals[0].1.iter().map(|entry| entry.seq).collect()
}

async fn give_back(store: &dyn Store, me: SessionId, (run_id, epoch): (RunId, Epoch)) {
    let released = store.release(me, &[Release { run_id, epoch, until: Until::Now }]).await.unwrap();
    assert_eq!(released, [Released::Done]);
}

promise! {
    async fn p33_the_owner_goes_on_with_a_generation_that_its_last_write_began(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        let stale = (run.0, Epoch(run.1.0 - 1));
        assert_eq!(write(&*store, me, vec![continues(stale)]).await, [Written::Fenced]);
        assert_eq!(loaded(&*store, run.0).await, [0_u32; 0], "nothing of it is written");
        assert_eq!(write(&*store, me, vec![continues(run)]).await, [Written::Accepted]);
        let row = store.run(run.0).await.unwrap().unwrap();
        assert_eq!((row.status, row.epoch, row.session), (Status::Running, run.1, Some(me)));
        assert_eq!((row.closed_at, row.reason), (None, None));
        assert_eq!(write(&*store, me, vec![decided(run, 3, vec![done(4, "4")])]).await, [Written::Accepted]);
        assert_eq!(loaded(&*store, run.0).await, [3, 4]);
        // So does whoever takes it next.
        give_back(&*store, me, run).await;
        let epoch = claim(&*store, me).await[0].epoch;
        assert_eq!(loaded(&*store, run.0).await, [3, 4]);
        assert_eq!(write(&*store, me, vec![completed((run.0, epoch), 4, vec![])]).await, [Written::Accepted]);
        assert_eq!(seqs(&*store, run.0).await, [1, 2, 3, 4], "people still see it all");
    }
}

promise! {
    async fn p33_an_unknown_outcome_of_a_generations_begin_is_settled_by_its_entries(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        write(&*store, me, vec![continues(run)]).await;
        let mut journal = store.open_journal().await.unwrap();
        let settled = journal.settle(me, &[run]).await.unwrap();
        assert_eq!(settled, [Settled::Owned { epoch: Epoch(run.1.0 + 1), last: 3 }]);
        assert_eq!(loaded(&*store, run.0).await, [3]);
    }
}

promise! {
    async fn only_entries_of_past_generations_can_be_pruned(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        let other = owned(&*store, me).await;
        write(&*store, me, vec![decided(other, 0, vec![done(1, "1")])]).await;
        assert_eq!(store.prune(other.0, 1_000).await.unwrap(), 0);
        write(&*store, me, vec![continues(run)]).await;
        assert_eq!(store.prune(run.0, 2).await.unwrap(), 1);
        assert_eq!(seqs(&*store, run.0).await, [2, 3]);
        assert_eq!(store.prune(run.0, 1_000).await.unwrap(), 1);
        assert_eq!(seqs(&*store, run.0).await, [3]);
        assert_eq!(seqs(&*store, other.0).await, [1]);
        assert_eq!(write(&*store, me, vec![decided(run, 3, vec![done(4, "4")])]).await, [Written::Accepted]);
    }
}

promise! {
    async fn p32_messages_stay_in_the_inbox_from_one_generation_to_the_next(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        store.send(run.0, &signal("go", "1")).await.unwrap();
        write(&*store, me, vec![continues(run)]).await;
        store.send(run.0, &signal("go", "2")).await.unwrap();
        let mail = store.inbox(&[run.0]).await.unwrap();
        assert_eq!(mail.len(), 2);
        let release = Release { run_id: run.0, epoch: run.1, until: Until::Due(None) };
        assert_eq!(store.release(me, &[release]).await.unwrap(), [Released::Mail], "and keep it awake");
        let received = vec![signalled(4, mail[0].id, "go", "1"), signalled(5, mail[1].id, "go", "2")];
        assert_eq!(write(&*store, me, vec![decided(run, 3, received)]).await, [Written::Accepted]);
    }
}

promise! {
    async fn a_run_may_go_on_as_another_workflow(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        let mut part = continues(run);
        part.end = Some(End::Continued { workflow: "order_v2".into(), base: 3 });
        write(&*store, me, vec![part]).await;
        give_back(&*store, me, run).await;
        assert!(claim(&*store, me).await.is_empty(), "it is nothing for a worker of the old one");
        let newer = session_of(&*store, BUILD, &["order_v2"]).await;
        let mut claim = claim_for(newer);
        claim.workflows = vec!["order_v2".into()];
        assert_eq!(store.claim(&claim).await.unwrap()[0].workflow, "order_v2");
    }
}
