"""The hold on a hotkey: one process at a time, let go by the server when its holder is gone."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import asyncpg
import pytest

from arena.chain.port import Signer
from arena.records.sequencer import Sequencer
from arena.store.embedded import SOCKET_NAME, EmbeddedServer
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


class HalfOpenNetwork:
    """Passes bytes between clients and a server until `cut`: then it hangs up on clients without telling the server."""

    def __init__(self, server_socket: Path) -> None:
        self._server_socket = server_socket
        self._pairs: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(str(self._server_socket))
        self._pairs.append((writer, server_writer))
        for source, target in ((reader, server_writer), (server_reader, writer)):
            self._tasks.append(asyncio.create_task(self._pass(source, target)))

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            target.write(data)
        target.close()

    def cut(self) -> None:
        for task in self._tasks:
            task.cancel()
        for client, _ in self._pairs:
            client.close()

    def close(self) -> None:
        self.cut()
        for _, server in self._pairs:
            server.close()


async def test_a_holder_whose_own_old_session_the_server_still_keeps_ends_that_session(
    postgres: EmbeddedServer, signer: Signer
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="arena-"))
    dsn = postgres.dsn_for(signer.hotkey)
    network = HalfOpenNetwork(Path(dsn.partition("host=")[2]) / SOCKET_NAME)
    proxy = await asyncio.start_unix_server(network.accept, str(folder / SOCKET_NAME))
    store = await PostgresStore.open(dsn.partition("host=")[0] + f"host={folder}", signer.hotkey, is_exclusive=True)
    network.cut()
    await asyncio.sleep(0.05)
    assert (await Sequencer(store, signer, Clock(), HOST).append([attempt(1)])).seq == 1
    await store.close()
    network.close()
    proxy.close()
    shutil.rmtree(folder)
