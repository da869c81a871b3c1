-- What model endpoints were asked for, by attempt: an account for the operator, no evidence. Run as arena_owner.
--
-- It only grows, as the log does; a second account of an attempt changes nothing. cost_micro_usd is null where the
-- endpoint's prices are not known.

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

create trigger no_change before update or delete on arena.usage for each row execute function arena.deny();
create trigger no_truncate before truncate on arena.usage for each statement execute function arena.deny();
alter table arena.usage enable row level security;
create policy own on arena.usage for select to arena_validator using (validator = (select arena.session_hotkey()));
grant select on arena.usage to arena_validator;

revoke all on function arena.put_usage(text, text, text, text, text, jsonb) from public;
grant execute on function arena.put_usage(text, text, text, text, text, jsonb) to arena_validator;
