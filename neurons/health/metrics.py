"""Metrics of one node for Prometheus, on loopback. Counts what the loops do; nothing is decided from them.

Moments are unix milliseconds; an age is the time now less the moment, because a gauge of an age would stand still with
the loop that sets it. Every name is documented in this room's README, and a test compares the two.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from foundation.errors import ArenaError


class Metrics:
    """Counters and gauges of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.episodes = self._counter("arena_episodes", "Evaluations appended.", "stage")
        self.faults = self._counter("arena_faults", "Attempts that ended in a fault.", "code")
        self.turn_failures = self._counter("arena_turn_failures", "Turns that failed and are repeated.", "loop", "code")
        self.node = self._gauge("arena_node", "1, with the rules this node runs.", "policy", "guest", "sandbox")
        self.records = self._gauge("arena_records", "Records in this hotkey's log.")
        self.heartbeat_ms = self._gauge("arena_heartbeat_ms", "Unix time of the last heartbeat.")
        self.waiting = self._gauge("arena_waiting_loops", "Loops that wait after a failure.")
        self.owed_verdicts = self._gauge("arena_owed_verdicts", "Evaluations whose verdict is owed.")
        self.bank_lasts_ms = self._gauge("arena_bank_lasts_ms", "How long the bank's stock serves the coming races.")
        self.disk_free_bytes = self._gauge("arena_disk_free_bytes", "Free space where the state folder is.")
        self.peers = self._gauge("arena_peers", "Other validators heard of.")
        self.peers_skewed = self._gauge("arena_peers_skewed", "Those of them under another policy or guest.")
        self.release_sequence = self._gauge("arena_release_sequence", "Number of the operator's newest release seen.")
        self.release_files_lacking = self._gauge("arena_release_files_lacking", "Its files that are not here.")
        self.release_complaints = self._counter(
            "arena_release_complaints", "Answers about the operator's files that were not used.", "code"
        )
        self.policy_waits = self._gauge("arena_policy_waits", "1 while a released policy waits for the next start.")
        self.race_stage = self._gauge("arena_race_stage", "1 for the stage of the current race.", "stage")
        self.race_deadline_ms = self._gauge("arena_race_deadline_ms", "Unix time of its next deadline; 0: none.")
        self.open_items = self._gauge("arena_open_items", "Work items that are not finished.", "stage")
        self.weights_status = self._gauge(
            "arena_weights_status", "1 for how the last try to set weights ended.", "status"
        )
        self.weights_block = self._gauge("arena_weights_block", "Block of the last try to set weights.")
        self.chain_block = self._gauge("arena_chain_block", "Newest block that this node saw.")
        self.chain_finalized_block = self._gauge("arena_chain_finalized_block", "Newest final block.")
        self.chain_grew_ms = self._gauge("arena_chain_grew_ms", "Unix time at which the newest block was first seen.")
        self.chain_is_stale = self._gauge("arena_chain_is_stale", "1 while the chain's newest block stands still.")
        self.reorgs = self._counter("arena_chain_reorgs", "Times that blocks were replaced.")
        self.reorg_depth = self._gauge(
            "arena_chain_reorg_depth", "Blocks that the last reorg replaced, as far as seen."
        )
        self.uid = self._gauge("arena_uid", "Uid on the subnet; -1: not registered.")
        self.permit = self._gauge("arena_validator_permit", "1 with a validator permit.")
        self.stake_rao = self._gauge("arena_stake_rao", "Stake on this subnet.")
        self.checkpoint_size = self._gauge("arena_checkpoint_size", "Records under the last signed checkpoint.")
        self.checkpoint_ms = self._gauge("arena_checkpoint_ms", "Unix time of the last signed checkpoint.")
        self.checkpoint_folders_behind = self._gauge(
            "arena_checkpoint_folders_behind", "Folders that the last checkpoint could not be written to."
        )
        self.anchor_size = self._gauge("arena_anchor_size", "Records under the last checkpoint anchored on chain.")
        self.anchor_ms = self._gauge("arena_anchor_ms", "Unix time at which that checkpoint was signed.")
        self.anchor_block = self._gauge("arena_anchor_block", "Block that holds that checkpoint's hash.")
        self.tail_clients = self._gauge("arena_tail_clients", "Streams of the live tail.")

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(name, about, labels, registry=self.registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(name, about, labels, registry=self.registry)

    def serve(self, port: int) -> None:
        """Answer on 127.0.0.1:`port`; 0 serves nothing. Raises ArenaError V2014 when the port is taken."""
        if not port:
            return
        try:
            start_http_server(port, addr="127.0.0.1", registry=self.registry)
        except OSError as error:
            raise ArenaError(
                "V2014",
                f"metrics_port {port} cannot be had: {error.strerror}",
                fix=f"--metrics-port {port + 1}, or 0 for none",
            ) from error
