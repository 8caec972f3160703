//! What waits to be written, and what of it goes into the next statement. No IO: the clock is the caller's.
//!
//! Order is kept within a run, and a run is in one statement at a time: what it sends meanwhile waits for the answer.
//! What follows a part whose run's row a stranger locks waits with it (PROTOCOL 8).

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry as Place},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use composer_sdk::{
    id::RunId,
    journal::{Entry, Event, Outcome},
    payload::Payload,
};
use tokio::time::Instant;

use super::{Op, RunOp, StartOp, Tenure, lane::BACKOFF};
use crate::{
    store::{Batch, End, RunBatch},
    task::{Mailbox, Note, Refusal},
};

/// Operations in one statement, at most.
const MAX_OPS: usize = 4096;
/// Bytes of one statement, about; a single larger part goes alone.
const MAX_BYTES: usize = 8 << 20;

/// One run's share of a statement, and whom to tell.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) tenure: Arc<Tenure>,
    reply: Mailbox,
    pub(super) prev: u32,
    pub(super) entries: Vec<Entry>,
    pub(super) end: Option<End>,
    published: Vec<(String, Payload)>,
    mark: u64,
    /// How long it waited before it was sent, the last time that its run's row was locked.
    pause: Option<Duration>,
}

impl Part {
    pub(super) fn last(&self) -> u32 {
        self.prev + self.entries.len() as u32
    }

    pub(super) fn refuse(&self, refusal: Refusal) {
        self.tenure.in_flight.store(false, Ordering::Relaxed);
        self.tenure.broken.store(true, Ordering::Release);
        let _ = self.reply.send(Note::Refused(refusal));
    }

    pub(super) fn accept(&self) {
        self.tenure.in_flight.store(false, Ordering::Relaxed);
        let _ =
            self.reply.send(Note::Written { upto: self.last(), ended: self.end.is_some(), mark: self.mark });
    }

    fn join(&mut self, op: RunOp) {
        debug_assert_eq!(self.last(), op.prev, "a run's parts follow one another");
        self.entries.extend(op.entries);
        self.end = op.end.or(self.end.take());
        self.published.retain(|(name, _)| op.published.iter().all(|(newer, _)| newer != name));
        self.published.extend(op.published);
        self.mark = op.mark;
    }
}

impl From<RunOp> for Part {
    fn from(op: RunOp) -> Self {
        let RunOp { tenure, entries, prev, end, published, mark, reply } = op;
        Self { tenure, reply, prev, entries, end, published, mark, pause: None }
    }
}

/// What goes into one statement.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) parts: Vec<Part>,
    pub(super) starts: Vec<StartOp>,
}

impl Chunk {
    pub(super) fn len(&self) -> usize {
        self.parts.len() + self.starts.len()
    }

    /// The statement's rows. Entries are lent to it and given back by [`Chunk::restore`], so nothing is copied.
    pub(super) fn batch(&mut self) -> Batch {
        self.parts.sort_by_key(|part| part.tenure.run_id);
        let runs = self.parts.iter_mut().map(|part| RunBatch {
            run_id: part.tenure.run_id,
            epoch: part.tenure.epoch(),
            prev: part.prev,
            entries: std::mem::take(&mut part.entries),
            end: part.end.clone(),
            published: std::mem::take(&mut part.published),
        });
        Batch { runs: runs.collect(), starts: self.starts.iter().map(|start| start.run.clone()).collect() }
    }

    pub(super) fn restore(&mut self, batch: Batch) {
        for (part, run) in self.parts.iter_mut().zip(batch.runs) {
            part.entries = run.entries;
            part.published = run.published;
        }
    }

    /// Two halves, to find what the database refuses.
    pub(super) fn halve(mut self) -> (Self, Self) {
        let parts = self.parts.split_off(self.parts.len() / 2);
        let starts = self.starts.split_off(self.starts.len() - self.starts.len() / 2);
        (self, Self { parts, starts })
    }
}

/// A part whose run's row a stranger locks.
#[derive(Debug)]
struct Locked {
    part: Part,
    until: Instant,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Queue {
    ops: VecDeque<Op>,
    locked: HashMap<RunId, Locked>,
}

impl Queue {
    pub(super) fn push(&mut self, op: Op) {
        self.ops.push_back(op);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.locked.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.ops.len() >= MAX_OPS
    }

    /// How many operations the next statement could take.
    pub(super) fn ready(&self) -> usize {
        self.ops.iter().filter(|op| !op.is_held()).count()
    }

    /// Takes operations for one statement.
    pub(super) fn take(&mut self) -> Option<Chunk> {
        let mut chunk = Chunk::default();
        let mut bytes = 0;
        let mut places: HashMap<RunId, usize> = HashMap::new();
        let mut later = VecDeque::new();
        let mut ops = std::mem::take(&mut self.ops).into_iter();
        for op in &mut ops {
            match op {
                Op::Start(start) => {
                    bytes += start.run.input.as_bytes().len();
                    chunk.starts.push(start);
                }
                Op::Run(op) if op.tenure.broken.load(Ordering::Acquire) => drop(op),
                op @ Op::Run(_) if op.is_held() => later.push_back(op),
                Op::Run(op) => {
                    let run_id = op.tenure.run_id;
                    bytes += op.entries.iter().map(entry_bytes).sum::<usize>();
                    bytes += op.published.iter().map(|(_, value)| value.as_bytes().len()).sum::<usize>();
                    if let Some(waiting) = self.locked.get_mut(&run_id)
                        && Arc::ptr_eq(&waiting.part.tenure, &op.tenure)
                    {
                        waiting.part.join(op);
                        continue;
                    }
                    match places.entry(run_id) {
                        Place::Vacant(place) => {
                            place.insert(chunk.parts.len());
                            chunk.parts.push(op.into());
                        }
                        Place::Occupied(place) => {
                            let part = &mut chunk.parts[*place.get()];
                            if Arc::ptr_eq(&part.tenure, &op.tenure) {
                                part.join(op);
                            } else {
                                // The run was let go and taken again: what the old tenure left behind is void.
                                part.refuse(Refusal::Fenced);
                                *part = op.into();
                            }
                        }
                    }
                }
            }
            if bytes >= MAX_BYTES || chunk.len() >= MAX_OPS {
                break;
            }
        }
        later.extend(ops);
        self.ops = later;
        chunk.parts.iter().for_each(|part| part.tenure.in_flight.store(true, Ordering::Relaxed));
        (chunk.len() > 0).then_some(chunk)
    }

    /// Takes a run whose row was locked, alone, once its pause is over.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Chunk> {
        let (run, _) = self.locked.iter().find(|(_, locked)| locked.until <= now)?;
        let run = *run;
        let Locked { part, .. } = self.locked.remove(&run)?;
        part.tenure.in_flight.store(true, Ordering::Relaxed);
        Some(Chunk { parts: vec![part], starts: vec![] })
    }

    /// When the first pause is over.
    pub(super) fn due(&self) -> Option<Instant> {
        self.locked.values().map(|locked| locked.until).min()
    }

    /// Keeps a part whose run's row is locked; the pause doubles each time.
    pub(super) fn wait(&mut self, mut part: Part, now: Instant) {
        part.tenure.in_flight.store(false, Ordering::Relaxed);
        let pause = part.pause.map_or(BACKOFF.0, |pause| (pause * 2).min(BACKOFF.1));
        part.pause = Some(pause);
        self.locked.insert(part.tenure.run_id, Locked { part, until: now + pause });
    }
}

impl Op {
    /// Whether an earlier part of its run has no answer yet.
    fn is_held(&self) -> bool {
        matches!(self, Op::Run(op) if op.tenure.in_flight.load(Ordering::Relaxed))
    }
}

fn entry_bytes(entry: &Entry) -> usize {
    /// The columns beside the payload, about.
    const ROW: usize = 256;
    let payload = match &entry.event {
        Event::StepDone { outcome, error, .. } => {
            error.len()
                + match outcome {
                    Outcome::Ok(bytes) | Outcome::Err(bytes) => bytes.as_bytes().len(),
                    Outcome::Failed(failure) => failure.message.len(),
                }
        }
        Event::Signal { payload, .. } | Event::Continued { input: payload, .. } => payload.as_bytes().len(),
        Event::AttemptFailed { error, .. } => error.len(),
        _ => 0,
    };
    ROW + payload
}

#[cfg(test)]
mod tests {
    use composer_sdk::id::Timestamp;
    use tokio::sync::mpsc;

    use super::*;
    use crate::store::Epoch;

    fn run(n: i64) -> RunId {
        RunId::new(Timestamp::from_micros(n * 1_000_000))
    }

    fn op(tenure: &Arc<Tenure>, prev: u32, n: u32) -> (Op, mpsc::UnboundedReceiver<Note>) {
        let (reply, notes) = mpsc::unbounded_channel();
        let entries = (prev + 1..=prev + n).map(|seq| Entry {
            seq,
            at: Timestamp::from_micros(0),
            event: Event::TimerFired { step: seq },
        });
        let (tenure, entries) = (tenure.clone(), entries.collect());
        let op = RunOp { tenure, entries, prev, end: None, published: vec![], mark: 0, reply };
        (Op::Run(op), notes)
    }

    fn queue(ops: impl IntoIterator<Item = Op>) -> Queue {
        Queue { ops: ops.into_iter().collect(), ..Queue::default() }
    }

    #[test]
    fn a_runs_operations_become_one_part_in_order_and_runs_are_sorted() {
        let (late, early) = (Tenure::new(run(9), Epoch(1)), Tenure::new(run(1), Epoch(4)));
        let mut queue = queue([op(&late, 0, 2).0, op(&early, 5, 1).0, op(&late, 2, 1).0]);
        let batch = queue.take().unwrap().batch();
        assert_eq!(batch.runs.iter().map(|r| r.run_id).collect::<Vec<_>>(), [early.run_id, late.run_id]);
        assert_eq!(batch.runs[1].entries.iter().map(|e| e.seq).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!((batch.runs[0].prev, batch.runs[0].epoch), (5, Epoch(4)));
    }

    #[test]
    fn a_run_is_in_one_statement_at_a_time() {
        let (busy, other) = (Tenure::new(run(1), Epoch(1)), Tenure::new(run(2), Epoch(1)));
        let mut queue = queue([op(&busy, 0, 1).0]);
        let first = queue.take().unwrap();
        queue.push(op(&busy, 1, 1).0);
        assert_eq!((queue.ready(), queue.take().is_none()), (0, true));
        queue.push(op(&other, 0, 1).0);
        queue.push(op(&busy, 2, 1).0);
        assert_eq!(queue.ready(), 1);
        let second = queue.take().unwrap();
        assert_eq!((second.len(), second.parts[0].tenure.run_id), (1, other.run_id));
        // With its answer, what the run sent meanwhile may go: all of it, in order.
        first.parts[0].accept();
        let third = queue.take().unwrap();
        assert_eq!((third.len(), third.parts[0].prev, third.parts[0].last()), (1, 1, 3));
        assert!(queue.is_empty());
    }

    #[test]
    fn after_a_refusal_nothing_later_of_that_tenure_is_written() {
        let tenure = Tenure::new(run(1), Epoch(1));
        let (first, mut notes) = op(&tenure, 0, 1);
        let mut queue = queue([first]);
        queue.take().unwrap().parts[0].refuse(Refusal::Fenced);
        assert!(matches!(notes.try_recv(), Ok(Note::Refused(Refusal::Fenced))));
        queue.push(op(&tenure, 1, 1).0);
        assert!(queue.take().is_none());
    }

    #[test]
    fn what_follows_a_locked_run_waits_with_it_longer_each_time() {
        let tenure = Tenure::new(run(1), Epoch(1));
        let now = Instant::now();
        let mut queue = queue([op(&tenure, 0, 1).0]);
        let part = queue.take().unwrap().parts.remove(0);
        queue.wait(part, now);
        queue.push(op(&tenure, 1, 1).0);
        assert!(queue.take().is_none() && queue.take_due(now).is_none());
        let again = queue.take_due(now + BACKOFF.0).unwrap().parts.remove(0);
        assert_eq!(again.last(), 2);
        queue.wait(again, now);
        assert_eq!(queue.due(), Some(now + BACKOFF.0 * 2));
    }

    #[test]
    fn a_new_tenure_does_not_wait_with_what_an_old_one_left_behind() {
        let id = run(1);
        let (old, new) = (Tenure::new(id, Epoch(1)), Tenure::new(id, Epoch(2)));
        let mut queue = queue([op(&old, 0, 1).0]);
        let part = queue.take().unwrap().parts.remove(0);
        queue.wait(part, Instant::now());
        queue.push(op(&new, 0, 1).0);
        assert_eq!(queue.take().unwrap().parts[0].tenure.epoch(), Epoch(2));
    }

    #[test]
    fn a_new_tenure_is_not_mixed_with_what_an_old_one_left_in_the_queue() {
        let id = run(1);
        let (old, new) = (Tenure::new(id, Epoch(1)), Tenure::new(id, Epoch(2)));
        let (left, mut notes) = op(&old, 7, 2);
        let chunk = queue([left, op(&new, 7, 1).0]).take().unwrap();
        assert_eq!((chunk.len(), chunk.parts[0].tenure.epoch(), chunk.parts[0].last()), (1, Epoch(2), 8));
        assert!(matches!(notes.try_recv(), Ok(Note::Refused(Refusal::Fenced))));
    }

    #[test]
    fn what_does_not_fit_into_a_statement_goes_into_the_next_one() {
        let (tenure, other) = (Tenure::new(run(1), Epoch(1)), Tenure::new(run(2), Epoch(1)));
        let (mut big, _notes) = op(&tenure, 0, 1);
        let Op::Run(first) = &mut big else { unreachable!() };
        let payload = composer_sdk::payload::Payload::from(vec![b'1'; MAX_BYTES]);
        first.entries[0].event = Event::Signal { name: "s".into(), inbox: 1, payload };
        let mut queue = queue([big, op(&tenure, 1, 1).0, op(&other, 0, 1).0]);
        let mut chunk = queue.take().unwrap();
        assert_eq!((chunk.len(), queue.ready()), (1, 1));
        // The run's row is locked: its next entry waits with it, the other run does not.
        let now = Instant::now();
        queue.wait(chunk.parts.remove(0), now);
        let chunk = queue.take().unwrap();
        assert_eq!((chunk.len(), chunk.parts[0].tenure.run_id), (1, other.run_id));
        assert_eq!(queue.take_due(now + BACKOFF.0).unwrap().parts[0].last(), 2);
    }

    #[test]
    fn halving_finds_every_part_and_start() {
        let tenures: Vec<_> = (0..5).map(|n| Tenure::new(run(n), Epoch(1))).collect();
        let mut todo = vec![queue(tenures.iter().map(|tenure| op(tenure, 0, 1).0)).take().unwrap()];
        let mut found = 0;
        while let Some(chunk) = todo.pop() {
            if chunk.len() == 1 {
                found += 1;
            } else {
                let (left, right) = chunk.halve();
                assert!(left.len() > 0 && right.len() > 0, "halving must get smaller");
                todo.extend([left, right]);
            }
        }
        assert_eq!(found, 5);
    }
}
