"""Metrics of one node for Prometheus, on loopback. Counts what the loops do; nothing is decided from them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from problems.errors import ArenaError


class Metrics:
    """Counters and gauges of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.episodes = Counter("arena_episodes", "Evaluations appended.", ["stage"], registry=self.registry)
        self.faults = Counter("arena_faults", "Attempts that ended in a fault.", ["code"], registry=self.registry)
        self.records = Gauge("arena_records", "Records in this hotkey's log.", registry=self.registry)
        self.heartbeat_ms = Gauge("arena_heartbeat_ms", "Unix time of the last heartbeat.", registry=self.registry)
        # Ages are now minus these times: a gauge of an age would stand still with the loop that sets it.
        self.checkpoint_size = self._gauge("arena_checkpoint_size", "Records under the last signed checkpoint.")
        self.checkpoint_ms = self._gauge("arena_checkpoint_ms", "Unix time of the last signed checkpoint.")
        self.checkpoint_folders_behind = self._gauge(
            "arena_checkpoint_folders_behind", "Folders that the last checkpoint could not be written to."
        )
        self.anchor_size = self._gauge("arena_anchor_size", "Records under the last checkpoint anchored on chain.")
        self.anchor_ms = self._gauge("arena_anchor_ms", "Unix time at which that checkpoint was signed.")
        self.anchor_block = self._gauge("arena_anchor_block", "Block that holds that checkpoint's hash.")
        self.tail_clients = self._gauge("arena_tail_clients", "Streams of the live tail.")

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(name, about, registry=self.registry)

    def serve(self, port: int) -> None:
        """Answer on 127.0.0.1:`port`; 0 serves nothing. Raises ArenaError V2060 when the port is taken."""
        if not port:
            return
        try:
            start_http_server(port, addr="127.0.0.1", registry=self.registry)
        except OSError as error:
            raise ArenaError("V2060", f"metrics port {port}: {error.strerror}") from error
