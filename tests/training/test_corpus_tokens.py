"""Token counts: the text that is counted, the counters, and the file counts are kept in."""

from __future__ import annotations

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


def tokenizer_json(folder: Path, *, has_marks: bool = True) -> Path:
    """A tokenizer.json as Qwen3's is built, trimmed to bytes: BPE over byte-level text, its marks as added tokens."""
    from tokenizers.pre_tokenizers import ByteLevel

    vocabulary = {sign: number for number, sign in enumerate(sorted(ByteLevel.alphabet()))}
    marks = ["<|im_start|>", "<|im_end|>", "<think>", "</think>"] if has_marks else []
    added = [
        {"id": 256 + number, "content": mark, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for number, mark in enumerate(marks)
    ]  # fmt: skip
    steps = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    model = {"type": "BPE", "vocab": {**vocabulary, "he": 300, "hel": 301}, "merges": ["h e", "he l"]}
    path = folder / "tokenizer.json"
    whole = {"version": "1.0", "added_tokens": added, "pre_tokenizer": steps, "decoder": steps, "model": model}
    path.write_text(json.dumps(whole), "utf-8")
    return path


@needs_library
def test_a_tokenizer_file_counts_merges_bytes_and_marks(tmp_path: Path) -> None:
    counter = open_counter(tokenizer_json(tmp_path))
    assert counter.count("<|im_start|>") == 1
    assert counter.count("hello") == 3
    assert counter.count("日") == 3
    assert counter.count("") == 0
    assert len(counter.identity) == 64


@needs_library
def test_a_file_that_is_no_chat_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArenaError, match="im_start"):
        open_counter(tokenizer_json(tmp_path, has_marks=False))
    (tmp_path / "wrong.json").write_text("{}", "utf-8")
    for path in (tmp_path / "wrong.json", tmp_path / "absent.json"):
        with pytest.raises(ArenaError) as caught:
            open_counter(path)
        assert caught.value.failure.code == "V2120"


def test_only_traces_that_pass_everything_else_are_counted() -> None:
    maker = Maker(1)
    made = [maker.good("silent"), maker.malformed("pool"), maker.malformed("orphan"), maker.malformed("too long")]
    found = appraise([lambda: [one.trace for one in made]], Task(arms=(Rules(),)), stand_guard)
    assert [one.tokens is not None for one in found] == [True, False, False, True]
