//! The journal: one script a batch, through one fence.
//!
//! Under the write lock nothing changes beside the script, but it changes rows itself. So the fence is decided once,
//! before the first change, into a table of the connection's own (`temp.composer_fence`: which parts of the batch may
//! be written), and every other part takes its runs from there and from nothing else. A batch of entries alone has
//! one part, and is one statement.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use composer_sdk::{
    id::{RunId, Timestamp},
    journal::{Entry, Event},
    payload::Payload,
};
use sqlx::sqlite::SqliteRow;

use super::{
    super::{
        Batch, BatchWritten, Codec, End, Epoch, JournalConn, NewRun, Result, RunBatch, SessionId, Settled,
        StoreError, Written,
    },
    SqliteStore,
    lane::Lane,
    rows::{Packed, PackedRow, args, columns, ids, micros, now, only, packed, packed_text, sql},
    runs::{status, tags_text},
};

/// What a row `b` that begins `[id, epoch, prev, …]` must find to be written: the run as this session (`$1`) owns it,
/// and the journal up to `prev`.
macro_rules! fence {
    () => {
        "r.run_id = unhex(b.value ->> 0)
        and r.epoch = b.value ->> 1
        and r.session = $1
        and r.status = 2
        and (b.value ->> 2 = 0
          or exists (select 1 from composer_journal j where j.run_id = r.run_id and j.seq = b.value ->> 2))"
    };
}

/// Writes entries and nothing else, which is what most batches are: one statement, because each one costs several
/// changes of threads. SQLite collects what is to be inserted before it inserts, so the fence is decided before the
/// first change here, too.
///
/// `$1` the session, `$2`, `$3` entries `[id, epoch, prev, seq, at, kind, meta, payload]` and their bytes.
pub(super) const APPEND: &str = sql!(
    "insert into composer_journal (run_id, seq, epoch, at, kind, meta, payload)
    select
      r.run_id, b.value ->> 3, r.epoch, b.value ->> 4, b.value ->> 5, ",
    packed_text!("3", "b", "6", "7"),
    ", ",
    packed!("3", "b", "8", "9"),
    "
    from json_each($2) b
    cross join composer_runs r
    where ",
    fence!()
);

/// After an append that fell short: which entries (`$1`, as above) are there, by the epoch that wrote them.
pub(super) const APPENDED: &str = "
    select b.key
    from json_each($1) b
    cross join composer_journal j
    where j.run_id = unhex(b.value ->> 0) and j.seq = b.value ->> 3 and j.epoch = b.value ->> 1";

/// Writes any batch.
///
/// * `$1` the session
/// * `$2` owned runs `[id, epoch, prev]`
/// * `$3`, `$4` entries `[part, seq, at, kind, meta, payload]` and their bytes
/// * `$5` inbox rows that become entries `[part, row, run id]`
/// * `$6`, `$7` ends `[part, status, outcome, result, reason, unconsumed, build]` and their bytes; a run that goes on as a
///   new generation (status 2) names the entry that begins it for an outcome, and its workflow for a reason
/// * `$8`, `$9` new runs `[id, workflow, input, build, tags, workflow id, timeout]` and their bytes
/// * `$10` the last instant that a column holds
/// * `$11`, `$12` published state `[part, name, value]` and its bytes
pub(super) const WRITE: &str = sql!(
    "begin immediate;

    insert into composer_runs
      (run_id, workflow_id, workflow, input, build, tags, deadline, status, epoch, session, created_at, started_at)
    select
      unhex(b.value ->> 0), ", packed_text!("9", "b", "9", "10"), ", ", packed_text!("9", "b", "1", "2"), ", ",
      packed!("9", "b", "3", "4"), ", ", packed_text!("9", "b", "5", "6"), ", ", packed_text!("9", "b", "7", "8"), ",
      min(c.now + (b.value ->> 11), $10), 2, 1, $1, c.now, c.now
    from (select ", now!(), " as now) c
    cross join json_each($8) b
    where exists (select 1 from composer_sessions s where s.id = $1 and s.dead_at is null);

    insert into temp.composer_fence (part, run_id, epoch)
    select b.key, r.run_id, r.epoch
    from json_each($2) b
    cross join composer_runs r
    where ", fence!(), "
      and b.key not in (
        select m.value ->> 0
        from json_each($5) m
        left join composer_inbox i on i.id = m.value ->> 1 and i.run_id = unhex(m.value ->> 2)
        where i.id is null
      );

    insert into composer_journal (run_id, seq, epoch, at, kind, meta, payload)
    select
      f.run_id, e.value ->> 1, f.epoch, e.value ->> 2, e.value ->> 3, ",
      packed_text!("4", "e", "4", "5"), ", ", packed!("4", "e", "6", "7"), "
    from json_each($3) e
    cross join temp.composer_fence f
    where f.part = e.value ->> 0;

    insert into composer_published (run_id, name, at, payload)
    select f.run_id, ", packed_text!("12", "p", "1", "2"), ", ", now!(), ", ", packed!("12", "p", "3", "4"), "
    from json_each($11) p
    cross join temp.composer_fence f
    where f.part = p.value ->> 0
    on conflict (run_id, name) do update set at = excluded.at, payload = excluded.payload;

    delete from composer_inbox
    where id in (
      select m.value ->> 1 from json_each($5) m cross join temp.composer_fence f where f.part = m.value ->> 0
    );

    with e as materialized (
      select f.run_id, e.value, ", now!(), " as now
      from json_each($6) e
      cross join temp.composer_fence f
      where f.part = e.value ->> 0
    )
    update composer_runs
    set
      status = e.value ->> 1,
      base = iif(e.value ->> 1 = 2, cast(", packed_text!("7", "e", "2", "3"), " as integer), base),
      workflow = iif(e.value ->> 1 = 2, ", packed_text!("7", "e", "6", "7"), ", workflow),
      closed_at = iif(e.value ->> 1 in (2, 4), null, e.now),
      stuck_at = iif(e.value ->> 1 = 4, e.now, null),
      result_meta = iif(e.value ->> 1 = 2, null, ", packed_text!("7", "e", "2", "3"), "),
      result = ", packed!("7", "e", "4", "5"), ",
      reason = iif(e.value ->> 1 = 2, null, ", packed_text!("7", "e", "6", "7"), "),
      unconsumed = ", packed_text!("7", "e", "8", "9"), ",
      stuck_build = ", packed_text!("7", "e", "10", "11"), "
    from e
    where composer_runs.run_id = e.run_id;

    select
      (select json_group_array(part) from temp.composer_fence),
      count(r.run_id),
      coalesce(max(r.started_at), ", now!(), ")
    from json_each($8) b
    cross join composer_runs r
    where r.run_id = unhex(b.value ->> 0);

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

pub(super) const PUBLISHED: &str =
    "select name, at, payload from composer_published where run_id = $1 order by name";

pub(super) const READ: &str = "
    select run_id, seq, at, kind, meta, payload
    from composer_journal
    where run_id = $1 and seq > $2
    order by seq
    limit $3";

/// From the begin of the runs' generation on.
pub(super) const LOAD: &str = "
    select j.run_id, j.seq, j.at, j.kind, j.meta, j.payload
    from json_each($1) b
    cross join composer_runs r
    cross join composer_journal j
    where r.run_id = unhex(b.value) and j.run_id = r.run_id and j.seq >= r.base";

/// What the run's present generation, and the caller, need no more.
pub(super) const PRUNE: &str = "
    delete from composer_journal
    where run_id = $1
      and seq < (select min(r.base, $2) from composer_runs r where r.run_id = $1)";

/// The journal writer's way into the lane for writes.
pub(super) struct Writer {
    pub(super) write: Arc<Lane>,
    pub(super) codec: Arc<dyn Codec>,
}

#[async_trait]
impl JournalConn for Writer {
    async fn write(&mut self, session: SessionId, batch: &Batch) -> Result<BatchWritten> {
        check_order(&batch.runs)?;
        if batch.starts.is_empty() && batch.runs.iter().all(is_append) {
            return self.append(session, batch).await;
        }
        let runs = pack_runs(&batch.runs);
        let (entries, entries_bytes) = self.pack_entries(&batch.runs);
        let mail = pack_mail(&batch.runs);
        let (ends, ends_bytes) = self.pack_ends(&batch.runs);
        let (starts, starts_bytes) = self.pack_starts(&batch.starts)?;
        let (published, published_bytes) = self.pack_published(&batch.runs);
        let args = args![
            session.0,
            runs,
            entries,
            entries_bytes,
            mail,
            ends,
            ends_bytes,
            starts,
            starts_bytes,
            Timestamp::MAX.as_micros(),
            published,
            published_bytes,
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
    async fn append(&self, session: SessionId, batch: &Batch) -> Result<BatchWritten> {
        let mut packed = Packed::default();
        let mut parts = Vec::new();
        for (part, run) in batch.runs.iter().enumerate() {
            for entry in &run.entries {
                parts.push(part);
                packed.row(|row| {
                    row.id(run.run_id).int(run.epoch.0).int(i64::from(run.prev));
                    self.pack_entry(row, entry);
                });
            }
        }
        let (entries, bytes) = packed.finish();
        let mut runs = vec![Written::Accepted; batch.runs.len()];
        let args = args![session.0, entries.clone(), bytes];
        if self.write.execute(APPEND, args).await? < parts.len() as u64 {
            runs.fill(Written::Fenced);
            // What was accepted is committed: an answer that is lost now leaves it unknown.
            for row in &self.write.script(APPENDED, args![entries]).await.map_err(after_commit)? {
                runs[parts[columns(row).small::<usize>()?]] = Written::Accepted;
            }
        }
        Ok(BatchWritten { started: true, started_at: Timestamp::from_micros(0), runs })
    }

    /// `seq, at, kind, meta, payload` of an entry.
    fn pack_entry(&self, row: &mut PackedRow<'_>, entry: &Entry) {
        let record = entry.event.to_record();
        let payload = record.payload.map(|payload| self.codec.encode(payload));
        row.int(i64::from(entry.seq))
            .int(entry.at.as_micros())
            .int(i64::from(record.kind))
            .text(&record.meta)
            .payload(payload.as_ref());
    }

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
                packed.row(|row| {
                    row.int(part as i64);
                    self.pack_entry(row, entry);
                });
            }
        }
        packed.finish()
    }

    fn pack_published(&self, runs: &[RunBatch]) -> (String, Vec<u8>) {
        let mut packed = Packed::default();
        for (part, run) in runs.iter().enumerate() {
            for (name, value) in &run.published {
                let value = self.codec.encode(value.clone());
                packed.row(|row| {
                    row.int(part as i64).text(name).payload(Some(&value));
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
                Some(End::Continued { workflow, base }) => packed.row(|row| {
                    row.int(part)
                        .int(super::super::Status::Running as i64)
                        .text(&base.to_string())
                        .bytes(None)
                        .text(workflow)
                        .bytes(None)
                        .bytes(None);
                }),
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

/// Entries must follow one another from `prev` on: the store's own check for a gap stands on that.
fn check_order(runs: &[RunBatch]) -> Result<()> {
    let broken = |run: &&RunBatch| !run.entries.iter().zip(1..).all(|(entry, n)| entry.seq == run.prev + n);
    match runs.iter().find(broken) {
        None => Ok(()),
        Some(run) => Err(StoreError::Rejected {
            message: format!("the entries for run {} do not follow entry {}", run.run_id, run.prev),
        }),
    }
}

/// Whether a run only goes on: entries that come from no inbox row.
fn is_append(run: &RunBatch) -> bool {
    run.end.is_none()
        && !run.entries.is_empty()
        && run.published.is_empty()
        && run.entries.iter().all(|entry| entry.event.inbox().is_none())
}

fn pack_runs(runs: &[RunBatch]) -> String {
    let mut packed = Packed::default();
    for run in runs {
        packed.row(|row| {
            row.id(run.run_id).int(run.epoch.0).int(i64::from(run.prev));
        });
    }
    packed.finish().0
}

fn pack_mail(runs: &[RunBatch]) -> String {
    let mut packed = Packed::default();
    for (part, run) in runs.iter().enumerate() {
        for inbox in run.entries.iter().filter_map(|entry| entry.event.inbox()) {
            packed.row(|row| {
                row.int(part as i64).int(inbox).id(run.run_id);
            });
        }
    }
    packed.finish().0
}

/// An error once something was committed: what exactly, settling will say.
fn after_commit(error: StoreError) -> StoreError {
    match error {
        StoreError::Unavailable { message, .. } => StoreError::Unavailable { message, maybe_committed: true },
        other => other,
    }
}

fn written(batch: &Batch, rows: &[SqliteRow]) -> Result<BatchWritten> {
    let mut c = only(rows)?;
    let (accepted, started, started_at) = (c.json::<Vec<usize>>()?, c.small::<usize>()?, c.at()?);
    let mut runs = vec![Written::Fenced; batch.runs.len()];
    for part in accepted {
        runs[part] = Written::Accepted;
    }
    Ok(BatchWritten { started: started == batch.starts.len(), started_at, runs })
}

impl SqliteStore {
    pub(super) async fn published_of(&self, run: RunId) -> Result<Vec<(String, Timestamp, Payload)>> {
        let rows = self.read.script(PUBLISHED, args![run.as_uuid()]).await?;
        rows.iter()
            .map(|row| {
                let mut c = columns(row);
                let (name, at) = (c.text()?, c.at()?);
                Ok((name, at, self.decode(c.get()?)?))
            })
            .collect()
    }

    pub(super) async fn prune_journal(&self, run: RunId, before: u32) -> Result<u64> {
        self.write.execute(PRUNE, args![run.as_uuid(), i64::from(before)]).await
    }

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
