-- Attempts that ended because an endpoint refused a request have a counter of their own, and with it a cap of their own:
-- neither uses up what the policy allows for faults of this validator. end_lease() of 0001 gains the ending 'refused', an
-- abandoned lease that raises the counter, so append() keeps its signature; claim() returns it. Run as arena_owner.

alter table arena.item add column refused integer not null default 0;   -- attempts that ended by a refused request
alter table arena.lease add column refused integer not null default 0;  -- of the item when it was claimed

create or replace function arena.end_lease(_validator text, _fence bigint, _state text, _delay_ms bigint, _is_fault boolean, _is_counted boolean)
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

drop function arena.claim(text, text[], integer, bigint);
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
revoke all on function arena.claim(text, text[], integer, bigint) from public;
grant execute on function arena.claim(text, text[], integer, bigint) to arena_validator;
