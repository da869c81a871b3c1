-- The only ways in. Run as arena_owner, after 0001_log.sql and 0001_work.sql.
--
-- Every function is SECURITY DEFINER with a fixed search_path and first asks require(): the caller's login role
-- (session_user, which SET ROLE does not change) must belong to the hotkey it names. Refusals by SQLSTATE:
--   42501 another's hotkey · AR001 the head moved · AR002 the lease is not held · AR003 the content contradicts itself

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

-- How a lease ends inside append(). Locks the item before the lease, as claim() does.
create function arena.end_lease(_validator text, _fence bigint, _state text) returns void
language plpgsql set search_path = arena, pg_temp as $f$
declare held arena.lease;
begin
    perform from item where item_id = (select item_id from lease where fence = _fence) for update;
    select * into held from lease where fence = _fence and validator = _validator for update;
    if held.fence is null
       or not (held.state = 'open' or (held.state = 'lapsed' and _state = 'abandoned'))
       or (_state = 'done' and held.expires_at <= clock_timestamp()) then
        raise exception 'lease % is not held (%)', _fence, coalesce(held.state, 'unknown') using errcode = 'AR002';
    end if;
    update lease set state = _state where fence = _fence;
    if _state = 'done' then
        update item set remaining = remaining - 1 where item_id = held.item_id;
    elsif held.state = 'open' then
        update item set todo = todo + 1 where item_id = held.item_id;
    end if;
end $f$;

-- Appends records in order, with their bodies and the end of a lease: all or nothing. The caller names the head it
-- signed on; a moved head is refused, so that it reads the head and signs again. The database checks the chain and
-- that columns follow from content; signatures and compressed bodies it can't check: readers do.
create function arena.append(_validator text, _seq bigint, _prev bytea, _contents bytea[], _signatures bytea[],
                             _body_sha256s bytea[], _body_sizes integer[], _bodies bytea[],
                             _fence bigint default null, _lease_state text default null,
                             out head_seq bigint, out head_hash bytea)
language plpgsql security definer set search_path = arena, pg_temp as $f$
declare
    today date := (clock_timestamp() at time zone 'UTC')::date;
    given record; sealed record; sha bytea;
begin
    perform require(_validator);
    perform add_days_ahead(today);
    if cardinality(_contents) is distinct from cardinality(_signatures) or coalesce(cardinality(_contents), 0) = 0 then
        raise exception 'one signature per record' using errcode = 'AR003';
    end if;
    insert into head values (_validator, 0, sha256(convert_to(_validator, 'UTF8'))) on conflict do nothing;
    select h.seq, h.hash into head_seq, head_hash from head h where h.validator = _validator for update;
    if _seq is distinct from head_seq + 1 or _prev is distinct from head_hash then
        raise exception 'the log stands at %', head_seq using errcode = 'AR001';
    end if;
    insert into body (sha256, day, stored_by, size, content)
        select b.sha, today, _validator, b.size, b.content from unnest(_body_sha256s, _body_sizes, _bodies) as b (sha, size, content)
        on conflict do nothing;
    -- NUL, which json functions refuse, may stand in texts that agents cause but in none of the fields read here.
    for given in select * from unnest(_contents, _signatures) as g (content, signature) loop
        select p.kind, coalesce(p.context ->> 'race_id', p.race_id, '') as race_id,
               decode(nullif(coalesce(p.body_sha256, p.verdict ->> 'body_sha256'), ''), 'hex') as body_sha256
            into sealed
            from json_to_record(replace(convert_from(given.content, 'UTF8'), '\u0000', '\u0001')::json -> 'payload')
                 as p (kind text, race_id text, body_sha256 text, context json, verdict json);
        if sealed.kind = 'evaluation'
           and not exists (select from body b where b.sha256 = sealed.body_sha256 and b.day = today)
           and not exists (select from body b where b.sha256 = sealed.body_sha256) then
            raise exception 'an evaluation names a body that is not stored' using errcode = 'AR003';
        end if;
        sha := sha256(given.content);
        head_seq := head_seq + 1;
        insert into record (validator, seq, day, kind, race_id, body_sha256, prev, sha256, signature, content)
        values (_validator, head_seq, today, sealed.kind, sealed.race_id, sealed.body_sha256,
                head_hash, sha, given.signature, given.content);
        head_hash := sha256(head_hash || sha);
    end loop;
    update head h set seq = head_seq, hash = head_hash where h.validator = _validator;
    if _fence is not null then
        perform end_lease(_validator, _fence, _lease_state);
    end if;
end $f$;

create function arena.enqueue(_validator text, _ids text[], _stages text[], _races text[], _copies integer[], _work text[])
returns bigint language plpgsql security definer set search_path = arena, pg_temp as $f$
declare added bigint;
begin
    perform require(_validator);
    insert into item (item_id, stage, race_id, copies, todo, remaining, work)
        select g.id, g.stage, g.race, g.copies, g.copies, g.copies, g.work
        from unnest(_ids, _stages, _races, _copies, _work) as g (id, stage, race, copies, work)
        on conflict do nothing;
    get diagnostics added = row_count;
    return added;
end $f$;

-- Returns the slots of leases that ran out. Items are locked FIRST, then leases, in claim()'s order: a sweep that
-- locked leases first deadlocked.
create function arena.sweep() returns void language sql set search_path = arena, pg_temp as $f$
    with i as (select item_id from item
               where item_id in (select item_id from lease where state = 'open' and expires_at <= clock_timestamp())
               order by item_id for update skip locked),
         gone as (update lease l set state = 'lapsed' from i
                  where l.item_id = i.item_id and l.state = 'open' and l.expires_at <= clock_timestamp() returning l.item_id)
    update item set todo = todo + x.n from (select item_id, count(*) as n from gone group by item_id) x
    where item.item_id = x.item_id
$f$;

-- Claims of one validator are serial (advisory lock), so it never holds one item twice; those of several run at once.
create function arena.claim(_validator text, _stages text[], _count integer, _ttl_ms bigint)
returns table (fence bigint, work text, expires_ms bigint, attempts integer)
language plpgsql security definer set search_path = arena, pg_temp as $f$
begin
    perform require(_validator);
    perform pg_advisory_xact_lock(hashtextextended('arena.claim ' || _validator, 0));
    perform sweep();
    return query
    with c as (select i.item_id from item i
               where i.todo > 0 and i.stage = any (_stages)
                 and not exists (select from lease l where l.item_id = i.item_id and l.validator = _validator
                                                       and l.state in ('open', 'lapsed', 'done'))
               order by i.priority, i.ordinal for update of i skip locked limit _count),
         t as (update item i set todo = i.todo - 1 from c where i.item_id = c.item_id
               returning i.item_id, i.work, i.priority, i.ordinal),
         n as (insert into lease (item_id, validator, expires_at, attempts)
               select t.item_id, _validator, clock_timestamp() + _ttl_ms * interval '1 millisecond',
                      (select count(*) from lease l where l.item_id = t.item_id and l.validator = _validator)
               from t order by t.priority, t.ordinal
               returning lease.fence, lease.item_id, lease.expires_at, lease.attempts)
    select n.fence, t.work, (extract(epoch from n.expires_at) * 1000)::bigint, n.attempts
    from n join t using (item_id) order by t.priority, t.ordinal;
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

create function arena.release(_validator text, _fence bigint) returns void
language plpgsql security definer set search_path = arena, pg_temp as $f$
begin
    perform require(_validator);
    perform end_lease(_validator, _fence, 'released');
end $f$;

create function arena.put_submission(_validator text, _agent_version_id text, _miner_hotkey text, _agent_sha256 text,
                                     _commitment_block bigint, _commitment_sha256 text, _name bytea, _source bytea,
                                     _state text, _submitted_block bigint, _report text)
returns void language plpgsql security definer set search_path = arena, pg_temp as $f$
begin
    perform require(_validator);
    insert into submission (validator, agent_version_id, miner_hotkey, agent_sha256, commitment_block, commitment_sha256,
                            name, source, state, submitted_block, report)
    values (_validator, _agent_version_id, _miner_hotkey, _agent_sha256, _commitment_block, _commitment_sha256,
            _name, _source, _state, _submitted_block, _report)
    on conflict (validator, agent_version_id) do update
        set commitment_block = excluded.commitment_block, commitment_sha256 = excluded.commitment_sha256, name = excluded.name,
            source = excluded.source, state = excluded.state, submitted_block = excluded.submitted_block, report = excluded.report;
end $f$;

create function arena.set_submission_state(_validator text, _agent_version_id text, _state text, _report text)
returns boolean language plpgsql security definer set search_path = arena, pg_temp as $f$
begin
    perform require(_validator);
    update submission s set state = _state, report = coalesce(nullif(_report, ''), s.report)
        where s.validator = _validator and s.agent_version_id = _agent_version_id;
    return found;
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

revoke all on schema arena from public;
revoke all on all tables in schema arena from public;
revoke all on all functions in schema arena from public;
grant usage on schema arena to arena_validator;
grant select on all tables in schema arena to arena_validator;
grant execute on function
    arena.session_hotkey(),
    arena.append(text, bigint, bytea, bytea[], bytea[], bytea[], integer[], bytea[], bigint, text),
    arena.enqueue(text, text[], text[], text[], integer[], text[]),
    arena.claim(text, text[], integer, bigint),
    arena.renew(text, bigint, bigint),
    arena.release(text, bigint),
    arena.put_submission(text, text, text, text, bigint, text, bytea, bytea, text, bigint, text),
    arena.set_submission_state(text, text, text, text),
    arena.put_event(text, text, integer, text),
    arena.put_weights_result(text, text, bigint, integer[], integer[], text, text)
    to arena_validator;
