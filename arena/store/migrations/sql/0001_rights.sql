-- Who may read and call what. Run as arena_owner, after the other files of this revision.
--
-- A validator's role sees the rows of its own hotkey and no others: traces, sources and scores are nobody else's before
-- they are released. Who owns the tables (arena_owner, its members, a superuser) sees everything.

revoke all on schema arena from public;
revoke all on all tables in schema arena from public;
revoke all on all functions in schema arena from public;
grant usage on schema arena to arena_validator;
grant select on arena.alembic_version to arena_validator;

do $$ declare own text; begin
    foreach own in array array['head', 'record', 'body', 'item', 'lease', 'submission', 'event', 'weights_result'] loop
        execute format('alter table arena.%I enable row level security', own);
        execute format('create policy own on arena.%I for select to arena_validator'
                       ' using (validator = (select arena.session_hotkey()))', own);
        execute format('grant select on arena.%I to arena_validator', own);
    end loop;
end $$;

grant execute on function
    arena.session_hotkey(),
    arena.hold(text),
    arena.append(text, bigint, bytea, bytea[], bytea[], bytea[], integer[], bytea[], bigint, text, bigint, boolean, boolean),
    arena.enqueue(text, text[], text[], text[], text[], text[]),
    arena.claim(text, text[], integer, bigint),
    arena.renew(text, bigint, bigint),
    arena.close_items(text, text, text, text),
    arena.put_submission(text, text, text, text, bigint, text, bytea, bytea, text, bigint, text),
    arena.set_submission_state(text, text, text, text),
    arena.put_event(text, text, integer, text),
    arena.put_weights_result(text, text, bigint, integer[], integer[], text, text)
    to arena_validator;
