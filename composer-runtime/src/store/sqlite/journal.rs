//! The journal: one script a batch, through one fence.
//!
//! Under the write lock nothing changes beside the script, but it changes rows itself. So the fence is decided once,
//! before the first change, into a table of the connection's own (`temp.composer_fence`: which parts of the batch may
//! be written), and every other part takes its runs from there and from nothing else.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use composer_sdk::{
    id::{RunId, Timestamp},
    journal::{Entry, Event},
};
use sqlx::sqlite::SqliteRow;

use super::{
    super::{
        Batch, BatchWritten, Codec, End, Epoch, JournalConn, NewRun, Result, RunBatch, SessionId, Settled,
        StoreError, Written,
    },
    SqliteStore,
    lane::Lane,
    rows::{Packed, args, columns, ids, micros, now, packed, packed_text, sql},
    runs::{status, tags_text},
};

/// Writes a batch.
///
/// * `$1` the session
/// * `$2`, `$3` new runs `[id, workflow, input, build, tags, workflow id, delay, timeout]` and their bytes
/// * `$4` owned runs `[id, epoch, prev]`
/// * `$5`, `$6` entries `[part, seq, at, kind, meta, payload]` and their bytes
/// * `$7` inbox rows that become entries `[part, row, run id]`
/// * `$8`, `$9` ends `[part, status, outcome, result, reason, unconsumed, build]` and their bytes
/// * `$10` the last instant that a column holds
pub(super) const WRITE: &str = sql!(
    "begin immediate;

    insert into composer_runs
      (run_id, workflow_id, workflow, input, build, tags, deadline, status, epoch, session, created_at, started_at)
    select
      unhex(b.value ->> 0), ", packed_text!("3", "b", "9", "10"), ", ", packed_text!("3", "b", "1", "2"), ", ",
      packed!("3", "b", "3", "4"), ", ", packed_text!("3", "b", "5", "6"), ", ", packed_text!("3", "b", "7", "8"), ",
      min(c.now + (b.value ->> 11), $10), 2, 1, $1, c.now, c.now
    from (select ", now!(), " as now) c
    cross join json_each($2) b
    where exists (select 1 from composer_sessions s where s.id = $1 and s.dead_at is null)
    returning 1, started_at;

    insert into temp.composer_fence (part, run_id, epoch)
    select b.key, r.run_id, r.epoch
    from json_each($4) b
    cross join composer_runs r
    where r.run_id = unhex(b.value ->> 0)
      and r.epoch = b.value ->> 1
      and r.session = $1
      and r.status = 2
      and (b.value ->> 2 = 0
        or exists (select 1 from composer_journal j where j.run_id = r.run_id and j.seq = b.value ->> 2))
      and b.key not in (
        select m.value ->> 0
        from json_each($7) m
        left join composer_inbox i on i.id = m.value ->> 1 and i.run_id = unhex(m.value ->> 2)
        where i.id is null
      );

    insert into composer_journal (run_id, seq, epoch, at, kind, meta, payload)
    select
      f.run_id, e.value ->> 1, f.epoch, e.value ->> 2, e.value ->> 3, ",
      packed_text!("6", "e", "4", "5"), ", ", packed!("6", "e", "6", "7"), "
    from json_each($5) e
    cross join temp.composer_fence f
    where f.part = e.value ->> 0;

    delete from composer_inbox
    where id in (
      select m.value ->> 1 from json_each($7) m cross join temp.composer_fence f where f.part = m.value ->> 0
    );

    with e as materialized (
      select f.run_id, e.value, ", now!(), " as now
      from json_each($8) e
      cross join temp.composer_fence f
      where f.part = e.value ->> 0
    )
    update composer_runs
    set
      status = e.value ->> 1,
      closed_at = iif(e.value ->> 1 = 4, null, e.now),
      stuck_at = iif(e.value ->> 1 = 4, e.now, null),
      result_meta = ", packed_text!("9", "e", "2", "3"), ",
      result = ", packed!("9", "e", "4", "5"), ",
      reason = ", packed_text!("9", "e", "6", "7"), ",
      unconsumed = ", packed_text!("9", "e", "8", "9"), ",
      stuck_build = ", packed_text!("9", "e", "10", "11"), "
    from e
    where composer_runs.run_id = e.run_id;

    select 2, part from temp.composer_fence;
    select 3, ", now!(), ";
    delete from temp.composer_fence;
    commit"
);

/// Raises the epochs of runs after an unknown outcome and says what is there. What may still arrive is behind us in
/// the queue for the write lock, or will find the new epoch.
pub(super) const SETTLE: &str = "
    begin immediate;

    insert into temp.composer_fence (part, run_id, epoch)
    select b.key, r.run_id, r.epoch
    from json_each($2) b
    cross join composer_runs r
    where r.run_id = unhex(b.value ->> 0) and r.epoch = b.value ->> 1 and r.session = $1;

    update composer_runs
    set epoch = epoch + 1
    where status = 2 and run_id in (select run_id from temp.composer_fence);

    select f.part, r.status, r.epoch,
      (select coalesce(max(j.seq), 0) from composer_journal j where j.run_id = r.run_id)
    from temp.composer_fence f
    cross join composer_runs r
    where r.run_id = f.run_id;

    delete from temp.composer_fence;
    commit";

pub(super) const READ: &str = "
    select run_id, seq, at, kind, meta, payload
    from composer_journal
    where run_id = $1 and seq > $2
    order by seq
    limit $3";

pub(super) const LOAD: &str = "
    select j.run_id, j.seq, j.at, j.kind, j.meta, j.payload
    from json_each($1) b
    cross join composer_journal j
    where j.run_id = unhex(b.value)";

/// The journal writer's way into the lane for writes.
pub(super) struct Writer {
    pub(super) write: Arc<Lane>,
    pub(super) codec: Arc<dyn Codec>,
}

#[async_trait]
impl JournalConn for Writer {
    async fn write(&mut self, session: SessionId, batch: &Batch) -> Result<BatchWritten> {
        let (starts, starts_bytes) = self.pack_starts(&batch.starts)?;
        let (runs, _) = pack_runs(&batch.runs)?;
        let (entries, entries_bytes) = self.pack_entries(&batch.runs);
        let (mail, _) = pack_mail(&batch.runs);
        let (ends, ends_bytes) = self.pack_ends(&batch.runs);
        let args = args![
            session.0,
            starts,
            starts_bytes,
            runs,
            entries,
            entries_bytes,
            mail,
            ends,
            ends_bytes,
            Timestamp::MAX.as_micros(),
        ];
        written(batch, &self.write.script(WRITE, args).await?)
    }

    async fn settle(&mut self, session: SessionId, runs: &[(RunId, Epoch)]) -> Result<Vec<Settled>> {
        let mut asked = Packed::default();
        for (run, epoch) in runs {
            asked.row(|row| {
                row.id(*run).int(epoch.0);
            });
        }
        let rows = self.write.script(SETTLE, args![session.0, asked.finish().0]).await?;
        let mut settled = vec![Settled::Lost; runs.len()];
        for row in &rows {
            let mut c = columns(row);
            let (part, status, epoch, last) =
                (c.small::<usize>()?, status(c.small()?)?, Epoch(c.int()?), c.small()?);
            settled[part] = match status {
                super::super::Status::Running => Settled::Owned { epoch, last },
                ended => Settled::Ended(ended),
            };
        }
        Ok(settled)
    }
}

impl Writer {
    fn pack_starts(&self, starts: &[NewRun]) -> Result<(String, Vec<u8>)> {
        let mut packed = Packed::default();
        for run in starts {
            if run.workflow_id.is_some() || !run.delay.is_zero() {
                return Err(StoreError::Rejected {
                    message: format!("run {} has a key or a delay, and a batch starts neither", run.run_id),
                });
            }
            let input = self.codec.encode(run.input.clone());
            packed.row(|row| {
                row.id(run.run_id)
                    .text(&run.workflow)
                    .payload(Some(&input))
                    .text(&run.build)
                    .text(&tags_text(&run.tags))
                    .text(&run.run_id.to_string())
                    .int(run.timeout.map(micros));
            });
        }
        Ok(packed.finish())
    }

    fn pack_entries(&self, runs: &[RunBatch]) -> (String, Vec<u8>) {
        let mut packed = Packed::default();
        for (part, run) in runs.iter().enumerate() {
            for entry in &run.entries {
                let record = entry.event.to_record();
                let payload = record.payload.map(|payload| self.codec.encode(payload));
                packed.row(|row| {
                    row.int(part as i64)
                        .int(i64::from(entry.seq))
                        .int(entry.at.as_micros())
                        .int(i64::from(record.kind))
                        .text(&record.meta)
                        .payload(payload.as_ref());
                });
            }
        }
        packed.finish()
    }

    fn pack_ends(&self, runs: &[RunBatch]) -> (String, Vec<u8>) {
        let mut packed = Packed::default();
        for (part, run) in runs.iter().enumerate() {
            let part = part as i64;
            match &run.end {
                None => {}
                Some(End::Closed { status, outcome, reason, unconsumed }) => {
                    let (meta, result) = outcome.to_record();
                    let result = result.map(|result| self.codec.encode(result));
                    let unconsumed =
                        serde_json::to_string(unconsumed).expect("invariant: numbers are always JSON");
                    packed.row(|row| {
                        row.int(part)
                            .int(*status as i64)
                            .text(&meta)
                            .payload(result.as_ref())
                            .bytes(reason.as_ref().map(String::as_bytes))
                            .text(&unconsumed)
                            .bytes(None);
                    });
                }
                Some(End::Stuck { reason, build }) => packed.row(|row| {
                    row.int(part)
                        .int(super::super::Status::Stuck as i64)
                        .bytes(None)
                        .bytes(None)
                        .text(reason)
                        .bytes(None)
                        .text(build);
                }),
            }
        }
        packed.finish()
    }
}

/// The owned runs. Entries must follow one another from `prev` on: the store's own check for a gap stands on that.
fn pack_runs(runs: &[RunBatch]) -> Result<(String, Vec<u8>)> {
    let mut packed = Packed::default();
    for run in runs {
        if !run.entries.iter().zip(1..).all(|(entry, n)| entry.seq == run.prev + n) {
            return Err(StoreError::Rejected {
                message: format!("the entries for run {} do not follow entry {}", run.run_id, run.prev),
            });
        }
        packed.row(|row| {
            row.id(run.run_id).int(run.epoch.0).int(i64::from(run.prev));
        });
    }
    Ok(packed.finish())
}

fn pack_mail(runs: &[RunBatch]) -> (String, Vec<u8>) {
    let mut packed = Packed::default();
    for (part, run) in runs.iter().enumerate() {
        for inbox in run.entries.iter().filter_map(|entry| entry.event.inbox()) {
            packed.row(|row| {
                row.int(part as i64).int(inbox).id(run.run_id);
            });
        }
    }
    packed.finish()
}

fn written(batch: &Batch, rows: &[SqliteRow]) -> Result<BatchWritten> {
    let mut started = 0;
    let mut started_at = Timestamp::from_micros(0);
    let mut runs = vec![Written::Fenced; batch.runs.len()];
    for row in rows {
        let mut c = columns(row);
        match c.int()? {
            1 => (started, started_at) = (started + 1, c.at()?),
            2 => runs[c.small::<usize>()?] = Written::Accepted,
            _ if started == 0 => started_at = c.at()?,
            _ => {}
        }
    }
    Ok(BatchWritten { started: started == batch.starts.len(), started_at, runs })
}

impl SqliteStore {
    pub(super) async fn read_journal(&self, run: RunId, after: u32, limit: u32) -> Result<Vec<Entry>> {
        let args = args![run.as_uuid(), i64::from(after), i64::from(limit)];
        let rows = self.read.script(READ, args).await?;
        rows.iter().map(|row| Ok(self.entry(row)?.1)).collect()
    }

    pub(super) async fn load_journals(&self, runs: &[RunId]) -> Result<Vec<(RunId, Vec<Entry>)>> {
        let rows = self.read.script(LOAD, args![ids(runs)]).await?;
        let mut journals: HashMap<RunId, Vec<Entry>> = HashMap::with_capacity(runs.len());
        for row in &rows {
            let (run, entry) = self.entry(row)?;
            journals.entry(run).or_default().push(entry);
        }
        // Sorted here: SQLite would carry every payload through its sorter.
        let in_order = |mut journal: Vec<Entry>| {
            journal.sort_unstable_by_key(|entry| entry.seq);
            journal
        };
        Ok(runs.iter().map(|run| (*run, in_order(journals.remove(run).unwrap_or_default()))).collect())
    }

    fn entry(&self, row: &SqliteRow) -> Result<(RunId, Entry)> {
        let mut c = columns(row);
        let (run, seq, at, kind, meta) = (c.run_id()?, c.small()?, c.at()?, c.small()?, c.text()?);
        let payload = self.decode_some(c.get()?)?;
        let event = Event::from_record(kind, &meta, payload)
            .map_err(|e| StoreError::unreadable(format!("entry {seq} of run {run}: {e}")))?;
        Ok((run, Entry { seq, at, event }))
    }
}
