-- Bodies in an object store, and verdicts by the body they judge. Run as arena_owner.
--
-- Appends stop at the head, which they take first: a lock that came later in their order would deadlock with them.
lock table arena.head in exclusive mode;

-- An index of a partitioned table can't be built concurrently. They come before the change of bodies, so that their
-- readers do not wait for them. Partitions made later get theirs at ATTACH.
create index record_verdict on arena.record (validator, body_sha256) where kind = 'verdict';
create index body_elsewhere on arena.body (validator, sha256) where content is null;

-- content null: the frame lies in the validator's object store, which append() can't see. It was written there first.
alter table arena.body alter column content drop not null;
do $$ declare part regclass; begin    -- made by LIKE and then attached: each has the constraint as its own, too
    for part in select inhrelid::regclass from pg_inherits where inhparent = 'arena.body'::regclass loop
        execute format('alter table %s alter column content drop not null', part);
    end loop;
end $$;
