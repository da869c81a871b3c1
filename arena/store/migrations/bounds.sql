-- What any login could fill the server's disk with beside the store's own functions: large objects, messages in the
-- write-ahead log, temporary tables. Safe to run again. Only a superuser may take these from everybody: where the owner
-- is none, the server's administrator runs this file once (README.md).

do $$ declare filler regprocedure; begin
    if not (select rolsuper from pg_roles where rolname = current_user) then return; end if;
    for filler in
        select oid from pg_proc
        where pronamespace = 'pg_catalog'::regnamespace
          and (proname in ('lo_creat', 'lo_create', 'lo_from_bytea', 'lo_import', 'lo_put', 'lo_open', 'lowrite',
                           'lo_truncate', 'lo_truncate64', 'pg_logical_emit_message'))
          and has_function_privilege('arena_validator', oid, 'execute')
    loop
        execute format('revoke execute on function %s from public', filler);
    end loop;
    if has_database_privilege('arena_validator', current_database(), 'temporary') then
        execute format('revoke temporary on database %I from public', current_database());
    end if;
end $$;
