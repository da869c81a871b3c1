"""The hold on a hotkey: one process at a time, let go by the server when its holder is gone."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from arena.chain.port import Signer
from arena.records.sequencer import Sequencer
from arena.store.embedded import EmbeddedServer
from arena.store.postgres import PostgresStore
from arena.store.schema import role_of
from foundation.errors import ArenaError
from tests.arena.conftest import OpenStore
from tests.arena.log_stand import HOST, Clock, attempt, item
from tests.arena.test_store_roles import as_owner

ROOT = Path(__file__).parents[2]
HOLDERS = (
    "from pg_locks l join pg_stat_activity a using (pid)"
    " where l.locktype = 'advisory' and l.granted and a.usename = '{role}'"
)


async def cut_holder(postgres: EmbeddedServer, store: PostgresStore) -> None:
    """End the server session that holds the store's hotkey, as a broken network would."""
    gone = await as_owner(postgres, "select pg_terminate_backend(pid) " + HOLDERS.format(role=role_of(store.validator)))
    assert len(gone) == 1
    await asyncio.sleep(0.1)


async def test_a_hotkey_is_held_by_one_store_until_it_is_closed(open_store: OpenStore, signer: Signer) -> None:
    first = await open_store(signer.hotkey, is_exclusive=True)
    with pytest.raises(ArenaError, match="V2024"):
        await open_store(signer.hotkey, is_exclusive=True)
    await first.close()
    second = await open_store(signer.hotkey, is_exclusive=True)
    assert (await Sequencer(second, signer, Clock(), HOST).append([attempt(1)])).seq == 1


async def test_the_server_lets_go_of_a_killed_holder(
    postgres: EmbeddedServer, open_store: OpenStore, signer: Signer
) -> None:
    command = [sys.executable, "-m", "tests.arena.hold_forever", postgres.dsn_for(signer.hotkey)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == signer.hotkey
        with pytest.raises(ArenaError, match="V2024"):
            await open_store(signer.hotkey, is_exclusive=True)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    await open_store(signer.hotkey, is_exclusive=True)


async def test_who_lost_its_hold_to_another_process_writes_nothing_more(
    postgres: EmbeddedServer, open_store: OpenStore, signer: Signer
) -> None:
    loser = await open_store(signer.hotkey, is_exclusive=True)
    await cut_holder(postgres, loser)
    winner = await open_store(signer.hotkey, is_exclusive=True)
    with pytest.raises(ArenaError, match="V2024"):
        await Sequencer(loser, signer, Clock(), HOST).append([attempt(1)])
    for write in (loser.enqueue([item(1, "held")]), loser.put_event("race", 0, "{}"), loser.close_items("r", "race")):
        with pytest.raises(ArenaError, match="V2024"):
            await write
    assert (await winner.head()).seq == 0
    await winner.close()
    assert (await Sequencer(loser, signer, Clock(), HOST).append([attempt(1)])).seq == 1


async def test_a_new_holder_waits_for_an_append_of_the_old_one_that_still_commits(
    postgres: EmbeddedServer, open_store: OpenStore, signer: Signer
) -> None:
    store = await open_store(signer.hotkey)
    await Sequencer(store, signer, Clock(), HOST).append([attempt(1)])
    dead = await asyncpg.connect(postgres.owner_dsn)
    running = dead.transaction()
    await running.start()
    await dead.execute(f"select from arena.head where validator = '{signer.hotkey}' for update")
    opening = asyncio.create_task(open_store(signer.hotkey, is_exclusive=True))
    await asyncio.sleep(0.3)
    assert not opening.done()
    await running.commit()
    await dead.close()
    await opening
