//! Who gets which run: claiming due ones, parking and giving back owned ones.

use composer_sdk::id::{RunId, Timestamp};
use sqlx::sqlite::SqliteRow;

use super::{
    super::{Claim, Claimed, Epoch, Release, Released, Result, SessionId, Status, Until},
    SqliteStore,
    rows::{Packed, args, columns, micros, names, now, sql},
    runs::status,
};

/// Takes due runs: first those of dead workers, which somebody had begun, then those that wait longest, whatever for.
///
/// * `$1` session, `$2` its workflows, `$3` its build, `$4` limit, `$5` rest of a stuck run before an offer,
///   `$6` from how many strikes on a run is set stuck, `$7` the claim's id
///
/// A stuck run that another build takes begins without strikes. A run whose workers died too often becomes stuck
/// here, by the build of the worker that died last.
pub(super) const CLAIM: &str = sql!(
    "with
    clock as materialized (select ", now!(), " as now),
    hosted as materialized (select value as workflow from json_each($2)),
    candidates (run_id, since, dead) as (
      select r.run_id, r.due_at, 0
      from hosted h
      cross join composer_runs r
      where r.rowid in (
        select d.rowid
        from composer_runs d
        where d.workflow = h.workflow and d.status in (1, 3) and d.due_at <= (select now from clock)
        order by d.due_at
        limit $4
      )

      union all
      select r.run_id, i.sent_at, 0
      from composer_inbox i
      cross join composer_runs r
      where i.shelved = 0
        and r.run_id = i.run_id and r.status = 3
        and r.workflow in (select workflow from hosted)

      union all
      select r.run_id, s.dead_at, 1
      from composer_sessions s
      cross join composer_runs r
      where s.dead_at is not null
        and r.session = s.id and r.status = 2
        and r.workflow in (select workflow from hosted)

      union all
      select r.run_id, r.stuck_at, 0
      from hosted h
      cross join composer_runs r
      where r.workflow = h.workflow and r.status = 4
        and r.stuck_build <> $3
        and r.stuck_at <= (select now from clock) - $5
    ),
    chosen (run_id, dead) as (
      select run_id, max(dead) from candidates group by run_id
      order by max(dead) desc, min(since) limit $4
    ),
    measured (run_id, dead, length) as (
      select run_id, dead,
        iif(dead, (select coalesce(max(j.seq), 0) from composer_journal j where j.run_id = chosen.run_id), null)
      from chosen
    ),
    judged as materialized (
      select r.run_id, m.dead, m.length,
        case
          when m.dead then iif(m.length = r.seen, r.strikes + 1, 1)
          when r.status = 4 then 0
          else r.strikes
        end as strikes
      from measured m
      cross join composer_runs r
      where r.run_id = m.run_id
    ),
    taken as materialized (
      select *, dead and strikes >= $6 as struck from judged
    )
    update composer_runs
    set
      status = iif(t.struck, 4, 2),
      epoch = epoch + 1,
      session = iif(t.struck, null, $1),
      taken_over = t.dead,
      strikes = t.strikes,
      seen = iif(t.dead, t.length, iif(status = 4, null, seen)),
      due_at = null,
      started_at = coalesce(started_at, (select now from clock)),
      stuck_at = iif(t.struck, (select now from clock), null),
      stuck_build = iif(
        t.struck,
        coalesce((select s.build from composer_sessions s where s.id = composer_runs.session), $3),
        null
      ),
      reason = iif(
        t.struck,
        t.strikes || ' workers in a row died while they held this run, each after journal entry ' || t.length
          || ': does the next step end the process?',
        null
      )
    from taken t
    where composer_runs.run_id = t.run_id
      and exists (select 1 from composer_sessions s where s.id = $1 and s.dead_at is null)
    returning
      run_id, workflow_id, workflow, status, epoch, input, started_at, (select now from clock), deadline,
      taken_over, strikes, parent_run is not null, coalesce(seed, run_id), copied"
);

/// Parks or gives back owned runs. Under the write lock a look at the inbox is final: who sends later finds the run
/// parked, and the row itself makes it due.
///
/// `$1` session, `$2` runs `[id, epoch, park, due]`.
pub(super) const RELEASE: &str = sql!(
    "begin immediate;

    insert into temp.composer_fence (part, run_id, epoch)
    select b.key, r.run_id, r.epoch
    from json_each($2) b
    cross join composer_runs r
    where r.run_id = unhex(b.value ->> 0)
      and r.epoch = b.value ->> 1
      and r.session = $1
      and r.status = 2;

    select f.part, b.value ->> 2 and exists (
      select 1 from composer_inbox i where i.run_id = f.run_id and i.shelved = 0
    )
    from json_each($2) b
    cross join temp.composer_fence f
    where f.part = b.key;

    with go as materialized (
      select f.run_id, b.value ->> 2 as park, b.value ->> 3 as due, ",
    now!(),
    " as now
      from json_each($2) b
      cross join temp.composer_fence f
      where f.part = b.key
        and not (b.value ->> 2 and exists (
          select 1 from composer_inbox i where i.run_id = f.run_id and i.shelved = 0
        ))
    )
    update composer_runs
    set
      status = iif(go.park, 3, 1),
      due_at = iif(go.park, min(coalesce(go.due, deadline), coalesce(deadline, go.due)), go.now),
      session = null
    from go
    where composer_runs.run_id = go.run_id;

    delete from temp.composer_fence;
    commit"
);

pub(super) const OWNED: &str =
    "select run_id, epoch from composer_runs where session = $1 and status = 2 order by run_id";

pub(super) const NEXT_DUE: &str = "
    select min((
      select min(r.due_at) from composer_runs r
      where r.workflow = h.value and r.status in (1, 3) and r.due_at is not null
    ))
    from json_each($1) h";

/// Workflows with due runs, orphans or mail that no live session hosts. Names are found by skipping along the index.
pub(super) const UNHOSTED: &str = sql!(
    "with recursive
    clock as materialized (select ", now!(), " as now),
    hosted as materialized (
      select w.value as workflow
      from composer_sessions s, json_each(s.workflows) w
      where s.dead_at is null and s.lease_until > (select now from clock)
    ),
    waiting (workflow) as (
      select min(workflow) from composer_runs where status in (1, 3)
      union all
      select (select min(r.workflow) from composer_runs r where r.status in (1, 3) and r.workflow > w.workflow)
      from waiting w
      where w.workflow is not null
    ),
    due (workflow, runs) as (
      select w.workflow, (
        select count(*) from (
          select 1 from composer_runs r
          where r.workflow = w.workflow and r.status in (1, 3) and r.due_at <= (select now from clock)
          limit 1000
        )
      )
      from waiting w
      where w.workflow is not null and w.workflow not in (select workflow from hosted)

      union all
      select r.workflow, count(distinct r.run_id)
      from composer_inbox i
      cross join composer_runs r
      where i.shelved = 0 and r.run_id = i.run_id and r.status = 3
        and (r.due_at is null or r.due_at > (select now from clock))
        and r.workflow not in (select workflow from hosted)
      group by r.workflow

      union all
      select r.workflow, count(*)
      from composer_sessions s
      cross join composer_runs r
      where s.dead_at is not null and r.session = s.id and r.status = 2
        and r.workflow not in (select workflow from hosted)
      group by r.workflow
    )
    select workflow, min(sum(runs), 1000) from due group by workflow having sum(runs) > 0 order by workflow"
);

impl SqliteStore {
    pub(super) async fn claim_runs(&self, claim: &Claim) -> Result<Vec<Claimed>> {
        let args = args![
            claim.session.0,
            names(&claim.workflows),
            claim.build.clone(),
            i64::try_from(claim.limit).unwrap_or(i64::MAX),
            micros(claim.stuck_backoff),
            i64::from(claim.max_strikes),
        ];
        let rows = self.write.script(CLAIM, args).await?;
        let mut claimed =
            rows.iter().filter_map(|row| self.claimed(row).transpose()).collect::<Result<Vec<_>>>()?;
        claimed.sort_unstable_by_key(|run| run.run_id);
        Ok(claimed)
    }

    /// A claimed run; `None` for one that became stuck instead.
    fn claimed(&self, row: &SqliteRow) -> Result<Option<Claimed>> {
        let mut c = columns(row);
        let (run_id, workflow_id, workflow) = (c.run_id()?, c.workflow_id()?, c.text()?);
        if status(c.small()?)? == Status::Stuck {
            tracing::error!(run = %run_id, workflow, "a run's workers died too often: it is stuck");
            return Ok(None);
        }
        Ok(Some(Claimed {
            run_id,
            workflow_id,
            workflow,
            epoch: Epoch(c.int()?),
            input: self.decode(c.get()?).map_err(|why| why.to_string()),
            started_at: c.at()?,
            claimed_at: c.at()?,
            deadline: c.maybe_at()?,
            taken_over: c.int()? == 1,
            strikes: c.small()?,
            is_child: c.int()? == 1,
            seed: c.run_id()?,
            copied: c.small()?,
        }))
    }

    pub(super) async fn release_runs(&self, session: SessionId, runs: &[Release]) -> Result<Vec<Released>> {
        let mut packed = Packed::default();
        for run in runs {
            packed.row(|row| {
                row.id(run.run_id).int(run.epoch.0);
                match run.until {
                    Until::Due(due) => row.int(1).int(due.map(Timestamp::as_micros)),
                    Until::Now => row.int(0).int(None),
                };
            });
        }
        let rows = self.write.script(RELEASE, args![session.0, packed.finish().0]).await?;
        let mut released = vec![Released::Fenced; runs.len()];
        for row in &rows {
            let mut c = columns(row);
            let part = c.small::<usize>()?;
            released[part] = if c.int()? == 1 { Released::Mail } else { Released::Done };
        }
        Ok(released)
    }

    pub(super) async fn owned_runs(&self, session: SessionId) -> Result<Vec<(RunId, Epoch)>> {
        let rows = self.read.script(OWNED, args![session.0]).await?;
        rows.iter()
            .map(|row| {
                let mut c = columns(row);
                Ok((c.run_id()?, Epoch(c.int()?)))
            })
            .collect()
    }

    pub(super) async fn next_due_at(&self, workflows: &[String]) -> Result<Option<Timestamp>> {
        let rows = self.read.script(NEXT_DUE, args![names(workflows)]).await?;
        super::rows::only(&rows)?.maybe_at()
    }

    pub(super) async fn unhosted_workflows(&self) -> Result<Vec<(String, u64)>> {
        let rows = self.read.script(UNHOSTED, args![]).await?;
        rows.iter()
            .map(|row| {
                let mut c = columns(row);
                Ok((c.text()?, c.small()?))
            })
            .collect()
    }
}
