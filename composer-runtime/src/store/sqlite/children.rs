//! Children: runs that are a step of another one. That a child has ended is said by a trigger
//! (`composer_runs_tell_parent`), in the transaction that ends it.

use composer_sdk::id::Timestamp;

use super::{
    super::{ChildStarted, NewRun, Parent, Result, StoreError},
    SqliteStore,
    rows::{args, columns, micros, now, sql},
    runs::tags_text,
};

/// Starts a child as its parent's owner. Parent: $1 run, $2 epoch, $3 session, $4 step, $5 what becomes of the child when
/// it ends first. Child: $6 run, $7 key, $8 the key that it has without one.
pub(super) const START_CHILD: &str = sql!(
    "begin immediate;

    insert into composer_runs
      (run_id, workflow_id, workflow, status, epoch, due_at, deadline, created_at, build, tags, input,
       parent_run, parent_step, on_parent)
    select
      $6, coalesce($7, $8), $9, 1, 0, min(c.now + $15, $14), min(min(c.now + $15, $14) + $10, $14), c.now, $11, $12, $13, p.run_id, $4, $5
    from (select ",
    now!(),
    " as now) c
    cross join composer_runs p
    where p.run_id = $1 and p.epoch = $2 and p.session = $3 and p.status = 2
      and not exists (select 1 from composer_runs o where o.run_id = $6)
      and not exists (select 1 from composer_ids i where i.workflow_id = $7);

    insert into composer_ids (workflow_id, run_id) select $7, $6 where $7 is not null and changes() = 1;

    select 1, run_id from composer_runs where run_id = $6;

    select 2, i.run_id from composer_ids i where i.workflow_id = $7;

    commit"
);

impl SqliteStore {
    pub(super) async fn begin_child(&self, child: &NewRun, parent: &Parent) -> Result<ChildStarted> {
        let args = args![
            parent.run_id.as_uuid(),
            parent.epoch.0,
            parent.session.0,
            i64::from(parent.step),
            if parent.abandoned { 2_i64 } else { 1 },
            child.run_id.as_uuid(),
            child.workflow_id.as_ref().map(|id| id.as_str().to_owned()),
            child.run_id.to_string(),
            child.workflow.clone(),
            child.timeout.map(micros),
            child.build.clone(),
            tags_text(&child.tags),
            self.encode(&child.input).as_bytes().to_vec(),
            Timestamp::MAX.as_micros(),
            micros(child.delay),
        ];
        let rows = self.write.script(START_CHILD, args).await?;
        let Some(row) = rows.first() else {
            // Neither a child nor a run of its key: the parent is not ours.
            return Ok(ChildStarted::Fenced);
        };
        let mut c = columns(row);
        match c.int()? {
            1 => Ok(ChildStarted::Started),
            2 => Ok(ChildStarted::Taken { run_id: c.run_id()? }),
            kind => Err(StoreError::unreadable(format!("a child's start answered {kind}"))),
        }
    }
}
