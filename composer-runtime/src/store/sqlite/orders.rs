//! An operator's orders: take-overs that fence the owner and change where a run stands (PROTOCOL 22).

use composer_sdk::{
    error::{Failure, FailureKind},
    id::RunId,
    journal::Outcome,
};

use super::{
    super::{Order, Ordered, Result},
    SqliteStore,
    rows::{args, columns, now, sql},
    runs::status,
};

/// Closes an open run without its code, and asks its children to cancel. $2: the reason, $3: the outcome.
pub(super) const TERMINATE: &str = sql!(
    "begin immediate;

    update composer_runs
    set
      status = 8, epoch = epoch + 1, session = null, closed_at = ",
    now!(),
    ",
      stuck_at = null, due_at = null, reason = $2, result_meta = $3, result = null
    where run_id = $1 and status in (0, 1, 2, 3, 4)
    returning 1, status;

    insert into composer_inbox (run_id, kind, name, sent_at)
    select c.run_id, 2, 'the parent was terminated', ",
    now!(),
    "
    from composer_runs c
    where c.parent_run = $1 and c.status not in (5, 6, 7, 8) and c.on_parent = 1 and changes() = 1;

    select 2, status from composer_runs where run_id = $1;

    commit"
);

/// What was due stays due; a run that was at work is due at once when it is resumed. $2: the reason.
pub(super) const PAUSE: &str = sql!(
    "begin immediate;

    update composer_runs
    set
      due_at = iif(status = 2, ",
    now!(),
    ", due_at),
      status = 0, epoch = epoch + 1, session = null, reason = $2
    where run_id = $1 and status in (1, 2, 3)
    returning 1, status;

    select 2, status from composer_runs where run_id = $1;

    commit"
);

pub(super) const RESUME: &str = sql!(
    "begin immediate;

    update composer_runs
    set
      due_at = iif(status = 4, ",
    now!(),
    ", due_at),
      status = iif(started_at is null, 1, 3), epoch = epoch + 1, session = null, reason = null,
      strikes = 0, seen = null, stuck_at = null, stuck_build = null
    where run_id = $1 and status in (0, 4)
    returning 1, status;

    select 2, status from composer_runs where run_id = $1;

    commit"
);

impl SqliteStore {
    pub(super) async fn obey(&self, run: RunId, order: &Order) -> Result<Ordered> {
        let rows = match order {
            Order::Terminate { reason } => {
                let meta = Outcome::Failed(Failure::new(FailureKind::Terminated, reason)).to_record().0;
                self.write.script(TERMINATE, args![run.as_uuid(), reason.clone(), meta]).await?
            }
            Order::Pause { reason } => self.write.script(PAUSE, args![run.as_uuid(), reason.clone()]).await?,
            Order::Resume => self.write.script(RESUME, args![run.as_uuid()]).await?,
        };
        let Some(row) = rows.first() else { return Ok(Ordered::NoRun) };
        let mut c = columns(row);
        Ok(match c.int()? {
            1 => Ordered::Done,
            _ => Ordered::Not(status(c.small()?)?),
        })
    }
}
