"""The supervisor: one process per hotkey that runs the loops, watches the leases and stops cleanly.

Promise: SIGTERM and SIGINT stop claiming at once, give running episodes `DRAIN_S` to finish, then stop their jails;
what was running stands as an abandoned attempt. The last thing signed is a checkpoint of all that was appended. Killed
outright, the next start finds every lease that ran out and records it. Loops end together: the first failure that no
retry can mend drains the others and is raised.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine

import structlog

from neurons.anchoring import AnchorLoop
from neurons.checkpoints import CheckpointLoop, CheckpointRules
from neurons.episodes import EpisodeLoop, sweep
from neurons.intake import Intake
from neurons.node import Node
from neurons.node_opening import open_node
from neurons.observe import configure_logs
from neurons.race_clock import RaceClock
from neurons.race_log import QUALIFYING, RaceLog
from neurons.settings import Settings
from neurons.turns import take_turns
from neurons.verdicts import VerdictLoop
from neurons.weights_loop import WeightsLoop
from problems.errors import ArenaError

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
DRAIN_S = 30.0
SIGN_OFF_S = 10.0
SWEEP_S = 2.0
HEARTBEAT_S = 30.0


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
    try:
        async with open_node(settings) as node:
            await Supervisor(node, rules, parent_pid=settings.parent_pid).run()
    except asyncio.CancelledError:
        structlog.get_logger().info("stopped while starting")


class Supervisor:
    """Runs one node until it is told to stop."""

    def __init__(self, node: Node, checkpoints: CheckpointRules, *, parent_pid: int = 0) -> None:
        """`parent_pid`: stop when that process is no longer this one's parent; 0 for none."""
        self._node = node
        self._parent_pid = parent_pid
        self._drain = asyncio.Event()
        qualifying = RaceLog(node.store, QUALIFYING)
        self._clock = RaceClock(node, qualifying)
        self._intake = Intake(node, qualifying)
        self._verdicts = VerdictLoop(node, self._clock.current_logs)
        self._weights = WeightsLoop(node, self._clock)
        self._checkpoints = CheckpointLoop(node, checkpoints)
        self._anchors = AnchorLoop(node, checkpoints.anchor_every_s)
        self._episodes = [EpisodeLoop(node, self._drain) for _ in range(node.pool.size)]

    def stop(self) -> None:
        """Start draining. Safe to call from a signal handler and more than once."""
        if not self._drain.is_set():
            self._node.log.info("draining", seconds=DRAIN_S)
        self._drain.set()

    async def run(self) -> None:
        """Run until stopped. Raises the first ArenaError that no retry can mend."""
        await self._checkpoints.open()  # nothing is appended to a log that is not the one that was signed
        await self._clock.adopt_policy()  # before any work is claimed
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self.stop)
        tasks = [asyncio.create_task(coroutine) for coroutine in self._loops()]
        drained = asyncio.create_task(self._drain.wait())
        try:
            await asyncio.wait([*tasks, drained], return_when=asyncio.FIRST_COMPLETED)
            self.stop()
            _, running = await asyncio.wait(tasks, timeout=DRAIN_S)
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

    def _loops(self) -> list[Coroutine[None, None, None]]:
        node, drain = self._node, self._drain
        return [
            self._intake.run(drain),
            self._clock.run(drain),
            self._weights.run(drain),
            self._verdicts.run(drain),
            self._checkpoints.run(drain),
            self._anchors.run(drain),
            take_turns("sweep", lambda: sweep(node), drain, node.log, every_s=SWEEP_S),
            take_turns("heartbeat", self._beat, drain, node.log, every_s=HEARTBEAT_S),
            take_turns("parent", self._look_for_parent, drain, node.log, every_s=1.0),
            *([node.tail.run(drain)] if node.tail else []),
            *(loop.run() for loop in self._episodes),
        ]

    async def _look_for_parent(self) -> None:
        if self._parent_pid and os.getppid() != self._parent_pid:
            self._node.log.warning("parent is gone", process=self._parent_pid)
            self.stop()

    async def _beat(self) -> None:
        head = await self._node.store.head()
        self._node.metrics.records.set(head.seq)
        self._node.metrics.heartbeat_ms.set(self._node.now_ms())
        self._node.log.info(
            "heartbeat",
            hotkey=self._node.signer.hotkey,
            records=head.seq,
            policy=self._node.policy.policy_sha256[:12],
            guest=self._node.conditions.sandbox.guest_sha256[:12],
            sandbox=self._node.conditions.sandbox.name,
        )
