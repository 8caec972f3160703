//! Messages for runs. A row of an open run's inbox is itself the wake-up: nothing else is stored.

use composer_sdk::{
    error::{Failure, FailureKind},
    id::RunId,
    journal::{Event, Outcome},
    payload::Payload,
};
use sqlx::sqlite::SqliteRow;

use super::{
    super::{Message, MessageContent, NewMessage, Result, Sent, StoreError, child_ended},
    SqliteStore,
    rows::{args, columns, ids, now, sql},
    runs::status,
};

const SIGNAL: i64 = 1;
const CANCEL: i64 = 2;
const CHILD: i64 = 3;
const RETRY: i64 = 4;

/// Closes the run `$1` without its code if it is stuck, or no worker ever took it, and the message is a cancel (`$2` is
/// 2, `$3` the reason, `$5` the outcome), as an operator's take-over: the epoch grows, so that whoever thinks to own the
/// run is fenced.
macro_rules! cancel_idle {
    () => {
        sql!(
            "update composer_runs
            set
              status = 7, epoch = epoch + 1, session = null, closed_at = ",
            now!(),
            ",
              result_meta = $5, result = null, stuck_at = null, due_at = null, reason = $3
            where run_id = $1 and (status = 4 or status = 1 and started_at is null) and $2 = 2
            returning 1, status;

            insert into composer_inbox (run_id, kind, name, sent_at)
            select c.run_id, 2, 'the parent was cancelled', ",
            now!(),
            "
            from composer_runs c
            where c.parent_run = $1 and c.status not in (5, 6, 7, 8) and c.on_parent = 1 and changes() = 1"
        )
    };
}

const CANCEL_IDLE: &str = cancel_idle!();

/// Requests to cancel that reached a run just before it became stuck, the first of each.
pub(super) const CANCELS_OF_STUCK: &str = "
    select i.run_id, i.name, min(i.id)
    from composer_runs r
    cross join composer_inbox i
    where r.status = 4 and i.run_id = r.run_id and i.shelved = 0 and i.kind = 2
    group by i.run_id";

/// Puts a message into an open run's inbox; a cancel of a stuck run, or of one that never began, closes it instead. A
/// stuck run takes signals alone.
pub(super) const SEND: &str = sql!(
    "begin immediate;
    ",
    cancel_idle!(),
    ";

    insert into composer_inbox (run_id, kind, name, payload, sent_at)
    select run_id, $2, $3, $4, ",
    now!(),
    "
    from composer_runs
    where run_id = $1 and (status in (0, 1, 2, 3) or status = 4 and $2 = 1)
    returning 2, id;

    select 3, status from composer_runs where run_id = $1;

    commit"
);

pub(super) const INBOX: &str = "
    select i.id, i.run_id, i.kind, i.name, i.payload
    from json_each($1) b
    cross join composer_inbox i
    where i.run_id = unhex(b.value) and i.shelved = 0
    order by i.id";

/// What a closed run never received: journaled signals first, then what is still in its inbox. That a retry came too
/// late is nobody's loss.
pub(super) const UNCONSUMED: &str = "
    select 1, j.kind, j.meta, j.payload
    from composer_runs r, json_each(r.unconsumed) u
    cross join composer_journal j
    where r.run_id = $1 and r.status in (5, 6, 7, 8) and j.run_id = r.run_id and j.seq = u.value
    order by j.seq;

    select 2, i.kind, i.name, i.payload, i.id
    from composer_runs r
    cross join composer_inbox i
    where r.run_id = $1 and r.status in (5, 6, 7, 8) and i.run_id = r.run_id and i.shelved = 1 and i.kind in (1, 2)
    union all
    select 2, i.kind, i.name, i.payload, i.id
    from composer_runs r
    cross join composer_inbox i
    where r.run_id = $1 and r.status in (5, 6, 7, 8) and i.run_id = r.run_id and i.shelved = 0 and i.kind in (1, 2)
    order by 5";

impl SqliteStore {
    pub(super) async fn send_message(&self, run: RunId, message: &NewMessage) -> Result<Sent> {
        let (kind, name, payload) = match message {
            NewMessage::Signal { name, payload } => {
                (SIGNAL, name.clone(), Some(self.encode(payload).as_bytes().to_vec()))
            }
            NewMessage::Cancel { reason } => (CANCEL, reason.clone(), None),
            NewMessage::Retry => (RETRY, String::new(), None),
        };
        let outcome = cancelled(&name);
        let rows = self.write.script(SEND, args![run.as_uuid(), kind, name, payload, outcome]).await?;
        sent(&rows)
    }

    /// Closes stuck runs that somebody had asked to cancel while they still ran.
    pub(super) async fn cancel_stuck_runs(&self) -> Result<()> {
        for row in &self.read.script(CANCELS_OF_STUCK, args![]).await? {
            let mut c = columns(row);
            let (run, reason) = (c.run_id()?, c.text()?);
            let outcome = cancelled(&reason);
            let args = args![run.as_uuid(), CANCEL, reason, None::<Vec<u8>>, outcome];
            self.write.script(CANCEL_IDLE, args).await?;
        }
        Ok(())
    }

    pub(super) async fn read_inbox(&self, runs: &[RunId]) -> Result<Vec<Message>> {
        let rows = self.read.script(INBOX, args![ids(runs)]).await?;
        rows.iter().map(|row| self.message(row)).collect()
    }

    fn message(&self, row: &SqliteRow) -> Result<Message> {
        let mut c = columns(row);
        let (id, run_id) = (c.int()?, c.run_id()?);
        let content = content(c.int()?, c.text()?, self.decode_some(c.get()?)?)?;
        Ok(Message { id, run_id, content })
    }

    pub(super) async fn read_unconsumed(&self, run: RunId) -> Result<Vec<MessageContent>> {
        let rows = self.read.script(UNCONSUMED, args![run.as_uuid()]).await?;
        rows.iter().map(|row| self.unconsumed_content(row)).collect()
    }

    fn unconsumed_content(&self, row: &SqliteRow) -> Result<MessageContent> {
        let mut c = columns(row);
        let (from, kind, text) = (c.int()?, c.int()?, c.text()?);
        let payload = self.decode_some(c.get()?)?;
        if from == 2 {
            return content(kind, text, payload);
        }
        match Event::from_record(kind as i16, &text, payload) {
            Ok(Event::Signal { name, payload, .. }) => Ok(MessageContent::Signal { name, payload }),
            Ok(Event::CancelRequested { reason, .. }) => Ok(MessageContent::Cancel { reason }),
            Ok(other) => Err(StoreError::unreadable(format!("an unconsumed entry is `{}`", other.name()))),
            Err(e) => Err(StoreError::unreadable(e.to_string())),
        }
    }
}

/// The outcome of a run that was cancelled without its code.
fn cancelled(reason: &str) -> String {
    Outcome::Failed(Failure::new(FailureKind::Cancelled, reason)).to_record().0
}

fn content(kind: i64, name: String, payload: Option<Payload>) -> Result<MessageContent> {
    match (kind, payload) {
        (SIGNAL, Some(payload)) => Ok(MessageContent::Signal { name, payload }),
        (CANCEL, _) => Ok(MessageContent::Cancel { reason: name }),
        (CHILD, payload) => child_ended(&name, payload).map_err(StoreError::unreadable),
        (RETRY, _) => Ok(MessageContent::Retry),
        (kind, _) => Err(StoreError::unreadable(format!("an inbox row is of kind {kind} without a value"))),
    }
}

fn sent(rows: &[SqliteRow]) -> Result<Sent> {
    let Some(row) = rows.first() else { return Ok(Sent::NoRun) };
    let mut c = columns(row);
    Ok(match c.int()? {
        1 => Sent::Closed,
        2 => Sent::Accepted,
        _ => Sent::NotOpen(status(c.small()?)?),
    })
}
