"""Metrics of one node for Prometheus. Counts what the loops do; nothing is decided from them.

Moments are unix milliseconds; an age is the time now less the moment, because a gauge of an age would stand still with
the loop that sets it. Every name is documented in this room's README, and a test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from arena.evaluate import Evaluation
from arena.records.model import Stage
from harness.inference.gateway import ModelUsage
from judge.verdict import JUDGED_AT, Verdict

# from a jail's start to a whole episode
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)
_STAGE, _MODEL = ("stage",), ("upstream", "model")


class Metrics:
    """Counters and gauges of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        gauge, counter = partial(Gauge, registry=self.registry), partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry, buckets=_SECONDS)
        self.episodes = counter("arena_episodes", "Evaluations appended.", _STAGE)
        self.faults = counter("arena_faults", "Attempts and judgings that ended in a fault.", ("code",))
        self.turn_failures = counter("arena_turn_failures", "Turns that failed and are repeated.", ("loop", "code"))
        self.node = gauge("arena_node", "1, with the rules this node runs.", ("policy", "guest", "sandbox"))
        self.records = gauge("arena_records", "Records in this hotkey's log.")
        self.heartbeat_ms = gauge("arena_heartbeat_ms", "Unix time of the last heartbeat.")
        self.waiting = gauge("arena_waiting_loops", "Loops that wait after a failure.")
        self.resting_slots = gauge("arena_resting_slots", "Worker slots in which no worker can be started.")
        self.owed_verdicts = gauge("arena_owed_verdicts", "Evaluations whose verdict is owed.")
        self.bank_lasts_ms = gauge("arena_bank_lasts_ms", "How long the bank's stock serves the coming races.")
        self.bank_lasts_ms.set(math.nan)  # not measured yet, or made here when it is empty
        self.disk_free_bytes = gauge("arena_disk_free_bytes", "Free space where the state folder is.")
        self.peers = gauge("arena_peers", "Other validators heard of.")
        self.peers_skewed = gauge("arena_peers_skewed", "Those of them under another policy or guest.")
        self.release_files_lacking = gauge("arena_release_files_lacking", "Its files that are not here.")
        self.release_complaints = counter("arena_release_complaints", "Operator's files not used.", ("code",))
        self.policy_waits = gauge("arena_policy_waits", "1 while a released policy waits for the next start.")
        self.race_stage = gauge("arena_race_stage", "1 for the stage of the current race.", _STAGE)
        self.race_deadline_ms = gauge("arena_race_deadline_ms", "Unix time of its next deadline; 0: none.")
        self.open_items = gauge("arena_open_items", "Work items that are not finished.", _STAGE)
        self.weights_status = gauge("arena_weights_status", "1 for how the last try to set weights ended.", ("status",))
        self.chain_block = gauge("arena_chain_block", "Newest block that this node saw.")
        self.chain_finalized_block = gauge("arena_chain_finalized_block", "Newest final block.")
        self.chain_is_stale = gauge("arena_chain_is_stale", "1 while the chain's newest block stands still.")
        self.uid = gauge("arena_uid", "Uid on the subnet; -1: not registered.")
        self.permit = gauge("arena_validator_permit", "1 with a validator permit.")
        self.checkpoint_size = gauge("arena_checkpoint_size", "Records under the last signed checkpoint.")
        self.checkpoint_ms = gauge("arena_checkpoint_ms", "Unix time of the last signed checkpoint.")
        self.checkpoint_folders_behind = gauge("arena_checkpoint_folders_behind", "Folders that lack it.")
        self.anchor_size = gauge("arena_anchor_size", "Records under the last checkpoint anchored on chain.")
        self.anchor_ms = gauge("arena_anchor_ms", "Unix time at which that checkpoint was signed.")
        self.unscored = counter("arena_unscored", "Attempts that gave no score, by whose fault.", ("owner",))
        self.races_ended = counter("arena_races_ended", "Races that ended while this process ran.", ("result",))
        self.results_compared = counter("arena_results_compared", "Others' results on pairs that this one ran too.")
        self.results_differing = counter("arena_results_differing", "Those of them with another outcome.")
        self.queue_since_ms = gauge("arena_queue_since_ms", "Unix time since which work is open; 0: none is.", _STAGE)
        self.episode_seconds = histogram("arena_episode_seconds", "Wall time of an episode.", _STAGE)
        self.jail_seconds = histogram("arena_jail_start_seconds", "From a jail's start until its guest is ready.")
        self.tool_seconds = histogram("arena_tool_seconds", "What an episode's tool calls took in all.")
        self.append_seconds = histogram("arena_append_seconds", "From the end of an evaluation to its records.")
        self.tool_calls = counter("arena_tool_calls", "Tool calls of episodes.")
        self.model_requests = counter("arena_model_requests", "Model requests, answered or not.", _MODEL)
        self.model_seconds = counter("arena_model_seconds", "What those requests took.", _MODEL)
        self.model_tokens = counter("arena_model_tokens", "Tokens, as the endpoint counts them.", (*_MODEL, "kind"))
        self.model_usd = counter("arena_model_cost_usd", "What they cost, where the price is known.", _MODEL)
        self.judge_verdicts = counter("arena_judge_verdicts", "Verdicts given by this node.")
        self.judge_requests = counter("arena_judge_requests", "Replies of judge models, usable or not.")
        self.judge_seconds = counter("arena_judge_seconds", "What those replies took.")
        self.judge_tokens = counter("arena_judge_tokens", "Tokens of judge models.", ("kind",))

    def count_evaluation(self, stage: Stage, evaluation: Evaluation) -> None:
        """An evaluation that came to its end."""
        cost = evaluation.cost
        self.episodes.labels(stage).inc()
        self.episode_seconds.labels(stage).observe(cost.episode_ms / 1_000)
        self.jail_seconds.observe(cost.jail_ms / 1_000)
        self.tool_seconds.observe(cost.tool_ms / 1_000)
        self.tool_calls.inc(evaluation.body.totals.tool_calls)
        self.judge_verdicts.inc(isinstance(evaluation.verdict, Verdict))

    def count_usage(self, rows: Iterable[ModelUsage]) -> None:
        """What an attempt asked of endpoints, the judges' among them."""
        for row in rows:
            labels = (row.upstream or "none", row.model)
            self.model_requests.labels(*labels).inc(row.requests)
            self.model_seconds.labels(*labels).inc(row.latency_ms / 1_000)
            self.model_tokens.labels(*labels, "prompt").inc(row.prompt_tokens)
            self.model_tokens.labels(*labels, "completion").inc(row.completion_tokens)
            if row.cost_micro_usd is not None:
                self.model_usd.labels(*labels).inc(row.cost_micro_usd / 1e6)
            if row.upstream.startswith(JUDGED_AT):
                self.judge_requests.inc(row.requests)
                self.judge_seconds.inc(row.latency_ms / 1_000)
                self.judge_tokens.labels("prompt").inc(row.prompt_tokens)
                self.judge_tokens.labels("completion").inc(row.completion_tokens)
