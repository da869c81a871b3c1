"""What a node says of itself: its banner, its heartbeat, its probes over HTTP, and its status read from its state.

The heartbeat writes the node's state into its file, its metrics and its log at intervals. A reader of a status needs
no running node: it reads little, and a store that can't be read becomes a point of the status. `/metrics` serves
Prometheus, `/healthz` is 200 while heartbeats come, `/readyz` while nothing waits for a person.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from arena.chain.port import is_local
from arena.race.agreement import is_sole
from arena.race.forecast import day_of, spent
from arena.race.machine import RaceState
from arena.race.schedule import shared_closes_ms, timeline
from arena.records.model import Stage
from foundation.errors import ArenaError, Failure
from neurons.health.status import (
    Deadline,
    Heartbeat,
    NodeFile,
    RaceFacts,
    Status,
    StoreFacts,
    assess,
    read_node_file,
    skewed,
    write_node_file,
)
from neurons.race.log import QUALIFYING, newest_race
from neurons.race.sentences import short

if TYPE_CHECKING:  # a status is read without what a node is made of
    from prometheus_client import CollectorRegistry

    from arena.store.postgres import PostgresStore
    from neurons.loops.node import Node
    from neurons.loops.run_loop import StopSignal
    from neurons.loops.watches import ChainWatch
    from neurons.race.clock import RaceClock
    from neurons.race.peers import SharingLoop
    from neurons.settings.settings import Settings


def banner(settings: Settings, node: Node) -> str:
    """Six lines."""
    key = f" ({settings.wallet_hotkey})" if settings.wallet_hotkey.startswith("//") else ""

    def address(host: str, port: int | None, setting: str) -> str:
        return f"http://{host}:{port}" if port else f"off (--{setting})"

    models = settings.openai_base_url or "; ".join(one.base_url for one in settings.upstreams)
    door = address(settings.public_host, node.serving.door_port if node.serving else None, "door-port")
    reads = address(settings.public_host, settings.serve_port, "serve-port")
    metrics = address(settings.metrics_host, settings.metrics_port, "metrics-port")
    rows = [
        ("agents", f"{node.pool.size} at once in {node.conditions.sandbox.name}; rules of {node.policy.name}"),
        ("models", f"{models or 'scripted, on this machine'}; judge {settings.judge_base_url or 'scripted'}"),
        ("miners", f"submit at {door}"),
        ("reads", f"{reads}; metrics {metrics}" + ("/metrics" if settings.metrics_port else "")),
        ("stop", f"Ctrl-C; how it is: arena validator status --state-dir {settings.state_dir}"),
    ]
    network = "the local network" if is_local(settings.network) else settings.network
    head = f"validator {short(node.signer.hotkey)}{key} on netuid {settings.netuid} of {network}"
    return "\n".join([head, *(f"  {name:<7}{text}" for name, text in rows)])


EVERY_S, BANK_EVERY_S = 10.0, 600.0


class HeartbeatLoop:
    """Beats for one node."""

    def __init__(self, node: Node, watch: ChainWatch, clock: RaceClock, sharing: SharingLoop | None = None) -> None:
        self._node, self._watch, self._clock, self._sharing = node, watch, clock, sharing
        self._started_ms = node.now_ms()
        self._open_since_ms: dict[Stage, int] = {}  # since when there has been open work; 0: there is none
        self._bank_until_ms: int | None = None
        sandbox = node.conditions.sandbox
        node.metrics.node.labels(node.policy.policy_sha256, sandbox.guest_sha256, sandbox.name).set(1)

    async def beat(self, drain: StopSignal) -> Heartbeat:
        """Gather, show and keep one heartbeat. Raises ArenaError V2021 while the store is away."""
        node, sandbox, hotkey = self._node, self._node.conditions.sandbox, self._node.signer.hotkey
        facts, logs = await read_store(node.store, node.now_ms()), self._clock.current_logs()
        made = Heartbeat(
            hotkey=hotkey,
            netuid=node.chain.netuid,
            process_id=os.getpid(),
            started_ms=self._started_ms,
            beat_ms=node.now_ms(),
            policy=node.policy.name,
            policy_sha256=node.policy.policy_sha256,
            guest_sha256=sandbox.guest_sha256,
            sandbox=sandbox.name,
            code_commit=node.conditions.code_commit,
            records=facts.records,
            owed_verdicts=sum(len(log.owed(hotkey)) for log in logs),
            chain=self._watch.facts,
            waits=tuple(drain.waits[name] for name in sorted(drain.waits)),
            peers=self._sharing.peers_seen() if self._sharing else (),
            bank_until_ms=self._bank_until_ms,
            resting=node.pool.resting,
            not_ours=self._clock.not_ours,
            missed=self._clock.missed,
            unjudged=tuple(
                f"record {row.seq} of {row.record.context.race_id or 'qualifying'}, body {row.record.body_sha256}"
                f" is not judged; see `arena view {row.seq}`"
                for log in logs
                for row in log.quarantined(hotkey)
            ),
            release=node.operator_files.facts if node.operator_files else None,
            race_usd=node.purse.budget.race_usd,
            day_usd=node.purse.budget.day_usd,
            capped=node.purse.refusal,
        )
        self._show(made, facts)
        try:
            write_node_file(node.state_dir, NodeFile(beat=made))
        except OSError as error:
            node.log.warning("heartbeat not written", code="V2115", reason=str(error))
        return made

    def _show(self, beat: Heartbeat, facts: StoreFacts) -> None:
        metrics, race = self._node.metrics, facts.race
        metrics.disk_free_bytes.set(shutil.disk_usage(self._node.state_dir).free)
        metrics.race_stage.clear()
        if race is not None:
            metrics.race_stage.labels(race.stage).set(1)
            metrics.race_deadline_ms.set(race.deadline.at_ms if race.deadline else 0)
        queues: dict[Stage, int] = {"race": race.open_items if race else 0, "qualifying": facts.open_qualifying}
        for stage, count in queues.items():
            metrics.open_items.labels(stage).set(count)
            self._open_since_ms[stage] = (self._open_since_ms.get(stage) or beat.beat_ms) if count else 0
            metrics.queue_since_ms.labels(stage).set(self._open_since_ms[stage])
        metrics.weights_status.clear()
        for latest in facts.weights[:1]:
            metrics.weights_status.labels(latest.status).set(1)
        metrics.records.set(beat.records)
        metrics.heartbeat_ms.set(beat.beat_ms)
        metrics.waiting.set(len(beat.waits))
        metrics.resting_slots.set(len(beat.resting))
        metrics.owed_verdicts.set(beat.owed_verdicts)
        metrics.peers.set(len(beat.peers))
        metrics.peers_skewed.set(len(skewed(beat)))
        if beat.bank_until_ms is not None:
            metrics.bank_lasts_ms.set(max(0, beat.bank_until_ms - beat.beat_ms))

    async def look_at_bank(self) -> None:
        """Measure how long the stock lasts, which opens files."""
        node, now_ms = self._node, self._node.now_ms()
        try:
            level = await asyncio.to_thread(node.bank.level, shared_closes_ms(now_ms, node.policy.race), now_ms)
        except ArenaError as error:
            node.log.warning("bank not measured", code=error.failure.code, detail=error.failure.detail)
            return
        self._bank_until_ms = None if level.is_made_here else now_ms + level.lasts_ms


WEIGHTS_SHOWN = 50
_RECENT = 5_000  # records behind the head in which the newest checkpoint and anchor usually are
_MOMENTS = {
    "field_anchor_ms": "logs for the field are anchored by",
    "field_receipt_ms": "receipts of the field's logs count until",
    "settling_ms": "results are anchored by",
    "results_receipt_ms": "receipts of the results' logs count until",
    "countersign_ms": "countersignatures count until",
    "give_up_ms": "missing logs accepted until",
    "abandon_ms": "the quorum's settlement accepted until",
}


async def read_store(store: PostgresStore, now_ms: int, *, with_money: bool = False) -> StoreFacts:
    """What the store says of its hotkey. Raises ArenaError V2021 when it goes away, V2023 for another schema.

    `with_money` reads the whole ledger.
    """
    rows = await store.usage_totals() if with_money else []
    head = await store.head()
    found = await store.checkpoints(after_size=max(0, head.seq - _RECENT))
    if not any(checkpoint.anchor_block for checkpoint in found):
        found = await store.checkpoints(after_size=0)
    race, state = None, await newest_race(store)
    if state is not None:
        race = RaceFacts(
            race_id=state.race_id,
            stage=state.stage,
            deadline=next_deadline(state, store.validator, now_ms),
            open_items=await store.open_items(state.race_id, "race"),
            reason=state.settlement.reason if state.settlement else "",
        )
    return StoreFacts(
        hotkey=store.validator,
        records=head.seq,
        checkpoint=found[-1] if found else None,
        anchor=next((checkpoint for checkpoint in reversed(found) if checkpoint.anchor_block), None),
        race=race,
        open_qualifying=await store.open_items(QUALIFYING, "qualifying"),
        weights=tuple(await store.weights_results(WEIGHTS_SHOWN)),
        size=await store.size(),
        money=(
            spent(row for row in rows if row.day == day_of(now_ms)),
            spent(row for row in rows if state is not None and row.race_id == state.race_id),
        )
        if with_money
        else (),
    )


def look(state_dir: Path, store: StoreFacts | None, now_ms: int, store_failure: Failure | None = None) -> Status:
    """The status of the node of a state folder, given what its store says."""
    folder = next(one for one in (state_dir, *state_dir.parents) if one.exists())
    return assess(now_ms, read_node_file(state_dir), store, shutil.disk_usage(folder).free, store_failure)


def next_deadline(state: RaceState, validator: str, now_ms: int) -> Deadline | None:
    """What happens next in a race, at the latest when; None when it is settled, cancelled or not open yet.

    A race that `validator` shares with others goes by its timeline (arena/race/AGREEMENT.md); one alone settles as soon
    as it can, and its deadlines are the policy's. Once all have passed, the last one.
    """
    if state.opened is None or state.stage in ("settled", "cancelled"):
        return None
    rules, closes_ms = state.opened.policy.race, state.opened.closes_ms
    if state.stage == "open":
        return Deadline(what="submissions close", at_ms=closes_ms)
    if not is_sole(state, validator):
        moments = timeline(closes_ms, rules)
        coming = [Deadline(what=what, at_ms=getattr(moments, name)) for name, what in _MOMENTS.items()]
        return next((deadline for deadline in coming if deadline.at_ms > now_ms), coming[-1])
    if state.stage == "closed" and state.field is None:
        return Deadline(what="the field is fixed by", at_ms=closes_ms + rules.qualifying_grace_ms)
    if state.stage == "closed":
        return Deadline(what="the beacon has to come by", at_ms=closes_ms + rules.beacon_grace_ms)
    drawn_ms = state.draw.drawn_ms if state.draw else closes_ms
    return Deadline(what="results accepted until", at_ms=max(closes_ms, drawn_ms) + rules.run_ms)


def serve_probes(registry: CollectorRegistry, state_dir: Path, now_ms: Callable[[], int], host: str, port: int) -> None:
    """Answer probes at `host`:`port` until the process ends, from what is found at each request; port 0 serves nothing.
    `now_ms` gives unix milliseconds. Raises ArenaError V2014 when the port is taken."""
    if not port:
        return
    from wsgiref.simple_server import WSGIRequestHandler, make_server

    from prometheus_client import make_wsgi_app
    from prometheus_client.exposition import ThreadingWSGIServer

    class ProbeHandler(WSGIRequestHandler):
        """Ends a slow client's connection; requests of probes are no events."""

        timeout = 10  # seconds

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path in ("/", "/metrics"):
            found: Iterable[bytes] = metrics(environ, start)
            return found
        if path not in ("/healthz", "/readyz"):
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"/metrics, /healthz and /readyz are here\n"]
        status = look(state_dir, None, now_ms())
        is_good = status.is_running and (path == "/healthz" or not status.needs_person)
        points = [] if path == "/healthz" and is_good else status.points
        start("200 OK" if is_good else "503 Service Unavailable", [("Content-Type", "application/json")])
        return [msgspec.json.encode({"is_running": status.is_running, "points": points})]

    try:
        server = make_server(host, port, answer, server_class=ThreadingWSGIServer, handler_class=ProbeHandler)
    except OSError as error:
        told, fix = f"metrics_port {port} of {host} cannot be had: {error.strerror}", f"--metrics-port {port + 1}"
        raise ArenaError("V2014", told, fix=f"{fix}, or 0 for none") from error
    threading.Thread(target=server.serve_forever, daemon=True).start()
