//! Sessions: who lives, by lease and by lock file, and what is left of the dead.
//!
//! Declaring dead is a compare-and-set on the session's row, under the same write lock as every renewal, claim and
//! start: a renewal that came before wins, whatever comes later finds the session dead. A dead session's row stays
//! until its last run was handed out.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use composer_sdk::id::Timestamp;
use sqlx::sqlite::SqliteRow;

use super::{
    super::{ListenConn, NewSession, Renewed, Result, SessionConn, SessionId, Suspects, Swept},
    SqliteStore,
    lane::Lane,
    live::Held,
    rows::{args, columns, micros, names, now, only, sql},
};

/// A session is gone early when two looks at least this far apart find its lock free: its owner may be about to take
/// it again.
const SECOND_LOOK: Duration = Duration::from_millis(250);

/// Rows that one pass handles at most.
const BOUND: i64 = 1000;

const OPEN: &str = sql!(
    "insert into composer_sessions (name, build, workflows, lease, lease_until, started_at)
    select $1, $2, $3, $4, c.now + $4, c.now from (select ",
    now!(),
    " as now) c
    returning id, started_at"
);

const RENEW: &str = sql!(
    "update composer_sessions set lease_until = ",
    now!(),
    " + lease
    where id = $1 and dead_at is null
    returning lease_until - lease"
);

const IS_LIVE: &str = "select 1 from composer_sessions where id = $1 and dead_at is null";

const LIVE: &str = "select id from composer_sessions where dead_at is null order by id";

const DECLARE_DEAD: &str = sql!(
    "update composer_sessions set dead_at = ",
    now!(),
    " where id = $1 and dead_at is null returning id"
);

/// One pass. A run whose session has no row at all, which nothing here brings about, gets a dead one as well, so that
/// it is handed out like the others.
pub(super) const SWEEP: &str = sql!(
    "begin immediate;

    update composer_sessions set dead_at = ",
    now!(),
    "
    where dead_at is null and lease_until < ",
    now!(),
    "
    returning 1, id;

    insert into composer_sessions (id, name, build, workflows, lease, lease_until, started_at, dead_at)
    select o.session, 'unknown', 'unknown', '[]', 0, 0, 0, ",
    now!(),
    "
    from (select distinct r.session from composer_runs r where r.status = 2) o
    where o.session not in (select id from composer_sessions);

    update composer_inbox set shelved = 1
    where id in (
      select i.id
      from composer_inbox i
      cross join composer_runs r
      where i.shelved = 0 and r.run_id = i.run_id and r.status in (5, 6, 7, 8)
      limit $1
    )
    returning 2, id;

    delete from composer_sessions
    where dead_at is not null
      and not exists (select 1 from composer_runs r where r.session = composer_sessions.id and r.status = 2)
    returning 3, id;

    commit"
);

/// Ends a session; whatever it still owns is handed out as of a dead one.
pub(super) const CLOSE: &str = sql!(
    "begin immediate;
    update composer_sessions set dead_at = ",
    now!(),
    " where id = $1 and dead_at is null returning id;
    delete from composer_sessions
    where id = $1
      and not exists (select 1 from composer_runs r where r.session = $1 and r.status = 2);
    commit"
);

/// The session's renewal, through the lane for writes.
struct Renewal {
    write: Arc<Lane>,
    session: SessionId,
}

#[async_trait]
impl SessionConn for Renewal {
    async fn renew(&mut self) -> Result<Renewed> {
        let rows = self.write.script(RENEW, args![self.session.0]).await?;
        match rows.first() {
            Some(row) => Ok(Renewed::Alive { now: columns(row).at()? }),
            None => Ok(Renewed::Dead),
        }
    }
}

impl SqliteStore {
    pub(super) async fn begin_session(
        &self,
        session: &NewSession,
    ) -> Result<(SessionId, Timestamp, Box<dyn SessionConn>)> {
        let args = args![
            session.name.clone(),
            session.build.clone(),
            names(&session.workflows),
            micros(session.lease),
        ];
        let rows = self.write.script(OPEN, args).await?;
        let mut c = only(&rows)?;
        let (session, at) = (SessionId(c.int()?), c.at()?);
        Ok((session, at, Box::new(Renewal { write: self.write.clone(), session })))
    }

    pub(super) async fn begin_listening(&self, session: Option<SessionId>) -> Result<Box<dyn ListenConn>> {
        let held = match session {
            Some(session) if self.is_live(session).await? => self.live.hold(session)?,
            _ => Held::nothing(),
        };
        Ok(Box::new(self.live.listen(held)))
    }

    async fn is_live(&self, session: SessionId) -> Result<bool> {
        Ok(!self.read.script(IS_LIVE, args![session.0]).await?.is_empty())
    }

    pub(super) async fn sweep_sessions(&self, seen: &mut Suspects) -> Result<Swept> {
        self.cancel_stuck_runs().await?;
        let mut swept = Swept { gone: self.bury_the_gone(seen).await?, ..Swept::default() };
        for row in &self.write.script(SWEEP, args![BOUND]).await? {
            let mut c = columns(row);
            match c.int()? {
                1 => {
                    swept.expired += 1;
                    self.live.forget(SessionId(c.int()?));
                }
                2 => swept.shelved += 1,
                _ => {
                    swept.removed += 1;
                    self.live.forget(SessionId(c.int()?));
                }
            }
        }
        Ok(swept)
    }

    /// Declares dead whose lock file was free at two looks.
    async fn bury_the_gone(&self, seen: &mut Suspects) -> Result<u64> {
        let rows = self.read.script(LIVE, args![]).await?;
        let live = rows.iter().map(session_id).collect::<Result<Vec<_>>>()?;
        seen.0.retain(|session, _| live.contains(session));
        let mut gone = 0;
        for session in live {
            if !self.live.is_free(session) {
                seen.0.remove(&session);
                continue;
            }
            let (_, first_look) = seen.0.entry(session).or_default();
            if first_look.get_or_insert_with(Instant::now).elapsed() < SECOND_LOOK {
                continue;
            }
            seen.0.remove(&session);
            if !self.write.script(DECLARE_DEAD, args![session.0]).await?.is_empty() {
                self.live.forget(session);
                gone += 1;
            }
        }
        Ok(gone)
    }

    pub(super) async fn end_session(&self, session: SessionId) -> Result<()> {
        let declared = self.write.script(CLOSE, args![session.0]).await?;
        if !declared.is_empty() {
            self.live.forget(session);
        }
        Ok(())
    }
}

fn session_id(row: &SqliteRow) -> Result<SessionId> {
    columns(row).int().map(SessionId)
}
