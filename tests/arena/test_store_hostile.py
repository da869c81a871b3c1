"""The store against what goes wrong around it: ends of months and days, odd sessions, a full disk, readers that do not
leave, a bucket that shows a validator its own prefix only, a power cut after an append."""

from __future__ import annotations

import pytest

from arena.chain.keys import generate_signer, verify
from arena.records.sequencer import Sequencer
from arena.records.verification import verify_store
from arena.store.embedded import EmbeddedServer
from foundation.errors import ArenaError
from tests.arena.log_stand import HOST, Clock, attempt, episode
from tests.arena.test_store_roles import as_owner

# -- days


# -- a full disk, readers that do not leave


async def test_a_full_disk_is_a_pause_and_not_a_loss(postgres: EmbeddedServer, open_store) -> None:
    signer = generate_signer()
    store = await open_store(signer.hotkey)
    sequencer = Sequencer(store, signer, Clock(), HOST)
    await sequencer.append([attempt(1)])
    await as_owner(
        postgres,
        "create function public.full_disk() returns trigger language plpgsql as"
        " $$ begin raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$",
        f"create trigger full_disk before insert on arena.record for each row"
        f" when (new.validator = '{signer.hotkey}') execute function public.full_disk()",
    )
    try:
        payloads, body = episode(2)
        with pytest.raises(ArenaError, match="V2021") as paused:
            await sequencer.append(payloads, [body])
        assert paused.value.entry.is_retryable
        assert (await store.head()).seq == 1
        assert await store.body(body.body_sha256) is None
    finally:
        await as_owner(postgres, "drop trigger full_disk on arena.record", "drop function public.full_disk()")
    assert (await sequencer.append(payloads, [body])).seq == 4
    assert (await verify_store(store, verify)).is_ok


# -- objects
