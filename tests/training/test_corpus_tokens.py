"""Token counts: the text that is counted, the counters, and the file counts are kept in."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path

import msgspec
import pytest

from foundation.errors import ArenaError
from harness.chat import Message
from tests.training.labelled import Maker, stand_guard
from training.corpus.model import Rules, Trace, TraceFacts, TraceSource
from training.corpus.selection import Task, appraise
from training.corpus.tokens import (
    open_counter,
    render,
)

GOLDEN = [json.loads(line) for line in (Path(__file__).parent / "qwen3_rendered.jsonl").read_text("utf-8").splitlines()]
needs_library = pytest.mark.skipif(
    importlib.util.find_spec("tokenizers") is None, reason="the library `tokenizers` comes with the extra `train`"
)


def trace_of(messages: object, tools: str) -> Trace:
    return Trace(
        trace_id="0",
        source=TraceSource(kind="openai", place="golden", sha256="", is_verified=False),
        messages=msgspec.convert(messages, tuple[Message, ...]),
        tools=tools,
        query="",
        facts=TraceFacts(),
    )


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden["name"])
def test_the_text_is_what_the_chat_template_of_qwen3_renders(golden: dict[str, str]) -> None:
    assert render(trace_of(golden["messages"], golden["tools"])) == golden["text"]


TOKENIZER = Path(__file__).parents[2] / "training" / "recipes" / "smoke" / "tokenizer" / "tokenizer.json"


@needs_library
def test_a_chat_tokenizer_counts_marks_and_any_other_file_is_refused(tmp_path: Path) -> None:
    counter = open_counter(TOKENIZER)
    assert [counter.count(text) for text in ("", "<|im_start|>", "<|im_start|><|im_end|>")] == [0, 1, 2]
    assert counter.count("日") >= 1
    assert counter.identity == hashlib.sha256(TOKENIZER.read_bytes()).hexdigest()
    (tmp_path / "wrong.json").write_text("{}", "utf-8")
    (tmp_path / "plain.json").write_text(TOKENIZER.read_text("utf-8").replace("<|im_start|>", "<|start|>"), "utf-8")
    for name in ("wrong.json", "absent.json", "plain.json"):
        with pytest.raises(ArenaError, match="im_start" if name == "plain.json" else "V2120"):
            open_counter(tmp_path / name)


def test_only_traces_that_pass_everything_else_are_counted() -> None:
    maker = Maker(1)
    made = [maker.good("silent"), maker.malformed("pool"), maker.malformed("orphan"), maker.malformed("too long")]
    found = appraise([lambda: [one.trace for one in made]], Task(arms=(Rules(),)), stand_guard)
    assert [one.tokens is not None for one in found] == [True, False, False, True]
