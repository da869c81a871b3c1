"""Rollouts as `verifiers` saves and loads them, in a folder a shard: `traces.jsonl` for 0.4 (`rollout_graph`), and
`results.jsonl` with `metadata.json` for 0.1.14.

Promise, of the latter: each line has the fields of its `RolloutOutput`, tool calls as JSON text as its writer leaves
them, so its viewer and loader open the folder. `reward` is the bucket-aware reward. A trajectory whose outcome could
not be scored is no rollout and is left out, counted in `metadata.json`: a reward of 0 would be a lie. Token ids and
logprobs are in the log's bodies only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from arena.export.facts import AXES, TrajectoryFacts, ViewContext
from arena.export.formats.rollout_graph import episode_of
from arena.export.model import Manifest, ShardFile, Trajectory
from arena.export.row import ViewRow, row_of
from arena.export.writing.shards import describe
from harness.chat import ChatMessage

_ENCODER = msgspec.json.Encoder()
_TRUNCATED = frozenset({"steps", "tool_calls", "tokens", "cost", "wall_clock", "output"})
_COMPLETED = frozenset({"terminated", "returned"})
_COUNTS = ("steps", "tool_calls", "llm_calls", "echoed_calls", "code_calls")


class RolloutsWriter:
    """A `ViewWriter` of one results folder a shard."""

    def __init__(self, folder: Path, shard_number: int, context: ViewContext) -> None:
        self._folder, self._context = folder, context
        self._run = folder / f"{shard_number:06d}"
        self._run.mkdir(exist_ok=True)
        self._path = self._run / "results.jsonl"
        self._file = self._path.open("wb")
        self._traces = (self._run / "traces.jsonl").open("wb") if context.version > 2 else None
        self._rows = 0
        self._summary = _Summary()

    def write(self, rows: Sequence[Trajectory]) -> None:
        """Add trajectories."""
        for trajectory in rows:
            row = row_of(trajectory, self._context)
            self._summary.add(row, trajectory.content.recorded_ms)
            episode_ms = trajectory.content.host.episode_ms
            if self._traces is not None:
                self._traces.write(_ENCODER.encode(episode_of(row, episode_ms, _metrics(row.facts))) + b"\n")
                self._rows += 1
            if row.facts.reward_e4 is not None:
                self._file.write(_ENCODER.encode(rollout(row, episode_ms)) + b"\n")

    def finish(self) -> tuple[ShardFile, ...]:
        """Complete the files."""
        self._file.close()
        metadata = self._run / "metadata.json"
        metadata.write_bytes(_ENCODER.encode(self._summary.metadata()))
        files = (describe(self._folder, metadata, 0), describe(self._folder, self._path, self._summary.rollouts))
        if self._traces is None:
            return files
        self._traces.close()
        return (*files, describe(self._folder, self._run / "traces.jsonl", self._rows))


def open_writer(folder: Path, shard_number: int, context: ViewContext) -> RolloutsWriter:
    """A writer of one shard."""
    return RolloutsWriter(folder, shard_number, context)


def finish_export(folder: Path, manifest: Manifest) -> tuple[ShardFile, ...]:
    """Nothing: each shard has its own metadata."""
    return ()


def rollout(row: ViewRow, episode_ms: int) -> dict[str, object]:
    """One `RolloutOutput`. `episode_ms` is how long the episode took on its host."""
    facts = row.facts
    start_s, end_s = (facts.recorded_ms - episode_ms) / 1000, facts.recorded_ms / 1000
    nothing = {"start": 0.0, "end": 0.0, "duration": 0.0}  # the episode's time is not split into phases here
    functions = [tool["function"] for tool in msgspec.json.decode(row.tools)]
    is_exact = facts.is_gt_exact and facts.recommended
    return {
        # a number below 2^48 that rollouts of one problem share, in every shard and export
        "example_id": int.from_bytes(hashlib.sha256(facts.problem_id.encode()).digest()[:6], "big"),
        "prompt": _messages(row.prompt),
        "completion": _messages(row.completion),
        "answer": facts.recommended if is_exact else "",
        "info": {
            **msgspec.structs.asdict(facts),
            **({} if row.episode is None else msgspec.structs.asdict(row.episode)),
            "calls": row.conversation.calls,
            "opinions": row.opinions,
        },
        "reward": (facts.reward_e4 or 0) / 10_000,
        "error": None,
        "timing": {
            "start_time": start_s,
            "setup": nothing,
            "generation": {"start": start_s, "end": end_s, "duration": end_s - start_s},
            "scoring": nothing,
            "model": {"spans": [], "duration": 0.0},
            "env": {"spans": [], "duration": 0.0},
            "total": end_s - start_s,
            "overhead": 0.0,
        },
        "is_completed": facts.stop in _COMPLETED,
        "is_truncated": facts.stop in _TRUNCATED,
        "stop_condition": facts.stop,
        "metrics": _metrics(facts),
        "tool_defs": [{name: one[name] for name in ("name", "description", "parameters")} for one in functions],
        "token_usage": {
            "input_tokens": float(facts.prompt_tokens),
            "output_tokens": float(facts.completion_tokens),
        },
    }


class _Summary:
    """What `metadata.json` says of a shard's rollouts."""

    def __init__(self) -> None:
        self.rollouts = 0
        self._unscored = 0
        self._reward_e4 = 0
        self._first_ms = 0
        self._per_problem: dict[str, int] = {}
        self._models: dict[str, None] = {}

    def add(self, row: ViewRow, recorded_ms: int) -> None:
        if row.facts.reward_e4 is None:
            self._unscored += 1
            return
        self.rollouts += 1
        self._reward_e4 += row.facts.reward_e4
        self._first_ms = self._first_ms or recorded_ms
        self._per_problem[row.facts.problem_id] = self._per_problem.get(row.facts.problem_id, 0) + 1
        self._models.update(dict.fromkeys(turn.model for turn in row.conversation.completions))

    def metadata(self) -> dict[str, object]:
        return {
            "env_id": "agent-arena",
            "env_args": {},
            "model": ",".join(self._models),
            "base_url": "",
            "num_examples": len(self._per_problem),
            "rollouts_per_example": max(self._per_problem.values(), default=0),
            "sampling_args": {},
            "date": str(self._first_ms),
            "time": 0.0,
            "avg_reward": self._reward_e4 / (10_000 * self.rollouts) if self.rollouts else 0.0,
            "avg_metrics": {},
            "avg_error": 0.0,
            "pass_at_k": {},
            "pass_all_k": {},
            "pass_threshold": 1.0,
            "usage": None,
            "version_info": {"vf_version": "0.1.14", "vf_commit": None, "env_version": None, "env_commit": None},
            "state_columns": [],
            "path_to_save": "",
            "tools": None,
            "left_out_unscored": self._unscored,
        }


def _messages(messages: Iterable[ChatMessage]) -> list[dict[str, object]]:
    """Messages with their tool calls flat and as JSON text."""
    plain = []
    for message in messages:
        fields = msgspec.to_builtins(message)
        if message.tool_calls:
            fields["tool_calls"] = [
                _ENCODER.encode(
                    {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
                ).decode()
                for call in message.tool_calls
            ]
        plain.append(fields)
    return plain


def _metrics(facts: TrajectoryFacts) -> dict[str, float]:
    """Numbers by name; what does not exist is left out."""
    metrics = {name: float(getattr(facts, name)) for name in _COUNTS}
    for name in ("is_success", "is_gt_exact", "is_agentic", "is_one_shop", "is_within_budget"):
        if getattr(facts, name) is not None:
            metrics[name.removeprefix("is_")] = float(getattr(facts, name))
    for name in ("rule_e4", "quality_e4", "coefficient_e4"):
        if getattr(facts, name) is not None:
            metrics[name.removesuffix("_e4")] = getattr(facts, name) / 10_000
    for axis in AXES:
        if total := getattr(facts, f"{axis}_total"):
            metrics[axis] = getattr(facts, f"{axis}_hits") / total
    return metrics
