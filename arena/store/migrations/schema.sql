-- The whole schema. Run as arena_owner.
--
-- Layers: (1) rights: a validator's role may SELECT its own rows and EXECUTE the functions named at the end, nothing else;
-- (2) triggers refuse UPDATE, DELETE and TRUNCATE of records, bodies, checkpoints and usage to everybody, owner and
-- superuser included; (3) a superuser can still disable triggers or drop tables, so evidence lives outside: signatures
-- and checkpoints.

-- The log: records (partitioned by UTC day of arrival), bodies by content, one head per validator, and signed checkpoints
-- with the block in which the chain holds their hash. The database checks no signature and no root: readers do.

create table arena.validator (
    role   name primary key,
    hotkey text not null unique check (octet_length(hotkey) between 1 and 128)
);

create table arena.head (
    validator text   primary key,
    seq       bigint not null check (seq >= 0),
    hash      bytea  not null check (octet_length(hash) = 32)
);

-- kind, race_id and body_sha256 are read from the content by append(): they cannot disagree with what was signed.
create table arena.record (
    validator   text   not null,
    seq         bigint not null check (seq > 0),
    day         date   not null,
    appended_at timestamptz not null default clock_timestamp(),
    kind        text   not null,
    race_id     text   not null,
    body_sha256 bytea,
    prev        bytea  not null check (octet_length(prev) = 32),
    sha256      bytea  not null check (octet_length(sha256) = 32),
    signature   bytea  not null check (octet_length(signature) = 64),
    content     bytea  not null
) partition by range (day);

-- A unique index on a partitioned table must hold the partition key: gaps and doubles of seq are excluded by
-- arena.head, whose row append() locks.
create unique index record_seq on arena.record (validator, seq, day);
create index record_race on arena.record (validator, race_id, kind);
create index record_verdict on arena.record (validator, body_sha256) where kind = 'verdict';

-- A body is its validator's own: the server can't check a hash of compressed bytes, so one that was shared by its hash
-- alone could be put there, wrong, by whoever came first.
create table arena.body (
    validator text  not null,
    sha256    bytea not null check (octet_length(sha256) = 32),
    day       date  not null,
    size      integer not null check (size > 0),    -- bytes before compression
    content   bytea,                                -- zstd of the canonical bytes; null: in the validator's object store
    primary key (validator, sha256, day)
) partition by range (day);
create index body_elsewhere on arena.body (validator, sha256) where content is null;

create function arena.deny() returns trigger language plpgsql as $f$
begin
    raise exception 'append-only: % on %', tg_op, tg_table_name using errcode = 'insufficient_privilege';
end $f$;

create function arena.head_forward() returns trigger language plpgsql as $f$
begin
    if new.validator <> old.validator or new.seq <= old.seq then
        raise exception 'append-only: a head only goes forward' using errcode = 'insufficient_privilege';
    end if;
    return new;
end $f$;

create trigger no_change   before update or delete on arena.record for each row       execute function arena.deny();
create trigger no_truncate before truncate         on arena.record for each statement execute function arena.deny();
create trigger no_change   before update or delete on arena.body   for each row       execute function arena.deny();
create trigger no_truncate before truncate         on arena.body   for each statement execute function arena.deny();
create trigger no_delete   before delete           on arena.head   for each row       execute function arena.deny();
create trigger no_truncate before truncate         on arena.head   for each statement execute function arena.deny();
create trigger forward     before update           on arena.head   for each row       execute function arena.head_forward();

create table arena.checkpoint (
    validator text   not null,
    size      bigint not null check (size > 0),
    note      text   not null check (octet_length(note) between 1 and 65536),
    signed_ms bigint not null,
    put_at    timestamptz not null default clock_timestamp(),
    primary key (validator, size)
);

create table arena.anchor (
    validator   text   not null,
    size        bigint not null,
    note_sha256 bytea  not null check (octet_length(note_sha256) = 32),
    block       bigint not null check (block > 0),
    put_at      timestamptz not null default clock_timestamp(),
    primary key (validator, size),
    foreign key (validator, size) references arena.checkpoint
);

-- One partition a day and table. Made apart and then attached: ATTACH does not block readers and writers of other
-- days, CREATE .. PARTITION OF would. Row triggers and indexes come with the parent; TRUNCATE triggers are
-- statement-level and have to stand on every partition. Validators' roles get no right on a partition: they read
-- through the parent, whose row security a partition does not have.
create function arena.add_day(_day date) returns void language plpgsql set search_path = arena, pg_temp as $f$
declare parent text; part text;
begin
    foreach parent in array array['record', 'body'] loop
        part := parent || '_' || to_char(_day, 'YYYYMMDD');
        continue when to_regclass('arena.' || part) is not null;
        execute format('create table arena.%I (like arena.%I including defaults including constraints including storage)', part, parent);
        execute format('create trigger no_truncate before truncate on arena.%I for each statement execute function arena.deny()', part);
        if parent = 'body' then    -- compressed already
            execute format('alter table arena.%I alter column content set storage external', part);
        end if;
        execute format('alter table arena.%I attach partition arena.%I for values from (%L) to (%L)', parent, part, _day, _day + 1);
    end loop;
end $f$;

-- Partitions from the given day to a week ahead, when tomorrow's is missing; so an append in the first millisecond of
-- a day finds its partition, and one after a long sleep makes it.
create function arena.add_days_ahead(_today date) returns void language plpgsql set search_path = arena, pg_temp as $f$
begin
    if to_regclass('arena.body_' || to_char(_today + 1, 'YYYYMMDD')) is not null
       and to_regclass('arena.body_' || to_char(_today, 'YYYYMMDD')) is not null then return; end if;
    perform pg_advisory_xact_lock(hashtextextended('arena.add_day', 0));
    for ahead in 0..7 loop
        perform arena.add_day(_today + ahead);
    end loop;
end $f$;

select arena.add_days_ahead((clock_timestamp() at time zone 'UTC')::date);

-- Working state: items, leases, and each validator's own submissions, events, weights results and costs of models.

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
    refused          integer not null default 0,           -- those that ended by a refused request, which have a cap of their own
    primary key (validator, item_id)
);
create index item_claim on arena.item (validator, priority, (faults > 0), ordinal) where state = 'open';
create index item_agent on arena.item (validator, agent_version_id);
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
    refused    integer not null,
    state      text not null default 'open' check (state in ('open', 'lost', 'done', 'abandoned')),
    foreign key (validator, item_id) references arena.item
);
create unique index lease_holder on arena.lease (validator, item_id) where state in ('open', 'lost');
create index lease_owed on arena.lease (validator, fence) where state in ('open', 'lost');

-- One row for one agent version, from the request that brought it to its last decision. waiting: the gate has not looked
-- at it · withdrawn: its miner took it back before that · refused: not admitted · the others: what the gate, a person and
-- the suite said. The source of what is withdrawn or refused is dropped.
create table arena.submission (
    validator         text not null,
    agent_version_id  text not null,
    ordinal           bigint generated always as identity,
    miner_hotkey      text not null,
    agent_sha256      text not null,
    commitment_block  bigint not null,
    commitment_sha256 text not null,
    name              text not null,
    source            bytea not null check (octet_length(source) <= 8388608),
    submitted_ms      bigint not null,
    signature         text not null,
    state             text not null check (state in ('waiting', 'withdrawn', 'refused', 'rejected', 'review', 'accepted',
                                                     'qualified', 'unqualified')),
    received_at       timestamptz not null default clock_timestamp(),
    report            text not null,    -- the gate's, as JSON; '' before it
    failure           text,             -- JSON: why it was refused, or a person rejected it
    qualifying_e4     integer,
    agreed            text,             -- JSON: where it stood with all validators at the last close
    primary key (validator, agent_version_id)
);
create index submission_hotkey on arena.submission (validator, miner_hotkey);

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

-- Requests that were let through. A request's own age ends it long before its row goes.
create table arena.nonce (
    validator text not null,
    hotkey    text not null,
    nonce_ns  bigint not null,
    spent_at  timestamptz not null default clock_timestamp(),
    primary key (validator, hotkey, nonce_ns)
);
create index nonce_age on arena.nonce (validator, spent_at);

create table arena.usage (
    validator         text    not null,
    attempt_id        text    not null,
    upstream          text    not null,
    model             text    not null,
    race_id           text    not null,
    stage             text    not null,
    agent_version_id  text    not null,
    requests          integer not null check (requests >= 0),
    attempts          integer not null check (attempts >= 0),
    probes            integer not null check (probes >= 0),
    prompt_tokens     bigint  not null check (prompt_tokens >= 0),
    completion_tokens bigint  not null check (completion_tokens >= 0),
    latency_ms        bigint  not null check (latency_ms >= 0),
    cost_micro_usd    bigint  check (cost_micro_usd >= 0),
    put_at            timestamptz not null default clock_timestamp(),
    primary key (validator, attempt_id, upstream, model)
);

-- The only ways in.
--
-- Every function is SECURITY DEFINER with a fixed search_path and first asks require(): the caller's login role
-- (session_user, which SET ROLE does not change) must belong to the hotkey it names. Refusals by SQLSTATE:
--   42501 another's hotkey · AR001 the head moved · AR002 the lease is not held · AR003 the content contradicts itself
--   AR004 contradicts what is stored

create function arena.session_hotkey() returns text
language sql stable security definer set search_path = arena, pg_temp as $f$
    select hotkey from arena.validator where role = session_user
$f$;

create function arena.require(_validator text) returns void
language plpgsql stable security definer set search_path = arena, pg_temp as $f$
begin
    if _validator is null or arena.session_hotkey() is distinct from _validator then
        raise exception 'role % may not act for hotkey %', session_user, _validator using errcode = 'insufficient_privilege';
    end if;
end $f$;

-- Makes this session the one holder of a hotkey until it ends; false when another session is. A holder that comes after
-- a killed one first waits for what that one's last append still does, so that it reads a log that no longer moves.
create function arena.hold(_validator text) returns boolean
language plpgsql security definer set search_path = arena, pg_temp as $f$
begin
    perform require(_validator);
    if not pg_try_advisory_lock(hashtextextended('arena.hold ' || _validator, 0)) then return false; end if;
    perform from head where validator = _validator for update;
    return true;
end $f$;

-- How a lease ends inside append(). Locks the item before the lease, as claim() and close_items() do. A lease that ran
-- out or was lost can still be abandoned, since its attempt record is owed; a closed item stays closed.
create function arena.end_lease(_validator text, _fence bigint, _state text, _delay_ms bigint, _is_fault boolean, _is_counted boolean)
returns void language plpgsql set search_path = arena, pg_temp as $f$
declare
    held arena.lease;
    is_refused boolean := _state = 'refused';
begin
    if is_refused then _state := 'abandoned'; end if;
    perform from item i where i.validator = _validator
        and i.item_id = (select l.item_id from lease l where l.fence = _fence and l.validator = _validator) for update;
    select * into held from lease l where l.fence = _fence and l.validator = _validator for update;
    if held.fence is null or not (held.state = 'open' or (held.state = 'lost' and _state = 'abandoned'))
       or (_state = 'done' and held.expires_at <= clock_timestamp()) then
        raise exception 'lease % is not held (%)', _fence, coalesce(held.state, 'unknown') using errcode = 'AR002';
    end if;
    update lease l set state = _state where l.fence = _fence;
    update item i set
        state      = case when i.state = 'closed' then 'closed' when _state = 'done' then 'done' else 'open' end,
        not_before = case when _delay_ms > 0 then clock_timestamp() + _delay_ms * interval '1 millisecond' else i.not_before end,
        faults     = i.faults + _is_fault::integer,
        counted    = i.counted + _is_counted::integer,
        refused    = i.refused + coalesce(is_refused, false)::integer
        where i.validator = _validator and i.item_id = held.item_id;
end $f$;

-- Appends records in order, with bodies and the end of a lease (end_lease): all or nothing. The caller names the head it
-- signed on; a moved head is refused, so that it reads the head and signs again. The database checks the chain and
-- that columns follow from content; signatures and compressed bodies it can't check: readers do.
create function arena.append(_validator text, _seq bigint, _prev bytea, _contents bytea[], _signatures bytea[],
                             _body_sha256s bytea[], _body_sizes integer[], _bodies bytea[],
                             _fence bigint default null, _lease_state text default null, _delay_ms bigint default 0,
                             _is_fault boolean default false, _is_counted boolean default false,
                             out head_seq bigint, out head_hash bytea)
language plpgsql security definer set search_path = arena, pg_temp as $f$
declare
    today date := (clock_timestamp() at time zone 'UTC')::date;
    given bytea; sealed record; sha bytea;
    kinds text[] := '{}'; races text[] := '{}'; body_names bytea[] := '{}'; prevs bytea[] := '{}'; shas bytea[] := '{}';
begin
    perform require(_validator);
    perform add_days_ahead(today);
    if cardinality(_contents) is distinct from cardinality(_signatures) or coalesce(cardinality(_contents), 0) = 0 then
        raise exception 'one signature per record' using errcode = 'AR003';
    end if;
    select h.seq, h.hash into head_seq, head_hash from head h where h.validator = _validator for update;
    if not found then
        insert into head values (_validator, 0, sha256(convert_to(_validator, 'UTF8'))) on conflict do nothing;
        select h.seq, h.hash into head_seq, head_hash from head h where h.validator = _validator for update;
    end if;
    if _seq is distinct from head_seq + 1 or _prev is distinct from head_hash then
        raise exception 'the log stands at %', head_seq using errcode = 'AR001';
    end if;
    insert into body (validator, sha256, day, size, content)
        select _validator, b.sha, today, b.size, b.content from unnest(_body_sha256s, _body_sizes, _bodies) as b (sha, size, content)
        on conflict do nothing;
    -- NUL, which json functions refuse, may stand in texts that agents cause but in none of the fields read here.
    foreach given in array _contents loop
        select p.kind, coalesce(p.context ->> 'race_id', p.race_id, '') as race_id,
               decode(nullif(coalesce(p.body_sha256, p.verdict ->> 'body_sha256'), ''), 'hex') as body_sha256
            into sealed
            from json_to_record(replace(convert_from(given, 'UTF8'), '\u0000', '\u0001')::json -> 'payload')
                 as p (kind text, race_id text, body_sha256 text, context json, verdict json);
        if sealed.kind = 'evaluation' and not coalesce(sealed.body_sha256 = any (_body_sha256s), false) then
            if not exists (select from body b where b.validator = _validator and b.sha256 = sealed.body_sha256) then
                raise exception 'an evaluation names a body that is not stored' using errcode = 'AR003';
            end if;
        end if;
        sha := sha256(given);
        kinds := kinds || sealed.kind;
        races := races || sealed.race_id;
        body_names := body_names || sealed.body_sha256;
        prevs := prevs || head_hash;
        shas := shas || sha;
        head_hash := sha256(head_hash || sha);
    end loop;
    insert into record (validator, seq, day, kind, race_id, body_sha256, prev, sha256, signature, content)
        select _validator, head_seq + g.place, today, g.kind, g.race, g.body, g.prev, g.sha, g.signature, g.content
        from unnest(kinds, races, body_names, prevs, shas, _signatures, _contents) with ordinality
             as g (kind, race, body, prev, sha, signature, content, place);
    head_seq := head_seq + cardinality(_contents);
    update head h set seq = head_seq, hash = head_hash where h.validator = _validator;
    if _fence is not null then
        perform end_lease(_validator, _fence, _lease_state, _delay_ms, _is_fault, _is_counted);
    end if;
end $f$;

create function arena.enqueue(_validator text, _ids text[], _stages text[], _races text[], _agents text[], _work text[])
returns bigint language plpgsql security definer set search_path = arena, pg_temp as $f$
declare added bigint;
begin
    perform require(_validator);
    insert into item (validator, item_id, stage, race_id, agent_version_id, work)
        select _validator, g.id, g.stage, g.race, g.agent, g.work
        from unnest(_ids, _stages, _races, _agents, _work) as g (id, stage, race, agent, work)
        on conflict do nothing;
    get diagnostics added = row_count;
    return added;
end $f$;

-- Race items first; among items that may be tried now, those that faulted before stand behind the others. An item whose
-- lease ran out is not open again before its attempt is recorded, so it never has two holders.
create function arena.claim(_validator text, _stages text[], _count integer, _ttl_ms bigint)
returns table (fence bigint, work text, expires_ms bigint, faults integer, counted integer, refused integer)
language plpgsql security definer set search_path = arena, pg_temp as $f$
begin
    perform require(_validator);
    return query
    with c as (select i.item_id from item i
               where i.validator = _validator and i.state = 'open' and i.stage = any (_stages)
                 and i.not_before <= clock_timestamp()
               order by i.priority, i.faults > 0, i.ordinal for update of i skip locked limit _count),
         t as (update item i set state = 'leased' from c where i.validator = _validator and i.item_id = c.item_id
               returning i.item_id, i.work, i.priority, i.ordinal, i.faults, i.counted, i.refused),
         n as (insert into lease (item_id, validator, expires_at, faults, counted, refused)
               select t.item_id, _validator, clock_timestamp() + _ttl_ms * interval '1 millisecond',
                      t.faults, t.counted, t.refused
               from t order by t.priority, t.faults > 0, t.ordinal
               returning lease.fence, lease.item_id, lease.expires_at)
    select n.fence, t.work, (extract(epoch from n.expires_at) * 1000)::bigint, t.faults, t.counted, t.refused
    from n join t using (item_id) order by t.priority, t.faults > 0, t.ordinal;
end $f$;

-- Closes unfinished items of a race and stage (of one agent, unless ''); their leases are lost, and stay owed a record.
create function arena.close_items(_validator text, _race_id text, _stage text, _agent_version_id text)
returns bigint language plpgsql security definer set search_path = arena, pg_temp as $f$
declare closed bigint;
begin
    perform require(_validator);
    with c as (select i.item_id from item i
               where i.validator = _validator and i.race_id = _race_id and i.stage = _stage
                 and i.state in ('open', 'leased') and _agent_version_id in ('', i.agent_version_id)
               order by i.item_id for update of i),
         u as (update item i set state = 'closed' from c
               where i.validator = _validator and i.item_id = c.item_id returning i.item_id),
         l as (update lease l set state = 'lost' from u
               where l.validator = _validator and l.item_id = u.item_id and l.state = 'open')
    select count(*) into closed from u;
    return closed;
end $f$;

-- The new expiry in unix milliseconds, or null when the lease is no longer held.
create function arena.renew(_validator text, _fence bigint, _ttl_ms bigint) returns bigint
language plpgsql security definer set search_path = arena, pg_temp as $f$
declare later timestamptz;
begin
    perform require(_validator);
    update lease l set expires_at = greatest(l.expires_at, clock_timestamp() + _ttl_ms * interval '1 millisecond')
        where l.fence = _fence and l.validator = _validator and l.state = 'open' and l.expires_at > clock_timestamp()
        returning l.expires_at into later;
    return (extract(epoch from later) * 1000)::bigint;
end $f$;

-- Stores a submission, unless this version is there already; one that was withdrawn, or refused with an earlier commitment,
-- is replaced. `_is_alone`: and unless another of its hotkey waits. Returns the row that stands then: this version's, or the
-- waiting one's.
create function arena.put_submission(_validator text, _agent_version_id text, _miner_hotkey text, _agent_sha256 text,
                                     _commitment_block bigint, _commitment_sha256 text, _name text, _source bytea,
                                     _submitted_ms bigint, _signature text, _state text, _report text, _is_alone boolean)
returns table (agent_version_id text, miner_hotkey text, agent_sha256 text, commitment_block bigint, commitment_sha256 text,
               name text, submitted_ms bigint, signature text, state text, received_ms bigint, report text, failure text,
               qualifying_e4 integer, agreed text)
language plpgsql security definer set search_path = arena, pg_temp as $f$
#variable_conflict use_column
declare stands text := _agent_version_id;
begin
    perform require(_validator);
    if _is_alone then
        perform pg_advisory_xact_lock(hashtextextended('arena.submission ' || _validator || ' ' || _miner_hotkey, 0));
        select coalesce(min(s.agent_version_id), stands) into stands from submission s
            where s.validator = _validator and s.miner_hotkey = _miner_hotkey and s.state = 'waiting'
              and s.agent_version_id <> _agent_version_id;
    end if;
    if stands = _agent_version_id then
        insert into submission as s (validator, agent_version_id, miner_hotkey, agent_sha256, commitment_block,
                                     commitment_sha256, name, source, submitted_ms, signature, state, report)
            values (_validator, _agent_version_id, _miner_hotkey, _agent_sha256, _commitment_block, _commitment_sha256,
                    _name, _source, _submitted_ms, _signature, _state, _report)
            on conflict (validator, agent_version_id) do update
                set commitment_block = excluded.commitment_block, name = excluded.name, source = excluded.source,
                    submitted_ms = excluded.submitted_ms, signature = excluded.signature, state = excluded.state,
                    received_at = clock_timestamp(), report = excluded.report, failure = null
                where s.state = 'withdrawn' or (s.state = 'refused' and s.commitment_block < excluded.commitment_block);
    end if;
    return query
        select s.agent_version_id, s.miner_hotkey, s.agent_sha256, s.commitment_block, s.commitment_sha256, s.name,
               s.submitted_ms, s.signature, s.state, (extract(epoch from s.received_at) * 1000)::bigint, s.report,
               s.failure, s.qualifying_e4, s.agreed
        from submission s where s.validator = _validator and s.agent_version_id = stands;
end $f$;

-- False where there is no such submission, or it is not in the state `_was` ('': in whichever).
create function arena.set_submission_state(_validator text, _agent_version_id text, _was text, _state text, _report text,
                                           _failure text, _qualifying_e4 integer, _commitment_block bigint)
returns boolean language plpgsql security definer set search_path = arena, pg_temp as $f$
begin
    perform require(_validator);
    update submission s set
        state            = _state,
        source           = case when _state in ('withdrawn', 'refused') then '' else s.source end,
        report           = coalesce(nullif(_report, ''), s.report),
        failure          = _failure,
        qualifying_e4    = coalesce(_qualifying_e4, s.qualifying_e4),
        commitment_block = coalesce(nullif(_commitment_block, 0), s.commitment_block)
        where s.validator = _validator and s.agent_version_id = _agent_version_id and _was in ('', s.state);
    return found;
end $f$;

create function arena.put_agreed(_validator text, _agent_version_id text, _agreed text)
returns void language plpgsql security definer set search_path = arena, pg_temp as $f$
begin
    perform require(_validator);
    update submission s set agreed = _agreed where s.validator = _validator and s.agent_version_id = _agent_version_id;
end $f$;

create function arena.put_event(_validator text, _stream text, _index integer, _event text)
returns void language plpgsql security definer set search_path = arena, pg_temp as $f$
declare expected integer;
begin
    perform require(_validator);
    select coalesce(max(e.index) + 1, 0) into expected from event e where e.validator = _validator and e.stream = _stream;
    if _index is distinct from expected then
        raise exception 'stream % expects event %', _stream, expected using errcode = 'AR001';
    end if;
    insert into event (validator, stream, index, event) values (_validator, _stream, _index, _event);
end $f$;

create function arena.put_weights_result(_validator text, _race_id text, _block bigint, _uids integer[],
                                         _weights_u16 integer[], _status text, _detail text)
returns void language plpgsql security definer set search_path = arena, pg_temp as $f$
begin
    perform require(_validator);
    insert into weights_result (validator, race_id, block, uids, weights_u16, status, detail)
    values (_validator, _race_id, _block, _uids, _weights_u16, _status, _detail);
end $f$;

create function arena.put_checkpoint(_validator text, _size bigint, _note text, _signed_ms bigint)
returns void language plpgsql security definer set search_path = arena, pg_temp as $f$
begin
    perform require(_validator);
    insert into checkpoint (validator, size, note, signed_ms) values (_validator, _size, _note, _signed_ms)
        on conflict do nothing;
    if not exists (select from checkpoint c where c.validator = _validator and c.size = _size and c.note = _note) then
        raise exception 'another checkpoint of size % is stored', _size using errcode = 'AR004';
    end if;
end $f$;

create function arena.put_anchor(_validator text, _size bigint, _note_sha256 bytea, _block bigint)
returns void language plpgsql security definer set search_path = arena, pg_temp as $f$
begin
    perform require(_validator);
    if not exists (select from checkpoint c where c.validator = _validator and c.size = _size
                   and sha256(convert_to(c.note, 'UTF8')) = _note_sha256) then
        raise exception 'no such checkpoint of size %', _size using errcode = 'AR004';
    end if;
    insert into anchor (validator, size, note_sha256, block) values (_validator, _size, _note_sha256, _block)
        on conflict do nothing;
    if not exists (select from anchor a where a.validator = _validator and a.size = _size and a.block = _block) then
        raise exception 'the checkpoint of size % is anchored in another block', _size using errcode = 'AR004';
    end if;
end $f$;

-- True for a request that was not let through before. False for a repeated one, and where `_most` of one hotkey are kept.
create function arena.spend_nonce(_validator text, _hotkey text, _nonce_ns bigint, _keep_ms bigint, _most integer)
returns boolean language plpgsql security definer set search_path = arena, pg_temp as $f$
begin
    perform require(_validator);
    -- skip locked: requests that clean up at once do not wait for each other
    delete from nonce n using (
        select o.ctid from nonce o
        where o.validator = _validator and o.spent_at < clock_timestamp() - _keep_ms * interval '1 millisecond'
        limit 256 for update skip locked) old
        where n.ctid = old.ctid;
    if (select count(*) from nonce n where n.validator = _validator and n.hotkey = _hotkey) >= _most then
        return false;
    end if;
    insert into nonce (validator, hotkey, nonce_ns) values (_validator, _hotkey, _nonce_ns) on conflict do nothing;
    return found;
end $f$;

create function arena.put_usage(_validator text, _attempt_id text, _race_id text, _stage text, _agent_version_id text,
                                _rows jsonb)
returns void language plpgsql security definer set search_path = arena, pg_temp as $f$
begin
    perform require(_validator);
    insert into usage (validator, attempt_id, upstream, model, race_id, stage, agent_version_id, requests, attempts,
                       probes, prompt_tokens, completion_tokens, latency_ms, cost_micro_usd)
        select _validator, _attempt_id, r.upstream, r.model, _race_id, _stage, _agent_version_id, r.requests, r.attempts,
               r.probes, r.prompt_tokens, r.completion_tokens, r.latency_ms, r.cost_micro_usd
        from jsonb_to_recordset(_rows) as r(upstream text, model text, requests integer, attempts integer,
            probes integer, prompt_tokens bigint, completion_tokens bigint, latency_ms bigint, cost_micro_usd bigint)
        on conflict do nothing;
end $f$;

-- Who may read and call what.
--
-- A validator's role sees the rows of its own hotkey and no others: traces, sources and scores are nobody else's before
-- they are released. Who owns the tables (arena_owner, its members, a superuser) sees everything.

revoke all on schema arena from public;
revoke all on all tables in schema arena from public;
revoke all on all functions in schema arena from public;
grant usage on schema arena to arena_validator;
grant select on arena.alembic_version to arena_validator;

do $$ declare own text; callable regprocedure; begin
    foreach own in array array['head', 'record', 'body', 'checkpoint', 'anchor', 'item', 'lease', 'submission', 'nonce',
                               'event', 'usage', 'weights_result'] loop
        execute format('alter table arena.%I enable row level security', own);
        execute format('create policy own on arena.%I for select to arena_validator'
                       ' using (validator = (select arena.session_hotkey()))', own);
        execute format('grant select on arena.%I to arena_validator', own);
    end loop;
    foreach own in array array['checkpoint', 'anchor', 'usage'] loop
        execute format('create trigger no_change before update or delete on arena.%I for each row execute function arena.deny()', own);
        execute format('create trigger no_truncate before truncate on arena.%I for each statement execute function arena.deny()', own);
    end loop;
    for callable in
        select oid from pg_proc where pronamespace = 'arena'::regnamespace and proname = any (array[
            'session_hotkey', 'hold', 'append', 'put_checkpoint', 'put_anchor', 'enqueue', 'claim', 'renew', 'close_items',
            'put_submission', 'set_submission_state', 'put_agreed', 'spend_nonce', 'put_event', 'put_usage',
            'put_weights_result'])
    loop
        execute format('grant execute on function %s to arena_validator', callable);
    end loop;
end $$;
