-- Roles and schema that every revision needs. Safe to run again; run as the database's owner before any revision.
--
-- arena_owner (no login) owns every object, so that SECURITY DEFINER functions never run as a superuser;
-- arena_validator (no login) holds the rights that each validator's own login role inherits.

do $$ begin
    if not exists (select from pg_roles where rolname = 'arena_owner') then create role arena_owner nologin; end if;
    if not exists (select from pg_roles where rolname = 'arena_validator') then create role arena_validator nologin; end if;
end $$;

grant arena_owner to current_user;
create schema if not exists arena authorization arena_owner;
