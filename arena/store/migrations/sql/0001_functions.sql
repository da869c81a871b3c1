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
declare held arena.lease;
begin
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
        counted    = i.counted + _is_counted::integer
        where i.validator = _validator and i.item_id = held.item_id;
end $f$;

-- Appends records in order, with their bodies and the end of a lease: all or nothing. The caller names the head it
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
    insert into body (validator, sha256, day, size, content)
        select _validator, b.sha, today, b.size, b.content from unnest(_body_sha256s, _body_sizes, _bodies) as b (sha, size, content)
        on conflict do nothing;
    -- NUL, which json functions refuse, may stand in texts that agents cause but in none of the fields read here.
    for given in select * from unnest(_contents, _signatures) as g (content, signature) loop
        select p.kind, coalesce(p.context ->> 'race_id', p.race_id, '') as race_id,
               decode(nullif(coalesce(p.body_sha256, p.verdict ->> 'body_sha256'), ''), 'hex') as body_sha256
            into sealed
            from json_to_record(replace(convert_from(given.content, 'UTF8'), '\u0000', '\u0001')::json -> 'payload')
                 as p (kind text, race_id text, body_sha256 text, context json, verdict json);
        if sealed.kind = 'evaluation'
           and not exists (select from body b where b.validator = _validator and b.sha256 = sealed.body_sha256 and b.day = today)
           and not exists (select from body b where b.validator = _validator and b.sha256 = sealed.body_sha256) then
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
returns table (fence bigint, work text, expires_ms bigint, faults integer, counted integer)
language plpgsql security definer set search_path = arena, pg_temp as $f$
begin
    perform require(_validator);
    return query
    with c as (select i.item_id from item i
               where i.validator = _validator and i.state = 'open' and i.stage = any (_stages)
                 and i.not_before <= clock_timestamp()
               order by i.priority, i.faults > 0, i.ordinal for update of i skip locked limit _count),
         t as (update item i set state = 'leased' from c where i.validator = _validator and i.item_id = c.item_id
               returning i.item_id, i.work, i.priority, i.ordinal, i.faults, i.counted),
         n as (insert into lease (item_id, validator, expires_at, faults, counted)
               select t.item_id, _validator, clock_timestamp() + _ttl_ms * interval '1 millisecond', t.faults, t.counted
               from t order by t.priority, t.faults > 0, t.ordinal
               returning lease.fence, lease.item_id, lease.expires_at)
    select n.fence, t.work, (extract(epoch from n.expires_at) * 1000)::bigint, t.faults, t.counted
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
