//! Handing runs out and taking them back: claim, load, park, give back, and what is due.
//!
//! A claim locks what it takes with `skip locked` and hands out only what it locked. What it may take: runs of dead
//! sessions, parked runs with mail, pending and parked runs that are due, stuck runs that another build failed.
//! Parking is two statements, because a message that was on its way during the first is only visible to the second.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
    time::{Duration, Instant},
};

use composer_sdk::{
    id::{RunId, Timestamp},
    journal::Entry,
};
use sqlx::{Connection, PgConnection, postgres::PgRow};
use uuid::Uuid;

use super::{
    PostgresStore, classify, epoch_of, read,
    runs::{get, micros, uuids, workflow_id},
    sql::{query, query_scalar},
};
use crate::store::{Claim, Claimed, Release, Released, Result, SessionId, Status, Until};

/// Takes up to $2 runs of the workflows $3 for the session $1 of the build $4.
///
/// `me` fences the claim: declaring the session dead waits for it. `d` locks, lazily, arm by arm, until there are
/// enough; it is materialized, so that nothing is locked twice or for nothing. `e` and `k` count the strikes of runs
/// whose owner died: 1 after progress, one more without. $6 to $9 say where the scans begin ([`Hints`]).
///
/// The first and the last id bound the update to the months that it touches.
pub(super) const CLAIM: &str = "\
with me as materialized (
    select id from {s}.sessions where id = $1 and dead_at is null for key share
), t as materialized (
    select {now} as at
), mail as materialized (
    (select id, run_id, true as old from {s}.inbox where not shelved and id > $7 order by id limit 256)
     union all
    (select id, run_id, false from {s}.inbox where not shelved and id > $8 order by id desc limit 256)
), d as materialized (
    select c.*
      from me cross join t cross join lateral (
          select x.*, true as dead, false as stuck
            from {s}.sessions s
           cross join unnest($3::text[]) w(name)
           cross join lateral (
               select r.run_id, r.strikes, r.seen, null::bigint as due from {s}.runs r
                where r.session = s.id and r.workflow = w.name and r.status = 2
                limit $2 for update skip locked) x
           where s.dead_at is not null
           union all
          select x.*, false, false
            from (select distinct run_id from mail) i
           cross join lateral (
               select r.run_id, r.strikes, r.seen, null::bigint from {s}.runs r
                where r.run_id = i.run_id and r.status = 3 and r.workflow = any($3)
                  for update skip locked) x
           union all
          select x.*, false, false
            from unnest($3::text[], $6::bigint[]) w(name, since)
           cross join lateral (
               select r.run_id, r.strikes, r.seen, r.due_at from {s}.runs r
                where r.workflow = w.name and r.status in (1, 3) and r.due_at is not null
                  and r.due_at >= w.since and r.due_at <= t.at
                order by r.due_at limit $2 for update skip locked) x
           union all
          select x.*, false, true
            from unnest($3::text[]) w(name)
           cross join lateral (
               with recursive b(build) as (
                   (select r.stuck_build from {s}.runs r
                     where r.workflow = w.name and r.status = 4
                     order by r.stuck_build limit 1)
                   union all
                   select (select r.stuck_build from {s}.runs r
                            where r.workflow = w.name and r.status = 4 and r.stuck_build > b.build
                            order by r.stuck_build limit 1)
                     from b where b.build is not null
               )
               select build from b where build <> $4) b
           cross join lateral (
               select r.run_id, r.strikes, r.seen, null::bigint from {s}.runs r
                where r.workflow = w.name and r.status = 4 and r.stuck_build = b.build
                  and r.stuck_at <= t.at - $5::bigint
                order by r.stuck_at limit $2 for update skip locked) x
      ) c
     limit $2
), e as materialized (
    select distinct on (d.run_id) d.*,
           case when d.dead
                then coalesce((select max(j.seq) from {s}.journal j where j.run_id = d.run_id), 0) end as length
      from d
     order by d.run_id, d.dead desc
), k as materialized (
    select e.run_id, e.dead, e.due, e.length,
           case when e.dead and e.seen = e.length then e.strikes + 1
                when e.dead then 1
                when e.stuck then 0
                else e.strikes end as strikes,
           case when e.dead then e.length when not e.stuck then e.seen end as seen
      from e
), u as (
    update {s}.runs r
       set status = case when k.dead and k.strikes >= $9 then 4 else 2 end,
           epoch = r.epoch + 1,
           session = $1,
           started_at = coalesce(r.started_at, t.at),
           due_at = null,
           strikes = k.strikes,
           seen = k.seen,
           stuck_at = case when k.dead and k.strikes >= $9 then t.at end,
           stuck_build = case when k.dead and k.strikes >= $9 then $4 end,
           reason = case when k.dead and k.strikes >= $9
                         then 'a worker died ' || k.strikes || ' times while it held this run, without progress in '
                              || 'between; the journal has ' || k.length || ' entries, so the step after them is '
                              || 'suspect. Fix it and deploy a new build, or cancel the run' end
      from k cross join t
     where r.run_id = k.run_id and r.run_id = any(array(select run_id from k))
       and r.run_id >= (select run_id from k order by run_id limit 1)
       and r.run_id <= (select run_id from k order by run_id desc limit 1)
    returning r.run_id, r.workflow_id, r.workflow, r.status, r.epoch, r.input, r.started_at, t.at as claimed_at,
              r.deadline, k.dead as taken_over, r.strikes, r.parent_run is not null as is_child,
              coalesce(r.seed, r.run_id) as seed, r.copied, k.due
)
select u.*, m.first, m.last, m.rows, m.newest
  from (select min(id) filter (where old) as first, max(id) filter (where old) as last,
               count(*) filter (where old) as rows, max(id) as newest
          from mail) m
  left join u on true";

/// The journals of runs, from the begin of their generation on.
pub(super) const LOAD: &str = "\
select r.run_id, j.seq, j.at, j.kind, j.meta, j.payload
  from {s}.runs r
 cross join lateral (
     select seq, at, kind, meta, payload from {s}.journal j where j.run_id = r.run_id and j.seq >= r.base offset 0) j
 where r.run_id = any($1)
 order by r.run_id, j.seq";

/// First half of parking: locks what the session owns. A sender in flight makes it skip the run.
pub(super) const LOCK_FOR_PARK: &str = "\
select r.run_id
  from (select * from unnest($2::uuid[], $3::bigint[]) b(run_id, epoch) order by run_id offset 0) b
 cross join lateral (
     select r.run_id from {s}.runs r
      where r.run_id = b.run_id and r.epoch = b.epoch and r.session = $1 and r.status + 0 = 2
        for update skip locked) r";

/// Second half, on the locked ones, with a new snapshot: parks those without mail.
pub(super) const PARK: &str = "\
update {s}.runs r
   set status = 3, session = null, due_at = least(b.wake_at, r.deadline)
  from unnest($1::uuid[], $2::bigint[]) b(run_id, wake_at)
 where r.run_id = b.run_id and r.run_id = any($1)
   and not exists (select from {s}.inbox i where i.run_id = r.run_id)
returning r.run_id";

/// Gives runs back: due at once, for anybody.
pub(super) const GIVE_BACK: &str = "\
with f as materialized (
    select r.run_id
      from (select * from unnest($2::uuid[], $3::bigint[]) b(run_id, epoch) order by run_id offset 0) b
     cross join lateral (
         select r.run_id from {s}.runs r
          where r.run_id = b.run_id and r.epoch = b.epoch and r.session = $1 and r.status + 0 = 2
            for no key update skip locked) r
)
update {s}.runs r
   set status = 1, session = null, due_at = {now}
  from f
 where r.run_id = f.run_id and r.run_id = any($2)
returning r.run_id";

/// Of these, those that the session still owns.
pub(super) const STILL_MINE: &str = "\
select r.run_id
  from unnest($2::uuid[], $3::bigint[]) b(run_id, epoch)
  join {s}.runs r on r.run_id = b.run_id and r.run_id = any($2)
 where r.epoch = b.epoch and r.session = $1 and r.status + 0 = 2";

pub(super) const OWNED: &str =
    "select run_id, epoch from {s}.runs where session = $1 and status = 2 order by run_id";

/// The first due instant, from where the claims' scans begin, too.
pub(super) const NEXT_DUE: &str = "\
select min(x.due_at)
  from unnest($1::text[], $2::bigint[]) w(name, since)
 cross join lateral (
     select r.due_at from {s}.runs r
      where r.workflow = w.name and r.status in (1, 3) and r.due_at is not null and r.due_at >= w.since
      order by r.due_at limit 1) x";

/// Workflows with due runs that no live session hosts, found by jumping from name to name in the index.
pub(super) const UNHOSTED: &str = "\
with recursive w(name) as (
    (select r.workflow from {s}.runs r
      where r.status in (1, 3) and r.due_at is not null order by r.workflow limit 1)
    union all
    select (select r.workflow from {s}.runs r
             where r.status in (1, 3) and r.due_at is not null and r.workflow > w.name order by r.workflow limit 1)
      from w where w.name is not null
), t as materialized (
    select {now} as at
)
select w.name, n.due
  from w cross join t
 cross join lateral (
     select count(*) as due
       from (select from {s}.runs r
              where r.workflow = w.name and r.status in (1, 3) and r.due_at is not null and r.due_at <= t.at
              limit 1000) x) n
 where w.name is not null and n.due > 0
   and not exists (select from {s}.sessions s
                    where s.dead_at is null and s.lease_until > t.at and w.name = any(s.workflows))
 order by w.name";

/// Where a claim's scans begin.
///
/// Rows that were claimed or consumed long ago, but that somebody's snapshot still keeps, lie at the head of an index
/// and cost each scan its time; so do inbox rows that nobody here can take. Scans therefore begin behind what was
/// seen last. That is only a hint: rows can be committed late, so scans from the very beginning go on, as often as
/// they take a twentieth of the time: always, where they are cheap.
#[derive(Debug, Default)]
pub(super) struct Hints(Mutex<Seen>);

#[derive(Debug)]
struct Seen {
    /// For each workflow, when the last claimed run was due.
    due: HashMap<String, i64>,
    /// Where the round through the inbox goes on.
    round: i64,
    /// The newest inbox row.
    newest: i64,
    /// When the last scan from the beginning ended, and how long it took.
    full: Option<(Instant, Duration)>,
}

impl Default for Seen {
    fn default() -> Self {
        Self { due: HashMap::new(), round: i64::MIN, newest: i64::MIN, full: None }
    }
}

/// One claim's scans.
#[derive(Debug, PartialEq)]
struct Scan {
    full: bool,
    since: Vec<i64>,
    mail_after: i64,
    newest_after: i64,
}

/// What a claim saw of the inbox.
struct MailSeen {
    first: Option<i64>,
    last: Option<i64>,
    rows: i64,
    newest: Option<i64>,
}

/// A scan that takes no longer needs no hint.
const CHEAP: Duration = Duration::from_millis(3);

/// Runs and messages that commit out of order by less than this are found at once.
const DUE_MARGIN: i64 = 1_000_000;
const MAIL_MARGIN: i64 = 1_000;

/// As many rows of the inbox as one claim looks at in order.
const MAIL_WINDOW: i64 = 256;

impl Hints {
    fn begin(&self, workflows: &[String], now: Instant) -> Scan {
        let seen = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let full = seen.full.is_none_or(|(at, took)| took < CHEAP || now.duration_since(at) >= took * 20);
        let since = |name: &String| match seen.due.get(name) {
            Some(due) if !full => due.saturating_sub(DUE_MARGIN),
            _ => i64::MIN,
        };
        Scan {
            full,
            since: workflows.iter().map(since).collect(),
            mail_after: seen.round,
            newest_after: seen.newest.saturating_sub(MAIL_MARGIN),
        }
    }

    fn end(&self, scan: &Scan, now: Instant, took: Duration, due: &[(String, i64)], mail: &MailSeen) {
        let mut seen = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if scan.full {
            seen.full = Some((now, took));
        }
        for (workflow, at) in due {
            let last = seen.due.entry(workflow.clone()).or_insert(*at);
            *last = (*last).max(*at);
        }
        seen.newest = seen.newest.max(mail.newest.unwrap_or(i64::MIN));
        seen.round = match (mail.rows >= MAIL_WINDOW, mail.first) {
            (true, _) => mail.last.unwrap_or(i64::MIN),
            (false, Some(first)) if took >= CHEAP && !scan.full => first.saturating_sub(MAIL_MARGIN),
            _ => i64::MIN,
        };
    }
}

impl PostgresStore {
    pub(super) async fn claim_runs(&self, claim: &Claim) -> Result<Vec<Claimed>> {
        // Any workflow may be first: none can starve the others by always being due.
        let mut workflows = claim.workflows.clone();
        fastrand::shuffle(&mut workflows);
        let mut conn = self.acquire().await?;
        let began = Instant::now();
        let scan = self.hints.begin(&workflows, began);
        let rows = query(&self.sql.claim)
            .bind(claim.session.0)
            .bind(i64::try_from(claim.limit).unwrap_or(i64::MAX))
            .bind(workflows)
            .bind(claim.build.clone())
            .bind(micros(claim.stuck_backoff))
            .bind(scan.since.clone())
            .bind(scan.mail_after)
            .bind(scan.newest_after)
            .bind(i32::try_from(claim.max_strikes).unwrap_or(i32::MAX))
            .fetch_all(&mut *conn)
            .await
            .map_err(classify)?;
        drop(conn);
        let mut due = Vec::new();
        let mut claimed = Vec::with_capacity(rows.len());
        for row in &rows {
            if let Some(at) = get::<Option<i64>>(row, "due")? {
                due.push((get(row, "workflow")?, at));
            }
            // Those that became stuck are nobody's.
            if get::<Option<i16>>(row, "status")? == Some(Status::Running as i16) {
                claimed.push(self.read_claimed(row)?);
            }
        }
        if let Some(row) = rows.first() {
            let mail = MailSeen {
                first: get(row, "first")?,
                last: get(row, "last")?,
                rows: get(row, "rows")?,
                newest: get(row, "newest")?,
            };
            self.hints.end(&scan, Instant::now(), began.elapsed(), &due, &mail);
        }
        Ok(claimed)
    }

    fn read_claimed(&self, row: &PgRow) -> Result<Claimed> {
        let run_id = RunId::from(get::<Uuid>(row, "run_id")?);
        Ok(Claimed {
            run_id,
            workflow_id: workflow_id(get(row, "workflow_id")?, run_id)?,
            workflow: get(row, "workflow")?,
            epoch: epoch_of(row, "epoch")?,
            input: self.decode(get(row, "input")?, &run_id).map_err(|why| why.to_string()),
            started_at: Timestamp::from_micros(get(row, "started_at")?),
            claimed_at: Timestamp::from_micros(get(row, "claimed_at")?),
            deadline: get::<Option<i64>>(row, "deadline")?.map(Timestamp::from_micros),
            taken_over: get(row, "taken_over")?,
            strikes: get::<i32>(row, "strikes")?.try_into().unwrap_or(0),
            is_child: get(row, "is_child")?,
            seed: RunId::from(get::<Uuid>(row, "seed")?),
            copied: get::<i32>(row, "copied")?.unsigned_abs(),
        })
    }

    pub(super) async fn load_journals(&self, runs: &[RunId]) -> Result<Vec<(RunId, Vec<Entry>)>> {
        let rows = read!(self, |conn| query(&self.sql.load).bind(uuids(runs)).fetch_all(&mut *conn))?;
        let mut journals: HashMap<RunId, Vec<Entry>> = HashMap::with_capacity(runs.len());
        for row in &rows {
            let run = RunId::from(get::<Uuid>(row, "run_id")?);
            journals.entry(run).or_default().push(self.read_entry(row, run)?);
        }
        Ok(runs.iter().map(|run| (*run, journals.remove(run).unwrap_or_default())).collect())
    }

    pub(super) async fn release_runs(&self, session: SessionId, runs: &[Release]) -> Result<Vec<Released>> {
        if runs.is_empty() {
            return Ok(Vec::new());
        }
        let mut conn = self.acquire().await?;
        let mut tx = conn.begin().await.map_err(classify)?;
        let mut done = self.park(&mut tx, session, runs).await?;
        done.extend(self.give_back(&mut tx, session, runs).await?);
        let left: Vec<&Release> = runs.iter().filter(|release| !done.contains(&release.run_id)).collect();
        let mine: HashSet<RunId> = match left.is_empty() {
            true => HashSet::new(),
            false => {
                let (ids, epochs) = columns(&left);
                ids_of(
                    query_scalar(&self.sql.still_mine)
                        .bind(session.0)
                        .bind(ids)
                        .bind(epochs)
                        .fetch_all(&mut *tx)
                        .await
                        .map_err(classify)?,
                )
            }
        };
        tx.commit().await.map_err(classify)?;
        Ok(runs
            .iter()
            .map(|release| match release.run_id {
                run if done.contains(&run) => Released::Done,
                run if mine.contains(&run) => Released::Mail,
                _ => Released::Fenced,
            })
            .collect())
    }

    async fn park(
        &self,
        tx: &mut PgConnection,
        session: SessionId,
        runs: &[Release],
    ) -> Result<HashSet<RunId>> {
        let parks: Vec<&Release> =
            runs.iter().filter(|release| matches!(release.until, Until::Due(_))).collect();
        if parks.is_empty() {
            return Ok(HashSet::new());
        }
        let (ids, epochs) = columns(&parks);
        let locked = ids_of(
            query_scalar(&self.sql.lock_for_park)
                .bind(session.0)
                .bind(ids)
                .bind(epochs)
                .fetch_all(&mut *tx)
                .await
                .map_err(classify)?,
        );
        let parks: Vec<&Release> =
            parks.into_iter().filter(|release| locked.contains(&release.run_id)).collect();
        if parks.is_empty() {
            return Ok(HashSet::new());
        }
        let wake_at: Vec<Option<i64>> = parks
            .iter()
            .map(|release| match release.until {
                Until::Due(at) => at.map(Timestamp::as_micros),
                Until::Now => None,
            })
            .collect();
        let parked = query_scalar(&self.sql.park)
            .bind(columns(&parks).0)
            .bind(wake_at)
            .fetch_all(&mut *tx)
            .await
            .map_err(classify)?;
        Ok(ids_of(parked))
    }

    async fn give_back(
        &self,
        tx: &mut PgConnection,
        session: SessionId,
        runs: &[Release],
    ) -> Result<HashSet<RunId>> {
        let backs: Vec<&Release> =
            runs.iter().filter(|release| matches!(release.until, Until::Now)).collect();
        if backs.is_empty() {
            return Ok(HashSet::new());
        }
        let (ids, epochs) = columns(&backs);
        let given = query_scalar(&self.sql.give_back)
            .bind(session.0)
            .bind(ids)
            .bind(epochs)
            .fetch_all(&mut *tx)
            .await
            .map_err(classify)?;
        Ok(ids_of(given))
    }

    pub(super) async fn next_due_of(&self, workflows: &[String]) -> Result<Option<Timestamp>> {
        let since = self.hints.begin(workflows, Instant::now()).since;
        let due: Option<i64> = read!(self, |conn| query_scalar(&self.sql.next_due)
            .bind(workflows.to_vec())
            .bind(since.clone())
            .fetch_one(&mut *conn))?;
        Ok(due.map(Timestamp::from_micros))
    }

    pub(super) async fn unhosted_workflows(&self) -> Result<Vec<(String, u64)>> {
        let rows = read!(self, |conn| query(&self.sql.unhosted).fetch_all(&mut *conn))?;
        rows.iter().map(|row| Ok((get(row, "name")?, get::<i64>(row, "due")?.unsigned_abs()))).collect()
    }
}

fn columns(releases: &[&Release]) -> (Vec<Uuid>, Vec<i64>) {
    releases.iter().map(|release| (release.run_id.as_uuid(), release.epoch.0)).unzip()
}

fn ids_of(rows: Vec<Uuid>) -> HashSet<RunId> {
    rows.into_iter().map(RunId::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        vec!["a".into(), "b".into()]
    }

    fn no_mail() -> MailSeen {
        MailSeen { first: None, last: None, rows: 0, newest: None }
    }

    #[test]
    fn cheap_scans_always_begin_at_the_beginning() {
        let (hints, now) = (Hints::default(), Instant::now());
        let scan = hints.begin(&names(), now);
        hints.end(&scan, now, Duration::from_millis(1), &[("a".into(), 5_000_000)], &no_mail());
        assert_eq!(hints.begin(&names(), now).since, [i64::MIN; 2]);
    }

    #[test]
    fn dear_scans_begin_behind_what_was_claimed_until_a_full_one_is_due() {
        let (hints, now) = (Hints::default(), Instant::now());
        let scan = hints.begin(&names(), now);
        assert!(scan.full);
        hints.end(&scan, now, Duration::from_millis(10), &[("a".into(), 5_000_000)], &no_mail());
        assert_eq!(hints.begin(&names(), now).since, [4_000_000, i64::MIN]);
        assert_eq!(hints.begin(&names(), now + Duration::from_millis(200)).since, [i64::MIN; 2]);
    }

    #[test]
    fn the_round_through_a_full_inbox_goes_on_and_begins_again() {
        let (hints, now) = (Hints::default(), Instant::now());
        let scan = hints.begin(&names(), now);
        let window = MailSeen { first: Some(1), last: Some(900), rows: MAIL_WINDOW, newest: Some(5_000) };
        hints.end(&scan, now, Duration::from_millis(1), &[], &window);
        let scan = hints.begin(&names(), now);
        assert_eq!((scan.mail_after, scan.newest_after), (900, 4_000));
        hints.end(&scan, now, Duration::from_millis(1), &[], &MailSeen { rows: 3, ..window });
        assert_eq!(hints.begin(&names(), now).mail_after, i64::MIN);
    }
}
