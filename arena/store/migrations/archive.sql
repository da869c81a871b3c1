-- Revision 3: a record of an old day may leave its content to an archive in the object store. Number, hashes, signature
-- and what it is found by stay, so that the log, its checkpoints and its queries are what they were.

alter table arena.record alter column content drop not null;
alter table arena.record
    add column archive_sha256 bytea check (octet_length(archive_sha256) = 32),    -- the object that holds the content
    add constraint record_content check ((content is null) = (archive_sha256 is not null));

-- Puts a day's records and bodies in new partitions: records without the content that the named archive holds, bodies
-- without their bytes, which lie in the object store. Row triggers refuse every change of a row, so the old partitions are
-- dropped as a whole. Work items of races that were released on that day go, too. For the owner alone.
create function arena.archive_day(_day date, _validators text[], _seqs bigint[], _archives bytea[]) returns void
language plpgsql set search_path = arena, pg_temp as $f$
declare parent text; part text;
begin
    if _day > (clock_timestamp() at time zone 'UTC')::date - 3 then
        raise exception 'day % is still in use', _day using errcode = 'AR003';
    end if;
    perform pg_advisory_xact_lock(hashtextextended('arena.add_day', 0));
    foreach parent in array array['record', 'body'] loop
        part := parent || '_' || to_char(_day, 'YYYYMMDD');
        execute format('alter table arena.%I detach partition arena.%I', parent, part);
        execute format('alter table arena.%I rename to %I', part, parent || '_old');
    end loop;
    perform add_day(_day);
    insert into record (validator, seq, day, appended_at, kind, race_id, body_sha256, prev, sha256, signature, content, archive_sha256)
        select r.validator, r.seq, r.day, r.appended_at, r.kind, r.race_id, r.body_sha256, r.prev, r.sha256, r.signature,
               case when a.archive is null then r.content end, coalesce(a.archive, r.archive_sha256)
        from record_old r left join unnest(_validators, _seqs, _archives) as a (validator, seq, archive) using (validator, seq);
    insert into body (validator, sha256, day, size) select b.validator, b.sha256, b.day, b.size from body_old b;
    drop table record_old, body_old;
    delete from lease l using record r where r.day = _day and r.kind = 'release'
        and (l.validator, l.race_id) = (r.validator, r.race_id) and l.state in ('done', 'abandoned');
    delete from item i using record r where r.day = _day and r.kind = 'release'
        and (i.validator, i.race_id, i.stage) = (r.validator, r.race_id, 'race') and i.state in ('done', 'closed')
        and not exists (select from lease l where (l.validator, l.item_id) = (i.validator, i.item_id));
end $f$;
revoke execute on function arena.archive_day(date, text[], bigint[], bytea[]) from public;

-- Ends work as attempts say that stand in a log and not yet in its store: their items are as the latest of them left them,
-- held by nobody, and fences go on behind theirs. A fence only grows, and by no more than a life's attempts.
create function arena.end_work(_validator text, _ids text[], _fences bigint[], _states text[]) returns void
language plpgsql security definer set search_path = arena, pg_temp as $f$
declare ahead bigint := (select max(f) from unnest(_fences) f);
begin
    perform require(_validator);
    if ahead > (select last_value from fence) + 100000000 then
        raise exception 'fence % is too far ahead', ahead using errcode = 'AR003';
    end if;
    update lease l set state = 'abandoned'
        where l.validator = _validator and l.item_id = any (_ids) and l.state in ('open', 'lost');
    update item i set state = g.state
        from (select distinct on (id) id, state from unnest(_ids, _fences, _states) as g (id, fence, state) order by id, fence desc) g
        where i.validator = _validator and i.item_id = g.id and i.state in ('open', 'leased');
    perform setval('arena.fence', greatest(ahead, (select last_value from fence)));
end $f$;
revoke execute on function arena.end_work(text, text[], bigint[], text[]) from public;
grant execute on function arena.end_work(text, text[], bigint[], text[]) to arena_validator;
