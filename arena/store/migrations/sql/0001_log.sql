-- The log: records (partitioned by UTC day of arrival), bodies by content, one head per validator. Run as arena_owner.
--
-- Layers: (1) rights: a validator's role may SELECT its own rows (0001_rights.sql) and EXECUTE the functions of
-- 0001_functions.sql, nothing else; (2) triggers refuse UPDATE, DELETE and TRUNCATE of records and bodies to everybody, owner and superuser included;
-- (3) a superuser can still disable triggers or drop tables, so evidence lives outside: signatures and checkpoints.

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

-- A body is its validator's own: the server can't check a hash of compressed bytes, so one that was shared by its hash
-- alone could be put there, wrong, by whoever came first.
create table arena.body (
    validator text  not null,
    sha256    bytea not null check (octet_length(sha256) = 32),
    day       date  not null,
    size      integer not null check (size > 0),    -- bytes before compression
    content   bytea not null,                       -- zstd of the canonical bytes
    primary key (validator, sha256, day)
) partition by range (day);

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
