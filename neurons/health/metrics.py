"""Metrics of one node for Prometheus. Counts what the loops do; nothing is decided from them.

Moments are unix milliseconds; an age is the time now less the moment, because a gauge of an age would stand still with
the loop that sets it. Every name is documented in this room's README, and a test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from arena.evaluate import Evaluation
from arena.records.model import Stage
from harness.inference.gateway import ModelUsage
from judge.budget import Spending

# from a jail's start to a whole episode
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)


class Metrics:
    """Counters and gauges of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.episodes = self._counter("arena_episodes", "Evaluations appended.", "stage")
        self.faults = self._counter("arena_faults", "Attempts and judgings that ended in a fault.", "code")
        self.turn_failures = self._counter("arena_turn_failures", "Turns that failed and are repeated.", "loop", "code")
        self.node = self._gauge("arena_node", "1, with the rules this node runs.", "policy", "guest", "sandbox")
        self.records = self._gauge("arena_records", "Records in this hotkey's log.")
        self.heartbeat_ms = self._gauge("arena_heartbeat_ms", "Unix time of the last heartbeat.")
        self.waiting = self._gauge("arena_waiting_loops", "Loops that wait after a failure.")
        self.resting_slots = self._gauge("arena_resting_slots", "Worker slots in which no worker can be started.")
        self.owed_verdicts = self._gauge("arena_owed_verdicts", "Evaluations whose verdict is owed.")
        self.bank_lasts_ms = self._gauge("arena_bank_lasts_ms", "How long the bank's stock serves the coming races.")
        self.bank_lasts_ms.set(math.nan)  # not measured yet, or made here when it is empty
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
        self.unscored = self._counter("arena_unscored", "Attempts that gave no score, by whose fault.", "owner")
        self.races_ended = self._counter("arena_races_ended", "Races that ended while this process ran.", "result")
        self.results_compared = self._counter(
            "arena_results_compared", "Other validators' results on pairs of agent and problem that this one ran too."
        )
        self.results_differing = self._counter(
            "arena_results_differing", "Those of them with another outcome than this validator's."
        )
        self.queue_since_ms = self._gauge(
            "arena_queue_since_ms", "Unix time since which work has been open without a break; 0: none is.", "stage"
        )
        self.episode_seconds = self._histogram("arena_episode_seconds", "Wall time of an episode.", "stage")
        self.jail_seconds = self._histogram("arena_jail_start_seconds", "From a jail's start until its guest is ready.")
        self.tool_seconds = self._histogram("arena_tool_seconds", "What an episode's tool calls took in all.")
        self.append_seconds = self._histogram(
            "arena_append_seconds", "From the end of an evaluation until its records stand in the log."
        )
        self.tool_calls = self._counter("arena_tool_calls", "Tool calls of episodes.")
        model = ("upstream", "model")
        self.model_requests = self._counter("arena_model_requests", "Model requests, answered or not.", *model)
        self.model_seconds = self._counter("arena_model_seconds", "What those requests took.", *model)
        self.model_tokens = self._counter("arena_model_tokens", "Tokens, as the endpoint counts them.", *model, "kind")
        self.model_usd = self._counter("arena_model_cost_usd", "What they cost, where the price is known.", *model)
        self.judge_verdicts = self._counter("arena_judge_verdicts", "Verdicts given by this node.")
        self.judge_requests = self._counter("arena_judge_requests", "Replies of judge models, usable or not.")
        self.judge_seconds = self._counter("arena_judge_seconds", "What those replies took.")
        self.judge_tokens = self._counter("arena_judge_tokens", "Tokens of judge models.", "kind")

    def count_evaluation(self, stage: Stage, evaluation: Evaluation) -> None:
        """An evaluation that came to its end."""
        cost = evaluation.cost
        self.episodes.labels(stage).inc()
        self.episode_seconds.labels(stage).observe(cost.episode_ms / 1_000)
        self.jail_seconds.observe(cost.jail_ms / 1_000)
        self.tool_seconds.observe(cost.tool_ms / 1_000)
        self.tool_calls.inc(evaluation.body.totals.tool_calls)

    def count_usage(self, rows: Iterable[ModelUsage]) -> None:
        """What an attempt asked of model endpoints."""
        for row in rows:
            labels = (row.upstream or "none", row.model)
            self.model_requests.labels(*labels).inc(row.requests)
            self.model_seconds.labels(*labels).inc(row.latency_ms / 1_000)
            self.model_tokens.labels(*labels, "prompt").inc(row.prompt_tokens)
            self.model_tokens.labels(*labels, "completion").inc(row.completion_tokens)
            if row.cost_micro_usd is not None:
                self.model_usd.labels(*labels).inc(row.cost_micro_usd / 1e6)

    def count_judging(self, spent: Spending) -> None:
        """What a verdict took."""
        self.judge_verdicts.inc(spent.verdicts)
        self.judge_requests.inc(spent.requests)
        self.judge_seconds.inc(spent.ms / 1_000)
        self.judge_tokens.labels("prompt").inc(spent.prompt_tokens)
        self.judge_tokens.labels("completion").inc(spent.completion_tokens)

    def count_comparison(self, compared: int, differing: int) -> None:
        """A settled race: others' results beside ours, and how many of them say otherwise."""
        self.results_compared.inc(compared)
        self.results_differing.inc(differing)

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(name, about, labels, registry=self.registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(name, about, labels, registry=self.registry)

    def _histogram(self, name: str, about: str, *labels: str) -> Histogram:
        return Histogram(name, about, labels, registry=self.registry, buckets=_SECONDS)
