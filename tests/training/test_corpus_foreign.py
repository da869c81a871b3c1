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
from tests.training.firehose import Firehose, read_traces, write_day
from training.corpus import foreign as pieces
from training.corpus.exports import open_export
from training.corpus.foreign import convert_row, foreign_shards, read_foreign
from training.corpus.gates import codes_of, gates, is_paired, names_unknown
from training.corpus.model import Quarantined, Rules, Trace

QUERY = "a red lamp"
FOUND = "1000000001"
HITS = [{"product_id": FOUND, "title": "Red Lamp"}]
TALK = [  # what every row below says
    ("find_product", {"q": "red lamp", "page": 1}, HITS),
    ("recommend_product", {"product_ids": FOUND}, f"Recommended {FOUND}."),
]


def plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def step(number: int = 1, **message: object) -> dict[str, object]:
    """An SN15 step."""
    return {
        "completion": {"reasoning_content": "", "content": "", "message": message},
        "extra_info": {"step": number, "query": QUERY, "timestamp": 1_767_225_600_000},
    }


def steps(*, is_upstream: bool) -> list[object]:
    """Steps with each result beside its call, or under `obs`, as ShoppingBench's own runner saves them."""
    made = []
    for number, (name, parameters, result) in enumerate(TALK, 1):
        call = {"name": name, "parameters": parameters, "tool_call_id": f"id{number}"}
        obs = [{"tool_call_id": f"id{number}", "results": result}]
        shown = {"tool_call": [call], "obs": obs} if is_upstream else {"tool_call": [call | {"result": result}]}
        made.append(step(number, think="T", **shown))
    return made


def react() -> str:
    rows = [(plain([{"name": name, "parameters": given}]), plain(result)) for name, given, result in TALK]
    return "".join(f"<think>T</think><tool_call>{call}</tool_call><obs>{result}</obs>" for call, result in rows)


def hermes() -> str:
    turns = "".join(
        f"<|im_start|>assistant\n<think>\nT\n</think>\n\n<tool_call>\n{plain({'name': name, 'arguments': given})}\n"
        f"</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n{plain(result)}\n</tool_response><|im_end|>\n"
        for name, given, result in TALK
    )
    return f"<|im_start|>user\n{QUERY}<|im_end|>\n{turns}"


def chat(call, result, *, wrap=lambda messages: {"messages": messages}) -> object:
    """The talk as chat, by how a row writes a call and a result."""
    messages: list[object] = [{"role": "user", "content": QUERY}]
    for number, (name, arguments, answer) in enumerate(TALK, 1):
        messages += [
            {"role": "assistant", "content": None, "reasoning_content": "T", **call(f"c{number}", name, arguments)},
            result(f"c{number}", name, answer),
        ]
    return wrap(messages)


def native(own_id, name, arguments):
    return {"tool_calls": [{"id": own_id, "type": "function", "function": {"name": name, "arguments": arguments}}]}


def told(own_id, name, answer):
    return {"role": "tool", "tool_call_id": own_id, "content": answer}


def graph(messages: list[dict[str, object]]) -> dict[str, object]:
    """A run of verifiers 0.4."""
    nodes = [
        {"parent": number - 1 if number else None, "message": message, "sampled": message["role"] == "assistant"}
        for number, message in enumerate(messages)
    ]
    return {"id": "e", "task": {"type": "T", "data": {}}, "traces": [{"nodes": nodes, "rewards": {}}], "ok": True}


ROWS = {
    "sn15": steps(is_upstream=False),
    "sn15, upstream's obs": {"sample": {"dialogue": steps(is_upstream=True)}, "grade": {"score": 1}},
    "react": {"text": react(), "query": QUERY},
    "hermes": {"text": hermes()},
    "openai": chat(native, told),
    "openai, function_call": chat(
        lambda i, n, a: {"function_call": {"name": n, "arguments": plain(a)}},
        lambda i, n, o: {"role": "function", "name": n, "content": o},
    ),
    "openai, calls as text, ids of results alone": chat(
        lambda i, n, a: {"tool_calls": [json.dumps({"name": n, "arguments": a})]}, told
    ),
    "openai, null beside everything": chat(
        lambda i, n, a: native(i, n, a) | {"function_call": None, "name": None, "refusal": None, "audio": None},
        lambda i, n, o: told(i, n, o) | {"name": None, "tool_calls": None},
        wrap=lambda messages: {"messages": [None, *messages], "tools": None, "metadata": None, "query": None},
    ),
    "openai, prompt and completion": chat(native, told, wrap=lambda m: {"prompt": m[:1], "completion": m[1:]}),
    "openai, Anthropic's parts": chat(
        lambda i, n, a: {
            "reasoning_content": None,
            "content": [{"type": "thinking", "thinking": "T"}, {"type": "tool_use", "id": i, "name": n, "input": a}],
        },
        lambda i, n, o: {"role": "user", "content": [{"type": "tool_result", "tool_use_id": i, "content": o}]},
        wrap=lambda m: {"messages": m, "tools": [{"name": n, "input_schema": {"type": "object"}} for n, _, _ in TALK]},
    ),
    "openai, ShareGPT": chat(
        lambda i, n, a: {"role": None, "from": "function_call", "value": plain({"name": n, "arguments": a})},
        lambda i, n, o: {"from": "observation", "value": o},
        wrap=lambda m: {"conversations": [{"from": "human", "value": QUERY}, *m[1:]]},
    ),
    "openai, LangChain": chat(
        lambda i, n, a: {"role": None, "type": "ai", "tool_calls": [{"id": i, "name": n, "args": a}]},
        lambda i, n, o: {"type": "tool", "tool_call_id": i, "content": o},
    ),
    "hermes, calls in tags": chat(
        lambda i, n, a: {"content": f"<think>T</think><tool_call>{plain({'name': n, 'arguments': a})}</tool_call>",
                         "reasoning_content": ""},
        lambda i, n, o: {"role": "tool", "content": plain(o)},
    ),
    "openai, verifiers 0.4": chat(lambda i, n, a: native(i, n, plain(a)), told, wrap=graph),
}  # fmt: skip


def converted(row: object) -> Trace:
    return convert_row(msgspec.json.decode(msgspec.json.encode(row)), "rows.jsonl:1", "00" * 32)


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


@pytest.mark.parametrize("name", ROWS)
def test_every_shape_gives_the_one_conversation_with_its_results_paired(name: str) -> None:
    trace = converted(ROWS[name])
    assert (trace.source.kind, trace.query, trace.source.is_verified) == (name.partition(",")[0], QUERY, False)
    expected: list[tuple[object, ...]] = [("user", QUERY, "", [], [-1])]
    for number, (call, arguments, result) in enumerate(TALK):
        expected.append(("assistant", "", "T", [(call, plain(arguments))], [number, -1]))
        expected.append(("tool", plain(result), "", [], [number]))
    assert without_ids(trace) == expected
    assert is_paired(trace.messages)
    assert {"emitters", "coefficient_e4", "cluster_id"} <= set(trace.missing)
    assert not {"results", "prompt"} & set(trace.missing)
    assert trace.facts.surfaced == (FOUND,)
    assert codes_of(trace, Rules(off=("subtask_guess",)), gates()) == ()


def test_ids_of_the_source_are_kept_and_equal_ones_of_a_step_told_apart() -> None:
    call = {"name": "find_product", "parameters": {}, "tool_call_id": "a1B2c3D4", "result": []}
    trace = converted({"problem_id": "p-1", "dialogue": [step(1, think="x", tool_call=[call, call])]})
    assert [one.id for message in trace.messages for one in message.calls] == ["a1B2c3D4", "a1B2c3D4#2"]
    assert [message.call_id for message in trace.messages[2:]] == ["a1B2c3D4", "a1B2c3D4#2"]
    assert trace.facts.problem_id == "p-1"


ASKED = {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    "row",
    [
        [{"completion": None, "extra_info": {}}],
        [step(tool_call=[{"parameters": {}}])],
        [step(think="T", tool_call=[{"name": "a"}], obs=[{"tool_call_id": "of nobody", "results": 1}])],
        {"dialogue": []},
        {"text": "<tool_call>[{]</tool_call><obs></obs>"},
        {"text": '<tool_call>{"name": "find_product"'},
        {"text": f"{hermes()}stray"},
        {"text": f"{hermes()}<|im_start|>critic\nNo.<|im_end|>"},
        {"messages": [{"role": "narrator", "content": "Once"}]},
        {"messages": [ASKED, {"role": "assistant", "content": [{"type": "image_url"}]}]},
        {"messages": [ASKED | {"tool_calls": [{"name": "a"}]}]},
        {"messages": [ASKED], "tools": [{"type": "function"}]},
        {"messages": [ASKED], "metadata": {"coefficient_e4": "high"}},
        {"messages": [ASKED], "pool": "theirs"},
        {"output_tools": [7]},
    ],
)
def test_a_row_that_is_not_what_its_format_says_is_refused_by_code(row: object) -> None:
    assert refusal(row) == "V2097"


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
_WORDS = st.sampled_from(["user", "assistant", "tool", react(), hermes(), "<think>", "<tool_call>[", "{}", "<obs>"])
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
    rows = [ROWS["openai"], ROWS["sn15"]]
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
    lines = [msgspec.json.encode(row) for row in [*ROWS.values()] * 6]
    lines = random.Random(1).sample([*lines, b"not json", b"{", b'{"a": 1}'], len(lines) + 3)
    path, content = folder / name, b"\n\n".join([b"", *lines, b""])  # blank lines are no rows
    path.write_bytes(zstandard.compress(content) if name.endswith(".zst") else content)
    return path


@pytest.mark.parametrize(("name", "size"), [("rows.jsonl", 7), ("rows.jsonl.zst", 1)])
def test_the_pieces_are_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, size: int) -> None:
    monkeypatch.setattr(pieces, "SHARD_ROWS", size)
    path = put(tmp_path, name)
    shards = foreign_shards(path)
    rows = [row for shard in shards for row in shard()]
    assert rows == list(read_foreign(path))
    assert [row.code for row in rows if isinstance(row, Quarantined)] == ["V2097"] * 3
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


def test_a_call_that_no_server_would_run_is_rejected_by_name() -> None:
    tools = [{"type": "function", "function": {"name": "find_product", "parameters": None}}]
    for name, arguments, is_broken in (
        ("find_product", '{"q": "a"}', False),
        ("find_product", {"q": "a", "page": None}, False),
        ("find_product", "", True),
        ("find_product", "{'q': 1}", True),
        ("functions.find_product", "{}", True),
    ):
        call = {"id": "c", "function": {"name": name, "arguments": arguments}}
        talk = [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [call]}]
        trace = converted({"messages": [*talk, {"role": "tool", "content": "<|im_end|>"}], "tools": tools})
        assert ("broken_call" in codes_of(trace, Rules(), gates())) is is_broken
        assert "null" not in trace.tools + trace.messages[1].calls[0].arguments
        assert trace.messages[2].content == "< |im_end|>"


def test_lines_are_counted_and_a_mark_of_encoding_is_none_of_the_row(tmp_path: Path) -> None:
    row = json.dumps({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})
    (tmp_path / "rows.jsonl").write_text(f"\ufeff{row}\n\n{{\n")
    first, second = read_foreign(tmp_path / "rows.jsonl")
    assert isinstance(first, Trace) and isinstance(second, Quarantined) and second.place == "rows.jsonl:3"


def test_results_that_stand_in_one_message_are_all_read() -> None:
    calls = [{"id": one, "name": "find_product", "arguments": {}} for one in "ab"]
    results = {"role": "tool", "tool_messages": [{"id": one, "role": "tool", "content": one} for one in "ab"]}
    trace = converted({"messages": [{"role": "assistant", "content": None, "tool_calls": calls}, results]})
    assert [(one.call_id, one.content) for one in trace.messages[1:]] == [("a", "a"), ("b", "b")]
