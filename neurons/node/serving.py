"""The serving process: public reads, live tail and door of one node, away from the interpreter in which it races.

It holds no hotkey's key, signs nothing and appends nothing to the log; what it takes in stands in the database
before it is answered, so that it may die at any instant. Signals of a terminal or a service manager are the node's to
heed: it takes no more connections and ends when the node's pipe closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from pathlib import Path

import msgspec

from arena.api.board import Board
from arena.chain.keys import HttpCheck
from arena.chain.opening import open_subtensor
from arena.door.service import Desk, Door
from arena.web.server import DoorServer, TailServer
from foundation.errors import ArenaError, Failure
from foundation.logs import configure_logs
from neurons.loops.serving import LINE_BYTES_MAX, ServingSetup
from neurons.race.log import open_explainer, open_reading
from neurons.settings.inputs import unix_ms

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    """Serve until the node's pipe closes."""
    try:
        asyncio.run(serve())
    except ArenaError as error:
        _say(error.failure)
        raise SystemExit(1) from error


async def serve() -> None:
    """Serve what the node's first line names, until its pipe closes. Raises ArenaError V2021, V2029, V2030."""
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, lambda: None)
    lines = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    setup = msgspec.json.decode(await lines.readline(), type=ServingSetup)
    configure_logs(setup.log_level)
    stop = asyncio.Event()
    closed = asyncio.create_task(lines.read())
    closed.add_done_callback(lambda _: stop.set())
    suites, servers = {setup.policy.qualifying.suite: setup.suite}, list[TailServer | DoorServer]()
    board = None
    async with contextlib.AsyncExitStack() as stack:
        if setup.reads is not None:
            tail = TailServer(
                await open_reading(setup.location, stack),
                stack.enter_context(socket.socket(fileno=setup.reads)),
                now_ms=unix_ms,
                suites=suites,
                explain=open_explainer(Path(setup.state_dir), Path(setup.catalogue_dir)).explain,
                is_sn15_served=setup.is_sn15_served,
            )
            servers.append(tail)
            board = tail.board
        if setup.door is not None:
            store, state_dir = await open_reading(setup.location, stack), Path(setup.state_dir)
            chain = open_subtensor(setup.network, netuid=setup.netuid, state_dir=state_dir, now_ms=unix_ms)
            board = board or Board(store, now_ms=unix_ms, suites=suites)
            auth = HttpCheck(setup.location.validator, time.time_ns)
            auth.claimed({})  # the SDK is imported before anybody waits
            door = Door(Desk(store, chain, setup.policy, board), auth, reads_port=setup.reads_port)
            servers.append(DoorServer(door, stack.enter_context(socket.socket(fileno=setup.door)), board))
        _say(None)
        await asyncio.gather(*(server.run(stop) for server in servers))


def _say(state: Failure | None) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(state) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
