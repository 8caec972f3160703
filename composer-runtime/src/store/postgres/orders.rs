//! An operator's orders: take-overs that fence the owner and change where a run stands.
//!
//! Each is one statement: the row is locked `for update`, which an append in flight and a sender are waited for, its
//! status compared under the lock, and the epoch raised with the change (PROTOCOL 22).

use composer_sdk::{
    error::{Failure, FailureKind},
    id::RunId,
    journal::Outcome,
};

use super::{PostgresStore, classify, runs::get, sql::query};
use crate::store::{Order, Ordered, Result, Status, StoreError};

/// Locks the run $1 if it stands in one of $2.
const LOCK: &str = "\
with f as materialized (
    select run_id from {s}.runs
     where run_id = $1 and status + 0 = any($2::smallint[])
       for update
), d as (
    update {s}.runs r
       set epoch = r.epoch + 1, {set}
      from f
     where r.run_id = f.run_id and r.run_id = $1
    returning 1
)
select (select count(*) from d) as done, (select status from {s}.runs where run_id = $1) as status";

const OPEN: [i16; 5] = [0, 1, 2, 3, 4];

/// $3: the reason, $4: the outcome.
pub(super) fn terminate() -> String {
    // Its children are asked to cancel, but for those that are to go on without it.
    let children = "), k as (
    insert into {s}.inbox (run_id, kind, name)
    select c.run_id, 2, 'the parent was terminated'
      from {s}.runs c cross join d
     where c.parent_run = $1 and c.status < 5 and c.on_parent = 1
)
select";
    let set = with(
        "status = 8, closed_at = {now}, stuck_at = null, due_at = null, reason = $3, result_meta = $4, result = null",
    );
    set.replacen(")\nselect", children, 1)
}

/// What was due stays due; a run that was at work is due at once when it is resumed. $3: the reason.
pub(super) fn pause() -> String {
    with(
        "status = 0, session = null, reason = $3, \
         due_at = case when r.status = 2 then {now} else r.due_at end",
    )
}

pub(super) fn resume() -> String {
    with(
        "status = case when r.started_at is null then 1 else 3 end, reason = null, strikes = 0, seen = null, \
         stuck_at = null, stuck_build = null, session = null, \
         due_at = case when r.status = 4 then {now} else r.due_at end",
    )
}

fn with(set: &str) -> String {
    LOCK.replace("{set}", set)
}

impl PostgresStore {
    pub(super) async fn obey(&self, run: RunId, order: &Order) -> Result<Ordered> {
        let (sql, from) = match order {
            Order::Terminate { .. } => (&self.sql.terminate, &OPEN[..]),
            Order::Pause { .. } => (&self.sql.pause, &OPEN[1..4]),
            Order::Resume => (&self.sql.resume, &[0, 4][..]),
        };
        // Each round ends unless the run changed while its row was waited for.
        for _ in 0..32 {
            let mut statement = query(sql).bind(run.as_uuid()).bind(from.to_vec());
            match order {
                Order::Terminate { reason } => {
                    let (meta, _) =
                        Outcome::Failed(Failure::new(FailureKind::Terminated, reason)).to_record();
                    statement = statement.bind(reason.clone()).bind(meta);
                }
                Order::Pause { reason } => statement = statement.bind(reason.clone()),
                Order::Resume => {}
            }
            let row = {
                let mut conn = self.acquire().await?;
                statement.fetch_one(&mut *conn).await.map_err(classify)?
            };
            if get::<i64>(&row, "done")? == 1 {
                return Ok(Ordered::Done);
            }
            match get::<Option<i16>>(&row, "status")? {
                None => return Ok(Ordered::NoRun),
                Some(status) if !from.contains(&status) => {
                    return Ok(Ordered::Not(Status::try_from(status)?));
                }
                Some(_) => {}
            }
        }
        Err(StoreError::Unavailable {
            message: format!("run {run} changes all the time"),
            maybe_committed: false,
        })
    }
}
