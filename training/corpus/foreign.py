"""Traces from files that are no export: one row a trajectory. Every shape that a row has leads to chat messages, which
`training.corpus.formats` reads.

Every row comes out once, in order, as a trace or as a quarantined row with code and place; a file none of whose rows
can be read is refused. Nobody vouches for such a row: its trace is not verified, and what a row says of itself is taken
only where it has a field for it.
"""

from __future__ import annotations

import functools
import hashlib
import re
import zipfile
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from arena.export.files import read_lines
from foundation.durable_files import coded
from foundation.errors import ArenaError
from harness.chat import Message
from training.corpus import formats, model
from training.corpus.gates import RECOMMEND, TERMINATE

CONVERSATION_KEYS = ("messages", "traj", "history", "conversations", "conversation")
OUTPUT_KEY = "raw_text"  # what a model answered; `messages` beside it are what it was asked
TEXT_KEYS = ("text", "trajectory", "response")
_OWN_KEYS = (*CONVERSATION_KEYS, "dialogue", "output_tools", OUTPUT_KEY, *TEXT_KEYS)
_WRAPPERS = tuple(
    ["sample", "rollout", "episode", "trajectory", "record", "data", "row", "trace", "result", "output", "input"]
)
_LISTS = tuple(
    ["simulations", "results", "rollouts", "episodes", "trajectories", "samples", "rows", "data", "runs", "problems"]
)
_DEPTH_MAX, _DETAIL_CHARS = 4, 300
_QUOTES = r"[\\\"'’”]*"
_NAMED = re.compile(rf"\b(?:product|item)[ _-]?id{_QUOTES}\s*[:=]?\s*{_QUOTES}([A-Za-z0-9][\w-]*)", re.IGNORECASE)
_KNOWN = (
    "known are SN15 steps (a list of `completion`, or `dialogue`), chat "
    f"({', '.join(CONVERSATION_KEYS)}, `prompt` with `completion`, `nodes`, or a list of `role`), `output_tools`, "
    f"and ReAct, Hermes or ChatML text (a string, or one under {OUTPUT_KEY}, {', '.join(TEXT_KEYS)})"
)
PROMPT = "prompt"  # in `missing`: the row is what a model answered, not what it was asked

Chat = list[Any]  # messages as JSON, under whatever names


def opened(row: object) -> object:
    """A decoded JSON row as its conversation, with the fields around it: rollouts of `verifiers` and of TRL (`prompt`
    and `completion`), runs of `verifiers` 0.4 (`traces` of `nodes`), a conversation one or more fields down, and one
    that stands as JSON text."""
    for _ in range(_DEPTH_MAX):
        inner = _opened_once(row)
        if inner is row:
            break
        row = inner
    return row


def _opened_once(row: object) -> object:
    if not isinstance(row, dict):
        return row
    for key in (*CONVERSATION_KEYS, "prompt", "completion", "tools", "metadata", "info"):
        if (decoded := _decoded(row.get(key))) is not row.get(key):
            return row | {key: decoded}
    prompt, completion = row.get("prompt"), row.get("completion")
    if _is_chat(completion) and (prompt in (None, []) or _is_chat(prompt)):
        return _around(row, "prompt", "completion", messages=[*(prompt or []), *(completion or [])])
    if (nodes := _nodes_of(row)) is not None:
        return nodes
    for key in ("conversations", "conversation"):
        if _is_chat(row.get(key)) and not row.get("messages"):
            return _around(row, key, messages=row[key])
    if any(row.get(key) for key in _OWN_KEYS if key not in _WRAPPERS or isinstance(row.get(key), str)):
        return row
    for key in _WRAPPERS:
        inner = _decoded(row.get(key))
        if isinstance(inner, dict) and inner:
            return {name: value for name, value in row.items() if name != key} | inner
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            return _around(row, key, **{"dialogue" if _is_step(inner[0]) else "messages": inner})
    return row


def _around(row: dict[str, Any], *taken: str, **conversation: object) -> dict[str, Any]:
    """The conversation with the other fields of its row, tools and facts under the names that the formats read."""
    rest = {key: value for key, value in row.items() if key not in taken}
    rest["tools"] = rest.get("tools") or rest.get("tool_defs")
    if not rest.get("metadata") and isinstance(rest.get("info"), dict):
        rest["metadata"] = rest["info"]
    return rest | conversation


def _nodes_of(row: dict[str, Any]) -> dict[str, Any] | None:
    """A run of `verifiers` 0.4: the path to the last leaf of its one trace. What no model call made has weight 0."""
    traces, nodes = row.get("traces"), row.get("nodes")
    if isinstance(traces, list) and len(traces) == 1 and isinstance(traces[0], dict):
        outer = {key: value for key, value in row.items() if key != "traces"}
        return outer | traces[0] if "nodes" in traces[0] else None
    if not isinstance(nodes, list) or not nodes or not all(isinstance(one, dict) for one in nodes):
        return None
    path: list[Any] = []
    at: object = len(nodes) - 1
    while isinstance(at, int) and not isinstance(at, bool) and 0 <= at < len(nodes) and len(path) < len(nodes):
        message = nodes[at].get("message")
        is_given = (
            isinstance(message, dict) and message.get("role") == "assistant" and nodes[at].get("sampled") is False
        )
        path.append(message | {"weight": 0} if isinstance(message, dict) and is_given else message)
        at = nodes[at].get("parent")
    rest = _around(row, "nodes", messages=path[::-1])
    return rest | {"tools": rest["tools"] or nodes[0].get("tools")}


def _is_chat(value: object) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(one, dict) and ("role" in one or "from" in one) for one in value)


def _is_step(value: object) -> bool:
    return isinstance(value, dict) and ("completion" in value or "extra_info" in value)


def _decoded(value: object) -> object:
    """A list or object that stands as JSON text; anything else as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        decoded = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return value
    return decoded if isinstance(decoded, dict | list) else value


def conversation_of(row: object, query: str = "") -> tuple[model.SourceKind, Chat, object]:
    """Format, messages and tools of a decoded JSON row, as `opened` gives it; the query stands in front where the
    format has none. Raises ArenaError V2097."""
    fields = row if isinstance(row, dict) else {}
    tools, asked = fields.get("tools"), [{"role": "user", "content": query}] if query else []
    steps = row if isinstance(row, list) and row and _is_step(row[0]) else fields.get("dialogue")
    text = row if isinstance(row, str) else _text_of(fields)
    if isinstance(steps, list):
        return "sn15", _of_steps(steps, query), tools
    if isinstance(calls := fields.get("output_tools"), list):
        prompt = formats.as_kind(fields.get("messages"), list, "messages") or asked
        called = [formats.as_kind(call, dict, "a call") for call in calls]
        return "output_tools", [*prompt, *({"role": "assistant", "tool_calls": [call]} for call in called)], tools
    if text is not None and "<|im_start|>" in text:
        messages, told = _of_chatml(text)
        return "hermes", messages, tools if told is None else told
    if text is not None and (_is_react(text) or formats.is_spoken(text)):
        prompt = formats.as_kind(fields.get("messages"), list, "messages") or asked
        parts = [part for part in _OBSERVED.split(text) if part.strip()]
        said = [{"role": "user" if one.startswith("<obs>") else "assistant", "content": one} for one in parts]
        return "react" if _is_react(text) else "hermes", [*prompt, *said], tools
    talk = row if isinstance(row, list) and row and formats.is_message(row[0]) else _talk_of(fields)
    if text is None and talk is not None:
        return _kind_of(talk), talk, tools
    what = f"an object of {', '.join(sorted(map(str, fields))[:12])}" if fields else f"a {type(row).__name__}"
    raise ArenaError("V2097", f"{what} is of no known format; {_KNOWN}")


def _text_of(row: dict[str, Any]) -> str | None:
    """The text of a row that is one; beside `messages`, a rendering of these is not."""
    keys = (OUTPUT_KEY,) if row.get("messages") else (OUTPUT_KEY, *TEXT_KEYS)
    return next((row[key] for key in keys if isinstance(row.get(key), str)), None)


def _talk_of(row: dict[str, Any]) -> list[Any] | None:
    """The chat of a row: the list under the first of `CONVERSATION_KEYS` that has one with something in it."""
    found = (row[key] for key in CONVERSATION_KEYS if isinstance(row.get(key), list) and row[key])
    return next(
        (talk for talk in found if formats.is_message(next((one for one in talk if one is not None), None))), None
    )


def _kind_of(messages: Chat) -> model.SourceKind:
    """Chat whose assistant writes calls as text is of that text's format."""
    texts = [
        message["content"]
        for message in messages
        if isinstance(message, dict)
        and message.get("role") in ("assistant", "user", "tool")
        and isinstance(message.get("content"), str)
        and not message.get("tool_calls")
    ]
    if any(("<tool_call>" in text and _is_react(text)) or text.lstrip().startswith("<obs>") for text in texts):
        return "react"
    return "hermes" if any("<tool_call>" in text for text in texts) else "openai"


_OBSERVED = re.compile(r"(<obs>.*?</obs>)", re.DOTALL)


def _is_react(text: str) -> bool:
    """Whether a text has a tag that ReAct alone uses, or calls as a list."""
    return "<obs>" in text or re.search(r"<tool_call>\s*\[", text) is not None


_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>\n?|\Z)", re.DOTALL)
_CHATML_ROLES = {"system": "system", "user": "user", "assistant": "assistant", "tool": "user"}
_TOOLS = re.compile(r"(?:\n\n)?# Tools\n\n.*?<tools>\n(.*?)\n</tools>.*?\n</tool_call>", re.DOTALL)


def _of_chatml(text: str) -> tuple[Chat, object]:
    """The messages and tools of ChatML in Qwen's form."""
    tools, messages, end = None, Chat(), 0
    for turn in _TURN.finditer(text):
        if text[end : turn.start()].strip() or turn.group(1) not in _CHATML_ROLES:
            raise ArenaError("V2097", f"text outside of turns, or a turn of {turn.group(1)!r}")
        role, content, end = _CHATML_ROLES[turn.group(1)], turn.group(2), turn.end()
        if role == "system" and (found := _TOOLS.search(content)):
            tools = [line for line in found[1].split("\n") if line.strip()]
            content = content[: found.start()].strip() + content[found.end() :].rstrip()
        if content or role != "system":
            messages.append({"role": role, "content": content})
    if not messages or text[end:].strip():
        raise ArenaError("V2097", "not ChatML to its end")
    return messages, tools


def _of_steps(steps: list[Any], query: str) -> Chat:
    """SN15 steps, or those of ShoppingBench's own runner, as chat."""
    messages = Chat()
    for number, step in enumerate((formats.as_kind(one, dict, "a step") for one in steps), 1):
        told = formats.as_kind(step.get("extra_info"), dict, f"step {number}").get("query")
        query = query or formats.as_kind(told, str, "query")
        if not isinstance(step.get("completion"), dict):
            raise ArenaError("V2097", f"step {number} has no completion")
        messages += _of_completion(step["completion"], f"step {number}")
    if not messages:
        raise ArenaError("V2097", "a dialogue without steps")
    return [{"role": "user", "content": query}, *messages] if query else messages


def _of_completion(completion: dict[str, Any], place: str) -> Chat:
    """The assistant's turn of a step, then the results of its calls: beside each (`result`), or in `obs` by its id."""
    message = formats.as_kind(completion.get("message"), dict, f"{place}, message")
    is_split = any(message.get(key) for key in ("think", "tool_call", "response"))
    content = message.get("response") if is_split else completion.get("content")
    thoughts = (completion.get("reasoning_content"), message.get("think") or None)
    called = formats.as_calls(message.get("tool_call"), place)
    rows: list[dict[str, Any]] = [formats.as_kind(row, dict, f"{place}, tool call") for row in called]
    reasoning = "\n\n".join(dict.fromkeys(one for one in (formats.as_kind(one, str, place) for one in thoughts) if one))
    seen = [
        formats.as_kind(item, dict, f"{place}, obs")
        for item in formats.as_kind(message.get("obs"), list, f"{place}, obs")
    ]
    counts, calls, results = Counter[str](), Chat(), Chat()
    for call, row in ((formats.call_of(row, place), row) for row in rows):
        counts[call.id] += 1  # an id is a hash of name and parameters: equal calls are numbered
        call_id = f"{call.id}#{counts[call.id]}" if call.id and counts[call.id] > 1 else call.id
        calls.append({"id": call_id, "name": call.name, "arguments": call.arguments})
        own = next((item for item in seen if formats.id_of(item) == call.id), None)
        if own is not None:
            seen.remove(own)
        result = formats.first_of(row if own is None else own, ("result", "results"))
        if result is not None or own is not None:
            results.append({"role": "tool", "tool_call_id": call_id, "content": result})
    if seen:
        raise ArenaError("V2097", f"{place}: a result of {formats.id_of(seen[0])!r}, which is not a call of the step")
    return [{"role": "assistant", "content": content, "reasoning": reasoning, "tool_calls": calls}, *results]


def read_facts(fields: dict[str, Any], metadata: dict[str, Any]) -> model.TraceFacts:
    """The facts that `metadata`, the object that an export keeps them in, states by their names: each has to be one.

    Of the row's own fields (`stop`, `team` and such are common words) the problem is taken, what was recommended, and a
    pool or suite: one that is not ours is refused, since it may mean that the row is held out. Raises ArenaError V2097.
    """
    own = {name: fields.get(name) for name in ("problem_id", "pool", "suite", "recommended", "category")}
    told = own | {name: one for name, one in metadata.items() if one not in (None, "")}
    stated = {fact: told[name] for name, fact in model.EXPORTED_FACTS.items() if told.get(name) not in (None, "")}
    if isinstance(one := stated.get("problem_id"), int) and not isinstance(one, bool):
        stated["problem_id"] = str(one)
    if (category := str(told.get("category")).lower()) in ("product", "shop", "voucher"):
        stated.setdefault("bucket", category)
    ids = told.get("recommended")
    if isinstance(fields.get("output_tools"), list):
        ids = fields.get("recommended_product_ids", ids)
        if fields.get("terminated") is True:
            stated["stop"] = "terminated"
    if isinstance(ids, str):
        ids = [one.strip() for one in ids.split(",") if one.strip()]
    with coded("facts", "V2097"):
        return msgspec.convert(stated | ({} if ids is None else {"recommended": ids}), model.TraceFacts)


def surfaced_in(messages: Iterable[Message]) -> tuple[str, ...] | None:
    """The ids in order of appearance; None where no result names one."""
    silent: set[str] = set()
    found: dict[str, None] = {}
    for message in messages:
        silent.update(call.id for call in message.calls if call.name in (RECOMMEND, TERMINATE))
        if message.role == "tool" and message.call_id not in silent:
            found.update(dict.fromkeys(_NAMED.findall(message.content)))
    return tuple(found) or None


def convert_row(row: object, place: str, sha256: str) -> model.Trace:
    """The trace of one decoded JSON row. `sha256` is that of its bytes.

    Raises ArenaError V2097 for a row of no known format, and for one that is not what its format says.
    """
    row = opened(row)
    fields = row if isinstance(row, dict) else {}
    metadata = fields["metadata"] if isinstance(fields.get("metadata"), dict) else {}
    query = next((one["query"] for one in (fields, metadata) if isinstance(one.get("query"), str)), "")
    kind, talk, tools = conversation_of(row, query)
    facts, missing, messages = read_facts(fields, metadata), list[str](), formats.read_messages(talk)
    if facts.surfaced is None:
        facts = msgspec.structs.replace(facts, surfaced=surfaced_in(messages))
    if not any("coefficient_e4" in one for one in (fields, metadata)):
        missing.append(model.JUDGE)
    if not any(message.role == "user" for message in messages):
        missing.append(PROMPT)
    if sum(len(message.calls) for message in messages) > sum(message.role == "tool" for message in messages):
        missing.append(model.RESULTS)
    try:
        return model.assemble_trace(
            model.TraceSource(kind=kind, place=place, sha256=sha256, is_verified=False),
            messages,
            tools=formats.read_tools(tools),
            query=query or next((message.content for message in messages if message.role == "user"), ""),
            facts=facts,
            missing=missing,
        )
    except ValueError as error:
        raise ArenaError("V2097", str(error)) from error


def read_foreign(path: Path, first: int = 1, rows: int | None = None) -> Iterator[model.Trace | model.Quarantined]:
    """The rows of a `.jsonl`, `.jsonl.zst`, `.json` or `.traj` file (a list of rows, or one), or of inspect's `.eval`:
    `rows` of them from the number `first` on, all that follow for None.

    Memory: a row, or a whole `.json` or `.traj` file. Raises ArenaError V2050 for a broken archive.
    """
    lines = islice(_lines_from(path), first - 1, None if rows is None else first - 1 + rows)
    for number, line in enumerate(lines, first):
        place = f"{path.name}:{number}"
        if not line and path.suffix not in (".json", ".traj"):  # a blank line, which is counted
            continue
        try:
            yield convert_row(msgspec.json.decode(line), place, hashlib.sha256(line).hexdigest())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            yield model.Quarantined(place=place, code="V2097", detail=f"not JSON: {error}")
        except ArenaError as error:
            yield model.Quarantined(place=place, code=error.failure.code, detail=error.failure.detail[:_DETAIL_CHARS])


def _lines_from(path: Path) -> Iterator[bytes]:
    """The rows of a file as JSON text."""
    if path.suffix == ".eval":  # a zip with a JSON file for each sample
        try:
            with zipfile.ZipFile(path) as log:
                for name in sorted(log.namelist()):
                    if name.startswith("samples/") and name.endswith(".json"):
                        yield log.read(name)
        except (zipfile.BadZipFile, NotImplementedError) as error:  # the latter: a compression that zipfile has not
            raise ArenaError("V2050", f"{path}: {error}") from error
    elif path.suffix in (".json", ".traj"):
        yield from _rows_of(path.read_bytes().removeprefix(BOM_UTF8).strip())
    elif path.suffix == ".zst":
        yield from (line.removeprefix(BOM_UTF8).strip() for line in read_lines(path))
    else:
        with path.open("rb") as file:
            yield from (line.removeprefix(BOM_UTF8).strip() for line in file)


def _rows_of(content: bytes) -> Iterator[bytes]:
    """A list is one row where its items are the steps or messages of one conversation; an object around a list of
    rows, as benchmarks save a run, is that list."""
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        yield content
        return
    rows: list[msgspec.Raw] = []
    try:
        conversation_of(opened(value))
    except ArenaError:
        if isinstance(value, list):
            rows = msgspec.json.decode(content, type=list[msgspec.Raw])
        elif isinstance(value, dict) and not any(value.get(key) for key in (*_OWN_KEYS, "completion", "traces")):
            inner = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
            lists = (key for key in _LISTS if isinstance(value.get(key), list) and value[key])
            key = next((key for key in lists if all(isinstance(row, dict | list) for row in value[key])), None)
            rows = [] if key is None else msgspec.json.decode(inner[key], type=list[msgspec.Raw])
    yield from map(bytes, rows) if rows else [content]


SHARD_ROWS, SHARDS_MAX = 512, 32  # each piece of a file is read from its beginning


def foreign_shards(path: Path) -> tuple[Callable[[], Iterator[model.Trace | model.Quarantined]], ...]:
    """A foreign file as pieces of `SHARD_ROWS` rows or more, each read when it is called; none without rows.

    Raises ArenaError V2027 when rows were read and none is a trace, V2050 for a broken archive, and OSError.
    """
    refused = None
    for row in read_foreign(path):
        if isinstance(row, model.Trace):
            break
        refused = refused or row
    else:
        if refused is not None:
            raise ArenaError("V2027", f"{path}: no row can be read; {refused.place}: {refused.detail}")
    count = sum(1 for _ in _lines_from(path))
    size = max(SHARD_ROWS, -(-count // SHARDS_MAX))
    return tuple(functools.partial(read_foreign, path, first, size) for first in range(1, count + 1, size))
