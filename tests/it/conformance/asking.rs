//! A client's side: starting, sending, finding, deleting.

use std::{sync::Arc, time::Duration};

use composer_runtime::store::{
    Codec, Deleted, IdPolicy, MessageContent, NewRun, Release, Released, RunFilter, Sent, Started, Status,
    StoreError, Until, Written,
};
use composer_sdk::{
    id::{RunId, Timestamp},
    journal::Outcome,
    payload::Payload,
};

use super::kit::*;
use crate::support::promise;

promise! {
    async fn a_new_run_is_pending_and_can_be_read(db) {
        let store = db.store();
        let run = new_run(&*store).await;
        let started = store.start(&run, IdPolicy::default(), None).await.unwrap();
        assert!(matches!(started, Started::New { owned: None, .. }), "{started:?}");
        let row = store.run(run.run_id).await.unwrap().unwrap();
        assert_eq!(row.status, Status::Pending);
        assert_eq!(row.workflow_id.as_str(), run.run_id.to_string());
        assert_eq!((row.session, row.started_at, row.closed_at), (None, None, None));
        assert_eq!(store.input(run.run_id).await.unwrap(), Some(run.input));
        assert_eq!(store.find(&row.workflow_id).await.unwrap().map(|row| row.run_id), Some(run.run_id));
    }
}

promise! {
    async fn a_run_that_its_worker_starts_is_owned_at_once(db) {
        let store = db.store();
        let me = session(&*store).await;
        for key in [None, Some(id("key"))] {
            let run = NewRun { workflow_id: key, ..new_run(&*store).await };
            let Started::New { owned: Some(epoch), at } = store.start(&run, IdPolicy::default(), Some(me)).await.unwrap()
            else { panic!("not owned") };
            let row = store.run(run.run_id).await.unwrap().unwrap();
            assert_eq!((row.status, row.session, row.started_at), (Status::Running, Some(me), Some(at)));
            assert_eq!(write(&*store, me, vec![completed((run.run_id, epoch), 0, vec![])]).await, [Written::Accepted]);
        }
        assert!(claim(&*store, me).await.is_empty());
    }
}

promise! {
    async fn a_run_that_a_dead_session_starts_is_pending(db) {
        let store = db.store();
        let (dead, me) = (session(&*store).await, session(&*store).await);
        store.close_session(dead).await.unwrap();
        let run = new_run(&*store).await;
        let started = store.start(&run, IdPolicy::default(), Some(dead)).await.unwrap();
        assert!(matches!(started, Started::New { owned: None, .. }), "{started:?}");
        assert_eq!(claim(&*store, me).await.len(), 1);
    }
}

promise! {
    async fn a_delayed_run_is_nobodys_before_its_time(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = NewRun { delay: Duration::from_secs(3600), timeout: Some(Duration::from_secs(60)), ..new_run(&*store).await };
        let started = store.start(&run, IdPolicy::default(), Some(me)).await.unwrap();
        assert!(matches!(started, Started::New { owned: None, .. }), "{started:?}");
        assert!(claim(&*store, me).await.is_empty());
        let row = store.run(run.run_id).await.unwrap().unwrap();
        assert_eq!(row.due_at, row.created_at.checked_add(run.delay));
        assert_eq!(row.deadline, row.due_at.unwrap().checked_add(Duration::from_secs(60)), "counts from its start");
        assert_eq!(store.next_due(&["order".into()]).await.unwrap(), row.due_at);
        db.make_due(run.run_id).await;
        assert_eq!(claim(&*store, me).await[0].deadline, row.deadline);
    }
}

promise! {
    async fn a_delay_or_timeout_without_end_is_as_long_as_time(db) {
        let store = db.store();
        let run = NewRun { delay: Duration::MAX, timeout: Some(Duration::MAX), ..new_run(&*store).await };
        store.start(&run, IdPolicy::default(), None).await.unwrap();
        let row = store.run(run.run_id).await.unwrap().unwrap();
        assert!(row.due_at.unwrap() >= Timestamp::MAX && row.deadline.unwrap() >= Timestamp::MAX, "{row:?}");
    }
}

promise! {
    async fn an_id_names_one_run_whatever_the_policy_while_it_is_open(db) {
        let store = db.store();
        let first = NewRun { workflow_id: Some(id("key")), ..new_run(&*store).await };
        store.start(&first, IdPolicy::default(), None).await.unwrap();
        for policy in [IdPolicy::UseExisting, IdPolicy::Reject, IdPolicy::NewWhenClosed] {
            let second = NewRun { workflow: "other".into(), run_id: new_run(&*store).await.run_id, ..first.clone() };
            let started = store.start(&second, policy, None).await.unwrap();
            let exists = Started::Exists { run_id: first.run_id, workflow: "order".into(), status: Status::Pending };
            assert_eq!(started, exists);
            assert_eq!(store.run(second.run_id).await.unwrap(), None);
        }
        assert_eq!(store.find(&id("key")).await.unwrap().unwrap().run_id, first.run_id);
        assert_eq!(store.find(&id("Key")).await.unwrap(), None);
    }
}

promise! {
    async fn an_id_names_a_new_run_when_the_old_one_is_closed_and_the_policy_says_so(db) {
        let store = db.store();
        let me = session(&*store).await;
        let first = NewRun { workflow_id: Some(id("key")), ..new_run(&*store).await };
        store.start(&first, IdPolicy::default(), None).await.unwrap();
        let epoch = claim(&*store, me).await[0].epoch;
        write(&*store, me, vec![completed((first.run_id, epoch), 0, vec![])]).await;

        let second = NewRun { run_id: new_run(&*store).await.run_id, ..first.clone() };
        let started = store.start(&second, IdPolicy::UseExisting, None).await.unwrap();
        assert!(matches!(started, Started::Exists { status: Status::Completed, .. }), "{started:?}");
        let started = store.start(&second, IdPolicy::NewWhenClosed, None).await.unwrap();
        assert!(matches!(started, Started::New { .. }), "{started:?}");
        assert_eq!(store.find(&id("key")).await.unwrap().unwrap().run_id, second.run_id);

        // The older run goes, the id stays with the younger one.
        assert_eq!(store.delete(first.run_id).await.unwrap(), Deleted::Done);
        assert_eq!(store.find(&id("key")).await.unwrap().unwrap().run_id, second.run_id);
    }
}

promise! {
    async fn a_start_that_is_repeated_finds_its_own_run(db) {
        let store = db.store();
        let me = session(&*store).await;
        for key in [None, Some(id("key"))] {
            let run = NewRun { workflow_id: key, ..new_run(&*store).await };
            let first = store.start(&run, IdPolicy::Reject, Some(me)).await.unwrap();
            assert_eq!(store.start(&run, IdPolicy::Reject, Some(me)).await.unwrap(), first);
        }
    }
}

promise! {
    async fn fifty_starts_of_one_id_at_once_make_one_run(db) {
        let (one, two) = (db.store(), db.another().await);
        let mut starts = Vec::new();
        for n in 0..50 {
            let run = NewRun { workflow_id: Some(id("key")), ..new_run(&*one).await };
            let store = if n % 2 == 0 { one.clone() } else { two.clone() };
            starts.push(async move { (run.run_id, store.start(&run, IdPolicy::default(), None).await.unwrap()) });
        }
        let answers = futures::future::join_all(starts).await;
        let new: Vec<RunId> = answers
            .iter()
            .filter_map(|(run, answer)| matches!(answer, Started::New { .. }).then_some(*run))
            .collect();
        assert_eq!(new.len(), 1, "{answers:?}");
        for (_, answer) in &answers {
            if let Started::Exists { run_id, .. } = answer {
                assert_eq!(*run_id, new[0]);
            }
        }
        assert_eq!(one.list(&RunFilter::default(), None, 100).await.unwrap().len(), 1);
    }
}

promise! {
    async fn ids_are_bytes(db) {
        let store = db.store();
        let long = "x".repeat(512);
        let texts = [
            "a", "A", "a ", " a", "a\n", "é", "e\u{301}", "%", "_", "\\", "\\%", "'", "\"", "🎉", "12", "../..", &long,
            "a/b?c#d&e+f", "\u{202e}", "\t",
        ];
        let mut runs = Vec::new();
        for text in texts {
            let run = NewRun { workflow_id: Some(id(text)), ..new_run(&*store).await };
            let started = store.start(&run, IdPolicy::Reject, None).await.unwrap();
            assert!(matches!(started, Started::New { .. }), "{text:?}: {started:?}");
            runs.push(run.run_id);
        }
        for (text, run) in texts.iter().zip(&runs) {
            let row = store.find(&id(text)).await.unwrap().unwrap();
            assert_eq!((row.run_id, row.workflow_id.as_str()), (*run, *text));
        }
    }
}

promise! {
    async fn a_prefix_is_literal(db) {
        let store = db.store();
        for text in ["user:1_a", "user:12_b", "user:1%", "User:1_c"] {
            let run = NewRun { workflow_id: Some(id(text)), ..new_run(&*store).await };
            store.start(&run, IdPolicy::default(), None).await.unwrap();
        }
        let unnamed = pending(&*store).await;
        for (prefix, expected) in [("user:1_", 1), ("user:1%", 1), ("user:1", 3), ("%", 0), ("\\", 0), ("U", 1)] {
            let filter = RunFilter { id_prefix: Some(prefix.into()), ..RunFilter::default() };
            assert_eq!(store.list(&filter, None, 10).await.unwrap().len(), expected, "{prefix}");
        }
        let filter = RunFilter { id_prefix: Some(unnamed.to_string()), ..RunFilter::default() };
        assert_eq!(store.list(&filter, None, 10).await.unwrap().len(), 1, "a run without an id is listed by its own");
    }
}

promise! {
    async fn a_list_is_newest_first_in_pages_and_filtered(db) {
        let store = db.store();
        let me = session(&*store).await;
        let mut runs = Vec::new();
        for n in 0..5_u32 {
            let mut run = new_run(&*store).await;
            run.workflow = if n < 3 { "order" } else { "other" }.into();
            run.tags.insert("n".into(), n.to_string());
            run.tags.insert("all".into(), "yes".into());
            store.start(&run, IdPolicy::default(), None).await.unwrap();
            runs.push(run.run_id);
        }
        pending(&*store).await;
        claim(&*store, me).await;
        let mut newest: Vec<RunId> = runs.clone();
        newest.sort();
        newest.reverse();
        let tagged = |key: &str, value: &str| RunFilter { tag: Some((key.into(), value.into())), ..RunFilter::default() };
        let list = |filter: RunFilter, before, limit| {
            let store = store.clone();
            async move {
                let rows = store.list(&filter, before, limit).await.unwrap();
                rows.iter().map(|row| row.run_id).collect::<Vec<_>>()
            }
        };
        assert_eq!(list(tagged("all", "yes"), None, 10).await, newest);
        let page = list(tagged("all", "yes"), None, 2).await;
        assert_eq!(page, newest[..2]);
        assert_eq!(list(tagged("all", "yes"), page.last().copied(), 10).await, newest[2..]);
        assert_eq!(list(tagged("n", "4"), None, 10).await, [runs[4]]);
        assert!(list(tagged("n", "no"), None, 10).await.is_empty());
        let others = RunFilter { workflow: Some("other".into()), statuses: vec![Status::Pending], ..RunFilter::default() };
        assert_eq!(list(others, None, 10).await.len(), 2);
        let running = RunFilter { statuses: vec![Status::Running, Status::Stuck], ..RunFilter::default() };
        assert_eq!(list(running, None, 10).await.len(), 4);
        let row = store.run(runs[2]).await.unwrap().unwrap();
        assert_eq!(row.tags["n"], "2");
        let at = Some(row.created_at);
        let from = RunFilter { created_from: at, ..tagged("all", "yes") };
        let before = RunFilter { created_before: at, ..tagged("all", "yes") };
        assert_eq!(list(from, None, 10).await.len() + list(before, None, 10).await.len(), 5);
    }
}

promise! {
    async fn a_row_says_whether_a_live_session_hosts_its_workflow(db) {
        let store = db.store();
        let run = pending(&*store).await;
        assert!(!store.run(run).await.unwrap().unwrap().hosted);
        assert_eq!(store.unhosted().await.unwrap(), [("order".to_owned(), 1)]);
        session_of(&*store, BUILD, &["other"]).await;
        assert!(!store.run(run).await.unwrap().unwrap().hosted);
        let me = session(&*store).await;
        assert!(store.run(run).await.unwrap().unwrap().hosted);
        assert_eq!(store.unhosted().await.unwrap(), []);
        db.lapse(me).await;
        assert!(!store.run(run).await.unwrap().unwrap().hosted);
    }
}

promise! {
    async fn signals_wait_in_the_order_of_a_sender(db) {
        let store = db.store();
        let run = pending(&*store).await;
        for n in 0..20 {
            assert_eq!(store.send(run, &signal("go", &n.to_string())).await.unwrap(), Sent::Accepted);
        }
        let inbox = store.inbox(&[run]).await.unwrap();
        let values: Vec<_> = inbox.iter().map(|message| message.content.clone()).collect();
        let expected: Vec<_> = (0..20)
            .map(|n: i32| MessageContent::Signal { name: "go".into(), payload: bytes(&n.to_string()) })
            .collect();
        assert_eq!(values, expected);
        assert!(inbox.windows(2).all(|pair| pair[0].id < pair[1].id));
    }
}

promise! {
    async fn what_is_not_open_refuses_messages(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        write(&*store, me, vec![completed(run, 0, vec![])]).await;
        for message in [signal("go", "1"), cancel("why")] {
            assert_eq!(store.send(run.0, &message).await.unwrap(), Sent::NotOpen(Status::Completed));
            let nobody = RunId::new(store.now().await.unwrap());
            assert_eq!(store.send(nobody, &message).await.unwrap(), Sent::NoRun);
        }
        assert_eq!(store.inbox(&[run.0]).await.unwrap(), []);
    }
}

promise! {
    async fn a_stuck_run_takes_signals_and_is_closed_by_a_cancel(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        write(&*store, me, vec![stuck(run, 0)]).await;
        assert_eq!(store.send(run.0, &signal("go", "1")).await.unwrap(), Sent::Accepted);
        assert!(claim(&*store, me).await.is_empty(), "mail does not wake a stuck run");
        assert_eq!(store.send(run.0, &cancel("enough")).await.unwrap(), Sent::Closed);
        let row = store.run(run.0).await.unwrap().unwrap();
        assert_eq!((row.status, row.reason.as_deref()), (Status::Cancelled, Some("enough")));
        let (_, end) = store.ends(&[run.0]).await.unwrap().remove(0);
        assert!(matches!(end.outcome, Outcome::Failed(_)), "{end:?}");
        assert_eq!(store.unconsumed(run.0).await.unwrap().len(), 1);
    }
}

promise! {
    async fn a_run_that_no_worker_ever_took_is_closed_by_a_cancel(db) {
        let store = db.store();
        let delayed = NewRun { delay: Duration::from_secs(3600), ..new_run(&*store).await };
        store.start(&delayed, Default::default(), None).await.unwrap();
        assert_eq!(store.send(delayed.run_id, &signal("go", "1")).await.unwrap(), Sent::Accepted);
        assert_eq!(store.send(delayed.run_id, &cancel("no")).await.unwrap(), Sent::Closed);
        let row = store.run(delayed.run_id).await.unwrap().unwrap();
        assert_eq!((row.status, row.due_at, row.started_at), (Status::Cancelled, None, None));
        assert_eq!(store.unconsumed(delayed.run_id).await.unwrap().len(), 1);
        assert_eq!(store.send(delayed.run_id, &cancel("no")).await.unwrap(), Sent::NotOpen(Status::Cancelled));
        // One that was begun and given back has code that may want to see it.
        let me = session(&*store).await;
        let begun = owned(&*store, me).await;
        let release = Release { run_id: begun.0, epoch: begun.1, until: Until::Now };
        assert_eq!(store.release(me, &[release]).await.unwrap(), [Released::Done]);
        assert_eq!(store.send(begun.0, &cancel("stop")).await.unwrap(), Sent::Accepted);
    }
}

promise! {
    async fn a_cancel_that_reached_a_run_before_it_became_stuck_closes_it(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        assert_eq!(store.send(run.0, &cancel("enough")).await.unwrap(), Sent::Accepted);
        write(&*store, me, vec![stuck(run, 0)]).await;
        store.sweep(&mut Default::default()).await.unwrap();
        assert_eq!(status(&*store, run.0).await, Status::Cancelled);
    }
}

promise! {
    async fn what_a_closed_run_never_received_is_listed(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        store.send(run.0, &signal("a", "1")).await.unwrap();
        store.send(run.0, &signal("b", "2")).await.unwrap();
        let inbox = store.inbox(&[run.0]).await.unwrap();
        let mut part = completed(run, 0, vec![signalled(1, inbox[0].id, "a", "1")]);
        part.end = Some(composer_runtime::store::End::Closed {
            status: Status::Completed,
            outcome: Outcome::Ok(bytes("1")),
            reason: None,
            unconsumed: vec![1],
        });
        assert_eq!(store.unconsumed(run.0).await.unwrap(), [], "an open run may still receive them");
        assert_eq!(write(&*store, me, vec![part]).await, [Written::Accepted]);
        let expected = [("a", "1"), ("b", "2")]
            .map(|(name, value)| MessageContent::Signal { name: name.into(), payload: bytes(value) });
        assert_eq!(store.unconsumed(run.0).await.unwrap(), expected);
        assert_eq!(store.sweep(&mut Default::default()).await.unwrap().shelved, 1);
        assert_eq!(store.sweep(&mut Default::default()).await.unwrap().shelved, 0);
        assert_eq!(store.unconsumed(run.0).await.unwrap(), expected);
    }
}

promise! {
    async fn ends_are_those_of_closed_runs(db) {
        let store = db.store();
        let me = session(&*store).await;
        let runs = owned_many(&*store, me, 3).await;
        let failed = RunEndOf { status: Status::Failed, outcome: Outcome::Err(bytes("\"no\"")), reason: Some("because".into()) };
        write(&*store, me, vec![completed(runs[0], 0, vec![]), failed.part(runs[1]), stuck(runs[2], 0)]).await;
        let all: Vec<RunId> = runs.iter().map(|(run, _)| *run).collect();
        let mut ends = store.ends(&all).await.unwrap();
        ends.sort_by_key(|(run, _)| *run);
        assert_eq!(ends.iter().map(|(run, _)| *run).collect::<Vec<_>>(), all[..2]);
        assert_eq!(ends[0].1.outcome, Outcome::Ok(bytes("42")));
        assert_eq!((ends[1].1.status, ends[1].1.reason.as_deref()), (Status::Failed, Some("because")));
        assert_eq!(ends[1].1.outcome, failed.outcome);
        assert!(store.run(all[0]).await.unwrap().unwrap().closed_at.is_some());
    }
}

/// An end for [`ends_are_those_of_closed_runs`].
struct RunEndOf {
    status: Status,
    outcome: Outcome,
    reason: Option<String>,
}

impl RunEndOf {
    fn part(&self, run: (RunId, composer_runtime::store::Epoch)) -> composer_runtime::store::RunBatch {
        let end = composer_runtime::store::End::Closed {
            status: self.status,
            outcome: self.outcome.clone(),
            reason: self.reason.clone(),
            unconsumed: vec![],
        };
        composer_runtime::store::RunBatch { end: Some(end), ..decided(run, 0, vec![]) }
    }
}

promise! {
    async fn only_a_closed_run_is_deleted_and_nothing_of_it_stays(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = NewRun { workflow_id: Some(id("key")), ..new_run(&*store).await };
        store.start(&run, IdPolicy::default(), None).await.unwrap();
        assert_eq!(store.delete(run.run_id).await.unwrap(), Deleted::Open(Status::Pending));
        let epoch = claim(&*store, me).await[0].epoch;
        store.send(run.run_id, &signal("go", "1")).await.unwrap();
        write(&*store, me, vec![completed((run.run_id, epoch), 0, vec![done(1, "1")])]).await;
        assert_eq!(store.delete(run.run_id).await.unwrap(), Deleted::Done);
        assert_eq!(store.delete(run.run_id).await.unwrap(), Deleted::NoRun);
        for table in ["runs", "journal", "inbox", "ids"] {
            assert_eq!(db.number(&format!("(select count(*) from {{s}}{table})")).await, Some(0), "{table}");
        }
        let again = NewRun { run_id: new_run(&*store).await.run_id, ..run };
        let started = store.start(&again, IdPolicy::Reject, None).await.unwrap();
        assert!(matches!(started, Started::New { .. }), "the id is free again: {started:?}");
    }
}

promise! {
    async fn a_journal_is_read_in_pages(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        let entries: Vec<_> = (1..=5).map(|n| done(n, &n.to_string())).collect();
        write(&*store, me, vec![decided(run, 0, entries.clone())]).await;
        assert_eq!(store.journal(run.0, 0, 2).await.unwrap(), entries[..2]);
        assert_eq!(store.journal(run.0, 2, 10).await.unwrap(), entries[2..]);
        assert_eq!(store.journal(run.0, 5, 10).await.unwrap(), []);
        assert_eq!(store.load(&[run.0]).await.unwrap(), [(run.0, entries)]);
    }
}

/// Turns every bit around, and knows its own work by a first byte.
#[derive(Debug)]
pub(super) struct Flip;

impl Codec for Flip {
    fn encode(&self, payload: Payload) -> Payload {
        let mut stored = vec![7];
        stored.extend(payload.as_bytes().iter().map(|byte| !byte));
        Payload::from(stored)
    }
    fn decode(&self, stored: Payload) -> Result<Payload, String> {
        match stored.as_bytes() {
            [7, rest @ ..] => Ok(Payload::from(rest.iter().map(|byte| !byte).collect::<Vec<_>>())),
            _ => Err("not flipped".into()),
        }
    }
}

promise! {
    async fn every_payload_passes_through_the_codec(db) {
        let (plain, store) = (db.store(), db.coded(Arc::new(Flip)).await);
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        store.send(run.0, &signal("a", "\"x\"")).await.unwrap();
        store.send(run.0, &signal("b", "\"y\"")).await.unwrap();
        let inbox = store.inbox(&[run.0]).await.unwrap();
        let entries = vec![done(1, "1"), signalled(2, inbox[0].id, "a", "\"x\"")];
        write(&*store, me, vec![completed(run, 0, entries.clone())]).await;

        assert_eq!(store.input(run.0).await.unwrap(), Some(bytes("[1]")));
        assert_eq!(store.journal(run.0, 0, 10).await.unwrap(), entries);
        assert_eq!(store.ends(&[run.0]).await.unwrap()[0].1.outcome, Outcome::Ok(bytes("42")));
        let unread = MessageContent::Signal { name: "b".into(), payload: bytes("\"y\"") };
        assert_eq!(store.unconsumed(run.0).await.unwrap(), [unread]);

        assert_ne!(plain.input(run.0).await.unwrap(), Some(bytes("[1]")));
        for entry in plain.journal(run.0, 0, 10).await.unwrap() {
            assert!(!entries.contains(&entry), "{entry:?}");
        }
        let other = pending(&*plain).await;
        assert!(matches!(store.input(other).await, Err(StoreError::Unreadable { .. })));
    }
}

promise! {
    async fn p34_a_cancel_is_seen_listed_or_refused(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        assert_eq!(store.send(run.0, &cancel("late")).await.unwrap(), Sent::Accepted);
        write(&*store, me, vec![completed(run, 0, vec![])]).await;
        assert_eq!(store.send(run.0, &cancel("later")).await.unwrap(), Sent::NotOpen(Status::Completed));
        assert_eq!(store.unconsumed(run.0).await.unwrap(), [MessageContent::Cancel { reason: "late".into() }]);
        // And it wakes a parked run.
        let run = owned(&*store, me).await;
        let release = Release { run_id: run.0, epoch: run.1, until: Until::Due(None) };
        assert_eq!(store.release(me, &[release]).await.unwrap(), [Released::Done]);
        store.send(run.0, &cancel("now")).await.unwrap();
        assert_eq!(claim(&*store, me).await.len(), 1);
    }
}

promise! {
    async fn p40_an_id_is_unique_over_all_months(db) {
        let store = db.store();
        let now = store.now().await.unwrap();
        let month = Duration::from_secs(31 * 24 * 3600);
        let start = |at: Timestamp| {
            let store = store.clone();
            async move {
                let run = NewRun { run_id: RunId::new(at), workflow_id: Some(id("key")), ..new_run(&*store).await };
                store.start(&run, IdPolicy::Reject, None).await.unwrap()
            }
        };
        assert!(matches!(start(now).await, Started::New { .. }));
        for at in [now, now.saturating_add(month), now.saturating_add(2 * month)] {
            assert!(matches!(start(at).await, Started::Exists { .. }));
        }
    }
}

promise! {
    async fn g10_a_run_that_starts_with_a_signal_has_it_once_however_often_that_start_is_repeated(db) {
        let store = db.store();
        let me = session(&*store).await;
        for key in [None, Some(id("with a signal"))] {
            for owner in [None, Some(me)] {
                let key = key.clone().map(|key| id(&format!("{key} {}", owner.is_some())));
                let signal = Some(("go".to_owned(), bytes("1")));
                let run = NewRun { workflow_id: key, signal, ..new_run(&*store).await };
                for _ in 0..2 {
                    let started = store.start(&run, IdPolicy::default(), owner).await.unwrap();
                    assert!(matches!(started, Started::New { .. }), "{started:?}");
                }
                let inbox = store.inbox(&[run.run_id]).await.unwrap();
                let content = MessageContent::Signal { name: "go".into(), payload: bytes("1") };
                assert_eq!(inbox.into_iter().map(|message| message.content).collect::<Vec<_>>(), [content]);
            }
        }
        let taken = NewRun {
            workflow_id: Some(id("with a signal true")),
            signal: Some(("go".to_owned(), bytes("2"))),
            ..new_run(&*store).await
        };
        let started = store.start(&taken, IdPolicy::default(), None).await.unwrap();
        let Started::Exists { run_id, .. } = started else { panic!("{started:?}") };
        assert_eq!(store.inbox(&[run_id]).await.unwrap().len(), 1, "the caller sends it to the one that is there");
        assert_eq!(store.inbox(&[taken.run_id]).await.unwrap(), []);
    }
}
