//! What only Postgres can show: interleavings of transactions steered step by step, locks, plans, DDL.
//!
//! A [`Hand`] is a raw connection; what it leaves open stands for another process in the middle of something.

use std::{future::Future, time::Duration};

use composer_runtime::store::{
    Batch, Claim, Deleted, End, Forked, NewRun, NewSession, Order, Ordered, Release, Released, Renewed,
    RunBatch, Sent, Settled, Started, Status, Store, StoreError, StoreOptions, Suspects, Until, Written,
    postgres::PostgresStore,
};
use composer_sdk::{
    id::{RunId, Timestamp},
    journal::{Entry, Event, Outcome},
};
use futures::future::BoxFuture;

use super::{forks::fork_of, kit::*};
use crate::support::{
    Database, block_on, eventually,
    postgres::{
        Hand, Postgres, QUOTED, SCHEMA, admin_url, drop_database, empty_database, options, with_database,
    },
};

/// A test on Postgres alone.
macro_rules! on_postgres {
    ($(#[$doc:meta])* async fn $name:ident($db:ident) $body:block) => {
        $(#[$doc])*
        #[test]
        fn $name() {
            with_database(|$db| Box::pin(async move { let $db: &Postgres = &$db; $body }));
        }
    };
}

/// What must not wait for anybody.
async fn at_once<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(3), work).await.unwrap_or_else(|_| panic!("{what} waited"))
}

/// Waits until somebody waits for a lock in this database.
async fn somebody_waits(hand: &mut Hand) {
    so_many_wait(hand, 1).await;
}

/// Waits until that many do.
async fn so_many_wait(hand: &mut Hand, count: i64) {
    let hand = tokio::sync::Mutex::new(hand);
    let waiting = "(select count(*) from pg_stat_activity
                     where datname = current_database() and wait_event_type = 'Lock')";
    eventually("somebody waits for a lock", || async {
        (hand.lock().await.number(waiting).await >= Some(count)).then_some(())
    })
    .await;
}

/// SQL of a sender that has inserted and not committed.
fn half_a_signal(run: RunId) -> String {
    format!(
        "begin;
         insert into {{s}}inbox (run_id, kind, name, payload)
         select run_id, 1, 'go', '1' from {{s}}runs where run_id = '{run}' and status < 5 for key share;"
    )
}

/// SQL of an owner whose batch has written entry `seq` and not committed.
fn half_a_batch(run: RunId, seq: u32) -> String {
    let record = done(seq, "1").event.to_record();
    format!(
        "begin;
         select from {{s}}runs where run_id = '{run}' for no key update;
         insert into {{s}}journal (run_id, seq, epoch, at, kind, meta, payload)
         select run_id, {seq}, epoch, 1, {}, '{}', '1' from {{s}}runs where run_id = '{run}';",
        record.kind, record.meta
    )
}

fn park(run: (RunId, composer_runtime::store::Epoch)) -> Release {
    Release { run_id: run.0, epoch: run.1, until: Until::Due(None) }
}

// -------------------------------------------------------------------------------------------- the batch and the fence

on_postgres! {
    async fn p01_entries_and_end_are_one_in_whatever_order_the_parts_are_read(db) {
        let store = db.store();
        let me = session(&*store).await;
        let orders = [("write_mixed", ["j", "c"]), ("write_mixed", ["c", "j"]), ("write_mailless", ["j", "c"]), ("write_mailless", ["c", "j"])];
        for (seq, (statement, parts)) in orders.into_iter().enumerate() {
            let mixed = db.postgres().statement(statement).unwrap().to_owned();
            let (head, _) = mixed.split_once(" select (select count(*) from s)").expect("the parts come first");
            let run = owned(&*store, me).await;
            let select = format!(
                "{head} select (select count(*) from {}) as a, (select count(*) from {}) as b", parts[0], parts[1]
            );
            let record = done(1, "1").event.to_record();
            let mut hand = db.connection().await;
            hand.execute(&format!("prepare p{seq} as {select}")).await;
            hand.execute(&format!(
                "execute p{seq} ({}, '{{{run}}}', '{{{epoch}}}', '{{0}}', '{{0}}',
                 '{{{run}}}', '{{1}}', '{{1}}', '{{{kind}}}', array[$m${meta}$m$], array['1'::bytea], '{{null}}',
                 '{{{run}}}', '{{5}}', array['{{}}'], array['1'::bytea], '{{null}}', '{{null}}', '{{null}}',
                 '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}')",
                me.0, run = run.0, epoch = run.1.0, kind = record.kind, meta = record.meta
            )).await;
            assert_eq!((seqs(&*store, run.0).await, status(&*store, run.0).await), (vec![1], Status::Completed), "{parts:?}");
        }
    }
}

on_postgres! {
    async fn p05_a_batch_says_itself_what_it_accepted(db) {
        let store = db.store();
        let me = session(&*store).await;
        let runs = owned_many(&*store, me, 2).await;
        let stale = (runs[1].0, composer_runtime::store::Epoch(0));
        // The same end twice: the row looks the same both times.
        for expected in [Written::Accepted, Written::Fenced] {
            let parts = vec![stuck(runs[0], 0), decided(stale, 0, vec![done(1, "1")])];
            assert_eq!(write(&*store, me, parts).await, [expected, Written::Fenced]);
        }
        let run = owned(&*store, me).await;
        write(&*store, me, vec![decided(run, 0, vec![done(1, "1")])]).await;
        let epoch = db.number(&format!("(select epoch from {{s}}journal where run_id = '{}')", run.0)).await;
        assert_eq!(epoch, Some(run.1.0), "a row says who wrote it");
    }
}

on_postgres! {
    async fn p06_settling_waits_for_what_may_still_commit(db) {
        let store = db.store();
        let me = session(&*store).await;
        for commits in [true, false] {
            let run = owned(&*store, me).await;
            let (mut old, mut look) = (db.connection().await, db.connection().await);
            old.execute(&half_a_batch(run.0, 1)).await;
            let mut journal = store.open_journal().await.unwrap();
            let settling = tokio::spawn(async move { journal.settle(me, &[run]).await.unwrap() });
            somebody_waits(&mut look).await;
            assert!(!settling.is_finished());
            old.execute(if commits { "commit" } else { "rollback" }).await;
            let settled = settling.await.unwrap();
            let Settled::Owned { epoch, last } = settled[0] else { panic!("{settled:?}") };
            assert_eq!((last, epoch.0), (u32::from(commits), run.1.0 + 1), "it counts what committed meanwhile");
            // A statement that was on its way all the time.
            let late = decided(run, last, vec![done(last + 1, "late")]);
            assert_eq!(write(&*store, me, vec![late]).await, [Written::Fenced]);
        }
    }
}

on_postgres! {
    async fn p08_a_strangers_lock_holds_up_its_run_and_no_other(db) {
        let store = db.store();
        let me = session(&*store).await;
        let runs = owned_many(&*store, me, 4).await;
        let mut operator = db.connection().await;
        operator.execute(&format!("begin; select from {{s}}runs where run_id = '{}' for update", runs[1].0)).await;
        let steps = |seq: u32| runs.iter().map(|run| decided(*run, seq - 1, vec![done(seq, "1")])).collect::<Vec<_>>();
        let written = at_once("the batch", write(&*store, me, steps(1))).await;
        assert_eq!(written, [Written::Accepted, Written::Busy, Written::Accepted, Written::Accepted]);
        let mixed = vec![completed(runs[0], 1, vec![done(2, "2")]), completed(runs[1], 0, vec![done(1, "1")])];
        assert_eq!(at_once("the batch", write(&*store, me, mixed)).await, [Written::Accepted, Written::Busy]);
        operator.execute("rollback").await;
        let again = vec![decided(runs[1], 0, vec![done(1, "1")])];
        assert_eq!(write(&*store, me, again).await, [Written::Accepted]);
    }
}

on_postgres! {
    async fn p08_and_p30_senders_in_flight_do_not_hold_up_an_append(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        let mut senders = Vec::new();
        for _ in 0..8 {
            let mut sender = db.connection().await;
            at_once("a sender", sender.execute(&half_a_signal(run.0))).await;
            senders.push(sender);
        }
        for seq in 1..=3 {
            let step = decided(run, seq - 1, vec![done(seq, "1")]);
            assert_eq!(at_once("the append", write(&*store, me, vec![step])).await, [Written::Accepted]);
        }
        // And the store's own senders wait neither for an append nor for each other.
        let mut writer = db.connection().await;
        writer.execute(&half_a_batch(run.0, 4)).await;
        assert_eq!(at_once("the sender", store.send(run.0, &signal("go", "1"))).await.unwrap(), Sent::Accepted);
        writer.execute("rollback").await;
        for sender in &mut senders {
            sender.execute("commit").await;
        }
        assert_eq!(store.inbox(&[run.0]).await.unwrap().len(), 9);
    }
}

on_postgres! {
    async fn i7_a_fork_waits_for_no_append_and_has_what_was_durable_before_it(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        write(&*store, me, vec![decided(run, 0, vec![done(1, "1"), done(2, "2")])]).await;
        let mut owner = db.connection().await;
        owner.execute(&half_a_batch(run.0, 3)).await;
        let there = seqs(&*store, run.0).await.len() as u32;
        let fork = fork_of(&*store, run.0, there).await;
        assert_eq!(at_once("the fork", store.fork(&fork)).await.unwrap(), Forked::Done);
        assert_eq!(seqs(&*store, fork.run_id).await, [1, 2]);
        // What is not durable is not there to be copied, and then the fork is not there, either.
        let early = fork_of(&*store, run.0, 3).await;
        let refused = at_once("the fork", store.fork(&early)).await.unwrap_err();
        assert!(matches!(refused, StoreError::Rejected { .. }), "{refused:?}");
        owner.execute("commit").await;
        assert_eq!(store.fork(&early).await.unwrap(), Forked::Done);
        assert_eq!(seqs(&*store, early.run_id).await, [1, 2, 3]);
        assert_eq!(seqs(&*store, fork.run_id).await, [1, 2], "a fork is no mirror");
    }
}

on_postgres! {
    async fn i7_a_fork_lies_in_its_own_month(db) {
        let store = db.store();
        let me = session(&*store).await;
        let last_month = "(select (extract(epoch from date_trunc('month', clock_timestamp() at time zone 'utc')) * 1000000)::bigint - 1)";
        let before = Timestamp::from_micros(db.number(last_month).await.unwrap());
        let old = NewRun { run_id: RunId::new(before), ..new_run(&*store).await };
        store.start(&old, Default::default(), None).await.unwrap();
        let claimed = claim(&*store, me).await.remove(0);
        write(&*store, me, vec![decided((claimed.run_id, claimed.epoch), 0, vec![done(1, "1")])]).await;
        let fork = fork_of(&*store, old.run_id, 1).await;
        store.fork(&fork).await.unwrap();
        for table in ["runs", "journal"] {
            let places = format!(
                "(select count(distinct tableoid) from {{s}}{table} where run_id in ('{}', '{}'))", old.run_id, fork.run_id
            );
            assert_eq!(db.number(&places).await, Some(2), "{table}");
        }
    }
}

on_postgres! {
    async fn p22_an_order_waits_for_an_append_in_flight_and_the_end_that_it_brings_stays(db) {
        let store = db.store();
        let me = session(&*store).await;
        for ends in [true, false] {
            let run = owned(&*store, me).await;
            let (mut owner, mut look) = (db.connection().await, db.connection().await);
            owner.execute(&format!("begin; select from {{s}}runs where run_id = '{}' for no key update", run.0)).await;
            if ends {
                owner
                    .execute(&format!(
                        "update {{s}}runs set status = 5, closed_at = 1, result_meta = '{{}}' where run_id = '{}'",
                        run.0
                    ))
                    .await;
            }
            let operator = db.another().await;
            let ordering = tokio::spawn(async move {
                operator.order(run.0, &Order::Terminate { reason: "enough".into() }).await.unwrap()
            });
            somebody_waits(&mut look).await;
            assert!(!ordering.is_finished());
            owner.execute("commit").await;
            let expected = if ends { Ordered::Not(Status::Completed) } else { Ordered::Done };
            assert_eq!(ordering.await.unwrap(), expected);
            let left = if ends { Status::Completed } else { Status::Terminated };
            assert_eq!(status(&*store, run.0).await, left);
        }
    }
}

on_postgres! {
    async fn p09_parking_and_sending_at_once_lose_no_wake_up(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        let mut sender = db.connection().await;
        // In flight during the park: it stays hot, without waiting.
        sender.execute(&half_a_signal(run.0)).await;
        assert_eq!(at_once("parking", store.release(me, &[park(run)])).await.unwrap(), [Released::Mail]);
        // Committed between the park's two halves: the second one sees it.
        let mut parker = db.connection().await;
        let lock = format!("begin; select from {{s}}runs where run_id = '{}' for update skip locked", run.0);
        assert_eq!(parker.execute(&lock).await, 0);
        sender.execute("commit").await;
        parker.execute("rollback").await;
        assert_eq!(store.release(me, &[park(run)]).await.unwrap(), [Released::Mail]);
        db.execute("delete from {s}inbox").await;
        // A sender that comes during the park waits for it, and its row wakes the run.
        parker.execute(&lock).await;
        parker.execute(&format!("update {{s}}runs set status = 3, session = null where run_id = '{}'", run.0)).await;
        let (sending, at) = (store.clone(), run.0);
        let sending = tokio::spawn(async move { sending.send(at, &signal("go", "1")).await.unwrap() });
        somebody_waits(&mut sender).await;
        parker.execute("commit").await;
        assert_eq!(sending.await.unwrap(), Sent::Accepted);
        assert_eq!(claim(&*store, me).await.len(), 1);
    }
}

on_postgres! {
    async fn p09_a_message_between_the_two_halves_of_a_park_is_seen(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        // The store's own two statements, with a commit in between that only a new snapshot shows.
        let sql = |name| db.postgres().statement(name).unwrap().to_owned();
        let mut parker = db.connection().await;
        let ids = format!("'{{{}}}'", run.0);
        parker.execute(&format!("prepare l as {}; prepare p as {}", sql("lock_for_park"), sql("park"))).await;
        let mut sender = db.connection().await;
        sender.execute(&half_a_signal(run.0)).await;
        parker.execute("begin").await;
        let locked = parker.lines(&format!("execute l ({}, {ids}, '{{{}}}')", me.0, run.1.0)).await;
        assert!(locked.is_empty(), "a sender is in flight");
        sender.execute("commit").await;
        let locked = parker.rows(&format!("execute l ({}, {ids}, '{{{}}}')", me.0, run.1.0)).await;
        assert_eq!(locked, 1);
        assert_eq!(parker.rows(&format!("execute p ({ids}, '{{null}}')")).await, 0);
        parker.execute("commit").await;
        assert_eq!(status(&*store, run.0).await, Status::Running);
    }
}

on_postgres! {
    async fn p10_rows_are_locked_in_the_order_of_their_ids_whatever_the_callers(db) {
        let store = db.store();
        let me = session(&*store).await;
        let runs = owned_many(&*store, me, 2).await;
        let (mut first, mut second) = (db.connection().await, db.connection().await);
        first.execute(&format!("begin; select from {{s}}runs where run_id = '{}' for update", runs[0].0)).await;
        let mut journal = store.open_journal().await.unwrap();
        let reversed = [runs[1], runs[0]];
        let settling = tokio::spawn(async move { journal.settle(me, &reversed).await.unwrap() });
        somebody_waits(&mut second).await;
        // It waits for the lower one and holds nothing yet.
        second.execute(&format!("select from {{s}}runs where run_id = '{}' for update nowait", runs[1].0)).await;
        first.execute("rollback").await;
        assert!(settling.await.unwrap().iter().all(|settled| matches!(settled, Settled::Owned { .. })));
    }
}

on_postgres! {
    async fn p31_an_entry_takes_its_value_from_the_row_that_it_consumes(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        store.send(run.0, &signal("go", "\"from the inbox\"")).await.unwrap();
        let mail = store.inbox(&[run.0]).await.unwrap()[0].id;
        let part = decided(run, 0, vec![signalled(1, mail, "go", "\"from memory\""), done(2, "2")]);
        assert_eq!(write(&*store, me, vec![part]).await, [Written::Accepted]);
        assert_eq!(store.journal(run.0, 0, 1).await.unwrap(), [signalled(1, mail, "go", "\"from the inbox\"")]);
    }
}

on_postgres! {
    async fn p32_a_message_in_flight_while_the_run_closes_is_listed(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        let mut sender = db.connection().await;
        sender.execute(&half_a_signal(run.0)).await;
        let end = at_once("closing", write(&*store, me, vec![completed(run, 0, vec![])])).await;
        assert_eq!(end, [Written::Accepted]);
        // Nobody takes its row away, or the run's, while it is on its way.
        assert_eq!(at_once("the sweep", store.sweep(&mut Suspects::default())).await.unwrap().shelved, 0);
        sender.execute("commit").await;
        assert_eq!(store.unconsumed(run.0).await.unwrap().len(), 1);
        assert_eq!(store.sweep(&mut Suspects::default()).await.unwrap().shelved, 1);
    }
}

on_postgres! {
    async fn p32_a_message_in_flight_while_a_generation_begins_is_one_of_the_next(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        let mut sender = db.connection().await;
        sender.execute(&half_a_signal(run.0)).await;
        let begins = Event::Continued { generation: 1, steps: 0, workflow: "order".into(), input: bytes("[2]") };
        let part = RunBatch {
            end: Some(End::Continued { workflow: "order".into(), base: 1 }),
            ..decided(run, 0, vec![entry(1, begins)])
        };
        assert_eq!(at_once("going on", write(&*store, me, vec![part])).await, [Written::Accepted]);
        sender.execute("commit").await;
        let mail = store.inbox(&[run.0]).await.unwrap();
        assert_eq!(mail.len(), 1);
        let received = signalled(2, mail[0].id, "go", "1");
        assert_eq!(write(&*store, me, vec![decided(run, 1, vec![received])]).await, [Written::Accepted]);
    }
}

on_postgres! {
    async fn p32_a_deletion_sees_the_message_that_it_waited_for(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        let (mut sender, mut look) = (db.connection().await, db.connection().await);
        sender.execute(&half_a_signal(run.0)).await;
        write(&*store, me, vec![completed(run, 0, vec![])]).await;
        let deleting = { let store = store.clone(); tokio::spawn(async move { store.delete(run.0).await.unwrap() }) };
        somebody_waits(&mut look).await;
        sender.execute("commit").await;
        assert_eq!(deleting.await.unwrap(), Deleted::Done);
        assert_eq!(db.number("(select count(*) from {s}inbox)").await, Some(0));
    }
}

// ---------------------------------------------------------------------------------------------------------- ownership

on_postgres! {
    async fn p15_claims_and_starts_that_race_with_the_death_of_their_session_take_nothing(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = pending(&*store).await;
        let (eager, single) = (new_run(&*store).await, new_run(&*store).await);
        let (mut judge, mut look) = (db.connection().await, db.connection().await);
        judge.execute(&format!("begin; select from {{s}}sessions where id = {} for update", me.0)).await;
        judge.execute(&format!("update {{s}}sessions set dead_at = 1 where id = {}", me.0)).await;
        let claiming = { let store = store.clone(); tokio::spawn(async move { claim(&*store, me).await }) };
        let batched = {
            let (store, eager) = (store.clone(), eager.clone());
            tokio::spawn(async move {
                let mut journal = store.open_journal().await.unwrap();
                journal.write(me, &Batch { starts: vec![eager], runs: vec![] }).await.unwrap()
            })
        };
        let alone = {
            let (store, single) = (store.clone(), single.clone());
            tokio::spawn(async move { store.start(&single, Default::default(), Some(me)).await.unwrap() })
        };
        so_many_wait(&mut look, 3).await;
        judge.execute("commit").await;
        assert!(claiming.await.unwrap().is_empty());
        assert!(!batched.await.unwrap().started);
        let alone = alone.await.unwrap();
        assert!(matches!(alone, Started::New { owned: None, .. }), "{alone:?}");
        assert_eq!((status(&*store, run).await, store.run(eager.run_id).await.unwrap()), (Status::Pending, None));
    }
}

on_postgres! {
    async fn p15_nobody_is_declared_dead_in_the_middle_of_a_claim(db) {
        let store = db.store();
        let me = session(&*store).await;
        let mut claimer = db.connection().await;
        claimer.execute(&format!("begin; select from {{s}}sessions where id = {} for key share", me.0)).await;
        db.lapse(me).await;
        assert_eq!(at_once("the sweep", store.sweep(&mut Suspects::default())).await.unwrap().expired, 0);
        claimer.execute("commit").await;
        assert_eq!(store.sweep(&mut Suspects::default()).await.unwrap().expired, 1);
    }
}

on_postgres! {
    async fn p16_a_renewal_in_flight_beats_the_judge(db) {
        let store = db.store();
        let me = session(&*store).await;
        db.lapse(me).await;
        let mut owner = db.connection().await;
        owner.execute(&format!("begin; update {{s}}sessions set lease_until = {} where id = {}", i64::MAX / 2, me.0)).await;
        assert_eq!(at_once("the sweep", store.sweep(&mut Suspects::default())).await.unwrap().expired, 0);
        owner.execute("commit").await;
        assert_eq!(store.sweep(&mut Suspects::default()).await.unwrap().expired, 0);
        // And a judge that had to wait compares again.
        let expire = db.postgres().statement("expire").unwrap().replace("skip locked", "");
        db.lapse(me).await;
        owner.execute(&format!("begin; update {{s}}sessions set lease_until = {} where id = {}", i64::MAX / 2, me.0)).await;
        let (mut judge, mut look) = (db.connection().await, db.connection().await);
        let judging = tokio::spawn(async move { judge.execute(&expire).await });
        somebody_waits(&mut look).await;
        owner.execute("commit").await;
        assert_eq!(judging.await.unwrap(), 0);
    }
}

on_postgres! {
    async fn p17_a_journal_is_loaded_by_a_statement_that_starts_after_the_claim(db) {
        let store = db.store();
        let (dead, me) = (session(&*store).await, session(&*store).await);
        let run = owned(&*store, dead).await;
        let mut old = db.connection().await;
        old.execute(&half_a_batch(run.0, 1)).await;
        db.lapse(dead).await;
        store.sweep(&mut Suspects::default()).await.unwrap();
        // Its owner's last batch is on its way: the run cannot be had, and nobody waits for it.
        assert!(at_once("the claim", claim(&*store, me)).await.is_empty());
        old.execute("commit").await;
        assert_eq!(claim(&*store, me).await.len(), 1);
        let entries: &[Entry] = &store.load(&[run.0]).await.unwrap()[0].1;
        assert_eq!(entries.len(), 1);
    }
}

on_postgres! {
    async fn p18_a_server_that_just_started_knows_nothing_about_locks(db) {
        let store = db.store();
        // A lease longer than this server has been up.
        let me = session(&*store).await;
        db.execute(&format!("update {{s}}sessions set lease = {} where id = {}", i64::MAX / 4_000_000, me.0)).await;
        db.outlive(me).await;
        drop(store.listen(Some(me)).await.unwrap());
        let mut seen = Suspects::default();
        store.sweep(&mut seen).await.unwrap();
        assert!(seen.0.is_empty(), "{seen:?}");
        // Nor does one that was promoted since: the lock was taken on another timeline.
        db.execute(&format!("update {{s}}sessions set lease = 1, lock_holder = '000000FF 1 x' where id = {}", me.0)).await;
        store.sweep(&mut seen).await.unwrap();
        assert!(seen.0.is_empty(), "{seen:?}");
    }
}

on_postgres! {
    async fn p18_two_looks_at_two_holders_are_one_look_at_each(db) {
        let store = db.store();
        let new = NewSession { name: "t".into(), build: BUILD.into(), workflows: vec![], lease: Duration::from_millis(1) };
        let (me, ..) = store.open_session(&new).await.unwrap();
        db.outlive(me).await;
        let mut look = db.connection().await;
        let held = "(select count(*) from pg_locks where locktype = 'advisory' and objsubid = 2
                       and database = (select oid from pg_database where datname = current_database()))";
        let mut seen = Suspects::default();
        for _ in 0..2 {
            // The owner takes hold, and its connection is lost at once.
            drop(store.listen(Some(me)).await.unwrap());
            let look = tokio::sync::Mutex::new(&mut look);
            eventually("the lock goes", || async {
                (look.lock().await.number(held).await == Some(0)).then_some(())
            })
            .await;
            assert_eq!(store.sweep(&mut seen).await.unwrap().gone, 0);
            assert_eq!(seen.0.len(), 1);
            tokio::time::sleep(Duration::from_millis(600)).await;
        }
        assert_eq!(store.sweep(&mut seen).await.unwrap().gone, 1);
    }
}

on_postgres! {
    async fn p19_runs_that_a_dead_owner_still_locks_are_counted(db) {
        let store = db.store();
        let dead = session(&*store).await;
        let runs = owned_many(&*store, dead, 2).await;
        let mut partitioned = db.connection().await;
        partitioned.execute(&half_a_batch(runs[0].0, 1)).await;
        db.lapse(dead).await;
        assert_eq!(store.sweep(&mut Suspects::default()).await.unwrap().blocked, 1);
        partitioned.execute("rollback").await;
        assert_eq!(store.sweep(&mut Suspects::default()).await.unwrap().blocked, 0);
    }
}

on_postgres! {
    async fn p54_a_burst_of_calls_starves_neither_writer_nor_renewal(db) {
        let store = db.store();
        let new = NewSession { name: "t".into(), build: BUILD.into(), workflows: vec!["order".into()], lease: Duration::from_secs(60) };
        let (me, _, mut lease) = store.open_session(&new).await.unwrap();
        let run = owned(&*store, me).await;
        let mut journal = store.open_journal().await.unwrap();
        let mut stranger = db.connection().await;
        stranger.execute(&format!("begin; insert into {{s}}ids values ('key', '{}')", run.0)).await;
        let mut calls = Vec::new();
        for _ in 0..20 {
            let start = NewRun { workflow_id: Some(id("key")), ..new_run_at(run.0) };
            let store = store.clone();
            calls.push(tokio::spawn(async move { store.start(&start, Default::default(), None).await }));
        }
        let mut look = db.connection().await;
        somebody_waits(&mut look).await;
        let step = batch(vec![decided(run, 0, vec![done(1, "1")])]);
        assert_eq!(at_once("the writer", journal.write(me, &step)).await.unwrap().runs, [Written::Accepted]);
        assert!(matches!(at_once("the renewal", lease.renew()).await.unwrap(), Renewed::Alive { .. }));
        stranger.execute("rollback").await;
        for call in calls {
            call.abort();
        }
    }
}

/// A run whose id is near another one's, without asking for the time.
fn new_run_at(near: RunId) -> NewRun {
    let mut id = *near.as_uuid().as_bytes();
    id[8..].copy_from_slice(&fastrand::u64(..).to_be_bytes());
    NewRun {
        run_id: RunId::from(uuid::Uuid::from_bytes(id)),
        workflow_id: None,
        workflow: "order".into(),
        input: bytes("[1]"),
        delay: Duration::ZERO,
        timeout: None,
        tags: Default::default(),
        build: BUILD.into(),
        signal: None,
    }
}

// ------------------------------------------------------------------------------------------------------------ starting

on_postgres! {
    async fn p36_a_start_waits_for_a_stranger_that_takes_its_id_and_no_batch_does(db) {
        let store = db.store();
        let me = session(&*store).await;
        let running = owned(&*store, me).await;
        let (mut stranger, mut look) = (db.connection().await, db.connection().await);
        for commits in [false, true] {
            let run = NewRun { workflow_id: Some(id("key")), ..new_run(&*store).await };
            let theirs = new_run(&*store).await.run_id;
            stranger.execute("begin").await;
            if commits {
                stranger.execute("delete from {s}ids").await;
            }
            stranger.execute(&format!(
                "insert into {{s}}runs (run_id, workflow_id, workflow, status, epoch, created_at, due_at, build, input)
                 values ('{theirs}', 'key', 'order', 1, 0, 1, 1, '', '1');
                 insert into {{s}}ids values ('key', '{theirs}');"
            )).await;
            let starting = {
                let (store, run) = (store.clone(), run.clone());
                tokio::spawn(async move { store.start(&run, Default::default(), None).await.unwrap() })
            };
            somebody_waits(&mut look).await;
            let seq = u32::from(commits);
            let step = decided(running, seq, vec![done(seq + 1, "1")]);
            assert_eq!(at_once("the batch", write(&*store, me, vec![step])).await, [Written::Accepted]);
            stranger.execute(if commits { "commit" } else { "rollback" }).await;
            match starting.await.unwrap() {
                Started::New { .. } => assert!(!commits, "told that it started what another one has"),
                Started::Exists { run_id, .. } => assert!(commits && run_id == theirs, "the winner is {theirs}"),
                other => panic!("{other:?}"),
            }
        }
    }
}

on_postgres! {
    async fn p47_no_write_notifies(db) {
        let store = db.store();
        let me = session(&*store).await;
        let mut listener = store.listen(None).await.unwrap();
        let run = owned(&*store, me).await;
        store.send(run.0, &signal("go", "1")).await.unwrap();
        write(&*store, me, vec![completed(run, 0, vec![done(1, "1")])]).await;
        let heard = tokio::time::timeout(Duration::from_millis(200), listener.next()).await;
        assert!(heard.is_err(), "{heard:?}");
    }
}

// --------------------------------------------------------------------------------------------------------------- plans

/// Two years of months, each with closed runs and some of the session's.
async fn fill_months(hand: &mut Hand, session: i64) {
    hand.execute(&format!(
        "set search_path to {QUOTED};
         do $$
         declare m timestamp; low text; high text; parent text;
         begin
             for m in select generate_series(date_trunc('month', now() at time zone 'utc') - interval '21 months',
                                             date_trunc('month', now() at time zone 'utc') + interval '2 months',
                                             interval '1 month') loop
                 low := (lpad(to_hex((extract(epoch from m) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid::text;
                 high := (lpad(to_hex((extract(epoch from m + interval '1 month') * 1000)::bigint), 12, '0')
                          || repeat('0', 20))::uuid::text;
                 foreach parent in array array['runs', 'journal'] loop
                     if to_regclass(parent || to_char(m, '_YYYY_MM')) is null then
                         execute format('create table %I partition of %I for values from (%L) to (%L)',
                                        parent || to_char(m, '_YYYY_MM'), parent, low, high);
                     end if;
                 end loop;
                 insert into runs (run_id, workflow, status, epoch, session, created_at, build, input, closed_at, result_meta)
                 select (lpad(to_hex((extract(epoch from m) * 1000)::bigint + i), 12, '0') || '7000' ||
                         lpad(to_hex(i), 16, '0'))::uuid, 'order', case when i % 20 = 0 then 2 else 5 end,
                        1, {session}, 1, 'b', '1', 1, '{{}}'
                   from generate_series(1, 2000) i;
                 insert into journal select run_id, 1, 1, 0, 1, '{{}}', '1' from runs
                  where run_id >= low::uuid and run_id < high::uuid;
             end loop;
         end $$;
         analyze runs, journal;"
    ))
    .await;
}

/// On an empty database of its own, which a test may change beyond repair.
fn with_empty_database(test: impl FnOnce(String) -> BoxFuture<'static, ()>) {
    let Some(admin) = admin_url() else { return };
    block_on(async {
        let (name, url) = empty_database(&admin).await;
        test(url).await;
        drop_database(&admin, &name).await;
    });
}

async fn open(url: &str) -> PostgresStore {
    PostgresStore::connect(options(url.to_owned())).await.expect("the test's database can be used")
}

#[test]
fn p13_a_batch_costs_the_same_on_two_years_of_full_months() {
    with_empty_database(|url| {
        Box::pin(async move {
            let store = open(&url).await;
            store.migrate().await.unwrap();
            let me = session(&store).await;
            let mut hand = Hand::open(&url).await;
            fill_months(&mut hand, me.0).await;
            let ids = "(select run_id from {s}runs where status = 2 order by md5(run_id::text) limit 200)";
            let runs = hand.lines(&format!("select array_agg(run_id)::text from {ids} x")).await.remove(0);
            for (count, plan) in batch_plans(&store, &mut hand, me.0, &runs, "analyze, timing off,").await {
                check_plan(&plan);
                check_counts(count, &plan);
            }
        })
    });
}

#[test]
fn p13_a_plan_that_was_made_on_empty_tables_is_good_on_full_ones() {
    with_empty_database(|url| {
        Box::pin(async move {
            let store = open(&url).await;
            store.migrate().await.unwrap();
            let mut hand = Hand::open(&url).await;
            let runs = format!("{{{}}}", RunId::new(store.now().await.unwrap()));
            for (_, plan) in batch_plans(&store, &mut hand, 1, &runs, "").await {
                check_plan(&plan);
            }
        })
    });
}

/// The plans of the statements of the writer for these runs, in both kinds.
async fn batch_plans(
    store: &PostgresStore,
    hand: &mut Hand,
    me: i64,
    runs: &str,
    how: &str,
) -> Vec<(u64, Vec<String>)> {
    let count = runs.split(',').count();
    let array = |value: &str| format!("'{{{}}}'", vec![value; count].join(","));
    let text = array("\"{}\"");
    let steps = format!(
        "({me}, '{runs}', {}, {}, {}, {}, {text}, {})",
        array("1"),
        array("2"),
        array("1"),
        array("1"),
        array("1")
    );
    let mixed = format!(
        "({me}, '{runs}', {one}, {one}, {}, '{runs}', {}, {one}, {one}, {text}, {one}, {null}, '{runs}', {}, {text},
          {one}, {null}, {null}, {null}, '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}')",
        array("0"),
        array("2"),
        array("5"),
        one = array("1"),
        null = array("null")
    );
    hand.execute(store.statement("planner_of_writer").unwrap()).await;
    let mut plans = Vec::new();
    let first = runs.trim_matches(['{', '}']).split(',').next().unwrap();
    let step = format!("({me}, '{first}', 1, 2, 1, 1, '{{}}', '1')");
    let statements = [
        ("write_step", step),
        ("write_steps", steps),
        ("write_mixed", mixed.clone()),
        ("write_mailless", mixed),
    ];
    for (name, arguments) in statements {
        let count = if name == "write_step" { 1 } else { count as u64 };
        hand.execute(&format!("prepare {name} as {}", store.statement(name).unwrap())).await;
        for mode in ["force_custom_plan", "force_generic_plan"] {
            hand.execute(&format!("set plan_cache_mode = {mode}; begin")).await;
            let explain = format!("explain ({how} costs off) execute {name} {arguments}");
            plans.push((count, hand.lines(&explain).await));
            hand.execute("rollback").await;
        }
    }
    plans
}

/// Every scan of a big table is by its key.
fn check_plan(plan: &[String]) {
    let text = plan.join("\n");
    assert!(text.contains("LockRows"), "not the plan of a batch\n{text}");
    for line in scans(plan) {
        let by_key = line.contains("Index") && line.contains("_pkey");
        assert!(by_key || line.contains("Bitmap Heap"), "{line}\n{text}");
    }
}

/// The lines of a plan that read a month.
fn scans(plan: &[String]) -> impl Iterator<Item = &String> {
    let months = plan.iter().filter(|line| line.contains(" on runs_") || line.contains(" on journal_"));
    months.filter(|line| !line.contains("Update on"))
}

/// What was read of 200 runs is not much more than them and their last entries.
fn check_counts(runs: u64, plan: &[String]) {
    let mut scanned = 0;
    for line in scans(plan) {
        let Some((_, counts)) = line.split_once("actual rows=") else { continue };
        let (rows, loops) = counts.trim_end_matches(')').split_once(" loops=").expect("explain counts loops");
        scanned += rows.parse::<f64>().unwrap() as u64 * loops.parse::<u64>().unwrap();
    }
    assert!(
        (2 * runs..=5 * runs).contains(&scanned),
        "{scanned} rows were read for {runs} runs\n{}",
        plan.join("\n")
    );
}

on_postgres! {
    async fn p44_p45_a_claim_does_not_pay_for_what_it_cannot_take(db) {
        let store = db.store();
        let me = session(&*store).await;
        let mut snapshot = db.connection().await;
        snapshot.execute("begin isolation level repeatable read; select 1 from {s}runs limit 1").await;
        let now = store.now().await.unwrap().as_micros();
        let prefix = store.now().await.map(RunId::new).unwrap().to_string()[..18].to_owned();
        // 20,000 runs that were claimed and ended while a snapshot was held; as many of a type that is not hosted here,
        // delayed ones, and stuck ones of this build.
        let fill = |from: u32, workflow: &str, status: i16, due: &str| {
            format!(
                "insert into {{s}}runs (run_id, workflow, status, epoch, created_at, due_at, stuck_at, stuck_build, build, input)
                 select ('{prefix}-8000-' || lpad(to_hex({from} + i), 12, '0'))::uuid, '{workflow}', {status}, 0, 1, {due}, 1,
                        '{BUILD}', '', '1' from generate_series(1, 20000) i;"
            )
        };
        db.execute(&fill(0, "order", 1, &format!("{} + i", now - 3_600_000_000))).await;
        db.execute("update {s}runs set status = 5, due_at = null, closed_at = 1, result_meta = '{}'").await;
        db.execute(&fill(100_000, "strange", 1, "i")).await;
        db.execute(&fill(200_000, "order", 1, &format!("{} + i", now + 3_600_000_000))).await;
        db.execute(&fill(300_000, "order", 4, "null")).await;
        let run = pending(&*store).await;

        let mut hand = db.connection().await;
        hand.execute(db.postgres().statement("planner_of_pool").unwrap()).await;
        hand.execute(&format!("prepare c as {}", db.postgres().statement("claim").unwrap())).await;
        let mut buffers = Vec::new();
        for since in [i64::MIN + 1, now - 1_000_000] {
            hand.execute("begin").await;
            let explain = format!(
                "explain (analyze, buffers, timing off, costs off, summary off)
                 execute c ({}, 10, '{{order}}', '{BUILD}', 0, '{{{since}}}', 0, 0, 5)", me.0
            );
            let plan = hand.lines(&explain).await;
            let taken = hand.number(&format!("(select count(*) from {{s}}runs where run_id = '{run}' and status = 2)")).await;
            hand.execute("rollback").await;
            assert_eq!(taken, Some(1), "{}", plan.join("\n"));
            buffers.push(buffers_of(&plan));
        }
        assert!(buffers[1] < 400, "behind the bound, a claim touches few pages: {buffers:?}");
        assert!(buffers[0] > 2 * buffers[1], "the dead rows were there: {buffers:?}");
        snapshot.execute("rollback").await;
        assert_eq!(claim(&*store, me).await[0].run_id, run);
    }
}

/// The pages that a plan touched, from its first line that says so.
fn buffers_of(plan: &[String]) -> u64 {
    let line = plan.iter().find(|line| line.contains("Buffers: shared")).expect("the plan counts buffers");
    line.split([' ', '=']).filter_map(|word| word.parse::<u64>().ok()).sum()
}

// -------------------------------------------------------------------------------------------------------------- schema

#[test]
fn eight_processes_migrate_an_empty_database_at_once() {
    with_empty_database(|url| {
        Box::pin(async move {
            let mut migrations = Vec::new();
            for _ in 0..8 {
                let store = open(&url).await;
                migrations.push(tokio::spawn(async move { store.migrate().await.map(|()| store) }));
            }
            for migration in migrations {
                let store = migration.await.unwrap().unwrap();
                store.check_schema().await.unwrap();
                pending(&store).await;
            }
            let mut hand = Hand::open(&url).await;
            assert_eq!(hand.number("(select count(*) from {s}migrations)").await, Some(1));
            let months = "(select count(*) from pg_inherits where inhparent = '{s}runs'::regclass)";
            assert_eq!(hand.number(months).await, Some(5));
        })
    });
}

#[test]
fn a_migration_that_is_killed_leaves_old_or_new() {
    with_empty_database(|url| {
        Box::pin(async move {
            let mut hand = Hand::open(&url).await;
            for n in 0..12 {
                let store = open(&url).await;
                let migrating = tokio::spawn(async move { store.migrate().await });
                tokio::time::sleep(Duration::from_millis(n * 7)).await;
                hand.number("(select count(pg_terminate_backend(pid)) from pg_stat_activity
                               where datname = current_database() and application_name = 'composer migrator')").await;
                let _ = migrating.await.unwrap();
                let tables = "(select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace
                                where n.nspname = 'the \"order\"' and c.relkind in ('r', 'p', 'v'))";
                let found = hand.number(tables).await;
                assert!(found == Some(0) || found == Some(25), "{found:?} tables and views");
            }
            let store = open(&url).await;
            store.migrate().await.unwrap();
            pending(&store).await;
        })
    });
}

on_postgres! {
    async fn an_up_to_date_schema_is_found_so_without_a_lock(db) {
        let mut busy = db.connection().await;
        busy.execute("begin; lock table {s}runs, {s}journal, {s}inbox, {s}ids, {s}sessions in access exclusive mode").await;
        let store = db.another().await;
        at_once("migrating", store.migrate()).await.unwrap();
        at_once("checking", store.check_schema()).await.unwrap();
    }
}

on_postgres! {
    async fn a_role_without_the_right_to_create_works_on_an_up_to_date_schema(db) {
        let role = format!("composer_worker_{}_{}", std::process::id(), fastrand::u32(..));
        let mut hand = db.connection().await;
        hand.execute(&format!(
            "create role {role} login password 'x'; grant usage on schema {QUOTED} to {role};
             grant select, insert, update, delete on all tables in schema {QUOTED} to {role};
             revoke create on schema public from public;"
        )).await;
        let url = db.url_as(&role, "x");
        let store = PostgresStore::connect(options(url)).await.unwrap();
        store.migrate().await.unwrap();
        let me = session(&store).await;
        let run = owned(&store, me).await;
        store.send(run.0, &signal("go", "1")).await.unwrap();
        let lost = session(&store).await;
        let orphan = owned(&store, lost).await;
        db.execute(&format!("delete from {{s}}sessions where id = {}", lost.0)).await;
        store.sweep(&mut Suspects::default()).await.unwrap();
        assert_eq!(claim(&store, me).await[0].run_id, orphan.0);
        let mail = store.inbox(&[run.0]).await.unwrap()[0].id;
        let part = completed(run, 0, vec![signalled(1, mail, "go", "1")]);
        assert_eq!(write(&store, me, vec![part]).await, [Written::Accepted]);
        assert_eq!(store.delete(run.0).await.unwrap(), Deleted::Done);
        drop(store.listen(Some(me)).await.unwrap());

        // Where there is something to do, it is told so.
        let elsewhere = StoreOptions { schema: "elsewhere".into(), ..options(db.url_as(&role, "x")) };
        let store = PostgresStore::connect(elsewhere).await.unwrap();
        for error in [store.migrate().await, store.check_schema().await] {
            let Err(StoreError::Schema { message }) = error else { panic!("{error:?}") };
            assert!(message.contains("may create"), "{message}");
        }
        drop(store);
        hand.execute(&format!("drop owned by {role}")).await;
        let gone = format!("(select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity where usename = '{role}')");
        hand.number(&gone).await;
        hand.execute(&format!("drop role {role}")).await;
    }
}

#[test]
fn a_schema_of_a_newer_build_is_refused_in_words() {
    with_empty_database(|url| {
        Box::pin(async move {
            let store = open(&url).await;
            let Err(StoreError::Schema { message }) = store.check_schema().await else {
                panic!("there is no schema")
            };
            assert!(message.contains("none"), "{message}");
            let Err(StoreError::Schema { .. }) = store.list(&Default::default(), None, 1).await else {
                panic!("no table")
            };
            store.migrate().await.unwrap();
            Hand::open(&url)
                .await
                .execute("insert into {s}migrations (version, name) values (99, 'later')")
                .await;
            for answer in [store.check_schema().await, store.migrate().await] {
                let Err(StoreError::Schema { message }) = answer else { panic!("{answer:?}") };
                assert!(message.contains("newer"), "{message}");
            }
        })
    });
}

#[test]
fn p41_months_are_made_beside_a_long_reader_and_before_they_are_needed() {
    with_empty_database(|url| {
        Box::pin(async move {
            let store = open(&url).await;
            store.migrate().await.unwrap();
            let mut hand = Hand::open(&url).await;
            let months = "(select count(*) from pg_inherits where inhparent in ('{s}runs'::regclass, '{s}journal'::regclass))";
            assert_eq!(hand.number(months).await, Some(10));
            let last = hand
                .lines("select to_char(now() at time zone 'utc' + interval '3 months', 'YYYY_MM')")
                .await
                .remove(0);
            let last = last.as_str();
            hand.execute(&format!("drop table {{s}}runs_{last}; drop table {{s}}journal_{last}")).await;
            // pg_dump, say.
            let mut reader = Hand::open(&url).await;
            reader.execute("begin; lock table {s}runs, {s}journal in access share mode").await;
            let me = session(&store).await;
            let run = owned(&store, me).await;
            let mut writer = Hand::open(&url).await;
            writer.execute(&half_a_batch(run.0, 1)).await;
            at_once("making months", store.migrate()).await.unwrap();
            assert_eq!(hand.number(months).await, Some(10));
            writer.execute("rollback").await;
            at_once("an append", write(&store, me, vec![decided(run, 0, vec![done(1, "1")])])).await;
        })
    });
}

#[test]
fn settings_that_cannot_be_used_are_named() {
    let Some(admin) = admin_url() else { return };
    block_on(async {
        let url = |url: &str| options(url.to_owned());
        for (options, word) in [
            (url("postgres://127.0.0.1:notaport/x"), "URL"),
            (url(&crate::support::postgres::url_of(&admin, "no_such_database")), "database"),
            (url(&format!("{admin}{}sslmode=require", if admin.contains('?') { "&" } else { "?" })), "TLS"),
            (StoreOptions { schema: "pg_mine".into(), ..url(&admin) }, "pg_mine"),
            (StoreOptions { schema: String::new(), ..url(&admin) }, "empty"),
        ] {
            let error = PostgresStore::connect(options).await.unwrap_err();
            assert!(
                matches!(&error, StoreError::Config { message } if message.contains(word)),
                "{word}: {error}"
            );
        }
        // A port that nobody listens on.
        let error = PostgresStore::connect(url("postgres://127.0.0.1:1/x")).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { maybe_committed: false, .. }), "{error}");
    });
}

on_postgres! {
    async fn a_read_finds_another_connection_when_its_own_was_cut(db) {
        let store = db.store();
        let run = pending(&*store).await;
        let mut hand = db.connection().await;
        for _ in 0..5 {
            hand.number("(select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity
                           where datname = current_database() and application_name = 'composer')").await;
            assert_eq!(status(&*store, run).await, Status::Pending);
        }
    }
}

on_postgres! {
    async fn a_batch_whose_connection_is_cut_has_an_unknown_outcome(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        let mut journal = store.open_journal().await.unwrap();
        journal.write(me, &batch(vec![decided(run, 0, vec![done(1, "1")])])).await.unwrap();
        let mut hand = db.connection().await;
        hand.number("(select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity
                       where datname = current_database() and application_name = 'composer writer')").await;
        let step = batch(vec![decided(run, 1, vec![done(2, "1")])]);
        let error = journal.write(me, &step).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { maybe_committed: true, .. }), "{error:?}");
        let settled = store.open_journal().await.unwrap().settle(me, &[run]).await.unwrap();
        assert!(matches!(settled[0], Settled::Owned { last: 1, .. }), "{settled:?}");
    }
}

on_postgres! {
    async fn a_lease_is_renewed_on_a_new_connection_after_an_error(db) {
        let store = db.store();
        let new = NewSession { name: "t".into(), build: BUILD.into(), workflows: vec![], lease: Duration::from_secs(60) };
        let (_, _, mut lease) = store.open_session(&new).await.unwrap();
        let mut hand = db.connection().await;
        hand.number("(select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity
                       where datname = current_database() and application_name = 'composer session')").await;
        lease.renew().await.unwrap_err();
        assert!(matches!(lease.renew().await.unwrap(), Renewed::Alive { .. }));
    }
}

on_postgres! {
    async fn text_that_postgres_cannot_hold_is_rejected_for_good(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        let mut journal = store.open_journal().await.unwrap();
        let mut part = completed(run, 0, vec![]);
        part.end = Some(End::Closed {
            status: Status::Failed,
            outcome: Outcome::Ok(bytes("1")),
            reason: Some("a NUL: \0".into()),
            unconsumed: vec![],
        });
        let error = journal.write(me, &batch(vec![part])).await.unwrap_err();
        assert!(matches!(error, StoreError::Rejected { .. }), "{error:?}");
        let step = batch(vec![decided(run, 0, vec![done(1, "1")])]);
        assert_eq!(journal.write(me, &step).await.unwrap().runs, [Written::Accepted]);
    }
}

on_postgres! {
    async fn the_views_can_be_read(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        write(&*store, me, vec![completed(run, 0, vec![done(1, "\"é\"")])]).await;
        let mut hand = db.connection().await;
        assert_eq!(hand.lines("select status from {s}runs_view").await, ["completed"]);
        assert_eq!(hand.lines("select input || ' ' || result from {s}runs_view").await, ["[1] 42"]);
        assert_eq!(hand.lines("select event from {s}journal_view").await, ["step_done"]);
    }
}

on_postgres! {
    async fn nothing_depends_on_the_search_path_or_the_schemas_name(db) {
        assert_eq!(SCHEMA, "the \"order\"");
        let url = format!("{}{}options[search_path]=pg_catalog", db.url(), if db.url().contains('?') { "&" } else { "?" });
        let store = PostgresStore::connect(options(url)).await.unwrap();
        let me = session(&store).await;
        let run = owned(&store, me).await;
        assert_eq!(write(&store, me, vec![completed(run, 0, vec![done(1, "1")])]).await, [Written::Accepted]);
        let other = Claim { limit: 1, ..claim_for(me) };
        assert!(store.claim(&other).await.unwrap().is_empty());
    }
}
