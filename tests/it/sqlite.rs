//! What only the embedded store has: one file, several processes, lock files and hints beside it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use composer_runtime::store::{
    self, Batch, Claim, Deleted, End, Epoch, IdPolicy, MessageContent, NewMessage, NewRun, NewSession, Plain,
    Release, Released, Renewed, RunBatch, RunFilter, Sent, SessionId, Settled, Started, Status, Store,
    StoreError, StoreOptions, Suspects, Topic, Until, Written,
};
use composer_sdk::{
    id::{RunId, Timestamp},
    journal::{Entry, Event, Outcome, Step, StepKind},
    payload::{Digest, Payload},
};
use sqlx::Connection;

use crate::support::sqlite::{Folder, connection, open, ready};

const LEASE: Duration = Duration::from_secs(30);

// ------------------------------------------------------------------------------------------------------- the frame

/// SQL of the test's own, on a connection of its own.
async fn raw(file: &Path, sql: &'static str) {
    let mut conn = connection(file).await;
    sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}

fn payload(text: &str) -> Payload {
    Payload::from(serde_json::to_vec(text).unwrap())
}

async fn new_run(store: &dyn Store, id: Option<&str>) -> NewRun {
    NewRun {
        run_id: RunId::new(store.now().await.unwrap()),
        workflow_id: id.map(|id| id.parse().unwrap()),
        workflow: "order".into(),
        input: payload("input"),
        delay: Duration::ZERO,
        timeout: None,
        tags: BTreeMap::from([("city".to_owned(), "Bern".to_owned())]),
        build: "b1".into(),
        signal: None,
    }
}

async fn session(store: &dyn Store) -> SessionId {
    let new =
        NewSession { name: "test".into(), build: "b1".into(), workflows: vec!["order".into()], lease: LEASE };
    store.open_session(&new).await.unwrap().0
}

fn claim_of(session: SessionId) -> Claim {
    Claim {
        session,
        build: "b1".into(),
        workflows: vec!["order".into()],
        limit: 100,
        stuck_backoff: Duration::from_secs(60),
        max_strikes: 5,
    }
}

fn step_done(seq: u32, text: &str) -> Entry {
    let step = Step {
        number: seq,
        kind: StepKind::Activity,
        name: "charge".into(),
        digest: Digest::of(&payload("x")),
        line: "a.rs:1".into(),
    };
    let event = Event::StepDone {
        step,
        attempt: 1,
        error: String::new(),
        gave_up: None,
        outcome: Outcome::Ok(payload(text)),
    };
    Entry { seq, at: Timestamp::from_micros(5), event }
}

fn part(run_id: RunId, epoch: Epoch, prev: u32, entries: Vec<Entry>) -> RunBatch {
    RunBatch { run_id, epoch, prev, entries, end: None, published: vec![] }
}

fn closed() -> Option<End> {
    Some(End::Closed {
        status: Status::Completed,
        outcome: Outcome::Ok(payload("done")),
        reason: None,
        unconsumed: vec![],
    })
}

async fn write(store: &dyn Store, session: SessionId, runs: Vec<RunBatch>) -> Vec<Written> {
    let mut journal = store.open_journal().await.unwrap();
    journal.write(session, &Batch { starts: vec![], runs }).await.unwrap().runs
}

/// This test binary once more, running the ignored test `name` as a helper with `COMPOSER_TEST_FILE` set.
fn helper(name: &str, file: &Path) -> Helper {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("sqlite::{name}"), "--ignored", "--nocapture", "--test-threads=1"])
        .env("COMPOSER_TEST_FILE", file)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn();
    Helper(child.unwrap())
}

/// A helper process, killed at the latest when its test ends.
struct Helper(Child);

impl Helper {
    fn succeeded(&mut self) -> bool {
        self.0.wait().unwrap().success()
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn helper_file() -> PathBuf {
    std::env::var_os("COMPOSER_TEST_FILE").expect("this test is started by another one").into()
}

async fn until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < Duration::from_secs(30), "gave up waiting: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

// ----------------------------------------------------------------------------------------------------------- tests

#[tokio::test]
async fn a_url_without_a_file_or_with_a_foreign_file_is_a_clear_error() {
    let folder = Folder::new();
    let file = folder.path().join("text");
    std::fs::write(&file, "this is not a database, and it is long enough to be looked at ".repeat(20))
        .unwrap();
    for url in ["sqlite::memory:".to_owned(), format!("sqlite:{}", file.display()), "mysql://x".to_owned()] {
        let options = StoreOptions {
            url: url.clone(),
            schema: "composer".into(),
            codec: Arc::new(Plain),
            pool_size: 1,
        };
        let error = store::connect(options).await.unwrap_err();
        assert!(matches!(error, StoreError::Config { .. }), "{url}: {error}");
    }
}

#[tokio::test]
async fn the_file_and_its_folder_are_created_and_the_schema_is_checked() {
    let folder = Folder::new();
    let file = folder.path().join("a/b/c.db");
    let store = open(&file).await;
    assert_eq!(store.location(), file.display().to_string());
    assert!(matches!(store.check_schema().await, Err(StoreError::Schema { .. })));
    let run = new_run(&*store, None).await;
    let error = store.start(&run, IdPolicy::UseExisting, None).await.unwrap_err();
    assert!(matches!(error, StoreError::Schema { .. }), "{error}");
    store.migrate().await.unwrap();
    store.migrate().await.unwrap();
    store.check_schema().await.unwrap();

    raw(&file, "insert into composer_migrations values (99, 0)").await;
    let error = store.check_schema().await.unwrap_err();
    assert!(error.to_string().contains("newer"), "{error}");
    assert!(store.migrate().await.is_err());
}

#[tokio::test]
async fn one_run_from_start_to_deletion() {
    let folder = Folder::new();
    let store = ready(&folder.file()).await;
    let run = new_run(&*store, Some("o-1")).await;
    assert!(matches!(
        store.start(&run, IdPolicy::UseExisting, None).await.unwrap(),
        Started::New { owned: None, .. }
    ));
    let again = NewRun { run_id: RunId::new(store.now().await.unwrap()), ..run.clone() };
    let exists = store.start(&again, IdPolicy::UseExisting, None).await.unwrap();
    assert!(matches!(exists, Started::Exists { run_id, .. } if run_id == run.run_id));

    let me = session(&*store).await;
    let claimed = store.claim(&claim_of(me)).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(
        (claimed[0].epoch, claimed[0].taken_over, &claimed[0].input),
        (Epoch(1), false, &Ok(payload("input")))
    );
    assert!(store.claim(&claim_of(me)).await.unwrap().is_empty());

    // A signal is in the way of parking, and is consumed with its entry.
    let signal = NewMessage::Signal { name: "go".into(), payload: payload("now") };
    assert_eq!(store.send(run.run_id, &signal).await.unwrap(), Sent::Accepted);
    let park = |epoch| Release { run_id: run.run_id, epoch, until: Until::Due(None) };
    assert_eq!(store.release(me, &[park(Epoch(1))]).await.unwrap(), [Released::Mail]);
    let mail = store.inbox(&[run.run_id]).await.unwrap();
    assert_eq!(mail.len(), 1);
    let received = Event::Signal { name: "go".into(), inbox: mail[0].id, payload: payload("now") };
    let entries = vec![step_done(1, "one"), Entry { seq: 2, at: Timestamp::from_micros(6), event: received }];
    assert_eq!(
        write(&*store, me, vec![part(run.run_id, Epoch(1), 0, entries.clone())]).await,
        [Written::Accepted]
    );
    assert!(store.inbox(&[run.run_id]).await.unwrap().is_empty());
    assert_eq!(store.journal(run.run_id, 0, 10).await.unwrap(), entries);
    assert_eq!(store.load(&[run.run_id]).await.unwrap(), [(run.run_id, entries)]);

    // Parked: nothing is due; a message makes it due.
    assert_eq!(store.release(me, &[park(Epoch(1))]).await.unwrap(), [Released::Done]);
    assert_eq!(
        write(&*store, me, vec![part(run.run_id, Epoch(1), 2, vec![step_done(3, "late")])]).await,
        [Written::Fenced]
    );
    assert!(store.claim(&claim_of(me)).await.unwrap().is_empty());
    assert_eq!(store.send(run.run_id, &signal).await.unwrap(), Sent::Accepted);
    let claimed = store.claim(&claim_of(me)).await.unwrap();
    assert_eq!(claimed[0].epoch, Epoch(2));

    // The end, with the signal unconsumed.
    let end = RunBatch { end: closed(), ..part(run.run_id, Epoch(2), 2, vec![step_done(3, "two")]) };
    assert_eq!(write(&*store, me, vec![end]).await, [Written::Accepted]);
    let ends = store.ends(&[run.run_id]).await.unwrap();
    assert_eq!(ends[0].1.outcome, Outcome::Ok(payload("done")));
    assert_eq!(store.send(run.run_id, &signal).await.unwrap(), Sent::NotOpen(Status::Completed));
    let left = [MessageContent::Signal { name: "go".into(), payload: payload("now") }];
    assert_eq!(store.unconsumed(run.run_id).await.unwrap(), left);
    assert_eq!(store.sweep(&mut Suspects::default()).await.unwrap().shelved, 1);
    assert_eq!(store.unconsumed(run.run_id).await.unwrap(), left);

    let row = store.find(&"o-1".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!((row.status, row.session, row.hosted), (Status::Completed, None, true));
    let filter = RunFilter {
        tag: Some(("city".into(), "Bern".into())),
        id_prefix: Some("o-".into()),
        ..<_>::default()
    };
    assert_eq!(store.list(&filter, None, 10).await.unwrap(), [row]);
    assert!(store.list(&filter, Some(run.run_id), 10).await.unwrap().is_empty());

    assert!(matches!(
        store.start(&again, IdPolicy::NewWhenClosed, Some(me)).await.unwrap(),
        Started::New { owned: Some(Epoch(1)), .. }
    ));
    assert_eq!(store.delete(again.run_id).await.unwrap(), Deleted::Open(Status::Running));
    assert_eq!(store.delete(run.run_id).await.unwrap(), Deleted::Done);
    assert_eq!(store.delete(run.run_id).await.unwrap(), Deleted::NoRun);
    assert_eq!(store.find(&"o-1".parse().unwrap()).await.unwrap().unwrap().run_id, again.run_id);
}

#[tokio::test]
async fn a_batch_writes_what_passes_the_fence_and_nothing_else() {
    let folder = Folder::new();
    let store = ready(&folder.file()).await;
    let me = session(&*store).await;
    let mut journal = store.open_journal().await.unwrap();
    let mut starts = Vec::new();
    for _ in 0..5 {
        starts.push(new_run(&*store, None).await);
    }
    starts.sort_by_key(|run| run.run_id);
    let runs: Vec<RunId> = starts.iter().map(|run| run.run_id).collect();
    let batch = Batch { starts, runs: vec![] };
    assert!(journal.write(me, &batch).await.unwrap().started);
    assert!(matches!(journal.write(me, &batch).await, Err(StoreError::Conflict { .. })));

    let gone = Event::Signal { name: "go".into(), inbox: 4711, payload: payload("x") };
    let stale = RunBatch { end: closed(), ..part(runs[1], Epoch(2), 0, vec![step_done(1, "stale")]) };
    let written = write(
        &*store,
        me,
        vec![
            part(runs[0], Epoch(1), 0, vec![step_done(1, "good")]),
            stale,
            part(runs[2], Epoch(1), 4, vec![step_done(5, "gap")]),
            part(runs[3], Epoch(1), 0, vec![Entry { seq: 1, at: Timestamp::from_micros(1), event: gone }]),
            RunBatch { end: closed(), ..part(runs[4], Epoch(1), 0, vec![step_done(1, "last")]) },
        ],
    )
    .await;
    assert_eq!(
        written,
        [Written::Accepted, Written::Fenced, Written::Fenced, Written::Fenced, Written::Accepted]
    );
    for (run, entries) in runs.iter().zip([1, 0, 0, 0, 1]) {
        assert_eq!(store.journal(*run, 0, 10).await.unwrap().len(), entries);
    }
    assert_eq!(store.run(runs[1]).await.unwrap().unwrap().status, Status::Running);
    assert_eq!(store.run(runs[4]).await.unwrap().unwrap().status, Status::Completed);

    // The wrong session, the same entry twice, and then the connection still works.
    let stranger = session(&*store).await;
    let next = vec![part(runs[0], Epoch(1), 1, vec![step_done(2, "more")])];
    assert_eq!(write(&*store, stranger, next.clone()).await, [Written::Fenced]);
    assert_eq!(write(&*store, me, next.clone()).await, [Written::Accepted]);
    let twice = journal.write(me, &Batch { starts: vec![], runs: next }).await;
    assert!(matches!(twice, Err(StoreError::Conflict { .. })), "{twice:?}");

    let settled =
        journal.settle(me, &[(runs[0], Epoch(1)), (runs[4], Epoch(1)), (runs[1], Epoch(9))]).await.unwrap();
    assert_eq!(
        settled,
        [Settled::Owned { epoch: Epoch(2), last: 2 }, Settled::Ended(Status::Completed), Settled::Lost]
    );
}

#[tokio::test]
async fn the_runs_of_a_dead_session_are_taken_over_until_they_are_stuck() {
    let folder = Folder::new();
    let file = folder.file();
    let store = ready(&file).await;
    let me = session(&*store).await;
    let run = new_run(&*store, None).await;
    assert!(matches!(store.start(&run, IdPolicy::UseExisting, Some(me)).await.unwrap(), Started::New { .. }));
    for strikes in 1..=3 {
        let (_, _, mut renewal) = {
            let new = NewSession {
                name: "t".into(),
                build: "b1".into(),
                workflows: vec!["order".into()],
                lease: LEASE,
            };
            store.open_session(&new).await.unwrap()
        };
        assert!(matches!(renewal.renew().await.unwrap(), Renewed::Alive { .. }));
        raw(&file, "update composer_sessions set lease_until = 0").await;
        assert!(store.sweep(&mut Suspects::default()).await.unwrap().expired >= 1);
        assert_eq!(renewal.renew().await.unwrap(), Renewed::Dead);
        let next = session(&*store).await;
        let claimed = store.claim(&Claim { max_strikes: 3, ..claim_of(next) }).await.unwrap();
        if strikes < 3 {
            assert_eq!((claimed[0].strikes, claimed[0].taken_over), (strikes, true));
        } else {
            assert!(claimed.is_empty());
        }
    }
    let row = store.run(run.run_id).await.unwrap().unwrap();
    assert_eq!(row.status, Status::Stuck);
    assert!(row.reason.unwrap().contains("3 workers"));

    // Another build takes it; a cancel closes it without its code when it is stuck again.
    let other = session(&*store).await;
    assert!(store.claim(&claim_of(other)).await.unwrap().is_empty());
    raw(&file, "update composer_runs set stuck_at = 1").await;
    assert!(store.claim(&claim_of(other)).await.unwrap().is_empty(), "its own build gets it no more");
    let claimed = store.claim(&Claim { build: "b2".into(), ..claim_of(other) }).await.unwrap();
    assert_eq!(claimed[0].strikes, 0);
    let stuck = End::Stuck { reason: "no".into(), build: "b2".into() };
    let batch = RunBatch { end: Some(stuck), ..part(run.run_id, claimed[0].epoch, 0, vec![]) };
    assert_eq!(write(&*store, other, vec![batch]).await, [Written::Accepted]);
    assert!(store.claim(&claim_of(other)).await.unwrap().is_empty(), "it rests between two offers");
    let cancel = NewMessage::Cancel { reason: "enough".into() };
    assert_eq!(store.send(run.run_id, &cancel).await.unwrap(), Sent::Closed);
    assert_eq!(store.ends(&[run.run_id]).await.unwrap()[0].1.status, Status::Cancelled);
}

#[tokio::test]
async fn a_dead_session_starts_and_claims_nothing() {
    let folder = Folder::new();
    let store = ready(&folder.file()).await;
    let me = session(&*store).await;
    store.close_session(me).await.unwrap();
    let run = new_run(&*store, None).await;
    let mut journal = store.open_journal().await.unwrap();
    let written = journal.write(me, &Batch { starts: vec![run.clone()], runs: vec![] }).await.unwrap();
    assert!(!written.started);
    assert!(store.run(run.run_id).await.unwrap().is_none());
    assert!(matches!(
        store.start(&run, IdPolicy::UseExisting, Some(me)).await.unwrap(),
        Started::New { owned: None, .. }
    ));
    assert!(store.claim(&claim_of(me)).await.unwrap().is_empty());
    assert_eq!(store.unhosted().await.unwrap(), [("order".to_owned(), 1)]);
}

/// Its row stays while it owns runs, so that it is the flag that counts and not the row.
#[tokio::test]
async fn a_dead_session_that_still_owns_a_run_gets_nothing_more() {
    let folder = Folder::new();
    let file = folder.file();
    let store = ready(&file).await;
    let new =
        NewSession { name: "t".into(), build: "b1".into(), workflows: vec!["order".into()], lease: LEASE };
    let (me, _, mut renewal) = store.open_session(&new).await.unwrap();
    let owned = new_run(&*store, None).await;
    store.start(&owned, IdPolicy::UseExisting, Some(me)).await.unwrap();
    raw(&file, "update composer_sessions set lease_until = 0").await;
    let swept = store.sweep(&mut Suspects::default()).await.unwrap();
    assert_eq!((swept.expired, swept.removed), (1, 0));

    assert_eq!(renewal.renew().await.unwrap(), Renewed::Dead);
    let run = new_run(&*store, None).await;
    let mut journal = store.open_journal().await.unwrap();
    assert!(!journal.write(me, &Batch { starts: vec![run.clone()], runs: vec![] }).await.unwrap().started);
    let started = store.start(&run, IdPolicy::UseExisting, Some(me)).await.unwrap();
    assert!(matches!(started, Started::New { owned: None, .. }), "{started:?}");
    assert!(store.claim(&claim_of(me)).await.unwrap().is_empty());
    assert_eq!(store.claim(&claim_of(session(&*store).await)).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_start_that_is_repeated_finds_its_own_run_even_when_that_has_ended() {
    let folder = Folder::new();
    let store = ready(&folder.file()).await;
    let me = session(&*store).await;
    let run = new_run(&*store, Some("o-1")).await;
    let first = store.start(&run, IdPolicy::NewWhenClosed, Some(me)).await.unwrap();
    assert!(matches!(first, Started::New { owned: Some(Epoch(1)), .. }));
    assert_eq!(store.start(&run, IdPolicy::NewWhenClosed, Some(me)).await.unwrap(), first);
    let end = RunBatch { end: closed(), ..part(run.run_id, Epoch(1), 0, vec![]) };
    assert_eq!(write(&*store, me, vec![end]).await, [Written::Accepted]);
    let repeated = store.start(&run, IdPolicy::NewWhenClosed, Some(me)).await.unwrap();
    assert!(matches!(repeated, Started::New { owned: None, .. }), "{repeated:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_starts_of_one_id_by_two_stores_exactly_one_is_new() {
    let folder = Folder::new();
    let stores = [ready(&folder.file()).await, ready(&folder.file()).await];
    let mut starts = Vec::new();
    for n in 0..50 {
        let store = stores[n % 2].clone();
        starts.push(tokio::spawn(async move {
            let run = new_run(&*store, Some("same")).await;
            store.start(&run, IdPolicy::UseExisting, None).await.unwrap()
        }));
    }
    let mut new = 0;
    for start in starts {
        new += u32::from(matches!(start.await.unwrap(), Started::New { .. }));
    }
    assert_eq!(new, 1);
}

#[tokio::test]
async fn a_listener_hears_its_own_process_and_others() {
    let folder = Folder::new();
    let (here, there) = (ready(&folder.file()).await, ready(&folder.file()).await);
    let mut ears = here.listen(None).await.unwrap();
    here.notify(&[Topic::Ends]).await.unwrap();
    assert_eq!(ears.next().await.unwrap(), Topic::Ends);
    there.notify(&[Topic::Inbox, Topic::Runs]).await.unwrap();
    let mut heard = [ears.next().await.unwrap(), ears.next().await.unwrap()];
    heard.sort_by_key(|topic| *topic as u8);
    assert_eq!(heard, [Topic::Runs, Topic::Inbox]);
    assert!(tokio::time::timeout(Duration::from_millis(100), ears.next()).await.is_err(), "nothing happened");
}

#[tokio::test]
async fn a_write_whose_caller_gave_up_is_finished_and_the_next_one_works() {
    let folder = Folder::new();
    let store = ready(&folder.file()).await;
    let run = new_run(&*store, None).await;
    {
        let mut start = store.start(&run, IdPolicy::UseExisting, None);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(start.as_mut().poll(&mut cx).is_pending());
    }
    let next = new_run(&*store, None).await;
    store.start(&next, IdPolicy::UseExisting, None).await.unwrap();
    assert!(store.run(run.run_id).await.unwrap().is_some());
}

#[tokio::test]
async fn r23_a_write_that_nobody_polls_holds_up_nobody() {
    let folder = Folder::new();
    let file = folder.file();
    let (here, there) = (ready(&file).await, ready(&file).await);
    let run = new_run(&*here, None).await;
    let mut start = here.start(&run, IdPolicy::UseExisting, None);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(start.as_mut().poll(&mut cx).is_pending());
    // As if user code blocked the runtime here: the write goes on without us, and so does everybody else's.
    let next = new_run(&*there, None).await;
    there.start(&next, IdPolicy::UseExisting, None).await.unwrap();
    until("the first write is done", || async { there.run(run.run_id).await.unwrap().is_some() }).await;
    assert!(matches!(start.await.unwrap(), Started::New { .. }));
}

#[tokio::test]
async fn r23_a_write_waits_for_the_lock_that_a_stranger_holds() {
    let folder = Folder::new();
    let file = folder.file();
    let store = ready(&file).await;
    let run = new_run(&*store, None).await;
    let mut stranger = connection(&file).await;
    sqlx::raw_sql("begin immediate").execute(&mut stranger).await.unwrap();
    let mut start = store.start(&run, IdPolicy::UseExisting, None);
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut start).await.is_err(), "it has to wait");
    assert!(store.run(run.run_id).await.unwrap().is_none(), "a read does not");
    sqlx::raw_sql("commit").execute(&mut stranger).await.unwrap();
    assert!(matches!(start.await.unwrap(), Started::New { .. }));
}

// ------------------------------------------------------------------------------------------- processes

#[tokio::test]
async fn r24_opening_waits_for_whoever_uses_a_file_that_is_not_yet_in_wal_mode() {
    let folder = Folder::new();
    let file = folder.file();
    std::fs::write(&file, "").unwrap();
    let mut stranger = connection(&file).await;
    sqlx::raw_sql("create table theirs (n integer); begin immediate").execute(&mut stranger).await.unwrap();
    let mut store = Box::pin(ready(&file));
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut store).await.is_err(), "it has to wait");
    sqlx::raw_sql("insert into theirs values (1); commit").execute(&mut stranger).await.unwrap();
    store.await.check_schema().await.unwrap();
}

#[tokio::test]
async fn r24_eight_processes_migrate_an_empty_file_at_once() {
    let folder = Folder::new();
    let mut all: Vec<Helper> = (0..8).map(|_| helper("helper_migrates", &folder.file())).collect();
    for one in &mut all {
        assert!(one.succeeded());
    }
    open(&folder.file()).await.check_schema().await.unwrap();
    let mut conn = connection(&folder.file()).await;
    let versions: Vec<(i64,)> =
        sqlx::query_as("select version from composer_migrations").fetch_all(&mut conn).await.unwrap();
    assert_eq!(versions, [(1,)]);
}

#[tokio::test]
async fn r24_a_killed_migration_leaves_the_old_schema_or_the_new_one() {
    for pause in 0..12 {
        let folder = Folder::new();
        let mut migrator = helper("helper_migrates", &folder.file());
        std::thread::sleep(Duration::from_millis(pause * 3));
        migrator.kill();
        let store = open(&folder.file()).await;
        match store.check_schema().await {
            Ok(()) => {}
            Err(StoreError::Schema { .. }) => store.migrate().await.unwrap(),
            Err(e) => panic!("{e}"),
        }
        let run = new_run(&*store, None).await;
        store.start(&run, IdPolicy::UseExisting, None).await.unwrap();
    }
}

#[tokio::test]
#[ignore = "a helper process"]
async fn helper_migrates() {
    ready(&helper_file()).await.check_schema().await.unwrap();
}

#[tokio::test]
async fn r23_two_processes_write_beside_a_long_reader_without_an_error_or_a_loss() {
    let folder = Folder::new();
    let file = folder.file();
    let store = ready(&file).await;
    let mut reader = connection(&file).await;
    sqlx::raw_sql("begin; select count(*) from composer_runs").execute(&mut reader).await.unwrap();

    let mut writers = [helper("helper_writes", &file), helper("helper_writes", &file)];
    for writer in &mut writers {
        assert!(writer.succeeded());
    }
    let runs = store.list(&RunFilter::default(), None, 1000).await.unwrap();
    assert_eq!(runs.len(), 2 * 100);
    for run in runs {
        assert_eq!(run.status, Status::Completed);
        assert_eq!(store.journal(run.run_id, 0, 10).await.unwrap().len(), 2);
    }
}

/// Writes 100 runs of two entries, alone in its session.
#[tokio::test]
#[ignore = "a helper process"]
async fn helper_writes() {
    let store = ready(&helper_file()).await;
    let me = session(&*store).await;
    for _ in 0..100 {
        let run = new_run(&*store, None).await;
        store.start(&run, IdPolicy::UseExisting, Some(me)).await.unwrap();
        let step = part(run.run_id, Epoch(1), 0, vec![step_done(1, "one")]);
        assert_eq!(write(&*store, me, vec![step]).await, [Written::Accepted]);
        let end = RunBatch { end: closed(), ..part(run.run_id, Epoch(1), 1, vec![step_done(2, "two")]) };
        assert_eq!(write(&*store, me, vec![end]).await, [Written::Accepted]);
    }
}

#[tokio::test]
async fn r23_a_kill_during_writes_leaves_a_usable_file() {
    let folder = Folder::new();
    let file = folder.file();
    let store = ready(&file).await;
    for round in 1..=3_usize {
        let mut writer = helper("helper_writes", &file);
        until("the writer writes", || async {
            store.list(&RunFilter::default(), None, 1000).await.unwrap().len() >= round * 10
        })
        .await;
        writer.kill();
    }
    let mut conn = connection(&file).await;
    let (verdict,): (String,) = sqlx::query_as("pragma integrity_check").fetch_one(&mut conn).await.unwrap();
    assert_eq!(verdict, "ok");
    let run = new_run(&*store, None).await;
    store.start(&run, IdPolicy::UseExisting, None).await.unwrap();
}

#[tokio::test]
async fn a_killed_process_is_noticed_long_before_its_lease_ends_and_a_living_one_is_not() {
    let folder = Folder::new();
    let file = folder.file();
    let store = ready(&file).await;
    let me = session(&*store).await;
    let mut ears = store.listen(Some(me)).await.unwrap();
    let mut other = helper("helper_owns_a_run", &file);
    until("the other process owns a run", || async {
        store
            .list(&RunFilter { statuses: vec![Status::Running], ..<_>::default() }, None, 1)
            .await
            .unwrap()
            .len()
            == 1
    })
    .await;

    let mut seen = Suspects::default();
    for _ in 0..2 {
        assert_eq!(store.sweep(&mut seen).await.unwrap(), <_>::default());
        let _ = tokio::time::timeout(Duration::from_millis(300), ears.next()).await;
    }
    other.kill();
    let killed = Instant::now();
    let mut gone = 0;
    while gone == 0 {
        gone = store.sweep(&mut seen).await.unwrap().gone;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(killed.elapsed() < LEASE / 2, "the hint says nothing");
    }
    let claimed = store.claim(&claim_of(me)).await.unwrap();
    assert_eq!((claimed.len(), claimed[0].taken_over), (1, true));
    assert_eq!(store.sweep(&mut seen).await.unwrap().removed, 1);
    let locks = std::fs::read_dir(folder.path().join("composer.db.live")).unwrap();
    let locks: Vec<_> = locks
        .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|e| e == "lock"))
        .collect();
    assert_eq!(locks.len(), 1, "only our own lock file is left");
}

#[tokio::test]
#[ignore = "a helper process"]
async fn helper_owns_a_run() {
    let store = ready(&helper_file()).await;
    let me = session(&*store).await;
    let _ears = store.listen(Some(me)).await.unwrap();
    let run = new_run(&*store, None).await;
    store.start(&run, IdPolicy::UseExisting, Some(me)).await.unwrap();
    std::future::pending::<()>().await;
}
