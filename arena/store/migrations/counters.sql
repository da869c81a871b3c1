-- Revision 5, and 4 before it: what a log's copy brings back counts, from when it ended, so that after a lost disk an
-- agent has the tries and the worker time left that it had before.
--
-- Ends work as attempts say that stand in a log and not yet in its store: their items are as the latest of them left them,
-- held by nobody, and fences go on behind theirs. An attempt counts by the lease that it leaves, so it counts once, however
-- often it is given. A fence only grows, and by no more than a life's attempts.
drop function if exists
    arena.end_work(text, text[], bigint[], text[]),
    arena.end_work(text, text[], bigint[], text[], boolean[], boolean[], boolean[], bigint[], bigint[]);
create function arena.end_work(_validator text, _ids text[], _fences bigint[], _states text[], _faults boolean[],
                               _counted boolean[], _refused boolean[], _agent_ms bigint[], _body_bytes bigint[],
                               _worker_ms bigint[], _at_ms bigint[])
returns void language plpgsql security definer set search_path = arena, pg_temp as $f$
declare ahead bigint := (select max(f) from unnest(_fences) f);
begin
    perform require(_validator);
    if ahead > (select last_value from fence) + 100000000 then
        raise exception 'fence % is too far ahead', ahead using errcode = 'AR003';
    end if;
    with given as (
        select * from unnest(_ids, _fences, _states, _faults, _counted, _refused, _agent_ms, _body_bytes,
                             _worker_ms, _at_ms)
            as g (item_id, fence, ends, is_fault, is_counted, is_refused, agent_ms, body_bytes, worker_ms, at_ms)),
    ended as (
        insert into lease as l (fence, validator, item_id, expires_at, faults, counted, refused, state, race_id, owner,
                                agent_ms, body_bytes, worker_ms, claimed_at)
            select g.fence, i.validator, i.item_id, clock_timestamp(), i.faults, i.counted, i.refused,
                   case g.ends when 'done' then 'done' else 'abandoned' end, i.race_id, i.owner, g.agent_ms, g.body_bytes,
                   g.worker_ms, least(to_timestamp((g.at_ms - g.worker_ms) / 1000.0), clock_timestamp())
            from given g join item i on i.validator = _validator and i.item_id = g.item_id
            on conflict (fence) do update
                set state = excluded.state, agent_ms = excluded.agent_ms, body_bytes = excluded.body_bytes,
                    worker_ms = excluded.worker_ms
                where (l.validator, l.item_id) = (excluded.validator, excluded.item_id) and l.state in ('open', 'lost')
            returning l.fence),
    tries as (
        select g.item_id, count(*) filter (where g.is_fault) as faults, count(*) filter (where g.is_counted) as counted,
               count(*) filter (where g.is_refused) as refused
        from given g join ended using (fence) group by g.item_id),
    latest as (select distinct on (g.item_id) g.item_id, g.ends from given g order by g.item_id, g.fence desc)
    update item i set faults = i.faults + coalesce(t.faults, 0), counted = i.counted + coalesce(t.counted, 0),
        refused = i.refused + coalesce(t.refused, 0),
        state = case when i.state in ('open', 'leased') then g.ends else i.state end
        from latest g left join tries t using (item_id) where i.validator = _validator and i.item_id = g.item_id;
    update lease l set state = 'abandoned'
        where l.validator = _validator and l.item_id = any (_ids) and l.state in ('open', 'lost');
    perform setval('arena.fence', greatest(ahead, (select last_value from fence)));
end $f$;
revoke execute on function arena.end_work from public;
grant execute on function arena.end_work to arena_validator;
