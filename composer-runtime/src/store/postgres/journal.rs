//! The journal: the group-commit writer, and what settles a batch whose outcome is unknown.
//!
//! A batch is one statement. Its part `f` locks and checks each run, in the order of the ids and skipping whatever
//! somebody else locks; every other part reads from `f` alone, so a run's entries, inbox rows and end are written
//! together or not at all, and a stale owner writes nothing. The statements that carry only steps, one a run, are the
//! common ones and do without joins; a lone step has one without arrays.

use async_trait::async_trait;
use composer_sdk::{
    id::{RunId, Timestamp},
    journal::{Entry, Event},
    payload::Payload,
};
use sqlx::{PgConnection, postgres::PgRow};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};
use uuid::Uuid;

use super::{
    PostgresStore, Role,
    batches::{Batches, Writes},
    classify, read,
    runs::{get, micros, tags_json},
    sql::{Sql, query, query_scalar},
};
use crate::store::{
    Batch, BatchWritten, Codec, End, Epoch, JournalConn, NewRun, Result, RunBatch, SessionId, Settled,
    Status, StoreError, Written,
};

/// One entry of one run: [`Shape::Step`], what a lone run writes again and again. It says by its count of rows whether
/// it was accepted.
pub(super) const WRITE_STEP: &str = "\
with f as materialized (
    select from {s}.runs r
     where r.run_id = $2 and r.epoch = $3 and r.session = $1 and r.status + 0 = 2
       and case when $4::int = 1 then true
                else exists (select from {s}.journal p where p.run_id = $2 and p.seq = $4::int - 1 offset 0) end
       for no key update skip locked
)
insert into {s}.journal (run_id, seq, epoch, at, kind, meta, payload)
select $2, $4::int, $3, $5, $6, $7, $8 from f";

/// One entry for each run: [`Shape::Steps`].
pub(super) const WRITE_STEPS: &str = "\
with f as materialized (
    select b.run_id, b.seq, b.epoch, b.at, b.kind, b.meta, b.payload
      from (select *
              from unnest($2::uuid[], $3::bigint[], $4::int[], $5::bigint[], $6::smallint[], $7::text[], $8::bytea[])
                   b(run_id, epoch, seq, at, kind, meta, payload)
             order by run_id offset 0) b
     cross join lateral (
         select from {s}.runs r
          where r.run_id = b.run_id and r.epoch = b.epoch and r.session = $1 and r.status + 0 = 2
            for no key update skip locked) r
     where case when b.seq = 1 then true
                else exists (select from {s}.journal p where p.run_id = b.run_id and p.seq = b.seq - 1 offset 0) end
), j as (
    insert into {s}.journal (run_id, seq, epoch, at, kind, meta, payload)
    select run_id, seq, epoch, at, kind, meta, payload from f
    returning 1
)
select 0::bigint as started, 0::bigint as started_at, (select count(*) from f) as runs, (select count(*) from j) as entries,
       0::bigint as ends,
       case when (select count(*) from f) < cardinality($2) then (select array_agg(run_id) from f) end as accepted";

/// The fence, of runs with any number of entries ($2 to $5: run, epoch, last durable entry, inbox rows).
const FENCE: &str = "\
f as materialized (
    select b.run_id, b.epoch, b.mail
      from (select * from unnest($2::uuid[], $3::bigint[], $4::int[], $5::int[]) b(run_id, epoch, prev, mail)
             order by run_id offset 0) b
     cross join lateral (
         select from {s}.runs r
          where r.run_id = b.run_id and r.epoch = b.epoch and r.session = $1 and r.status + 0 = 2
            for no key update skip locked) r
     where case when b.prev = 0 then true
                else exists (select from {s}.journal p where p.run_id = b.run_id and p.seq = b.prev offset 0) end
)";

/// The entries. `inbox` is the row that one came from.
const ENTRIES: &str = "\
    select *
      from unnest($6::uuid[], $7::int[], $8::bigint[], $9::smallint[], $10::text[], $11::bytea[], $12::bigint[])
           e(run_id, seq, at, kind, meta, payload, inbox)";

/// Entries of which none came from the inbox: what passes the fence is written.
const WITHOUT_MAIL: &str = "\
g as not materialized (
    select run_id, epoch from f
), j as (
    insert into {s}.journal (run_id, seq, epoch, at, kind, meta, payload)
    select e.run_id, e.seq, g.epoch, e.at, e.kind, e.meta, e.payload
      from ({entries}) e join g on g.run_id = e.run_id
    returning 1
)";

/// Entries some of which came from the inbox. `g` is what passes: the rows that they came from are all there, too. An
/// entry takes its value from the row as it is deleted.
const WITH_MAIL: &str = "\
e as materialized (
{entries}
), m as materialized (
    select i.run_id, i.id
      from e join f on f.run_id = e.run_id
     cross join lateral (
         select i.run_id, i.id from {s}.inbox i
          where i.run_id = e.run_id and i.id = e.inbox
            for update skip locked) i
     where e.inbox is not null
), g as materialized (
    select f.run_id, f.epoch
      from f left join (select m.run_id, count(*) as mail from m group by m.run_id) k on k.run_id = f.run_id
     where coalesce(k.mail, 0) = f.mail
), d as (
    delete from {s}.inbox i
     using m join g on g.run_id = m.run_id
     where i.run_id = m.run_id and i.id = m.id and i.run_id = any($2)
    returning i.id, i.payload
), j as (
    insert into {s}.journal (run_id, seq, epoch, at, kind, meta, payload)
    select e.run_id, e.seq, g.epoch, e.at, e.kind, e.meta,
           case when e.inbox is null then e.payload else d.payload end
      from e join g on g.run_id = e.run_id
      left join d on d.id = e.inbox
     where e.inbox is null or d.id is not null
    returning 1
)";

/// What accepted runs show.
const PUBLISHED: &str = "\
o as (
    insert into {s}.published (run_id, name, at, payload)
    select g.run_id, b.name, {now}, b.payload
      from unnest($26::uuid[], $27::text[], $28::bytea[]) b(run_id, name, payload)
      join g on g.run_id = b.run_id
        on conflict on constraint published_pk do update set at = excluded.at, payload = excluded.payload
), ";

/// How accepted runs end. One that goes on as a new generation (status 2) names, in place of a result, the entry that
/// begins it, and in place of a reason its workflow.
const ENDS: &str = "\
c as (
    update {s}.runs r
       set status = b.status,
           workflow = case when b.status = 2 then b.reason else r.workflow end,
           base = case when b.status = 2 then b.meta::int else r.base end,
           closed_at = case when b.status >= 5 then {now} end,
           stuck_at = case when b.status = 4 then {now} end,
           stuck_build = b.build,
           result_meta = case when b.status <> 2 then b.meta end,
           result = b.payload,
           reason = case when b.status <> 2 then b.reason end,
           unconsumed = b.unconsumed::int[]
      from g join unnest($13::uuid[], $14::smallint[], $15::text[], $16::bytea[], $17::text[], $18::text[], $19::text[])
                  b(run_id, status, meta, payload, reason, unconsumed, build) on b.run_id = g.run_id
     where r.run_id = g.run_id and r.run_id = any($13)
    returning 1
)";

/// New runs, owned from the start if the session lives; the parameters' numbers begin at `first`.
fn starts(first: usize) -> String {
    let p = |n: usize| format!("${}", first + n);
    format!(
        "\
k as materialized (
    select id from {{s}}.sessions where id = $1 and dead_at is null for key share
), t as materialized (
    select {{now}} as at
), s as (
    insert into {{s}}.runs
           (run_id, workflow, status, epoch, session, created_at, started_at, deadline, build, tags, input)
    select b.run_id, b.workflow, 2, 1, k.id, t.at, t.at,
           case when b.timeout is not null then least(t.at::numeric + b.timeout, 9223372036854775807)::bigint end,
           b.build, b.tags::jsonb, b.input
      from unnest({}::uuid[], {}::text[], {}::bigint[], {}::text[], {}::text[], {}::bytea[])
           b(run_id, workflow, timeout, build, tags, input)
     cross join k cross join t
    returning 1
)",
        p(0),
        p(1),
        p(2),
        p(3),
        p(4),
        p(5)
    )
}

/// What [`Shape::Mixed`] holds beside entries, ends and starts. Most batches hold none of it, and are spared the joins.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Extra {
    /// Nothing.
    None,
    /// Entries that came from the inbox.
    Mail,
    /// Published state, and perhaps mail.
    Published,
}

/// Anything: [`Shape::Mixed`].
pub(super) fn write_mixed(extra: Extra) -> String {
    let parts = if extra == Extra::None { WITHOUT_MAIL } else { WITH_MAIL }.replace("{entries}", ENTRIES);
    let published = if extra == Extra::Published { PUBLISHED } else { "" };
    format!(
        "with {FENCE}, {parts}, {published}{ENDS}, {} select (select count(*) from s) as started, (select at from t) as started_at, \
         (select count(*) from g) as runs, (select count(*) from j) as entries, (select count(*) from c) as ends, \
         case when (select count(*) from g) < cardinality($2) then (select array_agg(run_id) from g) end as accepted",
        starts(20)
    )
}

/// New runs alone: [`Shape::Starts`].
pub(super) fn write_starts() -> String {
    format!(
        "with {} select (select count(*) from s) as started, (select at from t) as started_at, 0::bigint as runs, \
         0::bigint as entries, 0::bigint as ends, null::uuid[] as accepted",
        starts(2)
    )
}

/// Of the runs that a batch did not accept ($2 to $4: run, epoch, last durable entry; $5 and $6: run and id of the
/// inbox rows), those that are the session's all the same: somebody else locked their row.
pub(super) const BUSY: &str = "\
select b.run_id
  from unnest($2::uuid[], $3::bigint[], $4::int[]) b(run_id, epoch, prev)
 cross join lateral (select r.status, r.epoch, r.session from {s}.runs r where r.run_id = b.run_id offset 0) r
 where r.status = 2 and r.epoch = b.epoch and r.session = $1
   and case when b.prev = 0 then true
            else exists (select from {s}.journal p where p.run_id = b.run_id and p.seq = b.prev offset 0) end
   and not exists (select from unnest($5::uuid[], $6::bigint[]) m(run_id, id)
                    where m.run_id = b.run_id
                      and not exists (select from {s}.inbox i where i.run_id = m.run_id and i.id = m.id offset 0))";

/// First half of settling: raises the epochs, in the order of the ids, waiting for whoever holds a row.
pub(super) const RAISE: &str = "\
with f as materialized (
    select r.run_id
      from (select * from unnest($2::uuid[], $3::bigint[]) b(run_id, epoch) order by run_id offset 0) b
     cross join lateral (
         select r.run_id from {s}.runs r
          where r.run_id = b.run_id and r.epoch = b.epoch and r.session = $1 and r.status + 0 = 2
            for no key update) r
)
update {s}.runs r
   set epoch = r.epoch + 1
  from f
 where r.run_id = f.run_id and r.run_id = any($2)
returning r.run_id, r.epoch";

/// Second half: what is there.
pub(super) const SETTLED: &str = "\
select r.run_id, r.status, r.epoch, r.session,
       coalesce((select max(j.seq) from {s}.journal j where j.run_id = r.run_id), 0) as last
  from {s}.runs r
 where r.run_id = any($1)";

/// What the run's present generation, and the caller, need no more.
pub(super) const PRUNE: &str = "\
delete from {s}.journal j
 using {s}.runs r
 where r.run_id = $1 and j.run_id = $1 and j.seq < least(r.base, $2)";

pub(super) const PUBLISHED_OF: &str =
    "select name, at, payload from {s}.published where run_id = $1 order by name";

pub(super) const PAGE: &str = "\
select seq, at, kind, meta, payload
  from {s}.journal
 where run_id = $1 and seq > $2
 order by seq limit $3";

impl PostgresStore {
    pub(super) async fn journal_page(&self, run: RunId, after: u32, limit: u32) -> Result<Vec<Entry>> {
        let rows = read!(self, |conn| query(&self.sql.page)
            .bind(run.as_uuid())
            .bind(seq_number(after))
            .bind(i64::from(limit))
            .fetch_all(&mut *conn))?;
        rows.iter().map(|row| self.read_entry(row, run)).collect()
    }

    pub(super) async fn prune_journal(&self, run: RunId, before: u32) -> Result<u64> {
        let mut conn = self.acquire().await?;
        let pruned = query(&self.sql.prune)
            .bind(run.as_uuid())
            .bind(seq_number(before))
            .execute(&mut *conn)
            .await
            .map_err(classify)?;
        Ok(pruned.rows_affected())
    }

    pub(super) async fn published_of(&self, run: RunId) -> Result<Vec<(String, Timestamp, Payload)>> {
        let rows =
            read!(self, |conn| query(&self.sql.published_of).bind(run.as_uuid()).fetch_all(&mut *conn))?;
        rows.iter()
            .map(|row| {
                let at = Timestamp::from_micros(get(row, "at")?);
                Ok((get(row, "name")?, at, self.decode(get(row, "payload")?, &run)?))
            })
            .collect()
    }

    pub(super) fn read_entry(&self, row: &PgRow, run: RunId) -> Result<Entry> {
        let seq: i32 = get(row, "seq")?;
        let payload =
            get::<Option<Vec<u8>>>(row, "payload")?.map(|bytes| self.decode(bytes, &run)).transpose()?;
        let event = Event::from_record(get(row, "kind")?, get(row, "meta")?, payload)
            .map_err(|why| StoreError::unreadable(format!("entry {seq} of {run}: {why}")))?;
        Ok(Entry { seq: seq.unsigned_abs(), at: Timestamp::from_micros(get(row, "at")?), event })
    }

    pub(super) async fn journal_conn(&self) -> Result<PostgresJournal> {
        Ok(PostgresJournal {
            conn: self.open(Role::Writer).await?,
            batches: Batches::new(
                Writes {
                    step: self.sql.write_step.clone(),
                    steps: self.sql.write_steps.clone(),
                    mixed: self.sql.write_mixed.clone(),
                    mailless: self.sql.write_mailless.clone(),
                    published: self.sql.write_published.clone(),
                    starts: self.sql.write_starts.clone(),
                },
                self.schema.clone(),
                self.sql.schema.clone(),
            ),
            busy: self.sql.busy.clone(),
            raise: self.sql.raise.clone(),
            settled: self.sql.settled.clone(),
            codec: self.codec.clone(),
        })
    }
}

/// The writer's connection.
pub(super) struct PostgresJournal {
    conn: PgConnection,
    batches: Batches,
    busy: Sql,
    raise: Sql,
    settled: Sql,
    codec: Arc<dyn Codec>,
}

/// Which statement a batch needs.
enum Shape {
    /// One entry of one run, and nothing else.
    Step,
    /// One entry a run, none from the inbox, no end, no start.
    Steps,
    /// New runs alone.
    Starts,
    /// Anything.
    Mixed,
}

impl Shape {
    fn of(batch: &Batch) -> Self {
        let step = |run: &RunBatch| {
            run.end.is_none()
                && run.published.is_empty()
                && matches!(&run.entries[..], [entry] if entry.seq == run.prev + 1 && entry.event.inbox().is_none())
        };
        match (batch.starts.is_empty(), batch.runs.is_empty()) {
            (false, true) => Shape::Starts,
            (true, _) if batch.runs.iter().all(step) && batch.runs.len() == 1 => Shape::Step,
            (true, _) if batch.runs.iter().all(step) => Shape::Steps,
            _ => Shape::Mixed,
        }
    }
}

/// The numbers that a batch's statement answers with.
struct Counts {
    started: i64,
    started_at: Timestamp,
    runs: i64,
    entries: i64,
    ends: i64,
    /// Which runs were accepted, when not all were.
    accepted: Vec<Uuid>,
}

impl Counts {
    fn read(row: &PgRow) -> Result<Self> {
        Ok(Self {
            started: get(row, "started")?,
            started_at: Timestamp::from_micros(get(row, "started_at")?),
            runs: get(row, "runs")?,
            entries: get(row, "entries")?,
            ends: get(row, "ends")?,
            accepted: get::<Option<Vec<Uuid>>>(row, "accepted")?.unwrap_or_default(),
        })
    }
}

#[async_trait]
impl JournalConn for PostgresJournal {
    async fn write(&mut self, session: SessionId, batch: &Batch) -> Result<BatchWritten> {
        let writes = self.batches.of(&mut self.conn, batch).await.map_err(nothing_was_written)?;
        let counts = match Shape::of(batch) {
            Shape::Step => self.write_step(&writes.step, session, batch).await?,
            Shape::Steps => self.write_steps(&writes.steps, session, batch).await?,
            Shape::Starts => self.write_starts(&writes.starts, session, batch).await?,
            Shape::Mixed => self.write_mixed(&writes, session, batch).await?,
        };
        let runs = if counts.runs == batch.runs.len() as i64 {
            whole(batch, &counts)?;
            vec![Written::Accepted; batch.runs.len()]
        } else {
            self.sort_out(session, batch, &counts.accepted).await?
        };
        Ok(BatchWritten {
            started: counts.started == batch.starts.len() as i64,
            started_at: counts.started_at,
            runs,
        })
    }

    async fn settle(&mut self, session: SessionId, runs: &[(RunId, Epoch)]) -> Result<Vec<Settled>> {
        let (ids, epochs): (Vec<Uuid>, Vec<i64>) =
            runs.iter().map(|(run, epoch)| (run.as_uuid(), epoch.0)).unzip();
        let raised = query(&self.raise)
            .bind(session.0)
            .bind(ids.clone())
            .bind(epochs)
            .fetch_all(&mut self.conn)
            .await
            .map_err(classify)?;
        let mut mine: HashMap<Uuid, i64> = HashMap::with_capacity(raised.len());
        for row in &raised {
            mine.insert(get(row, "run_id")?, get(row, "epoch")?);
        }
        let found = query(&self.settled).bind(ids).fetch_all(&mut self.conn).await.map_err(classify)?;
        let mut settled: HashMap<Uuid, Settled> = HashMap::with_capacity(found.len());
        let asked: HashMap<Uuid, i64> = runs.iter().map(|(run, epoch)| (run.as_uuid(), epoch.0)).collect();
        for row in &found {
            let id: Uuid = get(row, "run_id")?;
            settled.insert(id, judge(row, session, asked.get(&id).copied(), mine.get(&id).copied())?);
        }
        Ok(runs
            .iter()
            .map(|(run, _)| settled.get(&run.as_uuid()).copied().unwrap_or(Settled::Lost))
            .collect())
    }
}

/// A failure before the batch was sent.
fn nothing_was_written(error: StoreError) -> StoreError {
    match error {
        StoreError::Unavailable { message, .. } => {
            StoreError::Unavailable { message, maybe_committed: false }
        }
        other => other,
    }
}

/// What a run's row says after its epoch was raised, or was not.
fn judge(row: &PgRow, session: SessionId, asked: Option<i64>, raised: Option<i64>) -> Result<Settled> {
    let status = Status::try_from(get::<i16>(row, "status")?)?;
    let epoch: i64 = get(row, "epoch")?;
    let mine = get::<Option<i64>>(row, "session")? == Some(session.0);
    Ok(match (raised, status) {
        (Some(raised), Status::Running) if mine && raised == epoch => {
            Settled::Owned { epoch: Epoch(epoch), last: get::<i32>(row, "last")?.unsigned_abs() }
        }
        (None, status) if mine && asked == Some(epoch) && (status.is_closed() || status == Status::Stuck) => {
            Settled::Ended(status)
        }
        _ => Settled::Lost,
    })
}

/// Asserts that an accepted batch was written whole: every part reads from the fence, so anything else is a fault of
/// ours, and settling finds out what is there.
fn whole(batch: &Batch, counts: &Counts) -> Result<()> {
    let entries: usize = batch.runs.iter().map(|run| run.entries.len()).sum();
    let ends = batch.runs.iter().filter(|run| run.end.is_some()).count();
    if (counts.entries, counts.ends) == (entries as i64, ends as i64) {
        return Ok(());
    }
    Err(StoreError::Conflict {
        message: format!(
            "of {entries} entries and {ends} ends, {} and {} were written although all runs were accepted",
            counts.entries, counts.ends
        ),
    })
}

impl PostgresJournal {
    async fn write_step(&mut self, sql: &Sql, session: SessionId, batch: &Batch) -> Result<Counts> {
        let run = &batch.runs[0];
        let mut entry = Entries::of(batch.runs.iter(), &self.codec);
        let written = query(sql)
            .bind(session.0)
            .bind(run.run_id.as_uuid())
            .bind(run.epoch.0)
            .bind(entry.seq[0])
            .bind(entry.at[0])
            .bind(entry.kind[0])
            .bind(std::mem::take(&mut entry.meta[0]))
            .bind(entry.payload[0].take())
            .execute(&mut self.conn)
            .await
            .map_err(classify)?
            .rows_affected() as i64;
        Ok(Counts {
            started: 0,
            started_at: Timestamp::from_micros(0),
            runs: written,
            entries: written,
            ends: 0,
            accepted: vec![],
        })
    }

    async fn write_steps(&mut self, sql: &Sql, session: SessionId, batch: &Batch) -> Result<Counts> {
        let runs: Vec<Uuid> = batch.runs.iter().map(|run| run.run_id.as_uuid()).collect();
        let epochs: Vec<i64> = batch.runs.iter().map(|run| run.epoch.0).collect();
        let entries = Entries::of(batch.runs.iter(), &self.codec);
        let row = query(sql)
            .bind(session.0)
            .bind(runs)
            .bind(epochs)
            .bind(entries.seq)
            .bind(entries.at)
            .bind(entries.kind)
            .bind(entries.meta)
            .bind(entries.payload)
            .fetch_one(&mut self.conn)
            .await
            .map_err(classify)?;
        Counts::read(&row)
    }

    async fn write_starts(&mut self, sql: &Sql, session: SessionId, batch: &Batch) -> Result<Counts> {
        let starts = Starts::of(&batch.starts, &self.codec)?;
        let row = query(sql)
            .bind(session.0)
            .bind(starts.run)
            .bind(starts.workflow)
            .bind(starts.timeout)
            .bind(starts.build)
            .bind(starts.tags)
            .bind(starts.input)
            .fetch_one(&mut self.conn)
            .await
            .map_err(classify)?;
        Counts::read(&row)
    }

    async fn write_mixed(&mut self, writes: &Writes, session: SessionId, batch: &Batch) -> Result<Counts> {
        let fence = Fence::of(&batch.runs);
        let entries = Entries::of(batch.runs.iter(), &self.codec);
        let ends = Ends::of(&batch.runs, &self.codec);
        let starts = Starts::of(&batch.starts, &self.codec)?;
        let mail = fence.mail.iter().any(|rows| *rows > 0);
        let shown: Vec<_> = batch
            .runs
            .iter()
            .flat_map(|run| {
                run.published.iter().map(move |(name, value)| (run.run_id.as_uuid(), name, value))
            })
            .collect();
        let sql = match (shown.is_empty(), mail) {
            (false, _) => &writes.published,
            (true, true) => &writes.mixed,
            (true, false) => &writes.mailless,
        };
        let mut statement = query(sql)
            .bind(session.0)
            .bind(fence.run)
            .bind(fence.epoch)
            .bind(fence.prev)
            .bind(fence.mail)
            .bind(entries.run)
            .bind(entries.seq)
            .bind(entries.at)
            .bind(entries.kind)
            .bind(entries.meta)
            .bind(entries.payload)
            .bind(entries.inbox)
            .bind(ends.run)
            .bind(ends.status)
            .bind(ends.meta)
            .bind(ends.payload)
            .bind(ends.reason)
            .bind(ends.unconsumed)
            .bind(ends.build)
            .bind(starts.run)
            .bind(starts.workflow)
            .bind(starts.timeout)
            .bind(starts.build)
            .bind(starts.tags)
            .bind(starts.input);
        if !shown.is_empty() {
            let encode = |value: &Payload| self.codec.encode(value.clone()).as_bytes().to_vec();
            statement = statement
                .bind(shown.iter().map(|(run, ..)| *run).collect::<Vec<_>>())
                .bind(shown.iter().map(|(_, name, _)| (*name).clone()).collect::<Vec<_>>())
                .bind(shown.iter().map(|(.., value)| encode(value)).collect::<Vec<_>>());
        }
        let row = statement.fetch_one(&mut self.conn).await.map_err(classify)?;
        Counts::read(&row)
    }

    /// What became of each run of a batch that fell short. The batch is committed: what it accepted it said itself,
    /// since asking now would tell who owns a run now.
    async fn sort_out(
        &mut self,
        session: SessionId,
        batch: &Batch,
        accepted: &[Uuid],
    ) -> Result<Vec<Written>> {
        let accepted: HashSet<Uuid> = accepted.iter().copied().collect();
        let refused: Vec<RunBatch> =
            batch.runs.iter().filter(|run| !accepted.contains(&run.run_id.as_uuid())).cloned().collect();
        let fence = Fence::of(&refused);
        let (mail_run, mail_id): (Vec<Uuid>, Vec<i64>) = refused
            .iter()
            .flat_map(|run| {
                run.entries.iter().filter_map(|e| e.event.inbox().map(|id| (run.run_id.as_uuid(), id)))
            })
            .unzip();
        let busy: Vec<Uuid> = query_scalar(&self.busy)
            .bind(session.0)
            .bind(fence.run)
            .bind(fence.epoch)
            .bind(fence.prev)
            .bind(mail_run)
            .bind(mail_id)
            .fetch_all(&mut self.conn)
            .await
            .map_err(|error| match classify(error) {
                StoreError::Unavailable { message, .. } => {
                    StoreError::Unavailable { message, maybe_committed: true }
                }
                other => other,
            })?;
        let busy: HashSet<Uuid> = busy.into_iter().collect();
        Ok(batch
            .runs
            .iter()
            .map(|run| match run.run_id.as_uuid() {
                id if accepted.contains(&id) => Written::Accepted,
                id if busy.contains(&id) => Written::Busy,
                _ => Written::Fenced,
            })
            .collect())
    }
}

/// The fence's columns.
#[derive(Default)]
struct Fence {
    run: Vec<Uuid>,
    epoch: Vec<i64>,
    prev: Vec<i32>,
    mail: Vec<i32>,
}

impl Fence {
    fn of(runs: &[RunBatch]) -> Self {
        let mut columns = Self::default();
        for run in runs {
            let mail = run.entries.iter().filter(|entry| entry.event.inbox().is_some()).count();
            columns.run.push(run.run_id.as_uuid());
            columns.epoch.push(run.epoch.0);
            columns.prev.push(seq_number(run.prev));
            columns.mail.push(i32::try_from(mail).unwrap_or(i32::MAX));
        }
        columns
    }
}

/// The entries' columns.
#[derive(Default)]
struct Entries {
    run: Vec<Uuid>,
    seq: Vec<i32>,
    at: Vec<i64>,
    kind: Vec<i16>,
    meta: Vec<String>,
    payload: Vec<Option<Vec<u8>>>,
    inbox: Vec<Option<i64>>,
}

impl Entries {
    fn of<'a>(runs: impl Iterator<Item = &'a RunBatch>, codec: &Arc<dyn Codec>) -> Self {
        let mut columns = Self::default();
        for run in runs {
            for entry in &run.entries {
                let record = entry.event.to_record();
                let inbox = entry.event.inbox();
                // What came from the inbox goes from row to row inside the database.
                let payload = record.payload.filter(|_| inbox.is_none()).map(|payload| codec.encode(payload));
                columns.run.push(run.run_id.as_uuid());
                columns.seq.push(seq_number(entry.seq));
                columns.at.push(entry.at.as_micros());
                columns.kind.push(record.kind);
                columns.meta.push(record.meta);
                columns.payload.push(payload.map(|payload| payload.as_bytes().to_vec()));
                columns.inbox.push(inbox);
            }
        }
        columns
    }
}

/// The ends' columns.
#[derive(Default)]
struct Ends {
    run: Vec<Uuid>,
    status: Vec<i16>,
    meta: Vec<Option<String>>,
    payload: Vec<Option<Vec<u8>>>,
    reason: Vec<Option<String>>,
    unconsumed: Vec<Option<String>>,
    build: Vec<Option<String>>,
}

impl Ends {
    fn of(runs: &[RunBatch], codec: &Arc<dyn Codec>) -> Self {
        let mut columns = Self::default();
        for run in runs {
            let Some(end) = &run.end else { continue };
            columns.run.push(run.run_id.as_uuid());
            match end {
                End::Closed { status, outcome, reason, unconsumed } => {
                    let (meta, payload) = outcome.to_record();
                    columns.status.push(*status as i16);
                    columns.meta.push(Some(meta));
                    columns.payload.push(payload.map(|payload| codec.encode(payload).as_bytes().to_vec()));
                    columns.reason.push(reason.clone());
                    columns.unconsumed.push((!unconsumed.is_empty()).then(|| int_array(unconsumed)));
                    columns.build.push(None);
                }
                End::Continued { workflow, base } => {
                    columns.status.push(Status::Running as i16);
                    columns.meta.push(Some(base.to_string()));
                    columns.payload.push(None);
                    columns.reason.push(Some(workflow.clone()));
                    columns.unconsumed.push(None);
                    columns.build.push(None);
                }
                End::Stuck { reason, build } => {
                    columns.status.push(Status::Stuck as i16);
                    columns.meta.push(None);
                    columns.payload.push(None);
                    columns.reason.push(Some(reason.clone()));
                    columns.unconsumed.push(None);
                    columns.build.push(Some(build.clone()));
                }
            }
        }
        columns
    }
}

/// The starts' columns.
#[derive(Default)]
struct Starts {
    run: Vec<Uuid>,
    workflow: Vec<String>,
    timeout: Vec<Option<i64>>,
    build: Vec<String>,
    tags: Vec<Option<String>>,
    input: Vec<Vec<u8>>,
}

impl Starts {
    fn of(starts: &[NewRun], codec: &Arc<dyn Codec>) -> Result<Self> {
        let mut columns = Self::default();
        for run in starts {
            columns.run.push(run.run_id.as_uuid());
            columns.workflow.push(run.workflow.clone());
            columns.timeout.push(run.timeout.map(micros));
            columns.build.push(run.build.clone());
            columns.tags.push(tags_json(run)?);
            columns.input.push(codec.encode(run.input.clone()).as_bytes().to_vec());
        }
        Ok(columns)
    }
}

/// An array of numbers as Postgres reads it: arrays of arrays must be of one length, so they travel as text.
fn int_array(numbers: &[u32]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    format!("{{{}}}", numbers.join(","))
}

/// An entry's number as a column; a journal never gets that long.
pub(super) fn seq_number(seq: u32) -> i32 {
    i32::try_from(seq).unwrap_or(i32::MAX)
}
