//! The inbox: what others want a run to know, until its owner journals it.
//!
//! A sender takes `for key share` on the run's row, which no append waits for and which parking and deletion notice,
//! and inserts. Nothing else is written: the row is the wake-up.

use composer_sdk::{
    error::{Failure, FailureKind},
    id::RunId,
    journal::{Event, Outcome},
    payload::Payload,
};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::{
    PostgresStore, classify, read,
    runs::{get, uuids},
    sql::query,
};
use crate::store::{Message, MessageContent, NewMessage, Result, Sent, Status, StoreError, child_ended};

/// The stored kinds.
const SIGNAL: i16 = 1;
const CANCEL: i16 = 2;
const CHILD: i16 = 3;
const RETRY: i16 = 4;

/// Inserts the message if the run, as locked, is open; a cancel ($2 = 2) of a stuck run, or of one that never began,
/// has another way, and a stuck run takes signals ($2 = 1) alone. Says how the run stood otherwise.
pub(super) const SEND: &str = "\
with r as materialized (
    select run_id from {s}.runs
     where run_id = $1
       and (status in (0, 2, 3) or (status = 1 and (started_at is not null or $2 <> 2)) or (status = 4 and $2 = 1))
       for key share
), i as (
    insert into {s}.inbox (run_id, kind, name, payload)
    select run_id, $2, $3, $4 from r
    returning id
)
select (select id from i) as id, (select status from {s}.runs where run_id = $1) as status";

/// An operator's write: takes over a run that is stuck, or that no worker ever took, and closes it without its code. Its
/// children are asked to cancel, too.
pub(super) const CANCEL_IDLE: &str = "\
with f as materialized (
    select run_id from {s}.runs
     where run_id = $1 and (status + 0 = 4 or (status + 0 = 1 and started_at is null))
       for update
), k as (
    insert into {s}.inbox (run_id, kind, name)
    select c.run_id, 2, 'the parent was cancelled'
      from {s}.runs c cross join f
     where c.parent_run = $1 and c.status < 5 and c.on_parent = 1
)
update {s}.runs r
   set status = 7, epoch = r.epoch + 1, closed_at = {now}, stuck_at = null, due_at = null,
       reason = $2, result_meta = $3, result = null
  from f
 where r.run_id = f.run_id and r.run_id = $1";

pub(super) const INBOX: &str = "\
select run_id, id, kind, name, payload
  from {s}.inbox
 where run_id = any($1)
 order by run_id, id";

/// Signals that were journaled but that nobody waited for, of a closed run.
pub(super) const UNCONSUMED_ENTRIES: &str = "\
select j.run_id, j.kind, j.meta, j.payload
  from {s}.runs r
 cross join lateral unnest(r.unconsumed) with ordinality u(seq, place)
  join {s}.journal j on j.run_id = r.run_id and j.seq = u.seq
 where r.run_id = $1 and r.status >= 5
 order by u.place";

/// Messages that were still in the inbox of a closed run. That a retry came too late is nobody's loss.
pub(super) const UNCONSUMED_ROWS: &str = "\
select i.run_id, i.id, i.kind, i.name, i.payload
  from {s}.inbox i
 where i.run_id = $1 and i.kind in (1, 2)
   and exists (select from {s}.runs r where r.run_id = $1 and r.status >= 5)
 order by i.id";

impl PostgresStore {
    pub(super) async fn send_message(&self, run: RunId, message: &NewMessage) -> Result<Sent> {
        let (kind, name, payload) = match message {
            NewMessage::Signal { name, payload } => (SIGNAL, name.as_str(), Some(self.encode(payload))),
            NewMessage::Cancel { reason } => (CANCEL, reason.as_str(), None),
            NewMessage::Retry => (RETRY, "", None),
        };
        // Each round ends unless the run changed between two looks.
        for _ in 0..32 {
            let row = {
                let mut conn = self.acquire().await?;
                query(&self.sql.send)
                    .bind(run.as_uuid())
                    .bind(kind)
                    .bind(name.to_owned())
                    .bind(payload.as_ref().map(|payload| payload.as_bytes().to_vec()))
                    .fetch_one(&mut *conn)
                    .await
                    .map_err(classify)?
            };
            if get::<Option<i64>>(&row, "id")?.is_some() {
                return Ok(Sent::Accepted);
            }
            match get::<Option<i16>>(&row, "status")?.map(Status::try_from).transpose()? {
                None => return Ok(Sent::NoRun),
                Some(status) if status.is_closed() => return Ok(Sent::NotOpen(status)),
                Some(Status::Stuck) if kind == RETRY => return Ok(Sent::NotOpen(Status::Stuck)),
                Some(Status::Stuck | Status::Pending) if kind == CANCEL => {
                    if self.cancel_idle(run, name).await? {
                        return Ok(Sent::Closed);
                    }
                }
                Some(_) => {}
            }
        }
        Err(StoreError::Unavailable {
            message: format!("run {run} changes all the time"),
            maybe_committed: false,
        })
    }

    /// Closes a stuck run, or one that never began, as cancelled; `false` when it is neither any more.
    pub(super) async fn cancel_idle(&self, run: RunId, reason: &str) -> Result<bool> {
        let (meta, _) = Outcome::Failed(Failure::new(FailureKind::Cancelled, reason)).to_record();
        let mut conn = self.acquire().await?;
        let done = query(&self.sql.cancel_idle)
            .bind(run.as_uuid())
            .bind(reason.to_owned())
            .bind(meta)
            .execute(&mut *conn)
            .await
            .map_err(classify)?;
        Ok(done.rows_affected() == 1)
    }

    pub(super) async fn inbox_of(&self, runs: &[RunId]) -> Result<Vec<Message>> {
        let rows = read!(self, |conn| query(&self.sql.inbox).bind(uuids(runs)).fetch_all(&mut *conn))?;
        rows.iter().map(|row| self.read_message(row)).collect()
    }

    fn read_message(&self, row: &PgRow) -> Result<Message> {
        let run_id = RunId::from(get::<Uuid>(row, "run_id")?);
        let id: i64 = get(row, "id")?;
        let payload =
            get::<Option<Vec<u8>>>(row, "payload")?.map(|bytes| self.decode(bytes, &run_id)).transpose()?;
        let content = match get::<i16>(row, "kind")? {
            SIGNAL => MessageContent::Signal {
                name: get(row, "name")?,
                payload: payload
                    .ok_or_else(|| StoreError::unreadable(format!("signal {id} of {run_id} has no value")))?,
            },
            CANCEL => MessageContent::Cancel { reason: get(row, "name")? },
            CHILD => child_ended(&get::<String>(row, "name")?, payload)
                .map_err(|why| StoreError::unreadable(format!("message {id} of {run_id}: {why}")))?,
            RETRY => MessageContent::Retry,
            kind => {
                return Err(StoreError::unreadable(format!("message {id} of {run_id} is of kind {kind}")));
            }
        };
        Ok(Message { id, run_id, content })
    }

    pub(super) async fn unconsumed_messages(&self, run: RunId) -> Result<Vec<MessageContent>> {
        let journaled = read!(self, |conn| query(&self.sql.unconsumed_entries)
            .bind(run.as_uuid())
            .fetch_all(&mut *conn))?;
        let waiting =
            read!(self, |conn| query(&self.sql.unconsumed_rows).bind(run.as_uuid()).fetch_all(&mut *conn))?;
        let mut messages = Vec::with_capacity(journaled.len() + waiting.len());
        for row in &journaled {
            messages.extend(self.read_signal(row, run)?);
        }
        for row in &waiting {
            messages.push(self.read_message(row)?.content);
        }
        Ok(messages)
    }

    fn read_signal(&self, row: &PgRow, run: RunId) -> Result<Option<MessageContent>> {
        let payload: Option<Payload> =
            get::<Option<Vec<u8>>>(row, "payload")?.map(|bytes| self.decode(bytes, &run)).transpose()?;
        let event = Event::from_record(get(row, "kind")?, get(row, "meta")?, payload)
            .map_err(|why| StoreError::unreadable(format!("an entry of {run}: {why}")))?;
        Ok(match event {
            Event::Signal { name, payload, .. } => Some(MessageContent::Signal { name, payload }),
            _ => None,
        })
    }
}
