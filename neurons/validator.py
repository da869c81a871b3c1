"""The validator: `python neurons/validator.py --wallet.name NAME --wallet.hotkey NAME --netuid 15`.

The same as `arena validator`. This page is what a validator is: it opens a node (`neurons.node.opening`), starts named
loops over it, and ends them. SIGTERM and SIGINT stop claiming at once, give running episodes `DRAIN_S` to finish, then
stop their jails; what was running stands as an abandoned attempt. The last thing signed is a checkpoint of all that was
appended. Killed outright, the next start finds every lease that ran out and records it. Loops end together: the first
failure that no retry can mend drains the others and is raised. What mends itself (a chain, a database or a name server
that is away, a permit that is to come) never ends the process: it waits, says so in its state folder, and starts again.

Exit codes: 0 stopped cleanly; what a person has to mend: 2 usage, 3 environment not ready, 4 integrity violation.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":  # from a checkout the packages lie beside this folder; the command imports this page
    root = Path(__file__).resolve().parents[1]
    sys.path[0], sys.argv[1:1] = str(root), ["validator"]
    runpy.run_path(str(root / "neurons" / "cli" / "app.py"), run_name="__main__")

import asyncio
import contextlib
import os
import random
import signal
from functools import partial

from foundation.backoff import NextTry
from foundation.codes import HOTKEY_IN_USE, NO_ENDPOINT
from foundation.errors import ArenaError, Failure
from foundation.logs import get_logger
from neurons.health.metrics import Metrics
from neurons.health.status import Ending, NodeFile, read_node_file, write_node_file
from neurons.loops.checkpoints import AnchorLoop, CheckpointLoop
from neurons.loops.node import Node
from neurons.loops.run_loop import PAUSES, SPREAD, Action, Loop, StopSignal, run_loop
from neurons.loops.watches import ChainWatch, DatabaseWatch, endpoint_loops
from neurons.node.opening import open_exchange, open_node
from neurons.node.reporting import BANK_EVERY_S, EVERY_S, HeartbeatLoop, banner, serve_probes
from neurons.race.clock import RaceClock
from neurons.race.episodes import EpisodeLoop, VerdictLoop, sweep
from neurons.race.intake import Intake
from neurons.race.log import QUALIFYING, RaceLog
from neurons.race.peers import HEAR_EVERY_S, AddressLoop, SharingLoop
from neurons.race.weights import WeightsLoop
from neurons.settings.inputs import unix_ms
from neurons.settings.settings import Settings

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
DRAIN_S = 30.0
SIGN_OFF_S = 10.0
SWEEP_S = 2.0
# A host that died without a word keeps its hold on the hotkey until the server's keepalives fail.
HELD_MS = 120_000


def run_validator(settings: Settings) -> None:
    """Open a node and run it until SIGTERM or SIGINT. Raises the ArenaError that ended it."""
    asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    """One life after the other: what mends itself is waited for, with growing pauses, and never ends the process. A
    signal that comes while the node is opening undoes what was opened."""
    loop, running, log = asyncio.get_running_loop(), asyncio.current_task(), get_logger()
    assert running is not None
    metrics, wait, since_ms = Metrics(), NextTry(), 0
    serve_probes(metrics.registry, settings.state_dir, unix_ms, settings.metrics_host, settings.metrics_port)
    unexpected = Failure(code="V2004", detail="unexpected; the traceback stands in the log")
    ending: Failure | None = unexpected
    try:
        while True:
            for number in STOP_SIGNALS:
                loop.add_signal_handler(number, running.cancel)
            failure, has_lived = unexpected, False
            try:
                async with open_node(settings, metrics) as node:
                    has_lived, wait = True, NextTry()
                    node.log.info("ready", hotkey=node.signer.hotkey, text=banner(settings, node))
                    await Supervisor(node, settings).run()
                ending = None
                return
            except ArenaError as error:
                ending = failure = error.failure
                waited_ms = unix_ms() - since_ms if wait.failures else 0
                if not _mends_itself(error, settings, has_lived=has_lived, waited_ms=waited_ms):
                    raise
            except Exception:
                if not has_lived:  # a node that has run goes on: an agent that finds a bug of ours ends no service
                    raise
                log.exception("unexpected")
            now_ms = unix_ms()
            wait, since_ms = PAUSES.after(wait, now_ms), since_ms if wait.failures else now_ms
            _note(settings, failure, since_ms)
            seconds = wait.pause_ms / 1_000 * random.uniform(*SPREAD)
            text = f"not running: {failure.code} {failure.detail}; tried again in {seconds:.0f} s"
            log.warning("waiting", loop="start", seconds=seconds, code=failure.code, detail=failure.detail, text=text)
            await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        ending = None
        log.info("stopped while starting")
    finally:
        _note(settings, ending)


def _mends_itself(error: ArenaError, settings: Settings, *, has_lived: bool, waited_ms: int) -> bool:
    """Whether the start that met it is worth another try: a code that a retry can mend (a missing endpoint is a
    setting), and the hold of a host that died without a word, which a server elsewhere still keeps."""
    if error.failure.code == HOTKEY_IN_USE:
        return bool(settings.database_dsn.text) and not has_lived and waited_ms < HELD_MS
    return error.entry.is_retryable and error.failure.code != NO_ENDPOINT


def _note(settings: Settings, failure: Failure | None, since_ms: int = 0) -> None:
    if settings.state_dir.is_dir() and (failure is None or failure.code != HOTKEY_IN_USE):  # its file then
        with contextlib.suppress(OSError):  # a full disk
            ending = Ending(at_ms=unix_ms(), failure=failure, since_ms=since_ms)
            write_node_file(settings.state_dir, NodeFile(beat=read_node_file(settings.state_dir).beat, ending=ending))


class Supervisor:
    """The loops of one node, and their end."""

    def __init__(self, node: Node, settings: Settings, *, drain_s: float = DRAIN_S) -> None:
        """`drain_s`: how long what runs may take to finish once the drain has begun."""
        self._node, self._parent_pid, self._drain_s = node, settings.parent_pid, drain_s
        failures = node.metrics.turn_failures
        self._drain = StopSignal(node.now_ms, on_failure=lambda loop, code: failures.labels(loop, code).inc())
        self._checkpoints = CheckpointLoop(node, settings.checkpoint_dir)
        qualifying = RaceLog(node.store, QUALIFYING, is_lasting=True)
        self._clock = clock = RaceClock(node, qualifying, self._checkpoints, self._drain)
        watch, serving = ChainWatch(node), node.serving
        sharing = self._sharing = SharingLoop(node, node.sharing, clock.current) if node.sharing else None
        exchange = open_exchange(node, node.sharing, sharing, clock) if node.sharing and sharing else None
        door = (settings.public_endpoint or serving.door_address) if serving and serving.door_address else ""
        endpoint = node.sharing.endpoint if node.sharing else door
        heart = HeartbeatLoop(node, watch, clock, sharing)
        self._database = None if settings.database_dsn.text else DatabaseWatch(node)
        loops: list[Loop | None] = [
            self._database,
            Intake(node, qualifying),
            *(EpisodeLoop(node, self._drain) for _ in range(node.pool.size)),
            VerdictLoop(node, clock.current_logs),
            None if settings.shadow else WeightsLoop(node, clock, is_stale=watch.is_stale),
            self._checkpoints,
            AnchorLoop(node, is_quiet=clock.is_quiet),
            watch,
            node.operator_files,
            sharing,
            AddressLoop(node, endpoint) if endpoint else None,
        ]
        self._turns: list[tuple[str, Action, float]] = [
            *((each.name, each.turn, each.every_s) for each in loops if each),
            (clock.name, clock.turns, clock.every_s),
            ("sweep", partial(sweep, node), SWEEP_S),
            ("heartbeat", partial(heart.beat, self._drain), EVERY_S),
            ("bank", heart.look_at_bank, BANK_EVERY_S),
            ("parent", self._look_for_parent, 1.0),
        ]
        if sharing:
            self._turns += [("sources", sharing.bring_sources, 1.0), ("hearing", sharing.hear, HEAR_EVERY_S)]
        self._running = (serving, node.local_chain, exchange)

    def stop(self) -> None:
        """Start draining. Safe to call from a signal handler and more than once."""
        if not self._drain.is_set():
            text = f"stopping: running episodes get {self._drain_s:.0f} s to finish"
            self._node.log.info("draining", seconds=self._drain_s, text=text)
        self._drain.set()

    async def run(self) -> None:
        """Run until stopped. Raises the first ArenaError that no retry can mend."""
        notes = await self._sharing.own_notes() if self._sharing else []
        await self._checkpoints.open(notes)  # nothing is appended to a log that is not the one that was signed
        await self._clock.adopt_policy()  # before any work is claimed
        for number in STOP_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        drain = self._drain
        loops = [
            *(run_loop(name, turn, drain, every_s=every_s) for name, turn, every_s in self._turns),
            *endpoint_loops(self._node, drain),
            *(part.run(drain) for part in self._running if part),
        ]
        tasks = [asyncio.create_task(loop) for loop in loops]
        drained = asyncio.create_task(self._drain.wait())
        try:
            await asyncio.wait([*tasks, drained], return_when=asyncio.FIRST_COMPLETED)
            self.stop()
            _, running = await asyncio.wait(tasks, timeout=self._drain_s)
            for task in running:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            sign_off = asyncio.wait_for(self._checkpoints.close(), SIGN_OFF_S)  # what the drain still appended
            (failure,) = await asyncio.gather(sign_off, return_exceptions=True)
            if isinstance(failure, TimeoutError) or (isinstance(failure, ArenaError) and failure.entry.is_retryable):
                self._node.log.warning("last checkpoint not signed", reason=str(failure) or "no time left")
            else:
                results.append(failure)
        finally:
            drained.cancel()
            await self._node.pool.stop()
            await self._clock.peers.close()
            if self._database:
                await self._database.close()
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _look_for_parent(self) -> None:
        if self._parent_pid and os.getppid() != self._parent_pid:
            self._node.log.warning("parent is gone", process=self._parent_pid)
            self.stop()
