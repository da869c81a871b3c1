"""The views of a shard: Parquet, and the other forms, each made from its Parquet file alone: same rows, same bytes.

`<shard>.parquet` has a row a trajectory, a typed column for every fact, the conversation nested. Equal rows give equal
bytes with the pinned pyarrow: fixed writer options, no clock, row groups that end by count and size of the rows alone.
Arguments and a tool's parameters stay JSON text, since Arrow would merge the keys of different tools and fill them with
nulls. One row group is held.

`messages` is OpenAI chat, one JSON object a line: turns the model did not write have `weight` 0. `datasets` is the same
Parquet by pool, in `data/<pool>-<shard>.parquet`. `inspect` is an evaluation log an agent for its viewer, one sample a
trajectory, written without the package in its format 2: a zip of JSON files, uncompressed and dated 1980, since zlib
builds compress differently. `verifiers` is a run, one episode a line.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import types
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from arena.export.files import LinesFile
from arena.export.model import Format
from arena.export.row import Conversation, ExecutedCall, TrajectoryFacts, Turn, ViewRow, tools_of
from harness.chat import ROLES, ChatMessage
from judge.verdict import Opinion
from problems.model import AXES, POOLS

_GROUP_ROWS = 256
_GROUP_CHARS = 8 << 20
_PAGE_BYTES = 64 << 10  # pages of a megabyte, the default, take twice the time to compress and come out no smaller
_ZSTD_LEVEL = 1
_FACTS = tuple(field.name for field in msgspec.structs.fields(TrajectoryFacts))
_ENCODER = msgspec.json.Encoder()


_TEXT, _NUMBER = pa.string(), pa.int64()
_ARROW: dict[object, Any] = {int: _NUMBER, bool: pa.bool_()}


def arrow_type(hint: Any) -> Any:
    """The Arrow type of a field's Python type: lists and structs nested, without what may be unset; text for what is no
    number or truth value."""
    kind = get_args(hint)[0] if get_origin(hint) in (Union, types.UnionType) else hint
    if get_origin(kind) is tuple:
        return pa.list_(arrow_type(get_args(kind)[0]))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = get_type_hints(kind).items()
        return pa.struct([(name, arrow_type(one)) for name, one in fields if msgspec.UnsetType not in get_args(one)])
    return _ARROW.get(kind, _TEXT)


class _Tool(msgspec.Struct):
    name: str
    description: str
    parameters: str


class _ToolRow(msgspec.Struct):
    type: str
    function: _Tool


_TALK: dict[str, Any] = {
    "prompt_length": int,
    "messages": tuple[ChatMessage, ...],
    "tools": tuple[_ToolRow, ...],
    "completions": str,
    "other_messages": str,
    "calls": tuple[ExecutedCall, ...],
    "opinions": str,
}  # in the order of the columns; what is text among them is JSON
_JSON: dict[str, msgspec.json.Decoder[Any]] = {
    "completions": msgspec.json.Decoder(tuple[Turn, ...]),
    "other_messages": msgspec.json.Decoder(tuple[ChatMessage, ...]),
    "opinions": msgspec.json.Decoder(tuple[Opinion, ...]),
}
CONVERSATION = ("prompt_length", "messages", "completions", "other_messages", "calls")


@functools.cache
def schema() -> Any:
    """The Arrow schema: facts by their Python types, then the conversation.

    Facts that are a str or Literal are text, `X | None` is nullable.
    """
    columns = get_type_hints(TrajectoryFacts) | _TALK
    return pa.schema(
        [pa.field(name, arrow_type(hint), nullable=type(None) in get_args(hint)) for name, hint in columns.items()]
    )


class ParquetFile:
    """Rows into one Parquet file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.rows = path, 0
        self._held: list[tuple[object, ...]] = []
        self._held_chars = 0
        self._writer = pq.ParquetWriter(
            path,
            schema(),
            version="2.6",
            data_page_version="1.0",
            data_page_size=_PAGE_BYTES,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=list(_FACTS),
            write_statistics=[name for name in (*_FACTS, "prompt_length") if name != "query"],
            store_schema=False,
        )

    def add(self, row: ViewRow) -> None:
        """Add one row; a full group is written."""
        talk = row.conversation
        texts = [_ENCODER.encode(one).decode() for one in (talk.completions, talk.other_messages, row.opinions)]
        self._held_chars += sum(map(len, texts)) + sum(len(one.content) for one in talk.messages)
        self._held_chars += sum(len(call.arguments) + len(call.result or "") for call in talk.calls)
        facts = (*msgspec.structs.astuple(row.facts), talk.prompt_length)
        messages = _plain(talk.messages, "tool_calls", "echoed_tool_calls", "agent_tool_calls")
        calls = _plain(talk.calls, "surfaced", "ignored_parameters")
        self._held.append((*facts, messages, _plain_tools(row.tools), *texts[:2], calls, texts[2]))
        self.rows += 1
        if len(self._held) >= _GROUP_ROWS or self._held_chars >= _GROUP_CHARS:
            self._write_group()

    def close(self) -> None:
        """Complete the file."""
        if self._held:
            self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        columns = zip(schema(), zip(*self._held, strict=True), strict=True)
        arrays = [pa.array(column, field.type) for field, column in columns]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=schema()), row_group_size=_GROUP_ROWS)
        self._held, self._held_chars = [], 0


def read_rows(path: Path) -> Iterator[ViewRow]:
    """The rows of a file that `ParquetFile` wrote, a row group at a time."""
    for values in read_values(path, [*_FACTS, *CONVERSATION, "opinions"]):
        yield ViewRow(
            facts=msgspec.convert({name: values[name] for name in _FACTS}, TrajectoryFacts),
            conversation=conversation_of(values),
            tools=tools_of(values["tool_profile"], values["tools_sha256"]),
            opinions=_JSON["opinions"].decode(values["opinions"]),
        )


def read_values(path: Path, names: Sequence[str], group: int | None = None) -> Iterator[dict[str, Any]]:
    """The rows of such a file as plain values by column, of these columns alone; of one row group where it is given."""
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups) if group is None else (group,):
            table = file.read_row_group(number, columns=names, use_threads=False)
            columns = [[one for chunk in table.column(name).chunks for one in values_of(chunk)] for name in names]
            for row in zip(*columns, strict=True):
                yield dict(zip(names, row, strict=True))


def values_of(column: Any) -> list[Any]:
    """The plain values of an Arrow array, nested or not; fields that are null are left out."""
    kind = column.type
    if pa.types.is_list(kind):
        ends = column.offsets.to_pylist()
        base = ends[0]
        flat = values_of(column.values.slice(base, ends[-1] - base))  # `flatten` takes .1 s of imports
        return [flat[start - base : end - base] for start, end in pairwise(ends)]
    if pa.types.is_struct(kind):
        every = [
            (field.name, part, 0 if pa.types.is_nested(part.type) else part.null_count)  # a nested one is never None
            for field, part in zip(kind, column.flatten(), strict=True)
        ]
        names, parts, nulls = zip(*([one for one in every if one[2] < len(column)] or every), strict=True)
        rows = zip(*map(values_of, parts), strict=True)
        if not any(nulls):
            return [dict(zip(names, row, strict=True)) for row in rows]
        return [{name: value for name, value in zip(names, row, strict=True) if value is not None} for row in rows]
    return list(column.to_pylist())


def conversation_of(values: Mapping[str, Any]) -> Conversation:
    """The conversation in a row's columns `CONVERSATION`, and its facts `is_linear` and `is_model_written`."""
    return Conversation(
        messages=msgspec.convert(values["messages"], tuple[ChatMessage, ...]),
        other_messages=_JSON["other_messages"].decode(values["other_messages"]),
        completions=_JSON["completions"].decode(values["completions"]),
        calls=msgspec.convert(values["calls"], tuple[ExecutedCall, ...]),
        **{name: values[name] for name in ("prompt_length", "is_linear", "is_model_written")},
    )


def _plain(values: Sequence[msgspec.Struct], *lists: str) -> list[dict[str, Any]]:
    """Values as objects, with those of their lists that are empty."""
    return [{name: [] for name in lists} | one for one in msgspec.to_builtins(values)]


@functools.lru_cache(maxsize=64)  # as many as `tools_of` remembers
def _plain_tools(tools: str) -> list[dict[str, Any]]:
    """A `tools` array with parameters as text. Equal texts give one list, which nobody may change."""
    plain: list[dict[str, Any]] = msgspec.json.decode(tools)
    for tool in plain:
        function = tool["function"]
        tool["function"] = function | {"parameters": msgspec.json.encode(function.get("parameters", {})).decode()}
    return plain


Written = Sequence[tuple[Path, int]]  # files, and how many rows are in each
UNREAD = "_text"  # of arguments as objects: the key of text that is not an object


def convert(
    form: Format, rows: Path, folder: Path, shard_number: int, arguments: Literal["text", "object"] = "text"
) -> Written:
    """Write a form of the Parquet file `rows` into the form's own `folder`. Raises ValueError for `jsonl`."""
    name = f"{shard_number:06d}"
    match form:
        case "messages":
            return _write_messages(rows, folder / f"{name}.jsonl.zst", arguments)
        case "datasets":
            return _write_pools(rows, folder / "data", name)
        case "inspect":
            return _write_eval_logs(rows, folder, name)
        case "verifiers":
            return _write_episodes(rows, folder / name / "traces.jsonl")
    raise ValueError(f"{form} is not made from Parquet")


def _write_messages(rows: Path, path: Path, arguments: Literal["text", "object"]) -> Written:
    with contextlib.closing(LinesFile(path)) as lines:
        for row in read_rows(rows):
            messages = msgspec.to_builtins(row.conversation.messages)
            for message in messages if arguments == "object" else ():
                for key in ("tool_calls", "echoed_tool_calls", "agent_tool_calls"):
                    for call in message.get(key, ()):
                        told = call["function"]["arguments"]
                        said = _object_of(told)
                        call["function"]["arguments"] = {UNREAD: told} if said is None else said
            line = {"messages": messages, "tools": msgspec.Raw(row.tools.encode()), "metadata": row.facts}
            lines.write([_ENCODER.encode(line)])
    return [(path, lines.rows)]


def _object_of(arguments: str) -> dict[str, Any] | None:
    """The object that arguments say; None for text that says none."""
    said = None
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        said = msgspec.json.decode(arguments)
    return said if isinstance(said, dict) else None


def _write_pools(rows: Path, folder: Path, name: str) -> Written:
    files: dict[str, ParquetFile] = {}
    for row in read_rows(rows):
        pool = row.facts.pool
        if pool not in files:
            files[pool] = ParquetFile(folder / f"{pool}-{name}.parquet")
        files[pool].add(row)
    for file in files.values():
        file.close()
    return [(files[pool].path, files[pool].rows) for pool in POOLS if pool in files]


_VERSION = 2
_TASK = "agent-arena"
_ID_CHARS = 12
_HEADLINE = "success"  # the first score, which viewers show
_SUMMARY_CHARS = 1_000
_SUMMARY_FACTS = tuple(
    ["problem_id", "bucket", "pool", "agent_name", "agent_version_id", "miner_hotkey", "stop", "is_agentic"]
)
_FINISH = {"stop": "stop", "length": "max_tokens", "tool_calls": "tool_calls", "content_filter": "content_filter"}
_MARKS = ("origin", "echoed_tool_calls", "agent_tool_calls")


def _write_eval_logs(rows: Path, folder: Path, name: str) -> Written:
    """A log for each agent version in the shard of this name."""
    logs: dict[str, _EvalLog] = {}
    for row in read_rows(rows):
        agent = row.facts.agent_version_id
        if agent not in logs:
            logs[agent] = _EvalLog(folder / f"{name}-{agent[:_ID_CHARS]}.eval", row)
        logs[agent].add(row)
    return [logs[agent].close() for agent in sorted(logs)]


class _EvalLog:
    """One agent's log being written. Samples are written as they come; only their summaries are held."""

    def __init__(self, path: Path, first: ViewRow) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._log = path, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED)
        self._task = first.facts.agent_name or first.facts.agent_version_id[:_ID_CHARS]
        self._summaries, self._models = list[dict[str, object]](), dict[str, None]()
        self._values: dict[str, list[float]] = {}
        self._times_ms = [first.facts.recorded_ms]

    def add(self, row: ViewRow) -> None:
        """Add one trajectory."""
        sample = _sample_of(row)
        _add(self._log, f"samples/{row.facts.seq}_epoch_1.json", sample)
        self._summaries.append(_summary(row, sample, scores := _score_values(row.facts)))
        for score, value in scores.items():
            self._values.setdefault(score, []).append(value)
        self._models.update(dict.fromkeys(turn.model for turn in row.conversation.completions))
        self._times_ms.append(row.facts.recorded_ms)

    def close(self) -> tuple[Path, int]:
        """Complete the file, whose header comes last: its path, and how many samples it has."""
        count, plan = len(self._summaries), {"name": "recorded", "steps": [], "config": {}}
        spec = {
            **dict.fromkeys(("eval_id", "run_id"), f"{_TASK}-{self._path.stem}"),
            "created": _time(self._times_ms[0]),
            "task": self._task,
            "task_id": _TASK,
            "task_version": 1,
            **{name: {} for name in ("task_attribs", "task_args", "model_args", "config", "packages")},
            "dataset": {"name": "ShoppingBench", "samples": count, "shuffled": False},
            "model": ",".join(self._models) or "none",
        }
        means = [
            {
                **{"name": score, "scorer": score, "params": {}},
                "metrics": {"mean": {"name": "mean", "value": sum(scored) / len(scored), "params": {}}},
                **{"scored_samples": len(scored), "unscored_samples": count - len(scored)},
            }
            for score, scored in sorted(self._values.items(), key=lambda one: (one[0] != _HEADLINE, one[0]))
        ]
        stats = {"started_at": _time(self._times_ms[0]), "completed_at": _time(self._times_ms[-1]), "model_usage": {}}
        header = {"version": _VERSION, "status": "success", "eval": spec, "plan": plan, "stats": stats}
        header["results"] = {"total_samples": count, "completed_samples": count, "scores": means}
        with self._log:
            _add(self._log, "_journal/start.json", {"version": _VERSION, "eval": spec, "plan": plan})
            _add(self._log, "summaries.json", self._summaries)
            _add(self._log, "header.json", header)
        return self._path, count


def _summary(row: ViewRow, sample: dict[str, object], scores: dict[str, float]) -> dict[str, object]:
    """What the viewer lists."""
    return {
        "id": row.facts.seq,
        "epoch": 1,
        "input": row.facts.query[:_SUMMARY_CHARS],
        "target": sample["target"],
        "metadata": {name: getattr(row.facts, name) for name in _SUMMARY_FACTS},
        "scores": {name: {"value": value} for name, value in scores.items()},
        "model_usage": sample["model_usage"],
        "completed": True,
        "message_count": len(row.conversation.messages),
        **_times(row),
    }


def _add(log: zipfile.ZipFile, name: str, value: object) -> None:
    member = zipfile.ZipInfo(name)  # dated 1980-01-01
    member.create_system = 3
    member.external_attr = 0o644 << 16
    log.writestr(member, _ENCODER.encode(value))


def _sample_of(row: ViewRow) -> dict[str, object]:
    """One `EvalSample`: messages with ids, and every call with its emitter in the metadata. The target is known only
    where the answer was recommended; bank releases hold the others."""
    facts, talk = row.facts, row.conversation
    names = {call.id: call.function.name for one in talk.messages for call in one.tool_calls}
    every = []
    for number, message in enumerate((*talk.messages, *talk.other_messages)):
        fields = _message(message) | {"id": f"{facts.seq}-{number}"}
        if message.role == "tool" and message.tool_call_id in names:
            fields["function"] = names[message.tool_call_id]
        every.append(fields)
    messages = every[: len(talk.messages)]
    on_path = [turn for turn in talk.completions if turn.reply < len(messages)]
    turn = max(on_path, key=lambda one: one.reply, default=None)
    output: dict[str, object] = {"model": "none", "choices": []}
    if turn is not None:
        choice = {"message": every[turn.reply], "stop_reason": _FINISH.get(turn.finish_reason, "unknown")}
        output = {"model": turn.model, "choices": [choice]}
    read, wrote = facts.prompt_tokens, facts.completion_tokens
    usage = {"input_tokens": read, "output_tokens": wrote, "total_tokens": read + wrote}
    return {
        "id": facts.seq,
        "epoch": 1,
        "input": facts.query,
        "target": facts.recommended if facts.is_gt_exact and facts.recommended else "",
        "messages": messages,
        "output": output,
        "scores": _scores(row),
        "metadata": msgspec.structs.asdict(facts)
        | {"calls": talk.calls, "completions": talk.completions, "other_messages": talk.other_messages},
        "store": {},
        "events": [],
        "model_usage": {facts.models: usage} if facts.models else {},
        "attachments": {},
        **_times(row),
    }


def _times(row: ViewRow) -> dict[str, float]:
    """Seconds, as the viewer shows them; nothing where they were not recorded."""
    if row.facts.episode_ms is None:
        return {}
    return {"total_time": row.facts.episode_ms / 1000, "working_time": row.facts.episode_ms / 1000}


def _message(message: ChatMessage) -> dict[str, object]:
    """A message in inspect's form: arguments as objects, reasoning as content, our own marks as metadata."""
    marks: dict[str, object] = {name: mark for name in _MARKS if (mark := getattr(message, name))}
    fields: dict[str, object] = {"role": message.role, "content": message.content}
    if message.role not in ROLES:
        fields["role"], marks["role"] = "user", message.role
    if message.role == "assistant":
        fields["source"] = "generate" if message.origin is None else "input"
        if message.reasoning_content:
            fields["content"] = [
                {"type": "reasoning", "reasoning": message.reasoning_content},
                {"type": "text", "text": message.content},
            ]
        calls = []
        for call in message.tool_calls:
            said, text = _object_of(call.function.arguments), call.function.arguments[:_SUMMARY_CHARS]
            given = {"arguments": {}, "parse_error": text} if said is None else {"arguments": said}
            calls.append({"id": call.id, "function": call.function.name, "type": "function", **given})
        if calls:
            fields["tool_calls"] = calls
    if message.role == "tool":
        fields["tool_call_id"] = message.tool_call_id
    if marks:
        fields["metadata"] = marks
    return fields


def _score_values(facts: TrajectoryFacts) -> dict[str, float]:
    """Scores by name, from 0 to 1; what was not scored or judged has none."""
    values: dict[str, float] = {}
    if facts.is_success is not None:
        values["success"] = float(facts.is_success)
        values["gt_exact"] = float(bool(facts.is_gt_exact))
    for name in ("rule_e4", "reward_e4", "quality_e4", "coefficient_e4"):
        value = getattr(facts, name)
        if value is not None:
            values[name.removesuffix("_e4")] = value / 10_000
    for axis in AXES:
        if total := getattr(facts, f"{axis}_total"):
            values[axis] = getattr(facts, f"{axis}_hits") / total
    return values


def _scores(row: ViewRow) -> dict[str, object]:
    facts = row.facts
    scores: dict[str, object] = {}
    for name, value in _score_values(facts).items():
        score: dict[str, object] = {"value": value}
        if name in ("success", "gt_exact") and facts.recommended is not None:
            score["answer"] = facts.recommended
        if axis_total := getattr(facts, f"{name}_total", None):
            score["explanation"] = f"{getattr(facts, f'{name}_hits')} of {axis_total} rules met"
        if name == "quality" and row.opinions:
            said = []  # by each judge, with the spans it cites
            for one in row.opinions:
                quotes = "\n".join(f"- span {cited.span}, {cited.gate}: {cited.quote}" for cited in one.citations)
                said.append(f"{one.model}: {one.quality_e4} of 10000. {one.explanation}\n{quotes}".rstrip())
            score["explanation"] = "\n\n".join(said)
            score["metadata"] = {"opinions": row.opinions, "spread_e4": facts.spread_e4}
        scores[name] = score
    return scores


def _time(recorded_ms: int) -> str:
    """UTC, ISO 8601; what lies outside the calendar is its start."""
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=recorded_ms)).isoformat()
    except OverflowError:
        return datetime(1970, 1, 1, tzinfo=UTC).isoformat()


_VERIFIERS = "0.4.0"
_FINISHES = ("stop", "length", "tool_calls")
_COUNTS = ("steps", "tool_calls", "llm_calls", "echoed_calls", "code_calls")
_TRUTHS = ("is_agentic", "is_one_shop", "is_within_budget")


def _write_episodes(rows: Path, path: Path) -> Written:
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with path.open("wb") as file:
        for row in read_rows(rows):
            file.write(_ENCODER.encode(_episode_of(row)) + b"\n")
            count += 1
    return [(path, count)]


def _episode_of(row: ViewRow) -> dict[str, object]:
    """One line of `traces.jsonl`."""
    facts, episode_ms = row.facts, row.facts.episode_ms or 0
    start_s, end_s = (facts.recorded_ms - episode_ms) / 1000, facts.recorded_ms / 1000
    nodes, calls = _graph(row, end_s)
    is_scored = facts.reward_e4 is not None
    functions = [tool["function"] for tool in msgspec.json.decode(row.tools)]
    task = {
        "type": "ShoppingTask",
        "data": {"id": facts.problem_id, "prompt": facts.query},
        "key": facts.problem_id,
        "hash": hashlib.sha256(facts.problem_id.encode()).hexdigest(),
    }
    trace = {
        "version": 1,
        "id": facts.content_sha256[:32],
        "verifiers": {"version": _VERIFIERS},
        "task": task,
        "agent": {"config": {"model": facts.models or None}, "name": "agent"},
        "tools": [{name: one[name] for name in ("name", "description", "parameters")} for one in functions],
        "nodes": nodes,
        "calls": calls,
        "rewards": {"reward": {"score": (facts.reward_e4 or 0) / 10_000, "weight": 1.0} if is_scored else None},
        "metrics": _metrics(facts),
        "info": msgspec.structs.asdict(facts) | {"calls": row.conversation.calls, "opinions": row.opinions},
        "is_completed": True,
        "ok": is_scored,
        "stop_condition": facts.stop,
        "timing": {"start": start_s, "agent": {"start": start_s, "end": end_s}},
    }
    return {"id": trace["id"], "env": {"id": "agent-arena"}, "task": task, "ok": is_scored, "traces": [trace]}


def _graph(row: ViewRow, recorded_s: float) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """The nodes, and the model calls by the nodes they wrote."""
    talk = row.conversation
    every = (*talk.messages, *talk.other_messages)
    replies = {turn.reply for turn in talk.completions}
    nodes: list[dict[str, object]] = []
    place: dict[tuple[int | None, int], int] = {}  # a message behind a node -> its own node

    def walk(path: tuple[int, ...]) -> int | None:
        at: int | None = None
        for index in path:
            if (at, index) not in place:
                place[at, index] = len(nodes)
                message, is_reply = _node_message(every[index]), index in replies
                nodes.append({"parent": at, "message": message, "sampled": is_reply, "timestamp": recorded_s})
            at = place[at, index]
        return at

    calls: list[dict[str, object]] = [
        {
            "node": walk((*turn.request, turn.reply)),
            "model": turn.model,
            "finish_reason": turn.finish_reason if turn.finish_reason in _FINISHES else None,
            "usage": {"prompt_tokens": turn.prompt_tokens, "completion_tokens": turn.completion_tokens},
        }
        for turn in talk.completions
    ]
    walk(tuple(range(len(talk.messages))))  # what was answered to the last reply
    return nodes, calls


def _node_message(message: ChatMessage) -> dict[str, object]:
    """A message in its form; what is of no role that it has is the user's."""
    if message.role == "assistant":
        calls = [
            {"id": call.id, "type": "function", "name": call.function.name, "arguments": call.function.arguments}
            for call in (*message.tool_calls, *message.echoed_tool_calls, *message.agent_tool_calls)
        ]
        fields: dict[str, object] = {"role": "assistant", "content": message.content}
        if message.reasoning_content:
            fields["reasoning_content"] = message.reasoning_content
        return fields | ({"tool_calls": calls} if calls else {})
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    return {"role": "system" if message.role == "system" else "user", "content": message.content}


def _metrics(facts: TrajectoryFacts) -> dict[str, float]:
    """Numbers by name; what does not exist is left out."""
    counted = {name: getattr(facts, name) for name in (*_COUNTS, *_TRUTHS)}
    metrics = {name.removeprefix("is_"): float(value) for name, value in counted.items() if value is not None}
    return metrics | _score_values(facts)
