-- Working state: items, leases, and each validator's own submissions, events and weights results. Run as arena_owner.

-- One queue per validator. open: claimable from not_before on · leased: held, or its attempt record is owed · done ·
-- closed: nobody wants it any more.
create table arena.item (
    validator        text not null,
    item_id          text not null,
    ordinal          bigint generated always as identity,
    stage            text not null,
    priority         smallint generated always as (case stage when 'race' then 0 when 'qualifying' then 1 else 2 end) stored,
    race_id          text not null,
    agent_version_id text not null,
    work             text not null,                        -- canonical JSON of the work item
    state            text not null default 'open' check (state in ('open', 'leased', 'done', 'closed')),
    not_before       timestamptz not null default '-infinity',
    faults           integer not null default 0,           -- attempts that ended in a fault, whoever's
    counted          integer not null default 0,           -- those that use up the attempts the policy allows
    primary key (validator, item_id)
);
create index item_claim on arena.item (validator, priority, (faults > 0), ordinal) where state = 'open';
create index item_unfinished on arena.item (validator, race_id, stage) where state in ('open', 'leased');

create sequence arena.fence;

-- open: held, or run out · lost: its item was closed meanwhile · done · abandoned: attempt recorded, item given back.
-- faults and counted are those of the item when it was claimed.
create table arena.lease (
    fence      bigint primary key default nextval('arena.fence'),
    validator  text not null,
    item_id    text not null,
    expires_at timestamptz not null,
    faults     integer not null,
    counted    integer not null,
    state      text not null default 'open' check (state in ('open', 'lost', 'done', 'abandoned')),
    foreign key (validator, item_id) references arena.item
);
create unique index lease_holder on arena.lease (validator, item_id) where state in ('open', 'lost');
create index lease_owed on arena.lease (validator, fence) where state in ('open', 'lost');

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
