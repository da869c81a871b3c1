-- append() of 0001 in fewer statements: the same checks and the same rows, inserted at once instead of one by one. A body
-- that did not come with the call is looked for in every day's partition: only then is that query begun. content null in
-- _bodies: the frame lies in an object store. Run as arena_owner; the signature stays, and with it the rights.

create or replace function arena.append(_validator text, _seq bigint, _prev bytea, _contents bytea[], _signatures bytea[],
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
