//! Runs as clients see them: start, look, list, delete.

use std::collections::BTreeMap;

use composer_sdk::{
    id::{RunId, Timestamp, WorkflowId},
    journal::Outcome,
    payload::Payload,
};
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::{
    super::{
        Deleted, Epoch, IdPolicy, NewRun, Result, RunEnd, RunFilter, RunRow, SessionId, Started, Status,
        StoreError,
    },
    SqliteStore,
    rows::{args, columns, ids, micros, now, sql},
};

/// The last instant that a column holds, as [`Timestamp::MAX`].
pub(super) const FOREVER: i64 = Timestamp::MAX.as_micros();

/// Starts a run, unless its key is taken. Three runs can be in the way: the one that the key names, the one of the
/// same run id (the same start, repeated: the answer is as it was), and one without a key whose run id, as text, is this key.
pub(super) const START: &str = sql!(
    "begin immediate;

    insert into temp.composer_obstacle (run_id, workflow, status, owned, at)
    select run_id, workflow, status, iif(status = 2 and session = $6, epoch, null), coalesce(started_at, created_at)
    from composer_runs
    where run_id in ($1, $3)
       or run_id in (select i.run_id from composer_ids i where i.workflow_id = $2)
    order by run_id = $1 desc, run_id = $3
    limit 1;

    select iif(run_id = $1, 2, 1), owned, at, run_id, workflow, status from temp.composer_obstacle;

    insert into composer_runs
      (run_id, workflow_id, workflow, status, epoch, session, due_at, deadline, created_at, started_at,
       build, tags, input)
    select
      $1, coalesce($2, $4), $5,
      iif(o.owned, 2, 1), iif(o.owned, 1, 0), iif(o.owned, $6, null),
      iif(o.owned, null, min(c.now + $7, $13)), min(min(c.now + $7, $13) + $8, $13),
      c.now, iif(o.owned, c.now, null),
      $9, $10, $11
    from (select ", now!(), " as now) c
    cross join (
      select $7 = 0 and exists (select 1 from composer_sessions s where s.id = $6 and s.dead_at is null) as owned
    ) o
    where not exists (select 1 from temp.composer_obstacle b where not ($12 and b.status in (5, 6, 7, 8) and b.run_id <> $1))
    returning 2, iif(status = 2, epoch, null), created_at;

    insert into composer_ids (workflow_id, run_id)
    select $2, $1
    where $2 is not null and changes() = 1
    on conflict (workflow_id) do update set run_id = excluded.run_id;

    insert into composer_inbox (run_id, kind, name, payload, sent_at)
    select $1, 1, $14, $15, ",
    now!(),
    "
    where $14 is not null
      and not exists (select 1 from temp.composer_obstacle b where not ($12 and b.status in (5, 6, 7, 8) and b.run_id <> $1));

    delete from temp.composer_obstacle;
    commit"
);

macro_rules! select_run {
    ($rest:expr) => {
        sql!(
            "select
              r.run_id, r.workflow_id, r.workflow, r.status, r.epoch, iif(r.status = 2, r.session, null),
              r.created_at, r.started_at, r.closed_at, iif(r.status in (1, 3), r.due_at, null), r.deadline,
              r.tags, r.reason, r.strikes, r.parent_run, r.parent_step, r.forked_from, r.forked_step,
              coalesce(r.seed, r.run_id),
              exists (
                select 1 from composer_sessions s, json_each(s.workflows) w
                where s.dead_at is null and s.lease_until > ",
            now!(),
            " and w.value = r.workflow
              )
            from composer_runs r ",
            $rest
        )
    };
}

pub(super) const RUN: &str = select_run!("where r.run_id = $1");

/// The run that a key names; a run without a key is known by its run id as text.
pub(super) const FIND: &str = select_run!(
    "where r.run_id = coalesce(
      (select i.run_id from composer_ids i where i.workflow_id = $1),
      (select n.run_id from composer_runs n where n.run_id = $2 and n.workflow_id = $1)
    )"
);

const LIST: &str = select_run!(
    "where ($1 is null or r.run_id < $1)
      and ($2 is null or r.status in (select value from json_each($2)))
      and ($3 is null or r.workflow = $3)
      and ($4 is null or substr(cast(r.workflow_id as blob), 1, length($4)) = $4)
      and ($5 is null or exists (select 1 from json_each(r.tags) t where t.key = $5 and t.value = $6))
      and ($7 is null or r.created_at >= $7)
      and ($8 is null or r.created_at < $8)
      and ($10 is null or r.parent_run = $10)
    order by r.run_id desc
    limit $9"
);

pub(super) const ENDS: &str = "
    select r.run_id, r.status, r.result_meta, r.result, r.reason
    from json_each($1) b
    cross join composer_runs r
    where r.run_id = unhex(b.value) and r.status in (5, 6, 7, 8)
    order by b.key";

/// Deletes a closed run; the other rows go only when no run of that id is left.
pub(super) const DELETE: &str = "
    begin immediate;
    delete from composer_runs where run_id = $1 and status in (5, 6, 7, 8) returning 1, status;
    delete from composer_journal where run_id = $1 and not exists (select 1 from composer_runs where run_id = $1);
    delete from composer_inbox
    where run_id = $1 and shelved = 0 and not exists (select 1 from composer_runs where run_id = $1);
    delete from composer_inbox
    where run_id = $1 and shelved = 1 and not exists (select 1 from composer_runs where run_id = $1);
    delete from composer_published where run_id = $1 and not exists (select 1 from composer_runs where run_id = $1);
    delete from composer_ids where run_id = $1 and not exists (select 1 from composer_runs where run_id = $1);
    select 2, status from composer_runs where run_id = $1;
    commit";

impl SqliteStore {
    pub(super) async fn start_run(
        &self,
        run: &NewRun,
        policy: IdPolicy,
        owner: Option<SessionId>,
    ) -> Result<Started> {
        let args = args![
            run.run_id.as_uuid(),
            run.workflow_id.as_ref().map(|id| id.as_str().to_owned()),
            run.workflow_id.as_ref().and_then(run_named_by),
            run.run_id.to_string(),
            run.workflow.clone(),
            owner.map(|session| session.0),
            micros(run.delay),
            run.timeout.map(micros),
            run.build.clone(),
            tags_text(&run.tags),
            self.encode(&run.input).as_bytes().to_vec(),
            policy == IdPolicy::NewWhenClosed,
            FOREVER,
            run.signal.as_ref().map(|(name, _)| name.clone()),
            run.signal.as_ref().map(|(_, value)| self.encode(value).as_bytes().to_vec()),
        ];
        let rows = self.write.script(START, args).await?;
        started(&rows)
    }

    pub(super) async fn find_run(&self, id: &WorkflowId) -> Result<Option<RunRow>> {
        let rows = self.read.script(FIND, args![id.as_str().to_owned(), run_named_by(id)]).await?;
        rows.first().map(run_row).transpose()
    }

    pub(super) async fn run_row(&self, run: RunId) -> Result<Option<RunRow>> {
        let rows = self.read.script(RUN, args![run.as_uuid()]).await?;
        rows.first().map(run_row).transpose()
    }

    pub(super) async fn run_input(&self, run: RunId) -> Result<Option<Payload>> {
        let sql = "select input from composer_runs where run_id = $1";
        let rows = self.read.script(sql, args![run.as_uuid()]).await?;
        let stored = rows.first().map(|row| columns(row).get()).transpose()?;
        self.decode_some(stored)
    }

    pub(super) async fn list_runs(
        &self,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<RunRow>> {
        let statuses: Vec<i16> = filter.statuses.iter().map(|status| *status as i16).collect();
        let statuses = (!statuses.is_empty())
            .then(|| serde_json::to_string(&statuses).expect("invariant: numbers are always JSON"));
        let (tag, value) = filter.tag.clone().unzip();
        let args = args![
            before.map(|run| run.as_uuid()),
            statuses,
            filter.workflow.clone(),
            filter.id_prefix.as_ref().map(|prefix| prefix.as_bytes().to_vec()),
            tag,
            value,
            filter.created_from.map(Timestamp::as_micros),
            filter.created_before.map(Timestamp::as_micros),
            i64::from(limit),
            filter.parent.map(|parent| parent.as_uuid()),
        ];
        self.read.script(LIST, args).await?.iter().map(run_row).collect()
    }

    pub(super) async fn run_ends(&self, runs: &[RunId]) -> Result<Vec<(RunId, RunEnd)>> {
        let rows = self.read.script(ENDS, args![ids(runs)]).await?;
        rows.iter().map(|row| self.run_end(row)).collect()
    }

    fn run_end(&self, row: &SqliteRow) -> Result<(RunId, RunEnd)> {
        let mut c = columns(row);
        let (run, status, meta) = (c.run_id()?, status(c.small()?)?, c.text()?);
        let result = self.decode_some(c.get()?)?;
        let outcome =
            Outcome::from_record(&meta, result).map_err(|e| StoreError::unreadable(e.to_string()))?;
        Ok((run, RunEnd { status, outcome, reason: c.get()? }))
    }

    pub(super) async fn delete_run(&self, run: RunId) -> Result<Deleted> {
        let rows = self.write.script(DELETE, args![run.as_uuid()]).await?;
        let Some(row) = rows.first() else { return Ok(Deleted::NoRun) };
        let mut c = columns(row);
        Ok(match c.int()? {
            1 => Deleted::Done,
            _ => Deleted::Open(status(c.small()?)?),
        })
    }
}

/// The run that a key would name if it were a run's own: only the very text that a run id is written as.
pub(super) fn run_named_by(id: &WorkflowId) -> Option<Uuid> {
    let run: RunId = id.as_str().parse().ok()?;
    (run.to_string() == id.as_str()).then(|| run.as_uuid())
}

pub(super) fn tags_text(tags: &BTreeMap<String, String>) -> String {
    serde_json::to_string(tags).expect("invariant: texts are always JSON")
}

pub(super) fn status(stored: i16) -> Result<Status> {
    Status::try_from(stored)
}

fn started(rows: &[SqliteRow]) -> Result<Started> {
    let mut answer = None;
    for row in rows {
        let mut c = columns(row);
        let (kind, owned, at) = (c.int()?, c.get::<Option<i64>>()?.map(Epoch), c.at()?);
        answer = Some(match kind {
            1 => Started::Exists { run_id: c.run_id()?, workflow: c.text()?, status: status(c.small()?)? },
            _ => Started::New { owned, at },
        });
    }
    answer.ok_or_else(|| StoreError::unreadable("a start neither made a run nor found one"))
}

fn run_row(row: &SqliteRow) -> Result<RunRow> {
    let mut c = columns(row);
    Ok(RunRow {
        run_id: c.run_id()?,
        workflow_id: c.workflow_id()?,
        workflow: c.text()?,
        status: status(c.small()?)?,
        epoch: Epoch(c.int()?),
        session: c.get::<Option<i64>>()?.map(SessionId),
        created_at: c.at()?,
        started_at: c.maybe_at()?,
        closed_at: c.maybe_at()?,
        due_at: c.maybe_at()?,
        deadline: c.maybe_at()?,
        tags: c.json()?,
        reason: c.get()?,
        strikes: c.small()?,
        parent: c
            .get::<Option<Uuid>>()?
            .map(RunId::from)
            .zip(c.get::<Option<i64>>()?.map(|step| step as u32)),
        forked_from: c
            .get::<Option<Uuid>>()?
            .map(RunId::from)
            .zip(c.get::<Option<i64>>()?.map(|step| step as u32)),
        seed: c.run_id()?,
        hosted: c.int()? == 1,
    })
}
