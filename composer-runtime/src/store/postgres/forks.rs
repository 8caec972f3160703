//! Forks: runs that begin with what another one has done.
//!
//! A fork is one statement, so it is there with the whole of what it begins with, or not at all. The original is only
//! read: it may be open, and its owner appends meanwhile. What is copied was durable before, and entries never change.

use sqlx::postgres::PgRow;

use super::{
    PostgresStore, classify,
    journal::seq_number,
    runs::{get, workflow_id},
    sql::query,
};
use crate::store::{ForkKey, Forked, NewFork, Result, StoreError};

/// Makes the run $2 of the run $1, with its entries up to $3 but for $4. Its key is $5, or that of the original if $6;
/// its input $7, if that is another one; $8 is the step of the link, $9 the first
/// entry, which has the arguments if it begins a generation.
pub(super) const FORK: &str = "\
with o as materialized (
    select r.run_id, r.workflow, r.created_at, r.started_at, r.deadline, r.tags, r.input,
           coalesce(r.seed, r.run_id) as seed,
           case when $6::boolean then coalesce(r.workflow_id, r.run_id::text) else $5::text end as key
      from {s}.runs r
     where r.run_id = $1
       and (not $6 or r.status >= 5)
       and $3::int - $9::int + 1 = (select count(*) from {s}.journal c where c.run_id = $1 and c.seq between $9 and $3)
), t as materialized (
    select {now} as at
), i as (
    insert into {s}.ids as d (workflow_id, run_id)
    select o.key, $2 from o where o.key is not null
    on conflict on constraint ids_pk do update set run_id = excluded.run_id where $6 and d.run_id = $1
    returning 1
), r as (
    insert into {s}.runs
           (run_id, workflow_id, workflow, status, epoch, created_at, started_at, due_at, deadline, build, tags, input,
            forked_from, forked_step, copied, seed)
    select $2, o.key, o.workflow, 1, 0, t.at, o.started_at, t.at,
           case when o.deadline is not null
                then least(t.at::numeric + o.deadline - o.created_at, 9223372036854775807)::bigint end,
           '', o.tags, coalesce($7, o.input),
           o.run_id, $8, $3 - $9 + 1 - cardinality($4::int[]), o.seed
      from o cross join t
     where o.key is null or exists (select from i)
    returning run_id
), j as (
    insert into {s}.journal (run_id, seq, epoch, at, kind, meta, payload)
    select r.run_id, row_number() over (order by c.seq), 0, c.at, c.kind, c.meta,
           case when c.kind = 12 then coalesce($7, c.payload) else c.payload end
      from r cross join {s}.journal c
     where c.run_id = $1 and c.seq between $9 and $3
       and not exists (select from unnest($4::int[]) w(seq) where w.seq = c.seq)
    returning 1
)
select (select count(*) from o) as found, (select count(*) from r) as made, (select key from o) as key";

impl PostgresStore {
    pub(super) async fn fork_run(&self, fork: &NewFork) -> Result<Forked> {
        // Each round ends unless the run that has the key is deleted between two looks.
        for _ in 0..32 {
            let row = match self.make_fork(fork).await {
                Err(StoreError::Conflict { .. }) if self.run_row(fork.run_id).await?.is_some() => {
                    // The same one, repeated.
                    return Ok(Forked::Done);
                }
                made => made?,
            };
            if get::<i64>(&row, "made")? == 1 {
                return Ok(Forked::Done);
            }
            if get::<i64>(&row, "found")? == 0 {
                return self.not_forked(fork).await;
            }
            let key: Option<String> = get(&row, "key")?;
            let key = workflow_id(key, fork.run_id)?;
            match self.existing(&key).await? {
                Some(other) if other.run_id == fork.run_id => return Ok(Forked::Done),
                Some(other) => return Ok(Forked::Taken { run_id: other.run_id, status: other.status }),
                None => {}
            }
        }
        Err(StoreError::Unavailable {
            message: format!("the workflow id of the fork {} changes hands all the time", fork.run_id),
            maybe_committed: false,
        })
    }

    async fn not_forked(&self, fork: &NewFork) -> Result<Forked> {
        match self.run_row(fork.from).await? {
            None => Ok(Forked::NoRun),
            Some(row) if fork.key == ForkKey::Inherit && !row.status.is_closed() => {
                Ok(Forked::Open(row.status))
            }
            Some(_) => Err(StoreError::Rejected {
                message: format!("the journal of run {} has no entry {}", fork.from, fork.upto),
            }),
        }
    }

    async fn make_fork(&self, fork: &NewFork) -> Result<PgRow> {
        let key = match &fork.key {
            ForkKey::New(key) => Some(key.as_str().to_owned()),
            _ => None,
        };
        let without: Vec<i32> = fork.without.iter().map(|seq| seq_number(*seq)).collect();
        let input = fork.input.as_ref().map(|input| self.encode(input).as_bytes().to_vec());
        let mut conn = self.acquire().await?;
        query(&self.sql.fork)
            .bind(fork.from.as_uuid())
            .bind(fork.run_id.as_uuid())
            .bind(seq_number(fork.upto))
            .bind(without)
            .bind(key)
            .bind(fork.key == ForkKey::Inherit)
            .bind(input)
            .bind(seq_number(fork.step))
            .bind(seq_number(fork.first))
            .fetch_one(&mut *conn)
            .await
            .map_err(classify)
    }
}
