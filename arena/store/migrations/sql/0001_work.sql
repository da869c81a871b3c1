-- Working state: items, leases, and each validator's own submissions, events and weights results. Run as arena_owner.

create table arena.item (
    item_id   text primary key,
    ordinal   bigint generated always as identity,
    stage     text not null,
    priority  smallint generated always as (case stage when 'race' then 0 when 'qualifying' then 1 else 2 end) stored,
    race_id   text not null,
    work      text not null,                             -- canonical JSON of the work item
    copies    integer not null check (copies > 0),
    todo      integer not null check (todo >= 0),        -- slots nobody holds
    remaining integer not null check (remaining >= 0)    -- copies that are not finished
);
create index item_todo on arena.item (priority, ordinal) where todo > 0;
create index item_remaining on arena.item (race_id, stage) where remaining > 0;

create sequence arena.fence;

-- open: held, or run out and not yet swept · lapsed: run out, slot returned, attempt record owed · done · abandoned:
-- attempt recorded · released: given back. The partial key makes the validators of one item distinct.
create table arena.lease (
    fence      bigint primary key default nextval('arena.fence'),
    item_id    text not null references arena.item,
    validator  text not null,
    expires_at timestamptz not null,
    attempts   integer not null,
    state      text not null default 'open' check (state in ('open', 'lapsed', 'done', 'abandoned', 'released'))
);
create unique index lease_holder on arena.lease (item_id, validator) where state in ('open', 'lapsed', 'done');
create index lease_expiry on arena.lease (expires_at) where state = 'open';
create index lease_owed on arena.lease (validator, fence) where state in ('open', 'lapsed');
create index lease_item on arena.lease (item_id, validator);

create table arena.submission (
    validator         text not null,
    agent_version_id  text not null,
    ordinal           bigint generated always as identity,
    miner_hotkey      text not null,
    agent_sha256      text not null,
    commitment_block  bigint not null,
    commitment_sha256 text not null,
    name              bytea not null,    -- UTF-8 that a miner wrote: it may hold NUL, which text can't
    source            bytea not null,
    state             text not null,
    submitted_block   bigint not null,
    report            text not null,
    primary key (validator, agent_version_id)
);

create table arena.event (
    validator text not null,
    stream    text not null,
    index     integer not null check (index >= 0),
    event     text not null,
    put_at    timestamptz not null default clock_timestamp(),
    primary key (validator, stream, index)
);

create table arena.weights_result (
    validator   text not null,
    ordinal     bigint generated always as identity,
    race_id     text not null,
    block       bigint not null,
    uids        integer[] not null,
    weights_u16 integer[] not null,
    status      text not null,
    detail      text not null,
    put_at      timestamptz not null default clock_timestamp(),
    primary key (validator, ordinal)
);
