-- Runs, their journals and inboxes, and the sessions that own them.
--
-- Instants are whole microseconds since 1970, by SQLite's clock (milliseconds, times 1,000). Run ids are the 16 bytes
-- of a UUIDv7. SQLite has no schemas, so each name starts with `composer_`: the tables may share a file with yours.

-- One row a run. What is due is decided by status, due_at and the inbox alone; nothing else is stored that could
-- disagree. status: 0 paused, 1 pending, 2 running, 3 parked, 4 stuck, 5 completed, 6 failed, 7 cancelled, 8 terminated.
create table composer_runs (
  run_id blob primary key not null check (length(run_id) = 16),
  workflow_id text not null,                  -- the user's key; the run id as text when there is none
  workflow text not null,
  status integer not null check (status between 0 and 8),
  epoch integer not null,                     -- the fencing token: one higher at each claim, never reset
  session integer,                            -- the owner; after the end, the one that ended it
  taken_over integer not null default 0,      -- whether that claim took it from a dead session
  due_at integer,                             -- while pending or parked
  deadline integer,                           -- when the run's own timeout ends it
  created_at integer not null,
  started_at integer,
  closed_at integer,
  build text not null,                        -- the build that asked for it
  strikes integer not null default 0,         -- workers that died over it without progress in between
  seen integer,                               -- the journal's length at the last take-over
  base integer not null default 0,            -- the entry that begins the present generation
  stuck_build text,                           -- the build that could not go on
  stuck_at integer,                           -- since when; it rests before another build gets it
  reason text,                                -- why it is stuck or failed, in words
  tags text not null default '{}',            -- JSON object
  unconsumed text,                            -- JSON array: journal entries of signals that nobody received
  input blob not null,
  result_meta text,                           -- JSON: which kind of end
  result blob,                                -- its value or error
  parent_run blob,                            -- of a child: the run whose step it is
  parent_step integer,
  on_parent integer,                          -- when its parent ends first: 1 it is asked to cancel, 2 it goes on
  forked_from blob,                           -- of a fork: the run whose journal before `forked_step` it began with
  forked_step integer,
  copied integer not null default 0,          -- how many entries that were
  seed blob                                   -- the run whose random numbers it draws, the first of the chain
) strict;

create index composer_runs_due on composer_runs (workflow, due_at) where status in (1, 3);
create index composer_runs_owned on composer_runs (session) where status = 2;
create index composer_runs_children on composer_runs (parent_run) where parent_run is not null;
create index composer_runs_stuck on composer_runs (workflow) where status = 4;

-- The run that a user's key names now.
create table composer_ids (
  workflow_id text primary key not null,
  run_id blob not null
) strict, without rowid;

create index composer_ids_run on composer_ids (run_id);

-- What happened in a run, in order. Only its owner appends, and only through the fence.
create table composer_journal (
  run_id blob not null,
  seq integer not null,
  epoch integer not null,                     -- the owner that wrote it
  at integer not null,
  kind integer not null,
  meta text not null,                         -- JSON: everything but the user's bytes
  payload blob,
  primary key (run_id, seq)
) strict, without rowid;

-- What others want a run to know, until its owner journals it. Ids are never reused: they order what a sender sent.
create table composer_inbox (
  id integer primary key autoincrement,
  run_id blob not null,
  kind integer not null check (kind in (1, 2, 3, 4)), -- 1 signal, 2 cancel, 3 a child's end, 4 retry at once
  name text not null,                         -- the signal's name; the reason of a cancel; a child's step and meta
  payload blob,
  sent_at integer not null,
  shelved integer not null default 0          -- 1: its run is closed, so that it makes nothing due
) strict;

create index composer_inbox_mail on composer_inbox (run_id, id) where shelved = 0;
create index composer_inbox_shelf on composer_inbox (run_id, id) where shelved = 1;

-- What runs show: the last value of each name, written with the entries that it follows from.
create table composer_published (
  run_id blob not null,
  name text not null,
  at integer not null,
  payload blob not null,
  primary key (run_id, name)
) strict, without rowid;

-- A child that ends tells its parent in the same transaction, whoever ends it.
create trigger composer_runs_tell_parent after update of status on composer_runs
when new.parent_run is not null and new.status in (5, 6, 7, 8) and old.status not in (5, 6, 7, 8)
begin
  insert into composer_inbox (run_id, kind, name, payload, sent_at)
  select p.run_id, 3, new.parent_step || ' ' || new.result_meta, new.result, new.closed_at
  from composer_runs p
  where p.run_id = new.parent_run and p.status not in (5, 6, 7, 8);
end;

-- One row a worker process's life. Ids are never reused. A dead one stays until its last run was handed out.
create table composer_sessions (
  id integer primary key autoincrement,
  name text not null,
  build text not null,
  workflows text not null,                    -- JSON array: what it hosts
  lease integer not null,                     -- microseconds from each renewal
  lease_until integer not null,
  started_at integer not null,
  dead_at integer
) strict;
