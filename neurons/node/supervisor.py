"""The supervisor: one process per hotkey that runs the loops, watches the leases and stops cleanly.

SIGTERM and SIGINT stop claiming at once, give running episodes `DRAIN_S` to finish, then stop their jails;
what was running stands as an abandoned attempt. The last thing signed is a checkpoint of all that was appended. Killed
outright, the next start finds every lease that ran out and records it. Loops end together: the first failure that no
retry can mend drains the others and is raised. How the node ended is in its state folder (`neurons.health.node_file`).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING

import structlog

from arena.exchange.peer_service import PeerService, RaceTerms
from foundation.codes.names import HOTKEY_IN_USE
from foundation.errors import ArenaError, Failure
from neurons.health.banner import banner
from neurons.health.heartbeat import EVERY_S, HeartbeatLoop, Schedules
from neurons.health.node_file import note_ending
from neurons.health.status_reading import read_race
from neurons.loops.anchoring import AnchorLoop
from neurons.loops.chain_watch import ChainWatch
from neurons.loops.checkpoints import CheckpointLoop, CheckpointRules
from neurons.loops.database_watch import DatabaseWatch
from neurons.loops.door import DoorLoop
from neurons.loops.endpoint_watch import endpoint_loops
from neurons.loops.intake import Intake
from neurons.loops.pending_verdicts import VerdictLoop
from neurons.loops.run_loop import StopSignal, Turning, run_loop
from neurons.loops.weights import WeightsLoop
from neurons.node.node import Node, Sharing
from neurons.node.observe import configure_logs
from neurons.node.opening import open_node
from neurons.node.settings import Settings
from neurons.node.wiring import unix_ms
from neurons.race.clock import RaceClock
from neurons.race.log import QUALIFYING, RaceLog
from neurons.race.releases import ReleaseLoop
from neurons.race.sharing import SharingLoop
from neurons.worker.episodes import EpisodeLoop, sweep

if TYPE_CHECKING:  # a node that races alone need not load the web framework
    from arena.api.server import ExchangeServer

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
DRAIN_S = 30.0
SIGN_OFF_S = 10.0
SWEEP_S = 2.0


def run_validator(settings: Settings) -> None:
    """Open a node and run it until SIGTERM or SIGINT. Raises the ArenaError that ended it."""
    configure_logs(settings.log_format, settings.log_level)
    asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    """Open, run, close. A signal that comes while the node is opening undoes what was opened."""
    loop, opening = asyncio.get_running_loop(), asyncio.current_task()
    assert opening is not None
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, opening.cancel)
    rules = CheckpointRules(
        every_s=settings.checkpoint_every_s,
        anchor_every_s=settings.anchor_every_s,
        folder=settings.checkpoint_dir,
    )
    failure: Failure | None = Failure(code="V2004", detail="unexpected; the traceback stands in the log")
    try:
        async with open_node(settings) as node:
            race = await read_race(node.store, node.now_ms())
            node.log.info("ready", hotkey=node.signer.hotkey, text=banner(settings, node, race))
            await Supervisor(
                node,
                rules,
                parent_pid=settings.parent_pid,
                is_shadow=settings.shadow,
                endpoint=settings.public_endpoint,
            ).run()
        failure = None
    except asyncio.CancelledError:
        failure = None
        structlog.get_logger().info("stopped while starting")
    except ArenaError as error:
        failure = error.failure
        raise
    finally:
        if settings.state_dir.is_dir() and (failure is None or failure.code != HOTKEY_IN_USE):  # its file then
            try:
                note_ending(settings.state_dir, failure, unix_ms())
            except OSError as error:
                structlog.get_logger().warning("ending not written", reason=str(error))


class Supervisor:
    """Runs one node until it is told to stop."""

    def __init__(
        self,
        node: Node,
        checkpoints: CheckpointRules,
        *,
        parent_pid: int = 0,
        drain_s: float = DRAIN_S,
        is_shadow: bool = False,
        endpoint: str = "",
    ) -> None:
        """`parent_pid`: stop when that process is no longer this one's parent; 0 for none. `drain_s`: how long what
        runs may take to finish once the drain has begun. `is_shadow`: settle and publish, and set no weights.
        `endpoint`: the door's address as the chain shall name it; "": as it listens."""
        self._node = node
        self._parent_pid = parent_pid
        self._drain_s = drain_s
        failures = node.metrics.turn_failures
        self._drain = StopSignal(node.now_ms, on_failure=lambda loop, code: failures.labels(loop, code).inc())
        qualifying = RaceLog(node.store, QUALIFYING, is_lasting=True)
        self._checkpoints = CheckpointLoop(node, checkpoints)
        self._clock = RaceClock(node, qualifying, self._checkpoints)
        self._sharing = SharingLoop(node, node.sharing, self._race_id) if node.sharing else None
        self._exchange = self._open_exchange(node.sharing, self._sharing) if node.sharing and self._sharing else None
        self._intake = Intake(node, qualifying)
        self._verdicts = VerdictLoop(node, self._clock.current_logs)
        self._anchors = AnchorLoop(node, checkpoints.anchor_every_s, is_quiet=self._clock.is_quiet)
        self._watch = ChainWatch(node)
        self._weights = WeightsLoop(node, self._clock, is_shadow=is_shadow, is_stale=self._watch.is_stale)
        self._database = DatabaseWatch(node)
        schedules = Schedules(checkpoint_every_s=checkpoints.every_s, anchor_every_s=checkpoints.anchor_every_s)
        heard = self._sharing.peers_seen if self._sharing else tuple
        others = self._sharing.peers if self._sharing else tuple
        self._releases = ReleaseLoop(node, node.operator_files, others) if node.operator_files else None
        releases = self._releases
        self._heart = HeartbeatLoop(
            node,
            self._watch,
            schedules,
            logs=self._clock.current_logs,
            peers=heard,
            release=lambda: releases.facts if releases else None,
        )
        self._episodes = [EpisodeLoop(node, self._drain) for _ in range(node.pool.size)]
        door_address = node.serving.door_address if node.serving else ""
        self._door = DoorLoop(node, endpoint or door_address) if door_address and node.sharing is None else None

    def stop(self) -> None:
        """Start draining. Safe to call from a signal handler and more than once."""
        if not self._drain.is_set():
            text = f"stopping: running episodes get {self._drain_s:.0f} s to finish"
            self._node.log.info("draining", seconds=self._drain_s, text=text)
        self._drain.set()

    async def run(self) -> None:
        """Run until stopped. Raises the first ArenaError that no retry can mend."""
        await self._checkpoints.open()  # nothing is appended to a log that is not the one that was signed
        await self._clock.adopt_policy()  # before any work is claimed
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self.stop)
        node, drain = self._node, self._drain
        turning: list[Turning] = [
            self._intake,
            self._weights,
            self._verdicts,
            self._checkpoints,
            self._anchors,
            self._watch,
            *([self._releases] if self._releases else []),
            *self._episodes,
        ]
        loops: list[Coroutine[None, None, None]] = [
            *(run_loop(each.name, each.turn, drain, node.log, every_s=each.every_s) for each in turning),
            self._clock.run(drain),
            run_loop("sweep", lambda: sweep(node), drain, node.log, every_s=SWEEP_S),
            self._database.run(drain),
            *endpoint_loops(node, drain),
            run_loop("heartbeat", lambda: self._heart.beat(drain), drain, node.log, every_s=EVERY_S),
            run_loop("parent", self._look_for_parent, drain, node.log, every_s=1.0),
            *([node.serving.run(drain)] if node.serving else []),
            *([self._door.run(drain)] if self._door else []),
            *([node.local_chain.run(drain)] if node.local_chain else []),
            *([self._exchange.run(drain)] if self._exchange else []),
            *([self._sharing.run(drain)] if self._sharing else []),
        ]
        tasks = [asyncio.create_task(each) for each in loops]
        drained = asyncio.create_task(self._drain.wait())
        try:
            await asyncio.wait([*tasks, drained], return_when=asyncio.FIRST_COMPLETED)
            self.stop()
            _, running = await asyncio.wait(tasks, timeout=self._drain_s)
            for task in running:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            results.append(await self._sign_off())
        finally:
            drained.cancel()
            await self._node.pool.stop()
        for result in results:
            if isinstance(result, Exception):
                raise result

    def _race_id(self) -> str:
        current = self._clock.current()
        return current.race_id if current else ""

    def _open_exchange(self, ports: Sharing, loop: SharingLoop) -> ExchangeServer:
        """Where and what this node answers the other validators."""
        guest_sha256 = self._node.conditions.sandbox.guest_sha256

        def terms(race_id: str) -> RaceTerms | None:
            current = self._clock.current()
            if current is None or current.race_id != race_id or current.opened is None:
                return None
            return RaceTerms(policy_sha256=current.opened.policy_sha256, guest_sha256=guest_sha256)

        service = PeerService(
            ports.store,
            ports.peer_logs,
            ports.submission_cache,
            has_permit=loop.has_permit,
            gate=self._clock.reveal_gate,
            terms=terms,
            settled=self._clock.settlement,
            releases=self._node.operator_files.store if self._node.operator_files else None,
        )
        from arena.api.server import ExchangeServer
        from arena.exchange.routes import Exchange

        door_port = self._node.serving.door_port if self._node.serving else 0
        return ExchangeServer(Exchange(service, ports.auth, door_port=door_port), ports.listener)

    async def _sign_off(self) -> Exception | None:
        """Sign what the drain still appended. What a retry could mend is left to the next start."""
        try:
            await asyncio.wait_for(self._checkpoints.close(), SIGN_OFF_S)
        except TimeoutError:
            self._node.log.warning("last checkpoint not signed", reason="no time left")
        except ArenaError as error:
            if not error.entry.is_retryable:
                return error
            self._node.log.warning("last checkpoint not signed", code=error.failure.code, detail=error.failure.detail)
        return None

    async def _look_for_parent(self) -> None:
        if self._parent_pid and os.getppid() != self._parent_pid:
            self._node.log.warning("parent is gone", process=self._parent_pid)
            self.stop()
