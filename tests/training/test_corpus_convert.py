"""Rows of every known format become the same kind of trace, and nothing but a code comes of the rest."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ArenaError
from training.corpus.foreign import convert_row, read_foreign
from training.corpus.model import Trace

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
