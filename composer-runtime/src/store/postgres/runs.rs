//! Runs as a client sees them: starting, finding, listing, reading, deleting.
//!
//! A workflow id is taken in `ids` by the statement that inserts the run, so a start and its id are one; who finds
//! the id taken looks again in a second statement, with a new snapshot, because the winner's row may be younger than
//! the first one's.

use composer_sdk::{
    id::{RunId, Timestamp, WorkflowId},
    journal::Outcome,
    payload::Payload,
};
use sqlx::{Connection, Postgres, QueryBuilder, Row, postgres::PgRow};
use uuid::Uuid;

use super::{
    PostgresStore, classify, epoch_of, read,
    sql::{self, query, query_scalar},
};
use crate::store::{
    Deleted, Epoch, IdPolicy, NewRun, Result, RunEnd, RunFilter, RunRow, SessionId, Started, Status,
    StoreError,
};

/// Takes the id when nobody has it. Waits for a stranger's open start of the same id, up to `lock_timeout`.
pub(super) const TAKE_ID: &str = "\
i as (
    insert into {s}.ids (workflow_id, run_id) values ($11, $2)
    on conflict on constraint ids_pk do nothing
    returning workflow_id
),";

/// Takes the id over from a run ($12) that was seen closed; of two at once, one finds it changed.
pub(super) const REPLACE_ID: &str = "\
i as (
    update {s}.ids set run_id = $2 where workflow_id = $11 and run_id = $12
    returning workflow_id
),";

/// Starts one run, with its first signal ($9, $10) if there is one: owned by the session $1 if that lives, pending otherwise. The session's row is locked in the way
/// that declaring it dead waits for, so no run can come to belong to a dead one.
pub(super) fn start(take_id: &str) -> String {
    let (id, from) = match take_id {
        "" => ("null", ""),
        _ => ("i.workflow_id", "cross join i"),
    };
    format!(
        "\
with {take_id}
s as materialized (
    select id from {{s}}.sessions where id = $1 and dead_at is null for key share
), t as materialized (
    select {{now}} as at
), r as (
insert into {{s}}.runs
       (run_id, workflow_id, workflow, status, epoch, session, created_at, started_at, due_at, deadline, build, tags, input)
select $2, {id}, $3,
       case when s.id is null then 1 else 2 end,
       case when s.id is null then 0 else 1 end,
       s.id,
       t.at,
       case when s.id is not null then t.at end,
       case when s.id is null then least(t.at::numeric + $4::bigint, 9223372036854775807)::bigint end,
       case when $5::bigint is not null
            then least(t.at::numeric + $4::bigint + $5::bigint, 9223372036854775807)::bigint end,
       $6, $7::text::jsonb, $8
  from t {from} left join s on true
returning run_id, status, epoch, created_at, started_at
), m as (
    insert into {{s}}.inbox (run_id, kind, name, payload) select r.run_id, 1, $9, $10 from r where $9::text is not null
)
select status, epoch, created_at, started_at from r"
    )
}

/// The run that an id names, as far as a start needs to know.
pub(super) const BY_ID: &str = "\
select r.run_id, r.workflow, r.status, r.epoch, r.session, r.created_at, r.started_at
  from {s}.runs r
 where r.run_id = (select i.run_id from {s}.ids i where i.workflow_id = $1)";

/// What [`RunRow`] holds, for runs that match.
pub(super) fn row(matches: &str) -> String {
    format!("{ROW} where {matches}")
}

const ROW: &str = "\
select r.run_id, r.workflow_id, r.workflow, r.status, r.epoch, r.session, r.created_at, r.started_at, r.closed_at,
       r.due_at, r.deadline, r.tags::text as tags, r.reason, r.strikes, r.parent_run, r.parent_step,
       r.forked_from, r.forked_step, coalesce(r.seed, r.run_id) as seed,
       exists (select from {s}.sessions s
                where s.dead_at is null and s.lease_until > {now} and r.workflow = any(s.workflows)) as hosted
  from {s}.runs r";

pub(super) const INPUT: &str = "select input from {s}.runs where run_id = $1";

pub(super) const ENDS: &str = "\
select run_id, status, result_meta, result, reason
  from {s}.runs
 where run_id = any($1) and status >= 5";

/// First half of a deletion: waits for senders in flight, so that the second half sees their rows.
pub(super) const LOCK_FOR_DELETE: &str = "select status from {s}.runs where run_id = $1 for update";

/// Second half: everything that belongs to the run.
pub(super) const DELETE: &str = "\
with j as (delete from {s}.journal where run_id = $1),
     m as (delete from {s}.inbox where run_id = $1),
     o as (delete from {s}.published where run_id = $1),
     i as (delete from {s}.ids d using {s}.runs r
            where r.run_id = $1 and d.workflow_id = r.workflow_id and d.run_id = $1)
delete from {s}.runs where run_id = $1";

/// A run that stands in the way of a start, or is its answer.
pub(super) struct Existing {
    pub(super) run_id: RunId,
    workflow: String,
    pub(super) status: Status,
    epoch: Epoch,
    session: Option<SessionId>,
    at: Timestamp,
}

impl Existing {
    fn read(row: &PgRow) -> Result<Self> {
        let created: i64 = get(row, "created_at")?;
        let started: Option<i64> = get(row, "started_at")?;
        Ok(Self {
            run_id: RunId::from(get::<Uuid>(row, "run_id")?),
            workflow: get(row, "workflow")?,
            status: Status::try_from(get::<i16>(row, "status")?)?,
            epoch: epoch_of(row, "epoch")?,
            session: get::<Option<i64>>(row, "session")?.map(SessionId),
            at: Timestamp::from_micros(started.unwrap_or(created)),
        })
    }

    /// The answer for the starter of `asked`: a repeated start finds its own run.
    fn answer(self, asked: RunId, owner: Option<SessionId>) -> Started {
        if self.run_id == asked {
            let mine = self.status == Status::Running && self.session.is_some() && self.session == owner;
            return Started::New { owned: mine.then_some(self.epoch), at: self.at };
        }
        Started::Exists { run_id: self.run_id, workflow: self.workflow, status: self.status }
    }
}

impl PostgresStore {
    pub(super) async fn start_run(
        &self,
        run: &NewRun,
        policy: IdPolicy,
        owner: Option<SessionId>,
    ) -> Result<Started> {
        // A delayed run is nobody's until it is due.
        let owner = owner.filter(|_| run.delay.is_zero());
        let Some(id) = &run.workflow_id else {
            return self.start_unnamed(run, owner).await;
        };
        // Each round ends unless somebody changed the id in between: bounded, because that is rare.
        for _ in 0..32 {
            if let Some(started) =
                self.insert_run(&self.sql.start_with_id, run, Some(id), None, owner).await?
            {
                return Ok(started);
            }
            let Some(existing) = self.existing(id).await? else {
                continue;
            };
            let replace = policy == IdPolicy::NewWhenClosed && existing.status.is_closed();
            if !replace || existing.run_id == run.run_id {
                return Ok(existing.answer(run.run_id, owner));
            }
            let old = Some(existing.run_id);
            if let Some(started) = self.insert_run(&self.sql.start_again, run, Some(id), old, owner).await? {
                return Ok(started);
            }
        }
        Err(StoreError::Unavailable {
            message: format!("the workflow id {id} changes hands all the time"),
            maybe_committed: false,
        })
    }

    /// A run of that id exists already only if this very start was repeated.
    async fn start_unnamed(&self, run: &NewRun, owner: Option<SessionId>) -> Result<Started> {
        match self.insert_run(&self.sql.start, run, None, None, owner).await {
            Ok(started) => started.ok_or_else(|| StoreError::unreadable("a start returned no row")),
            Err(StoreError::Conflict { message }) => {
                let row = self.run_row(run.run_id).await?.ok_or(StoreError::Conflict { message })?;
                let mine = row.status == Status::Running && row.session.is_some() && row.session == owner;
                Ok(Started::New {
                    owned: mine.then_some(row.epoch),
                    at: row.started_at.unwrap_or(row.created_at),
                })
            }
            Err(error) => Err(error),
        }
    }

    async fn insert_run(
        &self,
        statement: &sql::Sql,
        run: &NewRun,
        id: Option<&WorkflowId>,
        replaces: Option<RunId>,
        owner: Option<SessionId>,
    ) -> Result<Option<Started>> {
        let input = self.encode(&run.input);
        let mut insert = query(statement)
            .bind(owner.map(|session| session.0))
            .bind(run.run_id.as_uuid())
            .bind(run.workflow.clone())
            .bind(micros(run.delay))
            .bind(run.timeout.map(micros))
            .bind(run.build.clone())
            .bind(tags_json(run)?)
            .bind(input.as_bytes().to_vec())
            .bind(run.signal.as_ref().map(|(name, _)| name.clone()))
            .bind(run.signal.as_ref().map(|(_, value)| self.encode(value).as_bytes().to_vec()));
        if let Some(id) = id {
            insert = insert.bind(id.as_str().to_owned());
        }
        if let Some(old) = replaces {
            insert = insert.bind(old.as_uuid());
        }
        let mut conn = self.acquire().await?;
        let Some(row) = insert.fetch_optional(&mut *conn).await.map_err(classify)? else {
            return Ok(None);
        };
        let owned = get::<i16>(&row, "status")? == Status::Running as i16;
        let at: i64 = match get::<Option<i64>>(&row, "started_at")? {
            Some(at) => at,
            None => get(&row, "created_at")?,
        };
        Ok(Some(Started::New {
            owned: owned.then(|| epoch_of(&row, "epoch")).transpose()?,
            at: Timestamp::from_micros(at),
        }))
    }

    pub(super) async fn existing(&self, id: &WorkflowId) -> Result<Option<Existing>> {
        let row = read!(self, |conn| query(&self.sql.by_id)
            .bind(id.as_str().to_owned())
            .fetch_optional(&mut *conn))?;
        row.as_ref().map(Existing::read).transpose()
    }

    pub(super) async fn find_run(&self, id: &WorkflowId) -> Result<Option<RunRow>> {
        let row = read!(self, |conn| query(&self.sql.row_by_id)
            .bind(id.as_str().to_owned())
            .fetch_optional(&mut *conn))?;
        if let Some(row) = row {
            return read_row(&row).map(Some);
        }
        // Perhaps it is the id of a run that was started without one.
        let Some(run) = id.as_str().parse::<RunId>().ok().filter(|run| run.to_string() == id.as_str()) else {
            return Ok(None);
        };
        let row = read!(self, |conn| query(&self.sql.row_without_id)
            .bind(run.as_uuid())
            .fetch_optional(&mut *conn))?;
        row.as_ref().map(read_row).transpose()
    }

    pub(super) async fn run_row(&self, run: RunId) -> Result<Option<RunRow>> {
        let row = read!(self, |conn| query(&self.sql.row).bind(run.as_uuid()).fetch_optional(&mut *conn))?;
        row.as_ref().map(read_row).transpose()
    }

    pub(super) async fn run_input(&self, run: RunId) -> Result<Option<Payload>> {
        let stored: Option<Vec<u8>> =
            read!(self, |conn| query_scalar(&self.sql.input).bind(run.as_uuid()).fetch_optional(&mut *conn))?;
        stored.map(|bytes| self.decode(bytes, &run)).transpose()
    }

    pub(super) async fn list_runs(
        &self,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<RunRow>> {
        let rows = read!(self, |conn| self.listing(filter, before, limit).build().fetch_all(&mut *conn))?;
        rows.iter().map(read_row).collect()
    }

    /// The filter as SQL: only the conditions that restrict, so that each gets the plan it deserves.
    fn listing(&self, filter: &RunFilter, before: Option<RunId>, limit: u32) -> QueryBuilder<Postgres> {
        let mut sql = QueryBuilder::new(&*sql::fill(ROW, &self.sql.schema));
        sql.push(" where true");
        if !filter.statuses.is_empty() {
            // As literals: numbers of ours, and what the partial indexes can be matched with.
            let statuses: Vec<String> =
                filter.statuses.iter().map(|status| (*status as i16).to_string()).collect();
            sql.push(" and r.status in (").push(statuses.join(", ")).push(")");
        }
        if let Some(workflow) = &filter.workflow {
            sql.push(" and r.workflow = ").push_bind(workflow.clone());
        }
        if let Some(prefix) = &filter.id_prefix {
            sql.push(" and starts_with(coalesce(r.workflow_id, r.run_id::text), ")
                .push_bind(prefix.clone())
                .push(")");
        }
        if let Some(parent) = filter.parent {
            sql.push(" and r.parent_run = ").push_bind(parent.as_uuid());
        }
        if let Some((key, value)) = &filter.tag {
            sql.push(" and r.tags @> jsonb_build_object(").push_bind(key.clone()).push("::text, ");
            sql.push_bind(value.clone()).push("::text)");
        }
        if let Some(from) = filter.created_from {
            sql.push(" and r.created_at >= ").push_bind(from.as_micros());
        }
        if let Some(before) = filter.created_before {
            sql.push(" and r.created_at < ").push_bind(before.as_micros());
        }
        if let Some(run) = before {
            sql.push(" and r.run_id < ").push_bind(run.as_uuid());
        }
        sql.push(" order by r.run_id desc limit ").push_bind(i64::from(limit));
        sql
    }

    pub(super) async fn run_ends(&self, runs: &[RunId]) -> Result<Vec<(RunId, RunEnd)>> {
        let rows = read!(self, |conn| query(&self.sql.ends).bind(uuids(runs)).fetch_all(&mut *conn))?;
        rows.iter().map(|row| self.read_end(row)).collect()
    }

    fn read_end(&self, row: &PgRow) -> Result<(RunId, RunEnd)> {
        let run = RunId::from(get::<Uuid>(row, "run_id")?);
        let meta: String = get(row, "result_meta")?;
        let payload =
            get::<Option<Vec<u8>>>(row, "result")?.map(|bytes| self.decode(bytes, &run)).transpose()?;
        let outcome = Outcome::from_record(&meta, payload)
            .map_err(|why| StoreError::unreadable(format!("the result of {run}: {why}")))?;
        let status = Status::try_from(get::<i16>(row, "status")?)?;
        Ok((run, RunEnd { status, outcome, reason: get(row, "reason")? }))
    }

    pub(super) async fn delete_run(&self, run: RunId) -> Result<Deleted> {
        let mut conn = self.acquire().await?;
        let mut tx = conn.begin().await.map_err(classify)?;
        let status: Option<i16> = query_scalar(&self.sql.lock_for_delete)
            .bind(run.as_uuid())
            .fetch_optional(&mut *tx)
            .await
            .map_err(classify)?;
        let answer = match status.map(Status::try_from).transpose()? {
            None => Deleted::NoRun,
            Some(status) if !status.is_closed() => Deleted::Open(status),
            Some(_) => {
                query(&self.sql.delete).bind(run.as_uuid()).execute(&mut *tx).await.map_err(classify)?;
                Deleted::Done
            }
        };
        tx.commit().await.map_err(classify)?;
        Ok(answer)
    }
}

pub(super) fn read_row(row: &PgRow) -> Result<RunRow> {
    let run_id = RunId::from(get::<Uuid>(row, "run_id")?);
    let status = Status::try_from(get::<i16>(row, "status")?)?;
    let at = |column| -> Result<_> { Ok(get::<Option<i64>>(row, column)?.map(Timestamp::from_micros)) };
    let tags: Option<String> = get(row, "tags")?;
    Ok(RunRow {
        run_id,
        workflow_id: workflow_id(get(row, "workflow_id")?, run_id)?,
        workflow: get(row, "workflow")?,
        status,
        epoch: epoch_of(row, "epoch")?,
        session: get::<Option<i64>>(row, "session")?.filter(|_| status == Status::Running).map(SessionId),
        created_at: Timestamp::from_micros(get(row, "created_at")?),
        started_at: at("started_at")?,
        closed_at: at("closed_at")?,
        due_at: at("due_at")?,
        deadline: at("deadline")?,
        tags: match tags {
            Some(json) => serde_json::from_str(&json)
                .map_err(|e| StoreError::unreadable(format!("the tags of {run_id}: {e}")))?,
            None => Default::default(),
        },
        reason: get(row, "reason")?,
        strikes: get::<i32>(row, "strikes")?.try_into().unwrap_or(0),
        parent: get::<Option<Uuid>>(row, "parent_run")?
            .map(RunId::from)
            .zip(get::<Option<i32>>(row, "parent_step")?.map(i32::unsigned_abs)),
        forked_from: get::<Option<Uuid>>(row, "forked_from")?
            .map(RunId::from)
            .zip(get::<Option<i32>>(row, "forked_step")?.map(i32::unsigned_abs)),
        seed: RunId::from(get::<Uuid>(row, "seed")?),
        hosted: get(row, "hosted")?,
    })
}

/// A run's key: the user's, or its own id.
pub(super) fn workflow_id(stored: Option<String>, run: RunId) -> Result<WorkflowId> {
    match stored {
        None => Ok(WorkflowId::from(run)),
        Some(id) => {
            WorkflowId::try_from(id).map_err(|e| StoreError::unreadable(format!("the id of {run}: {e}")))
        }
    }
}

/// A column's value.
pub(super) fn get<'r, T>(row: &'r PgRow, column: &str) -> Result<T>
where
    T: sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>,
{
    row.try_get(column).map_err(classify)
}

/// Ids as Postgres takes them.
pub(super) fn uuids(runs: &[RunId]) -> Vec<Uuid> {
    runs.iter().map(RunId::as_uuid).collect()
}

/// A length of time, rounded up; what does not fit is as good as for ever.
pub(super) fn micros(by: std::time::Duration) -> i64 {
    i64::try_from(by.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX)
}

/// Tags as JSON; none for no tags.
pub(super) fn tags_json(run: &NewRun) -> Result<Option<String>> {
    if run.tags.is_empty() {
        return Ok(None);
    }
    let json =
        serde_json::to_string(&run.tags).map_err(|e| StoreError::Rejected { message: e.to_string() })?;
    Ok(Some(json))
}
