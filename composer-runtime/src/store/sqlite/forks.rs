//! Forks: runs that begin with what another one has done. Under the write lock all looks are final: a fork is there
//! with the whole of what it begins with, or not at all. The original is only read.

use super::{
    super::{ForkKey, Forked, NewFork, Result, StoreError},
    SqliteStore,
    rows::{args, columns, now, sql},
    runs::{FOREVER, run_named_by, status},
};

/// Makes the run $2 of the run $1, with its entries up to $3 but for $4. Its key is $5 or, with $6, that of the
/// original; without one it is $7. $8 is the run that the key would name if it were a run's own, $9 the input, if that
/// is another one, $10 the step of the link, $12 the first entry, which has the arguments if it begins a generation.
pub(super) const FORK: &str = sql!(
    "begin immediate;

    insert into composer_runs
      (run_id, workflow_id, workflow, status, epoch, created_at, started_at, due_at, deadline, build, tags, input,
       forked_from, forked_step, copied, seed)
    select
      $2, coalesce(iif($6, o.workflow_id, $5), $7), o.workflow, 1, 0, c.now, o.started_at, c.now,
      min(c.now + (o.deadline - o.created_at), $11), '', o.tags, coalesce($9, o.input),
      o.run_id, $10, $3 - $12 + 1 - json_array_length($4), coalesce(o.seed, o.run_id)
    from (select ",
    now!(),
    " as now) c
    cross join composer_runs o
    where o.run_id = $1
      and (not $6 or o.status in (5, 6, 7, 8))
      and $3 - $12 + 1 = (select count(*) from composer_journal j where j.run_id = $1 and j.seq between $12 and $3)
      and not exists (select 1 from composer_runs n where n.run_id = $2)
      and not exists (
        select 1 from composer_ids i
        where i.workflow_id = iif($6, o.workflow_id, $5) and not ($6 and i.run_id = $1)
      )
      and not exists (select 1 from composer_runs n where n.run_id = $8 and n.workflow_id = $5);

    insert into composer_journal (run_id, seq, epoch, at, kind, meta, payload)
    select $2, row_number() over (order by j.seq), 0, j.at, j.kind, j.meta,
      iif(j.kind = 12, coalesce($9, j.payload), j.payload)
    from composer_journal j
    where changes() = 1
      and j.run_id = $1 and j.seq between $12 and $3 and j.seq not in (select value from json_each($4));

    insert into composer_ids (workflow_id, run_id)
    select n.workflow_id, n.run_id
    from composer_runs n
    where n.run_id = $2 and n.workflow_id <> $7
    on conflict (workflow_id) do update set run_id = excluded.run_id where composer_ids.run_id = $1;

    select 1, status, run_id from composer_runs where run_id = $2;

    select 2, n.status, n.run_id
    from composer_runs o
    cross join composer_runs n
    where o.run_id = $1
      and n.run_id = coalesce(
        (select i.run_id from composer_ids i where i.workflow_id = iif($6, o.workflow_id, $5)),
        (select k.run_id from composer_runs k where k.run_id = $8 and k.workflow_id = $5)
      )
      and not ($6 and n.run_id = $1);

    select 3, status, run_id from composer_runs where run_id = $1;

    commit"
);

impl SqliteStore {
    pub(super) async fn fork_run(&self, fork: &NewFork) -> Result<Forked> {
        let key = match &fork.key {
            ForkKey::New(key) => Some(key),
            _ => None,
        };
        let without = serde_json::to_string(&fork.without).expect("invariant: numbers are always JSON");
        let args = args![
            fork.from.as_uuid(),
            fork.run_id.as_uuid(),
            i64::from(fork.upto),
            without,
            key.map(|key| key.as_str().to_owned()),
            fork.key == ForkKey::Inherit,
            fork.run_id.to_string(),
            key.and_then(run_named_by),
            fork.input.as_ref().map(|input| self.encode(input).as_bytes().to_vec()),
            i64::from(fork.step),
            FOREVER,
            i64::from(fork.first),
        ];
        let rows = self.write.script(FORK, args).await?;
        let Some(row) = rows.first() else { return Ok(Forked::NoRun) };
        let mut c = columns(row);
        let (kind, status, run_id) = (c.int()?, status(c.small()?)?, c.run_id()?);
        match kind {
            1 => Ok(Forked::Done),
            2 => Ok(Forked::Taken { run_id, status }),
            _ if fork.key == ForkKey::Inherit && !status.is_closed() => Ok(Forked::Open(status)),
            _ => Err(StoreError::Rejected {
                message: format!("the journal of run {} has no entry {}", fork.from, fork.upto),
            }),
        }
    }
}
