"""Rows of other projects: every shape becomes the same kind of trace, in pieces as whole; a code comes of the rest."""

from __future__ import annotations

import json
import random
import zipfile
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ArenaError
from tests.training.export_reading import read_traces
from tests.training.firehose import Firehose
from tests.training.firehose_export import write_day
from training.corpus import foreign as pieces
from training.corpus.exports import open_export
from training.corpus.foreign import convert_row, foreign_shards, read_foreign
from training.corpus.gates import codes_of, gates, is_paired, names_unknown
from training.corpus.model import Rules, Trace

QUERY = "a red lamp"
SEARCH = {"q": "red lamp", "page": 1}
HITS = [{"product_id": "1000000001", "title": "Red Lamp"}]
FLAT = {"type": "function", "name": "find_product", "description": "Search.", "parameters": {"type": "object"}}


def step(number: int = 1, **message: object) -> dict[str, object]:
    return {
        "completion": {"reasoning_content": "", "content": "", "message": message},
        "extra_info": {"step": number, "query": QUERY, "timestamp": 1_767_225_600_000},
    }


STEPS = [
    step(
        1,
        think="I search.",
        tool_call=[{"name": "find_product", "parameters": SEARCH, "tool_call_id": "a1B2c3D4", "result": HITS}],
    ),
    step(2, think="It fits.", response="Take this one."),
]
REACT = (
    "<think>I search.</think>\n"
    '<tool_call>[{"name": "find_product", "parameters": {"q":"red lamp","page":1}}]</tool_call>'
    '<obs>[{"product_id":"1000000001","title":"Red Lamp"}]</obs>'
    "<think>It fits.</think><response>Take this one.</response>"
)
HERMES = (
    "<|im_start|>user\na red lamp<|im_end|>\n"
    "<|im_start|>assistant\n<think>\nI search.\n</think>\n\n<tool_call>\n"
    '{"name": "find_product", "arguments": {"q":"red lamp","page":1}}\n</tool_call><|im_end|>\n'
    '<|im_start|>user\n<tool_response>\n[{"product_id":"1000000001","title":"Red Lamp"}]\n</tool_response><|im_end|>\n'
    "<|im_start|>assistant\n<think>\nIt fits.\n</think>\n\nTake this one.<|im_end|>\n"
)
CHAT = {
    "messages": [
        {"role": "user", "content": QUERY},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "I search.",
            "tool_calls": [
                {"id": "a1B2c3D4", "type": "function", "function": {"name": "find_product", "arguments": SEARCH}}
            ],
        },
        {"role": "tool", "tool_call_id": "a1B2c3D4", "content": HITS},
        {"role": "assistant", "reasoning_content": "It fits.", "content": "Take this one."},
    ],
    "tools": [FLAT],
}
FORMATS = {
    "sn15": STEPS,
    "react": {"text": REACT, "query": QUERY},
    "hermes": {"text": HERMES},
    "openai": CHAT,
}


def converted(row: object) -> Trace:
    return convert_row(row, "rows.jsonl:1", "00" * 32)


def refusal(row: object) -> str:
    with pytest.raises(ArenaError) as raised:
        converted(row)
    return raised.value.failure.code


def without_ids(trace: Trace) -> list[tuple[object, ...]]:
    """The conversation, with calls numbered in order."""
    names: dict[str, int] = {}
    number = [
        [names.setdefault(call.id, len(names)) for call in message.calls] + [names.get(message.call_id, -1)]
        for message in trace.messages
    ]
    return [
        (one.role, one.content, one.reasoning, [(call.name, call.arguments) for call in one.calls], ids)
        for one, ids in zip(trace.messages, number, strict=True)
    ]


@pytest.mark.parametrize("kind", FORMATS)
def test_one_conversation_is_the_same_trace_from_every_format(kind: str) -> None:
    trace = converted(FORMATS[kind])
    assert trace.source.kind == kind
    assert trace.query == QUERY
    assert without_ids(trace) == [
        ("user", QUERY, "", [], [-1]),
        ("assistant", "", "I search.", [("find_product", '{"q":"red lamp","page":1}')], [0, -1]),
        ("tool", '[{"product_id":"1000000001","title":"Red Lamp"}]', "", [], [0]),
        ("assistant", "Take this one.", "It fits.", [], [-1]),
    ]
    assert {"emitters", "coefficient_e4", "cluster_id"} <= set(trace.missing)
    assert trace.facts.surfaced == ("1000000001",)
    assert not {"results", "prompt"} & set(trace.missing)
    assert not trace.source.is_verified


def test_ids_of_the_source_are_kept_and_equal_ones_of_a_step_told_apart() -> None:
    call = {"name": "find_product", "parameters": SEARCH, "tool_call_id": "a1B2c3D4", "result": []}
    trace = converted(
        {"problem_id": "p-1", "status": "SUCCESS", "dialogue": [step(1, think="x", tool_call=[call, call])]}
    )
    assert [one.id for message in trace.messages for one in message.calls] == ["a1B2c3D4", "a1B2c3D4#2"]
    assert [message.call_id for message in trace.messages[2:]] == ["a1B2c3D4", "a1B2c3D4#2"]
    assert trace.facts.problem_id == "p-1"


@pytest.mark.parametrize(
    "row",
    [
        [{"completion": None, "extra_info": {}}],
        [step(tool_call=[{"parameters": {}}])],
        [step(tool_call="find_product")],
        {"dialogue": []},
        {"text": "<tool_call>[{]</tool_call><obs></obs>"},
        {"text": '<tool_call>{"name": "find_product"'},
        {"text": "<|im_start|>narrator\nOnce<|im_end|>"},
        {"messages": [{"role": "narrator", "content": "Once"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]},
        {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]},
        {"messages": [{"role": "user", "content": "x"}], "metadata": {"coefficient_e4": "high"}},
        {"output_tools": [7]},
    ],
)
def test_a_row_that_is_not_what_its_format_says_is_refused_by_code(row: object) -> None:
    assert refusal(row) == "V2097"


def test_a_file_is_read_row_by_row_and_bad_rows_are_kept_out_by_place(tmp_path: Path) -> None:
    lines = [msgspec.json.encode(row) for row in FORMATS.values()]
    broken = [b"{", b'"a lamp"']
    content = b"\n".join([*lines, *broken]) + b"\n\n"
    (tmp_path / "rows.jsonl").write_bytes(content)
    (tmp_path / "rows.jsonl.zst").write_bytes(zstandard.compress(content))
    rows = list(read_foreign(tmp_path / "rows.jsonl"))
    assert [row.source.kind if isinstance(row, Trace) else (row.place, row.code) for row in rows] == [
        *FORMATS,
        ("rows.jsonl:5", "V2097"),
        ("rows.jsonl:6", "V2097"),
    ]
    again = list(read_foreign(tmp_path / "rows.jsonl.zst"))
    assert [row.trace_id for row in again if isinstance(row, Trace)] == [
        row.trace_id for row in rows if isinstance(row, Trace)
    ]


_KEYS = ("messages", "role", "content", "tool_calls", "function", "name", "arguments", "dialogue", "completion")
_MORE_KEYS = (
    "message",
    "tool_call",
    "parameters",
    "result",
    "output_tools",
    "text",
    "tools",
    "metadata",
    "id",
    "think",
)
_WORDS = st.sampled_from(["user", "assistant", "tool", REACT, HERMES, "<think>", "<tool_call>[", "{}", "<obs>"])
_ROW = st.recursive(
    _WORDS | st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS + _MORE_KEYS), inner, max_size=5),
    max_leaves=20,
)


@given(_ROW)
def test_any_json_is_a_trace_or_a_code(row: object) -> None:
    try:
        trace = converted(row)
    except ArenaError as error:
        assert error.failure.code == "V2097"
    else:
        assert isinstance(trace, Trace)


FOUND = "1000000001"
ENDED = {"product_ids": FOUND}
TALK = [  # what every row below says
    ("user", QUERY),
    ("find_product", SEARCH, HITS),
    ("recommend_product", ENDED, f"Recommended {FOUND}."),
]


def upstream(**changed: object) -> list[dict[str, object]]:
    """A rollout as ShoppingBench's own runner saves it: results under `message.obs`, ids a hash."""
    steps = []
    for number, (name, parameters, result) in enumerate(TALK[1:], 1):
        call = {"name": name, "parameters": parameters, "tool_call_id": f"id{number}"}
        message = {"think": "T", "tool_call": [call], "obs": [{"tool_call_id": f"id{number}", "results": result}]}
        steps.append(
            {
                "prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "# Dialogue\n" + QUERY}],
                "completion": {"reasoning_content": "", "content": "<think>T</think>", "message": message | changed},
                "extra_info": {"step": number, "query": QUERY, "timestamp": 1_767_225_600_000},
            }
        )
    return steps


def chat(call, result, *, wrap=lambda messages: {"messages": messages}) -> object:
    """The same as chat, by how a row writes a call and a result."""
    messages: list[object] = [{"role": "user", "content": QUERY}]
    for number, (name, arguments, answer) in enumerate(TALK[1:], 1):
        messages += [
            {"role": "assistant", "content": None, "reasoning_content": "T", **call(f"c{number}", name, arguments)},
            result(f"c{number}", name, answer),
        ]
    return wrap(messages)


def native(own_id, name, arguments):
    return {"tool_calls": [{"id": own_id, "type": "function", "function": {"name": name, "arguments": arguments}}]}


def as_text(own_id, name, arguments):
    return native(own_id, name, json.dumps(arguments, separators=(",", ":")))


def told(own_id, name, answer):
    return {"role": "tool", "tool_call_id": own_id, "content": answer}


def anthropic() -> dict[str, object]:
    messages: list[object] = [{"role": "user", "content": [{"type": "text", "text": QUERY}]}]
    for number, (name, arguments, answer) in enumerate(TALK[1:], 1):
        used = {"type": "tool_use", "id": f"u{number}", "name": name, "input": arguments}
        given = {"type": "tool_result", "tool_use_id": f"u{number}", "content": answer}
        messages += [
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "T"}, used]},
            {"role": "user", "content": [given]},
        ]
    return {"messages": messages, "tools": [{"name": "find_product", "input_schema": {"type": "object"}}]}


def sharegpt() -> dict[str, object]:
    turns: list[object] = [{"from": "human", "value": QUERY}]
    for name, arguments, answer in TALK[1:]:
        turns += [
            {"from": "function_call", "value": json.dumps({"name": name, "arguments": arguments}), "thinking": "T"},
            {"from": "observation", "value": answer},
        ]
    return {"conversations": turns}


def tagged() -> dict[str, object]:
    messages: list[object] = [{"role": "user", "content": QUERY}]
    for name, arguments, answer in TALK[1:]:
        call = json.dumps({"name": name, "arguments": arguments}, separators=(",", ":"))
        shown = answer if isinstance(answer, str) else json.dumps(answer, separators=(",", ":"))
        messages += [
            {"role": "assistant", "content": f"<think>T</think><tool_call>{call}</tool_call>"},
            {"role": "tool", "content": shown},
        ]
    return {"messages": messages}


def graph() -> dict[str, object]:
    """A run of verifiers 0.4."""
    messages = chat(lambda i, n, a: {"tool_calls": [{"id": i, **as_text(i, n, a)["tool_calls"][0]["function"]}]}, told)
    messages = messages["messages"]
    nodes = [
        {"parent": number - 1 if number else None, "message": message, "sampled": message["role"] == "assistant"}
        for number, message in enumerate(messages)
    ]
    return {"id": "e", "task": {"type": "T", "data": {}}, "traces": [{"nodes": nodes, "rewards": {}}], "ok": True}


LANGCHAIN = chat(
    lambda i, n, a: {"role": None, "type": "ai", "tool_calls": [{"id": i, "name": n, "args": a, "type": "tool_call"}]},
    lambda i, n, o: {"type": "tool", "tool_call_id": i, "content": o},
)


ROWS = {
    "upstream's obs": upstream(),
    "an envelope around a dialogue": {"sample": {"dialogue": upstream()}, "grade": {"score": 1}},
    "arguments as objects": chat(native, told),
    "arguments as text": chat(as_text, told),
    "calls as text": chat(lambda i, n, a: {"tool_calls": [json.dumps({"id": i, "name": n, "arguments": a})]}, told),
    "function_call": chat(
        lambda i, n, a: {"function_call": {"name": n, "arguments": json.dumps(a, separators=(",", ":"))}},
        lambda i, n, o: {"role": "function", "name": n, "content": o},
    ),
    "no ids": chat(lambda i, n, a: native(None, n, a), lambda i, n, o: {"role": "tool", "content": o}),
    "ids of results alone": chat(lambda i, n, a: native(None, n, a), told),
    "null beside everything": chat(
        lambda i, n, a: native(i, n, a) | {"function_call": None, "name": None, "refusal": None, "audio": None},
        lambda i, n, o: told(i, n, o) | {"name": None, "tool_calls": None},
        wrap=lambda messages: {"messages": [None, *messages], "tools": None, "metadata": None, "query": None},
    ),
    "prompt and completion": chat(native, told, wrap=lambda m: {"prompt": m[:1], "completion": m[1:], "reward": 1.0}),
    "Anthropic's parts": anthropic(),
    "ShareGPT": sharegpt(),
    "LangChain": LANGCHAIN,
    "calls in tags": tagged(),
    "verifiers 0.4": graph(),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_every_shape_gives_the_one_conversation_with_its_results_paired(name: str) -> None:
    trace = converted(msgspec.json.decode(msgspec.json.encode(ROWS[name])))
    hits = msgspec.json.encode(HITS).decode()
    expected = [
        ("user", QUERY, "", [], [-1]),
        ("assistant", "", "T", [("find_product", json.dumps(SEARCH, separators=(",", ":")))], [0, -1]),
        ("tool", hits, "", [], [0]),
        ("assistant", "", "T", [("recommend_product", json.dumps(ENDED, separators=(",", ":")))], [1, -1]),
        ("tool", f"Recommended {FOUND}.", "", [], [1]),
    ]
    assert without_ids(trace) == expected
    assert is_paired(trace.messages)
    assert trace.facts.surfaced == (FOUND,)
    assert codes_of(trace, Rules(off=("subtask_guess",)), gates()) == ()


@pytest.mark.parametrize(
    "row",
    [
        upstream(obs=[{"tool_call_id": "of nobody", "results": 1}]),
        upstream(obs=[1, 2, 3], tool_call=[{"name": "a"}, {"name": "b"}]),
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": [{"type": "image_url"}]}]},
        {"messages": [{"role": "user", "content": "x", "tool_calls": [{"name": "a"}]}]},
        {"messages": [{"role": "user", "content": "x"}], "pool": "theirs"},
    ],
)
def test_what_can_not_be_told_is_refused(row: object) -> None:
    assert refusal(row) == "V2097"


@pytest.mark.parametrize(
    "shown",
    [
        '[{"product_id": 17}]',
        "{'product_id': '17'}",
        '{"text": "[{\\"product_id\\": \\"17\\"}]"}',
        "Product ID: 17, red",
    ],
)
def test_ids_that_results_name_are_known_without_a_catalogue(shown: str) -> None:
    rows = chat(native, lambda i, n, o: told(i, n, shown if n == "find_product" else o))
    assert converted(rows).facts.surfaced == ("17",)
    assert names_unknown(converted(rows))  # another was recommended
    assert not names_unknown(converted(rows), frozenset({FOUND}))  # the catalogue has it


def test_a_source_without_a_judge_is_not_asked_for_a_verdict_and_one_with_a_judge_is() -> None:
    plain = converted(chat(native, told))
    assert "judge" in plain.missing and "coefficient" not in codes_of(plain, Rules(), {})
    for value, code in ((None, "coefficient"), (5_000, "coefficient"), (9_500, None)):
        judged = converted(
            chat(native, told, wrap=lambda m, v=value: {"messages": m, "metadata": {"coefficient_e4": v}})
        )
        assert codes_of(judged, Rules(), {}) == ((code,) if code else ())


@pytest.mark.parametrize("key", ["simulations", "results", "data"])
def test_a_file_that_is_one_object_around_its_rows_is_these_rows(tmp_path: Path, key: str) -> None:
    rows = [ROWS["arguments as text"], ROWS["upstream's obs"]]
    (tmp_path / "run.json").write_bytes(msgspec.json.encode({"timestamp": "x", "tasks": [], key: rows}))
    assert [isinstance(row, Trace) for row in read_foreign(tmp_path / "run.json")] == [True, True]


def test_own_exports_of_messages_and_rollouts_read_back_whole(firehose: Firehose, tmp_path: Path) -> None:
    """What an export gives as traces verbatim comes back from its views, with the same fate under the filter."""
    from arena.chain.keys import verify

    manifest = write_day(firehose, tmp_path / "day", 40, formats=("jsonl", "messages", "verifiers"))
    there = {row.trace_id: row for row in read_traces(open_export(tmp_path / "day", verify)) if isinstance(row, Trace)}
    verbatim = {name for name, row in there.items() if row.provenance == "verbatim"}
    for view in ("messages", "verifiers"):
        files = [one.path for one in manifest.files if one.path.startswith(f"views/{view}/") and one.rows]
        rows = [row for path in files for row in read_foreign(tmp_path / "day" / path)]
        assert len(rows) == sum(one.rows for one in manifest.files if one.path in files)
        assert all(isinstance(row, Trace) for row in rows)
        back = {row.trace_id: row for row in rows}
        assert verbatim <= back.keys()
        every = gates()
        for name in verbatim:
            assert codes_of(back[name], Rules(), every) == codes_of(there[name], Rules(), every)
            assert back[name].facts.coefficient_e4 == there[name].facts.coefficient_e4


def put(folder: Path, name: str) -> Path:
    """A file of made traces, lines that are none, and rows of no known format."""
    lines = [msgspec.json.encode(row) for row in [*FORMATS.values()] * 20]
    lines = random.Random(1).sample([*lines, b"not json", b"{", b'{"a": 1}'], len(lines) + 3)
    path, content = folder / name, b"\n\n".join([b"", *lines, b""])  # blank lines are no rows
    path.write_bytes(zstandard.compress(content) if name.endswith(".zst") else content)
    return path


@pytest.mark.parametrize(("name", "rows"), [("rows.jsonl", 7), ("rows.jsonl.zst", 1), ("rows", 40)])
def test_the_pieces_are_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, rows: int) -> None:
    monkeypatch.setattr(pieces, "SHARD_ROWS", rows)
    path = put(tmp_path, name)
    shards = foreign_shards(path)
    assert [row for shard in shards for row in shard()] == list(read_foreign(path))
    assert 2 < len(shards) <= pieces.SHARDS_MAX


def test_an_inspect_log_has_a_row_for_each_sample_and_a_broken_one_is_said(tmp_path: Path) -> None:
    path = tmp_path / "run.eval"
    talk = [{"role": "user", "content": "A seat."}, {"role": "assistant", "content": "4A."}]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as log:
        log.writestr("header.json", b"{}")
        for epoch in (1, 2):
            log.writestr(f"samples/1_epoch_{epoch}.json", msgspec.json.encode({"id": 1, "messages": talk}))
    traces = list(read_foreign(path))
    assert [isinstance(trace, Trace) for trace in traces] == [True, True]
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ArenaError) as caught:
        list(read_foreign(path))
    assert caught.value.failure.code == "V2050"


def test_facts_are_read_under_the_names_that_others_have_for_them() -> None:
    chat = [{"role": "user", "content": QUERY}, {"role": "assistant", "content": "Nothing fits."}]
    row = {"messages": json.dumps(chat), "problem_id": 7, "category": "Shop", "recommended": "1000000001, 1000000002"}
    trace = converted(row)
    assert (trace.facts.problem_id, trace.facts.bucket) == ("7", "shop")
    assert trace.facts.recommended == ("1000000001", "1000000002")


@pytest.mark.parametrize("rest", ["stray", "<|im_start|>critic\nNo.<|im_end|>"])
def test_chatml_is_read_to_its_end_or_refused(rest: str) -> None:
    text = f"<|im_start|>user\n{QUERY}<|im_end|>\n<|im_start|>assistant\nNothing fits.<|im_end|>\n"
    assert [message.role for message in converted({"text": text}).messages] == ["user", "assistant"]
    with pytest.raises(ArenaError, match="V2097"):
        converted({"text": text + rest})
