-- Runs, their journals and inboxes, and the sessions that own them.
--
-- The migrator runs this in one transaction with the search path set to Composer's schema (`composer` unless
-- configured otherwise), then attaches the months. Instants are microseconds since 1970 by the database's clock;
-- the views at the end show them, and the bytes, readable.

create table migrations (
    version    int         not null constraint migrations_pk primary key,
    name       text        not null,
    applied_at timestamptz not null default clock_timestamp()
);
comment on table migrations is 'Which migrations have been applied. Written by the migrator alone.';

-- One row a run, for as long as it is kept. A step only locks it; what it changes is in the journal, so that no index
-- here names a column that a step changes.
create table runs (
    run_id      uuid     not null,
    workflow_id text collate "C",
    workflow    text     not null collate "C",
    status      smallint not null,
    epoch       bigint   not null,
    session     bigint,
    created_at  bigint   not null,
    started_at  bigint,
    closed_at   bigint,
    due_at      bigint,
    deadline    bigint,
    stuck_at    bigint,
    strikes     int      not null default 0,
    seen        int,
    base        int      not null default 0,
    build       text     not null,
    stuck_build text collate "C",
    tags        jsonb,
    reason      text,
    input       bytea    not null,
    result_meta text,
    result      bytea,
    unconsumed  int[],
    parent_run  uuid,
    parent_step int,
    on_parent   smallint,
    forked_from uuid,
    forked_step int,
    copied      int      not null default 0,
    seed        uuid,
    constraint runs_pk primary key (run_id),
    constraint runs_status_is_known check (status between 0 and 8),
    constraint runs_running_has_owner check (status <> 2 or session is not null),
    constraint runs_closed_has_result check (status < 5 or (closed_at is not null and result_meta is not null))
) partition by range (run_id);
comment on table runs is 'One row a run. Partitioned by the month in its id (a UUIDv7).';
comment on column runs.workflow_id is 'The user''s key; null when the run id, as text, is the key.';
comment on column runs.status is '0 paused, 1 pending, 2 running, 3 parked, 4 stuck, 5 completed, 6 failed, 7 cancelled, 8 terminated.';
comment on column runs.epoch is 'The fencing token: one higher at each claim, never reset.';
comment on column runs.session is 'The owner of a running run; the last owner of a closed or stuck one.';
comment on column runs.due_at is 'When a pending or parked run is due; null waits for an inbox row alone.';
comment on column runs.parent_run is 'Of a child: the run whose step `parent_step` it is.';
comment on column runs.on_parent is 'Of a child, when its parent ends first: 1 it is asked to cancel, 2 it goes on.';
comment on column runs.base is 'The entry that begins the present generation; 0 in the first one.';
comment on column runs.forked_from is 'Of a fork: the run whose journal before `forked_step` it began with.';
comment on column runs.copied is 'Of a fork: how many entries of its journal it began with.';
comment on column runs.seed is 'Of a fork: the run whose random numbers it draws, the first of the chain.';
comment on column runs.seen is 'Length of the journal at the last take-over from a dead session.';

-- What claims scan: due work by workflow, the runs of a session, stuck runs by the build that could not go on.
create index runs_due on runs (workflow, due_at, run_id) where status in (1, 3) and due_at is not null;
create index runs_owned on runs (session, workflow) where status = 2;
create index runs_stuck on runs (workflow, stuck_build, stuck_at) where status = 4;
create index runs_children on runs (parent_run) where parent_run is not null;
create index runs_tags on runs using gin (tags jsonb_path_ops) where tags is not null;

-- Append-only: written by the owner of the run alone, in order, without gaps. `epoch` is the one that wrote the row.
create table journal (
    run_id  uuid     not null,
    seq     int      not null,
    epoch   bigint   not null,
    at      bigint   not null,
    kind    smallint not null,
    meta    text     not null,
    payload bytea,
    constraint journal_pk primary key (run_id, seq),
    constraint journal_starts_at_one check (seq >= 1)
) partition by range (run_id);
comment on table journal is 'What happened in a run, in order. Partitioned like runs.';

-- A workflow id names one run at a time. Not partitioned: uniqueness has to hold over all months.
create table ids (
    workflow_id text collate "C" not null constraint ids_pk primary key,
    run_id      uuid             not null
);
comment on table ids is 'The run that a user''s workflow id names now.';

-- What others want a run to know, until its owner journals it. The row itself is the wake-up of a parked run.
create table inbox (
    run_id  uuid     not null,
    id      bigint   not null generated always as identity (cache 1),
    kind    smallint not null,
    name    text     not null,
    payload bytea,
    sent_at bigint   not null default (extract(epoch from clock_timestamp()) * 1000000)::bigint,
    shelved boolean  not null default false,
    constraint inbox_pk primary key (run_id, id),
    constraint inbox_kind_is_known check (kind in (1, 2, 3, 4))
);
create index inbox_waiting on inbox (id) include (run_id) where not shelved;
comment on table inbox is 'Messages not yet journaled; shelved: the run closed without them.';
comment on column inbox.kind is '1 a signal (name, payload), 2 a request to cancel (name is the reason),
3 the end of a child (name: step and meta), 4 a request to retry at once.';

-- What runs show: the last value of each name, written with the entries that it follows from.
create table published (
    run_id  uuid   not null,
    name    text   not null collate "C",
    at      bigint not null,
    payload bytea  not null,
    constraint published_pk primary key (run_id, name)
) partition by range (run_id);
comment on table published is 'State that workflows show. Partitioned like runs.';

-- A child that ends tells its parent in the same transaction, whoever ends it.
create function tell_parent() returns trigger language plpgsql set search_path from current as $$
begin
    insert into inbox (run_id, kind, name, payload)
    select p.run_id, 3, new.parent_step || ' ' || new.result_meta, new.result
      from runs p
     where p.run_id = new.parent_run and p.status < 5;
    return null;
end
$$;
create trigger runs_tell_parent after update of status on runs for each row
    when (new.parent_run is not null and new.status >= 5 and old.status < 5)
    execute function tell_parent();

-- One row a worker process. Renewing changes one small row, whatever the number of runs.
create table sessions (
    id          bigint not null generated always as identity (cache 1) constraint sessions_pk primary key,
    name        text   not null,
    build       text   not null,
    workflows   text[] not null,
    lease       bigint not null,
    lease_until bigint not null,
    started_at  bigint not null,
    dead_at     bigint,
    lock_holder text
) with (fillfactor = 20);
comment on table sessions is 'Who owns runs. A dead session''s row stays until its last run was taken over.';
comment on column sessions.lock_holder is 'The backend that holds the advisory lock which says that the process lives.';

-- For people.

create view runs_view as
select r.run_id,
       coalesce(r.workflow_id, r.run_id::text) as workflow_id,
       r.workflow,
       case r.status
           when 0 then 'paused' when 1 then 'pending' when 2 then 'running' when 3 then 'parked' when 4 then 'stuck'
           when 5 then 'completed' when 6 then 'failed' when 7 then 'cancelled' when 8 then 'terminated'
       end as status,
       r.epoch,
       r.session,
       to_timestamp(r.created_at / 1e6) as created_at,
       to_timestamp(r.started_at / 1e6) as started_at,
       to_timestamp(r.closed_at / 1e6) as closed_at,
       to_timestamp(r.due_at / 1e6) as due_at,
       to_timestamp(r.deadline / 1e6) as deadline,
       r.reason,
       r.strikes,
       r.tags,
       r.forked_from,
       r.forked_step,
       encode(r.input, 'escape') as input,
       r.result_meta,
       encode(r.result, 'escape') as result
  from runs r;
comment on view runs_view is 'runs, readable. Payloads as text with non-ASCII bytes escaped; encoded ones as stored.';

create view journal_view as
select j.run_id,
       j.seq,
       j.epoch,
       to_timestamp(j.at / 1e6) as at,
       case j.kind
           when 1 then 'step_done' when 2 then 'attempt_failed' when 3 then 'timer_set' when 4 then 'timer_fired'
           when 5 then 'signal' when 6 then 'cancel_requested' when 7 then 'run_timed_out'
           when 8 then 'retry_requested' when 10 then 'child_started' when 11 then 'child_done' when 12 then 'continued'
           else 'kind ' || j.kind
       end as event,
       j.meta,
       encode(j.payload, 'escape') as payload
  from journal j;
comment on view journal_view is 'journal, readable. Payloads as in runs_view.';

create view published_view as
select p.run_id, p.name, to_timestamp(p.at / 1e6) as at, encode(p.payload, 'escape') as value
  from published p;
comment on view published_view is 'published, readable. Payloads as in runs_view.';
