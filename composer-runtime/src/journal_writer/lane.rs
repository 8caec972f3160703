//! One connection of the writer: a chunk goes in, and comes back when each of its parts has an answer.
//!
//! A lane repeats what did not arrive, settles what may have (PROTOCOL 6), and halves what the database refuses until
//! it has found the part that is at fault (11). The runs of a chunk are in no other lane meanwhile.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use composer_sdk::journal::Event;
use tokio::time::timeout;

use super::{
    StartOp,
    queue::{Chunk, Part},
};
use crate::{
    metrics::Metrics,
    session::Session,
    store::{
        ANSWER, Batch, BatchWritten, CONNECT, End, Epoch, IdPolicy, JournalConn, NewRun, Settled, Started,
        Store, StoreError, Written, within,
    },
    task::Refusal,
};

/// The first and the longest pause after a refusal that may heal.
pub(super) const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// See the module.
pub(super) struct Lane {
    store: Arc<dyn Store>,
    session: Arc<Session>,
    metrics: Arc<Metrics>,
    conn: Option<Box<dyn JournalConn>>,
}

impl Lane {
    pub(super) fn new(store: Arc<dyn Store>, session: Arc<Session>, metrics: Arc<Metrics>) -> Self {
        Self { store, session, metrics, conn: None }
    }

    /// Writes a chunk, whatever it takes, until each of its parts has an answer or waits for a locked row: the latter
    /// are returned.
    pub(super) async fn write_all(&mut self, chunk: Chunk) -> Vec<Part> {
        let mut todo = vec![chunk];
        let mut locked = vec![];
        let mut pause = BACKOFF.0;
        while let Some(mut chunk) = todo.pop() {
            if self.session.is_lost() {
                refuse_all(chunk);
                continue;
            }
            let batch = chunk.batch();
            let written = self.send(&batch).await;
            chunk.restore(batch);
            match written {
                Ok(written) => {
                    pause = BACKOFF.0;
                    self.answer(chunk, written, &mut locked);
                }
                Err(StoreError::Rejected { message }) if chunk.len() == 1 => reject(chunk, &message),
                Err(StoreError::Rejected { .. }) => {
                    let (left, right) = chunk.halve();
                    todo.extend([right, left]);
                }
                Err(StoreError::Unavailable { maybe_committed: true, message }) => {
                    tracing::warn!(%message, "the outcome of a batch is unknown; settling it");
                    todo.extend(self.settle(chunk, false).await);
                    rest(&self.session, &mut pause).await;
                }
                Err(StoreError::Conflict { message }) => {
                    tracing::warn!(%message, "a batch contradicts rows that are there; settling it");
                    todo.extend(self.settle(chunk, true).await);
                    rest(&self.session, &mut pause).await;
                }
                Err(error) => {
                    self.session.complain("the journal cannot be written; trying again", &error);
                    self.conn = None;
                    rest(&self.session, &mut pause).await;
                    todo.push(chunk);
                }
            }
        }
        locked
    }

    /// One statement, on a connection that is opened when there is none.
    async fn send(&mut self, batch: &Batch) -> Result<BatchWritten, StoreError> {
        let session = self.session.id();
        let conn = match &mut self.conn {
            Some(conn) => conn,
            none => none.insert(open(&*self.store).await?),
        };
        within(ANSWER, conn.write(session, batch)).await
    }

    fn answer(&self, chunk: Chunk, written: BatchWritten, locked: &mut Vec<Part>) {
        self.metrics.batches.add(1);
        let mut steps = 0;
        for (part, outcome) in chunk.parts.into_iter().zip(written.runs) {
            match outcome {
                Written::Accepted => {
                    steps +=
                        part.entries.iter().filter(|e| matches!(e.event, Event::StepDone { .. })).count();
                    part.accept();
                }
                Written::Fenced => {
                    self.metrics.fenced.add(1);
                    part.refuse(Refusal::Fenced);
                }
                Written::Busy => {
                    self.metrics.busy.add(1);
                    tracing::debug!(run_id = %part.tenure.run_id, "the run's row is locked by somebody else; trying again");
                    locked.push(part);
                }
            }
        }
        self.metrics.steps.add(steps as u64);
        for start in chunk.starts {
            let answer = if written.started {
                Ok(Started::New { owned: Some(Epoch(1)), at: written.started_at })
            } else {
                Err(StoreError::Unavailable {
                    message: "the worker's session is over; start again".into(),
                    maybe_committed: false,
                })
            };
            let _ = start.reply.send(answer);
        }
    }

    /// Finds out what became of a chunk; returns what has to be sent again, under new epochs.
    async fn settle(&mut self, chunk: Chunk, conflict: bool) -> Option<Chunk> {
        self.metrics.settled.add(1);
        let runs: Vec<_> = chunk.parts.iter().map(|part| (part.tenure.run_id, part.tenure.epoch())).collect();
        let mut pause = BACKOFF.0;
        let settled = loop {
            if self.session.is_lost() {
                refuse_all(chunk);
                return None;
            }
            // The old connection is never used again: what it may still commit is what settling waits for.
            self.conn = None;
            let attempt = async {
                let conn = self.conn.insert(open(&*self.store).await?);
                within(ANSWER, conn.settle(self.session.id(), &runs)).await
            };
            match attempt.await {
                Ok(settled) => break settled,
                Err(error) => {
                    self.session.complain("an unknown outcome cannot be settled yet; trying again", &error);
                    rest(&self.session, &mut pause).await;
                }
            }
        };
        for StartOp { run, reply } in chunk.starts {
            let _ = reply.send(within(ANSWER, start_again(&*self.store, &self.session, &run)).await);
        }
        let parts: Vec<_> = chunk
            .parts
            .into_iter()
            .zip(settled)
            .filter_map(|(part, settled)| self.resume(part, settled, conflict))
            .collect();
        (!parts.is_empty()).then_some(Chunk { parts, starts: vec![] })
    }

    /// What a settled part needs: nothing, or to be sent again.
    fn resume(&self, part: Part, settled: Settled, conflict: bool) -> Option<Part> {
        match settled {
            Settled::Owned { epoch, last } => {
                part.tenure.epoch.store(epoch.0, Ordering::Release);
                if last == part.prev {
                    return Some(part);
                }
                let stays = matches!(part.end, None | Some(End::Continued { .. }));
                if last == part.last() && stays && !conflict {
                    part.accept();
                } else {
                    part.refuse(Refusal::Rebuild);
                }
            }
            Settled::Ended(_) if part.end.is_some() => part.accept(),
            Settled::Ended(_) | Settled::Lost => {
                self.metrics.fenced.add(1);
                part.refuse(Refusal::Fenced);
            }
        }
        None
    }
}

/// The session is lost: nobody waits for its starts, and its runs belong to somebody else.
fn refuse_all(chunk: Chunk) {
    chunk.parts.iter().for_each(|part| part.refuse(Refusal::Fenced));
}

/// Waits before a repetition, longer each time, and no longer than the session lives.
async fn rest(session: &Session, pause: &mut Duration) {
    let jittered = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
    let _ = timeout(jittered, session.lost()).await;
    *pause = (*pause * 2).min(BACKOFF.1);
}

/// A start whose outcome is unknown: the id decides, and it is ours alone.
async fn start_again(store: &dyn Store, session: &Session, run: &NewRun) -> Result<Started, StoreError> {
    match store.start(run, IdPolicy::UseExisting, Some(session.id())).await? {
        Started::Exists { .. } => {
            let row = store.run(run.run_id).await?;
            let owned = row.filter(|row| row.session == Some(session.id()));
            Ok(Started::New {
                owned: owned.as_ref().map(|row| row.epoch),
                at: owned.and_then(|row| row.started_at).unwrap_or(store.now().await?),
            })
        }
        new => Ok(new),
    }
}

async fn open(store: &dyn Store) -> Result<Box<dyn JournalConn>, StoreError> {
    within(CONNECT, store.open_journal()).await
}

/// One part or start that can never be written.
fn reject(chunk: Chunk, message: &str) {
    for part in chunk.parts {
        part.refuse(Refusal::Rejected(message.to_owned()));
    }
    for start in chunk.starts {
        let _ = start.reply.send(Err(StoreError::Rejected { message: message.to_owned() }));
    }
}
