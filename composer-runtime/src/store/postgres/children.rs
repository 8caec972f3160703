//! Children: runs that are a step of another one.
//!
//! A child is started as its parent's owner: the parent's row is locked in the way that a take-over waits for and compared
//! like an append, so nobody starts a child for a run that is somebody else's by then. That a child has ended is said by
//! a trigger (`tell_parent`), in the transaction that ends it.

use composer_sdk::id::RunId;
use uuid::Uuid;

use super::{
    PostgresStore, classify, read,
    runs::{get, micros, tags_json},
    sql::query,
};
use crate::store::{ChildStarted, NewRun, Parent, Result, StoreError};

/// Parent: $1 run, $2 epoch, $3 session, $4 step, $5 what becomes of the child when it ends first. Child: $6 run, $7 id.
pub(super) const START_CHILD: &str = "\
with p as materialized (
    select run_id from {s}.runs
     where run_id = $1 and epoch = $2 and session = $3 and status + 0 = 2
       for share
), t as materialized (
    select {now} as at
), i as (
    insert into {s}.ids (workflow_id, run_id) select $7, $6 from p where $7 is not null
    on conflict on constraint ids_pk do nothing
    returning 1
), r as (
    insert into {s}.runs
           (run_id, workflow_id, workflow, status, epoch, created_at, due_at, deadline, build, tags, input,
            parent_run, parent_step, on_parent)
    select $6, $7, $8, 1, 0, t.at, least(t.at::numeric + $13::bigint, 9223372036854775807)::bigint,
           case when $9::bigint is not null then least(t.at::numeric + $13::bigint + $9::bigint, 9223372036854775807)::bigint end,
           $10, $11::text::jsonb, $12, p.run_id, $4, $5
      from p cross join t
     where $7 is null or exists (select from i)
    on conflict do nothing
    returning 1
)
select (select count(*) from p) as owned, (select count(*) from r) as made";

/// Who has the id $2, or the run id $1.
pub(super) const CHILD_ROW: &str = "\
select r.run_id from {s}.runs r where r.run_id = $1
union all
select i.run_id from {s}.ids i where i.workflow_id = $2
 limit 1";

impl PostgresStore {
    pub(super) async fn begin_child(&self, child: &NewRun, parent: &Parent) -> Result<ChildStarted> {
        let id = || child.workflow_id.as_ref().map(|id| id.as_str().to_owned());
        // Each round ends unless the run that has the id is deleted between two looks.
        for _ in 0..32 {
            let input = self.encode(&child.input);
            let row = {
                let mut conn = self.acquire().await?;
                query(&self.sql.start_child)
                    .bind(parent.run_id.as_uuid())
                    .bind(parent.epoch.0)
                    .bind(parent.session.0)
                    .bind(i64::from(parent.step) as i32)
                    .bind(if parent.abandoned { 2_i16 } else { 1 })
                    .bind(child.run_id.as_uuid())
                    .bind(id())
                    .bind(child.workflow.clone())
                    .bind(child.timeout.map(micros))
                    .bind(child.build.clone())
                    .bind(tags_json(child)?)
                    .bind(input.as_bytes().to_vec())
                    .bind(micros(child.delay))
                    .fetch_one(&mut *conn)
                    .await
                    .map_err(classify)?
            };
            if get::<i64>(&row, "made")? == 1 {
                return Ok(ChildStarted::Started);
            }
            if get::<i64>(&row, "owned")? == 0 {
                return Ok(ChildStarted::Fenced);
            }
            let there = read!(self, |conn| query(&self.sql.child_row)
                .bind(child.run_id.as_uuid())
                .bind(id())
                .fetch_optional(&mut *conn))?;
            match there.as_ref().map(|row| get::<Uuid>(row, "run_id")).transpose()?.map(RunId::from) {
                Some(run_id) if run_id == child.run_id => return Ok(ChildStarted::Started),
                Some(run_id) => return Ok(ChildStarted::Taken { run_id }),
                None => {}
            }
        }
        Err(StoreError::Unavailable {
            message: format!("the workflow id of the child {} changes hands all the time", child.run_id),
            maybe_committed: false,
        })
    }
}
