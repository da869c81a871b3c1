-- Signed checkpoints of each validator's log, and where the chain holds their hashes. Run as arena_owner.
--
-- Both only grow. Refusals by SQLSTATE: 42501 another's hotkey · AR004 contradicts what is stored. The database checks
-- neither the note's signature nor its root: readers do.

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

do $$ declare own text; begin
    foreach own in array array['checkpoint', 'anchor'] loop
        execute format('create trigger no_change before update or delete on arena.%I for each row execute function arena.deny()', own);
        execute format('create trigger no_truncate before truncate on arena.%I for each statement execute function arena.deny()', own);
        execute format('alter table arena.%I enable row level security', own);
        execute format('create policy own on arena.%I for select to arena_validator'
                       ' using (validator = (select arena.session_hotkey()))', own);
        execute format('grant select on arena.%I to arena_validator', own);
    end loop;
end $$;

revoke all on function arena.put_checkpoint(text, bigint, text, bigint), arena.put_anchor(text, bigint, bytea, bigint) from public;
grant execute on function arena.put_checkpoint(text, bigint, text, bigint), arena.put_anchor(text, bigint, bytea, bigint)
    to arena_validator;
