//! Sessions: their leases, how one is declared dead, and the sweep that clears up after it.
//!
//! A claim and an eager start hold `for key share` on the session's row. Declaring it dead takes `for update` first
//! and compares again, so it never races with them, and a renewal in between wins. A dead session's row stays until
//! its last run was handed out; a row that is missing while runs name it comes back as a dead one, so that claims
//! need to look for one thing only.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use composer_sdk::id::{RunId, Timestamp};
use sqlx::{PgConnection, postgres::PgConnectOptions};
use uuid::Uuid;

use super::{
    PostgresStore, Role, classify,
    listen::lock_class,
    open,
    runs::{get, micros},
    sql::{Sql, query, query_scalar},
};
use crate::store::{NewSession, Renewed, Result, SessionConn, SessionId, Suspects, Swept};

pub(super) const OPEN: &str = "\
with t as materialized (select {now} as at)
insert into {s}.sessions (name, build, workflows, lease, lease_until, started_at)
select $1, $2, $3, $4, t.at + $4, t.at from t
returning id, started_at";

/// Renews by compare-and-set. The lease counts from before a wait for the row's lock, which is the safe side.
pub(super) const RENEW: &str = "\
update {s}.sessions
   set lease_until = {now} + lease
 where id = $1 and dead_at is null
returning lease_until - lease as now";

/// Declares sessions dead whose lease is over. Who locks the row this moment is alive enough for this pass.
pub(super) const EXPIRE: &str = "\
with x as materialized (
    select id from {s}.sessions
     where dead_at is null and lease_until < {now}
     order by id
       for update skip locked
)
update {s}.sessions s
   set dead_at = {now}
  from x
 where s.id = x.id
returning s.id";

/// How live sessions look from outside: whether the lock that only a living process holds is there ($1: our class),
/// and whether this server has been up, on this timeline, long enough to know.
pub(super) const LOOKS: &str = "\
select s.id, s.lock_holder,
       exists (select from pg_catalog.pg_locks l
                where l.locktype = 'advisory' and l.objsubid = 2 and l.granted
                  and l.database = (select oid from pg_catalog.pg_database where datname = current_database())
                  and l.classid::bigint = $1 and l.objid::bigint = s.id % 2147483648) as held,
       clock_timestamp() - pg_postmaster_start_time() > s.lease * interval '1 microsecond'
           and not pg_is_in_recovery()
           and split_part(s.lock_holder, ' ', 1) = left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) as knows
  from {s}.sessions s
 where s.dead_at is null and s.lock_holder is not null";

/// Declares one session dead whose lock ($2: class, $3: holder) was missing twice, if it still is.
pub(super) const DECLARE_GONE: &str = "\
with x as materialized (
    select id from {s}.sessions
     where id = $1 and dead_at is null and lock_holder = $3
       for update skip locked
)
update {s}.sessions s
   set dead_at = {now}
  from x
 where s.id = x.id
   and not exists (select from pg_catalog.pg_locks l
                    where l.locktype = 'advisory' and l.objsubid = 2 and l.granted
                      and l.database = (select oid from pg_catalog.pg_database where datname = current_database())
                      and l.classid::bigint = $2 and l.objid::bigint = s.id % 2147483648)
returning s.id";

/// Brings back, as dead, the rows of sessions that running runs name but that are gone, found by jumping from
/// session to session in the index.
pub(super) const BURY: &str = "\
with recursive o(session) as (
    (select r.session from {s}.runs r where r.status = 2 order by r.session limit 1)
    union all
    select (select r.session from {s}.runs r where r.status = 2 and r.session > o.session order by r.session limit 1)
      from o where o.session is not null
)
insert into {s}.sessions (id, name, build, workflows, lease, lease_until, started_at, dead_at)
overriding system value
select o.session, 'unknown', '', '{}', 0, 0, 0, {now}
  from o
 where o.session is not null and not exists (select from {s}.sessions s where s.id = o.session)
on conflict do nothing";

/// Removes what is left of dead sessions that own nothing any more.
pub(super) const FORGET: &str = "\
delete from {s}.sessions s
 where s.dead_at is not null
   and not exists (select from {s}.runs r where r.session = s.id and r.status = 2)";

/// Takes inbox rows of closed runs out of the claims' way, a thousand rows a pass, from a random place when there are
/// more. Under the runs' locks, so that no sender is in flight.
pub(super) const SHELVE: &str = "\
with place as materialized (
    select case when b.high - b.low > 1000 then b.low + (random() * (b.high - b.low - 1000))::bigint else b.low end as low
      from (select (select id from {s}.inbox where not shelved order by id limit 1) as low,
                   (select id from {s}.inbox where not shelved order by id desc limit 1) as high) b
), i as materialized (
    select distinct i.run_id
      from (select run_id from {s}.inbox
             where not shelved and id >= (select low from place) order by id limit 1000) i
), c as materialized (
    select r.run_id
      from (select * from i order by run_id offset 0) i
     cross join lateral (
         select r.run_id from {s}.runs r where r.run_id = i.run_id and r.status >= 5 for update skip locked) r
)
update {s}.inbox m
   set shelved = true
  from c
 where m.run_id = c.run_id and m.run_id = any(array(select run_id from c)) and not m.shelved";

/// Requests to cancel that reached a run just before it became stuck.
pub(super) const CANCELS_OF_STUCK: &str = "\
select distinct on (i.run_id) i.run_id, i.name
  from (select run_id, id, kind, name from {s}.inbox where not shelved order by id limit 1000) i
 cross join lateral (select from {s}.runs r where r.run_id = i.run_id and r.status + 0 = 4 offset 0) r
 where i.kind = 2
 order by i.run_id, i.id";

/// Runs of dead sessions whose row somebody locks (of the first 1,000 of each session).
pub(super) const BLOCKED: &str = "\
select coalesce(sum((select count(*)
                       from (select from {s}.runs r where r.session = s.id and r.status = 2 limit 1000) x)
                  - (select count(*)
                       from (select from {s}.runs r where r.session = s.id and r.status = 2
                              limit 1000 for update skip locked) x)), 0)::bigint
  from {s}.sessions s
 where s.dead_at is not null";

/// Ends a session: it is dead from now on, and its row goes at once if it owns nothing.
pub(super) const CLOSE: &str = "\
with x as materialized (
    select id from {s}.sessions where id = $1 and dead_at is null for update
)
update {s}.sessions s set dead_at = {now} from x where s.id = x.id";

/// Between two looks at a session that seems dead: as long as its owner has to take its lock again.
const SECOND_LOOK: Duration = Duration::from_millis(500);

/// What renews one session's lease: on its own connection, a fresh one after an error or a dropped call.
struct PostgresSession {
    options: PgConnectOptions,
    conn: Option<PgConnection>,
    id: SessionId,
    renew: Sql,
}

#[async_trait]
impl SessionConn for PostgresSession {
    async fn renew(&mut self) -> Result<Renewed> {
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => open(&self.options, Role::Session).await?,
        };
        let now: Option<i64> =
            query_scalar(&self.renew).bind(self.id.0).fetch_optional(&mut conn).await.map_err(classify)?;
        self.conn = Some(conn);
        Ok(match now {
            Some(now) => Renewed::Alive { now: Timestamp::from_micros(now) },
            None => Renewed::Dead,
        })
    }
}

impl PostgresStore {
    pub(super) async fn begin_session(
        &self,
        session: &NewSession,
    ) -> Result<(SessionId, Timestamp, impl SessionConn + 'static)> {
        let mut conn = self.open(Role::Session).await?;
        let row = query(&self.sql.open_session)
            .bind(session.name.clone())
            .bind(session.build.clone())
            .bind(session.workflows.clone())
            .bind(micros(session.lease))
            .fetch_one(&mut conn)
            .await
            .map_err(classify)?;
        let id = SessionId(get(&row, "id")?);
        let at = Timestamp::from_micros(get(&row, "started_at")?);
        let renew = self.sql.renew.clone();
        Ok((id, at, PostgresSession { options: self.options.clone(), conn: Some(conn), id, renew }))
    }

    pub(super) async fn end_session(&self, session: SessionId) -> Result<()> {
        let mut conn = self.acquire().await?;
        query(&self.sql.close_session).bind(session.0).execute(&mut *conn).await.map_err(classify)?;
        query(&self.sql.forget).execute(&mut *conn).await.map_err(classify)?;
        Ok(())
    }

    pub(super) async fn sweep_once(&self, seen: &mut Suspects) -> Result<Swept> {
        self.make_months_sometimes().await;
        let mut conn = self.acquire().await?;
        let expired = rows(&mut conn, &self.sql.expire).await?;
        let gone = self.declare_gone(&mut conn, seen).await?;
        rows(&mut conn, &self.sql.bury).await?;
        let removed = rows(&mut conn, &self.sql.forget).await?;
        let shelved = rows(&mut conn, &self.sql.shelve).await?;
        let blocked: i64 = query_scalar(&self.sql.blocked).fetch_one(&mut *conn).await.map_err(classify)?;
        let cancels = query(&self.sql.cancels_of_stuck).fetch_all(&mut *conn).await.map_err(classify)?;
        drop(conn);
        for row in &cancels {
            self.cancel_idle(RunId::from(get::<Uuid>(row, "run_id")?), get(row, "name")?).await?;
        }
        Ok(Swept { expired, gone, removed, shelved, blocked: blocked.unsigned_abs() })
    }

    /// The early hint: a lock that is missing twice, while its holder's fields did not change.
    async fn declare_gone(&self, conn: &mut PgConnection, seen: &mut Suspects) -> Result<u64> {
        let class = lock_class(&self.schema);
        let looks =
            query(&self.sql.looks).bind(i64::from(class)).fetch_all(&mut *conn).await.map_err(classify)?;
        let mut suspects = std::collections::HashMap::new();
        let mut gone = 0;
        for row in &looks {
            let id = SessionId(get(row, "id")?);
            let holder: String = get(row, "lock_holder")?;
            if get::<bool>(row, "held")? || !get::<Option<bool>>(row, "knows")?.unwrap_or(false) {
                continue;
            }
            let first = match seen.0.get(&id) {
                Some((then, Some(first))) if *then == holder => *first,
                _ => Instant::now(),
            };
            if first.elapsed() >= SECOND_LOOK {
                let declared = query(&self.sql.declare_gone)
                    .bind(id.0)
                    .bind(i64::from(class))
                    .bind(holder)
                    .execute(&mut *conn)
                    .await
                    .map_err(classify)?;
                gone += declared.rows_affected();
            } else {
                suspects.insert(id, (holder, Some(first)));
            }
        }
        seen.0 = suspects;
        Ok(gone)
    }
}

async fn rows(conn: &mut PgConnection, statement: &Sql) -> Result<u64> {
    Ok(query(statement).execute(conn).await.map_err(classify)?.rows_affected())
}
