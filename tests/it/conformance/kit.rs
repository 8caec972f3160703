//! Short words for the suite: runs, sessions, batches.

use std::{collections::BTreeMap, time::Duration};

use composer_runtime::store::{
    Batch, Claim, Claimed, End, Epoch, NewMessage, NewRun, NewSession, Release, Released, RunBatch,
    SessionId, Status, Store, Until, Written,
};
use composer_sdk::{
    id::{RunId, Timestamp, WorkflowId},
    journal::{Entry, Event, Outcome, Step, StepKind},
    payload::{Digest, Payload},
};

/// The build of most sessions here.
pub(crate) const BUILD: &str = "build-1";

/// A value.
pub(crate) fn bytes(text: &str) -> Payload {
    Payload::from(text.as_bytes().to_vec())
}

/// A user's key.
pub(crate) fn id(text: &str) -> WorkflowId {
    text.parse().expect("a test's workflow id is valid")
}

/// A run to start, of the workflow `order`, with an id of the engine.
pub(crate) async fn new_run(store: &dyn Store) -> NewRun {
    NewRun {
        run_id: RunId::new(store.now().await.expect("the database tells the time")),
        workflow_id: None,
        workflow: "order".into(),
        input: bytes("[1]"),
        delay: Duration::ZERO,
        timeout: None,
        tags: BTreeMap::new(),
        build: BUILD.into(),
        signal: None,
    }
}

/// A started run, pending.
pub(crate) async fn pending(store: &dyn Store) -> RunId {
    let run = new_run(store).await;
    store.start(&run, Default::default(), None).await.expect("a run can be started");
    run.run_id
}

/// A session that hosts `order`, of [`BUILD`].
pub(crate) async fn session(store: &dyn Store) -> SessionId {
    session_of(store, BUILD, &["order"]).await
}

/// A session of a build that hosts these workflows.
pub(crate) async fn session_of(store: &dyn Store, build: &str, workflows: &[&str]) -> SessionId {
    let session = NewSession {
        name: "test".into(),
        build: build.into(),
        workflows: workflows.iter().map(|name| (*name).to_owned()).collect(),
        lease: Duration::from_secs(600),
    };
    store.open_session(&session).await.expect("a session can be opened").0
}

/// A claim for a session of [`BUILD`].
pub(crate) fn claim_for(session: SessionId) -> Claim {
    Claim {
        session,
        build: BUILD.into(),
        workflows: vec!["order".into()],
        limit: 10,
        stuck_backoff: Duration::from_secs(60),
        max_strikes: 5,
    }
}

/// What a session of [`BUILD`] is handed.
pub(crate) async fn claim(store: &dyn Store, session: SessionId) -> Vec<Claimed> {
    store.claim(&claim_for(session)).await.expect("a claim succeeds")
}

/// A run that the session owns, and its epoch.
pub(crate) async fn owned(store: &dyn Store, session: SessionId) -> (RunId, Epoch) {
    let run = pending(store).await;
    let claimed = claim(store, session).await;
    let claimed = claimed.iter().find(|claimed| claimed.run_id == run).expect("the new run is handed out");
    (run, claimed.epoch)
}

/// That many of them, in the order of their ids.
pub(crate) async fn owned_many(store: &dyn Store, session: SessionId, count: usize) -> Vec<(RunId, Epoch)> {
    for _ in 0..count {
        pending(store).await;
    }
    let mut runs: Vec<_> = store
        .claim(&Claim { limit: count, ..claim_for(session) })
        .await
        .expect("a claim succeeds")
        .iter()
        .map(|claimed| (claimed.run_id, claimed.epoch))
        .collect();
    assert_eq!(runs.len(), count, "all new runs are handed out");
    runs.sort();
    runs
}

/// The entry of a step that was done.
pub(crate) fn done(seq: u32, value: &str) -> Entry {
    let step = Step {
        number: seq,
        kind: StepKind::Activity,
        name: "charge".into(),
        digest: Digest::of(&bytes("[]")),
        line: "src/shop.rs:1".into(),
    };
    let event = Event::StepDone {
        step,
        attempt: 1,
        error: String::new(),
        gave_up: None,
        outcome: Outcome::Ok(bytes(value)),
    };
    entry(seq, event)
}

/// The entry of a signal from the inbox.
pub(crate) fn signalled(seq: u32, inbox: i64, name: &str, value: &str) -> Entry {
    entry(seq, Event::Signal { name: name.into(), inbox, payload: bytes(value) })
}

/// An entry.
pub(crate) fn entry(seq: u32, event: Event) -> Entry {
    Entry { seq, at: Timestamp::from_micros(1_700_000_000_000_000 + i64::from(seq)), event }
}

/// What one run decided, after `prev`.
pub(crate) fn decided((run_id, epoch): (RunId, Epoch), prev: u32, entries: Vec<Entry>) -> RunBatch {
    RunBatch { run_id, epoch, prev, entries, end: None, published: vec![] }
}

/// The same, and it ended with a value.
pub(crate) fn completed(run: (RunId, Epoch), prev: u32, entries: Vec<Entry>) -> RunBatch {
    RunBatch { end: Some(ended(Status::Completed)), ..decided(run, prev, entries) }
}

/// The same, and it became stuck.
pub(crate) fn stuck(run: (RunId, Epoch), prev: u32) -> RunBatch {
    let end = End::Stuck { reason: "no such step".into(), build: BUILD.into() };
    RunBatch { end: Some(end), ..decided(run, prev, vec![]) }
}

/// An end with a value.
pub(crate) fn ended(status: Status) -> End {
    End::Closed { status, outcome: Outcome::Ok(bytes("42")), reason: None, unconsumed: vec![] }
}

/// A batch of what runs decided.
pub(crate) fn batch(runs: Vec<RunBatch>) -> Batch {
    Batch { starts: vec![], runs }
}

/// Writes on a connection of its own what runs decided.
pub(crate) async fn write(store: &dyn Store, session: SessionId, runs: Vec<RunBatch>) -> Vec<Written> {
    let mut journal = store.open_journal().await.expect("a journal connection can be opened");
    journal.write(session, &batch(runs)).await.expect("a batch can be written").runs
}

/// The numbers of a run's entries.
pub(crate) async fn seqs(store: &dyn Store, run: RunId) -> Vec<u32> {
    let entries = store.journal(run, 0, 1000).await.expect("a journal can be read");
    entries.iter().map(|entry| entry.seq).collect()
}

/// Where a run stands.
pub(crate) async fn status(store: &dyn Store, run: RunId) -> Status {
    store.run(run).await.expect("a run can be read").expect("there is such a run").status
}

/// A signal.
pub(crate) fn signal(name: &str, value: &str) -> NewMessage {
    NewMessage::Signal { name: name.into(), payload: bytes(value) }
}

/// A request to cancel.
pub(crate) fn cancel(reason: &str) -> NewMessage {
    NewMessage::Cancel { reason: reason.into() }
}

/// Parks a run until a message comes.
pub(crate) async fn park(store: &dyn Store, session: SessionId, (run_id, epoch): (RunId, Epoch)) {
    let release = Release { run_id, epoch, until: Until::Due(None) };
    let released = store.release(session, &[release]).await.expect("runs can be released");
    assert_eq!(released, [Released::Done]);
}
