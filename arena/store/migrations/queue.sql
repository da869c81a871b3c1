-- Revision 2: the queue charges worker time to owners, and counts what a race's or a suite's agent used.
--
-- worker_ms is charged to the owner in its race, or in qualifying: at the claim what an episode may take, from its end on
-- what it took. agent_ms is what the agent's own code ran, body_bytes what is stored of the episode.

alter table arena.item add column owner text;              -- who is charged for its worker time; '': this validator
update arena.item set owner = coalesce(work::json -> 'subject' ->> 'miner_hotkey', '');
alter table arena.item alter column owner set not null;
drop index arena.item_claim;
create index item_claim on arena.item (validator, race_id, owner, (faults > 0), ordinal) where state = 'open';

alter table arena.lease
    add column race_id text, add column owner text,
    add column claimed_at timestamptz not null default clock_timestamp(),
    add column worker_ms bigint not null default 0,
    add column agent_ms bigint not null default 0,
    add column body_bytes bigint not null default 0;
update arena.lease l set race_id = i.race_id, owner = i.owner from arena.item i where (i.validator, i.item_id) = (l.validator, l.item_id);
alter table arena.lease alter column race_id set not null, alter column owner set not null;
create index lease_charged on arena.lease (validator, race_id, owner, claimed_at);

drop function arena.enqueue(text, text[], text[], text[], text[], text[]);
drop function arena.claim(text, text[], integer, bigint);

-- How a lease ends inside append(), after its attempt record. Locks the item before the lease, as claim() and close_items()
-- do. A lease that ran out or was lost can still be abandoned, since its attempt record is owed; a closed item stays closed.
create or replace function arena.end_lease(_validator text, _fence bigint, _state text, _delay_ms bigint, _is_fault boolean, _is_counted boolean)
returns void language plpgsql set search_path = arena, pg_temp as $f$
declare
    held arena.lease;
    ran_ms bigint; kept_bytes bigint;
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
    select (replace(convert_from(r.content, 'UTF8'), '\u0000', '\u0001')::json -> 'host' ->> 'agent_time_ms')::bigint, b.size
        into ran_ms, kept_bytes
        from record r left join body b on b.validator = r.validator and b.sha256 = r.body_sha256
        where r.validator = _validator and r.kind = 'attempt' and r.day > (clock_timestamp() at time zone 'utc')::date - 2
        order by r.seq desc limit 1;
    update lease l set state = _state, agent_ms = coalesce(ran_ms, 0), body_bytes = coalesce(kept_bytes, 0),
        worker_ms = extract(epoch from least(clock_timestamp(), l.expires_at) - l.claimed_at) * 1000
        where l.fence = _fence;
    update item i set
        state      = case when i.state = 'closed' then 'closed' when _state = 'done' then 'done' else 'open' end,
        not_before = case when _delay_ms > 0 then clock_timestamp() + _delay_ms * interval '1 millisecond' else i.not_before end,
        faults     = i.faults + _is_fault::integer,
        counted    = i.counted + _is_counted::integer,
        refused    = i.refused + coalesce(is_refused, false)::integer
        where i.validator = _validator and i.item_id = held.item_id;
end $f$;

create function arena.enqueue(_validator text, _ids text[], _stages text[], _races text[], _agents text[], _owners text[],
                              _work text[])
returns bigint language plpgsql security definer set search_path = arena, pg_temp as $f$
declare added bigint;
begin
    perform require(_validator);
    insert into item (validator, item_id, stage, race_id, agent_version_id, owner, work)
        select _validator, g.id, g.stage, g.race, g.agent, g.owner, g.work
        from unnest(_ids, _stages, _races, _agents, _owners, _work) as g (id, stage, race, agent, owner, work)
        on conflict do nothing;
    get diagnostics added = row_count;
    return added;
end $f$;

-- Race items first; those that faulted before behind the others; this validator's own first; then those of the owner that
-- was charged least in that race, or in qualifying, within a day. One claim at a time, so each sees what others charged.
-- An item whose lease ran out is not open again before its attempt is recorded, so it never has two holders.
create function arena.claim(_validator text, _stages text[], _count integer, _ttl_ms bigint, _charge_ms bigint)
returns table (fence bigint, work text, expires_ms bigint, faults integer, counted integer, refused integer, owner text,
               agent_ms bigint, body_bytes bigint)
language plpgsql security definer set search_path = arena, pg_temp as $f$
#variable_conflict use_column
declare
    taken item; held lease;
    now timestamptz;
begin
    perform require(_validator);
    perform pg_advisory_xact_lock(hashtextextended('arena.claim ' || _validator, 0));
    for turn in 1.._count loop
        now := clock_timestamp();
        select i.* into taken from item i where i.validator = _validator and i.state = 'open' and i.item_id = (
            select f.item_id
            from (select distinct i.race_id, i.owner from item i where i.validator = _validator and i.state = 'open') o
            cross join lateral (
                select i.item_id, i.priority, i.faults > 0 as has_faults, i.ordinal from item i
                where i.validator = _validator and i.state = 'open' and i.race_id = o.race_id and i.owner = o.owner
                  and i.stage = any (_stages) and i.not_before <= now
                order by i.priority, i.faults > 0, i.ordinal limit 1) f
            cross join lateral (
                select sum(case when l.state in ('done', 'abandoned') then l.worker_ms else greatest(l.worker_ms,
                    extract(epoch from least(now, l.expires_at) - l.claimed_at) * 1000) end) as worker_ms
                from lease l where l.validator = _validator and l.race_id = o.race_id and l.owner = o.owner
                  and l.claimed_at > now - interval '1 day') l
            order by f.priority, f.has_faults, o.owner <> '', coalesce(l.worker_ms, 0), f.ordinal limit 1)
            for update skip locked;
        exit when taken.item_id is null;
        update item i set state = 'leased' where i.validator = _validator and i.item_id = taken.item_id;
        insert into lease as l (item_id, validator, expires_at, faults, counted, refused, race_id, owner, worker_ms)
            values (taken.item_id, _validator, clock_timestamp() + _ttl_ms * interval '1 millisecond', taken.faults,
                    taken.counted, taken.refused, taken.race_id, taken.owner, _charge_ms)
            returning l.* into held;
        return query select held.fence, taken.work, (extract(epoch from held.expires_at) * 1000)::bigint, taken.faults,
            taken.counted, taken.refused, taken.owner, coalesce(sum(l.agent_ms), 0)::bigint,
            coalesce(sum(l.body_bytes), 0)::bigint
            from lease l join item i using (validator, item_id)
            where l.validator = _validator and l.race_id = taken.race_id and l.owner = taken.owner
              and i.agent_version_id = taken.agent_version_id and l.claimed_at > now - interval '1 day';
    end loop;
end $f$;

revoke all on function arena.enqueue, arena.claim from public;
grant execute on function arena.enqueue, arena.claim to arena_validator;
