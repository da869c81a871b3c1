-- What miners send over HTTP: each signed request once, and of each hotkey one submission at a time. Both hold across
-- processes and restarts, since the database decides them. Run as arena_owner.

-- Requests that were let through. A request's own age ends it long before its row goes.
create table arena.nonce (
    validator text not null,
    hotkey    text not null,
    nonce_ns  bigint not null,
    spent_at  timestamptz not null default clock_timestamp(),
    primary key (validator, hotkey, nonce_ns)
);
create index nonce_age on arena.nonce (validator, spent_at);

-- waiting: not gated yet · decided: it has a receipt · withdrawn: its miner took it back before that.
create table arena.arrival (
    validator        text not null,
    agent_version_id text not null,
    miner_hotkey     text not null,
    commitment_block bigint not null,
    name             text not null,
    submission       bytea check (octet_length(submission) <= 8388608),    -- as signed; null once it no longer waits
    state            text not null default 'waiting' check (state in ('waiting', 'decided', 'withdrawn')),
    received_at      timestamptz not null default clock_timestamp(),
    primary key (validator, agent_version_id)
);
create unique index arrival_waiting on arena.arrival (validator, miner_hotkey) where state = 'waiting';
create index arrival_hotkey on arena.arrival (validator, miner_hotkey);

-- How far an agent is, by counts.
create index item_agent on arena.item (validator, agent_version_id);

do $$ declare own text; begin
    foreach own in array array['nonce', 'arrival'] loop
        execute format('alter table arena.%I enable row level security', own);
        execute format('create policy own on arena.%I for select to arena_validator'
                       ' using (validator = (select arena.session_hotkey()))', own);
        execute format('grant select on arena.%I to arena_validator', own);
    end loop;
end $$;

-- True for a request that was not let through before. False for a repeated one, and where `_most` of one hotkey are kept.
create function arena.spend_nonce(_validator text, _hotkey text, _nonce_ns bigint, _keep_ms bigint, _most integer)
returns boolean language plpgsql security definer set search_path = arena, pg_temp as $f$
begin
    perform require(_validator);
    -- skip locked: requests that clean up at once do not wait for each other
    delete from nonce n using (
        select o.ctid from nonce o
        where o.validator = _validator and o.spent_at < clock_timestamp() - _keep_ms * interval '1 millisecond'
        limit 256 for update skip locked) old
        where n.ctid = old.ctid;
    if (select count(*) from nonce n where n.validator = _validator and n.hotkey = _hotkey) >= _most then
        return false;
    end if;
    insert into nonce (validator, hotkey, nonce_ns) values (_validator, _hotkey, _nonce_ns) on conflict do nothing;
    return found;
end $f$;

-- Takes a submission in, unless this version is there already with this commitment or a later one and was not withdrawn,
-- or another of its hotkey waits. Returns the row that stands for the hotkey then: this one's where it is there, else the waiting one's.
create function arena.receive(_validator text, _agent_version_id text, _miner_hotkey text, _commitment_block bigint,
                              _name text, _submission bytea)
returns table (agent_version_id text, miner_hotkey text, commitment_block bigint, name text, state text, received_ms bigint)
language plpgsql security definer set search_path = arena, pg_temp as $f$
#variable_conflict use_column
begin
    perform require(_validator);
    begin
        insert into arrival as a (validator, agent_version_id, miner_hotkey, commitment_block, name, submission)
            values (_validator, _agent_version_id, _miner_hotkey, _commitment_block, _name, _submission)
            on conflict (validator, agent_version_id) do update
                set commitment_block = excluded.commitment_block, name = excluded.name, submission = excluded.submission,
                    state = 'waiting', received_at = clock_timestamp()
                where a.state = 'withdrawn' or (a.state = 'decided' and a.commitment_block < excluded.commitment_block);
    exception when unique_violation then null;    -- another of this hotkey waits
    end;
    return query
        select r.agent_version_id, r.miner_hotkey, r.commitment_block, r.name, r.state,
               (extract(epoch from r.received_at) * 1000)::bigint
        from arrival r
        where r.validator = _validator and r.miner_hotkey = _miner_hotkey
          and (r.state = 'waiting'
               or (r.agent_version_id = _agent_version_id and r.commitment_block >= _commitment_block))
        order by (r.agent_version_id = _agent_version_id) desc limit 1;
end $f$;

-- Ends a wait; false where the version does not wait.
create function arena.close_arrival(_validator text, _agent_version_id text, _state text)
returns boolean language plpgsql security definer set search_path = arena, pg_temp as $f$
begin
    perform require(_validator);
    update arrival a set state = _state, submission = null
        where a.validator = _validator and a.agent_version_id = _agent_version_id and a.state = 'waiting';
    return found;
end $f$;

revoke all on function
    arena.spend_nonce(text, text, bigint, bigint, integer),
    arena.receive(text, text, text, bigint, text, bytea),
    arena.close_arrival(text, text, text)
    from public;
grant execute on function
    arena.spend_nonce(text, text, bigint, bigint, integer),
    arena.receive(text, text, text, bigint, text, bytea),
    arena.close_arrival(text, text, text)
    to arena_validator;
