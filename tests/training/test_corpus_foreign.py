"""Trajectories as other projects publish them: chat under other names, results without ids, printed conversations."""

from __future__ import annotations

import zipfile
from pathlib import Path

import msgspec
import pytest

from foundation.errors import ArenaError
from tests.training.test_corpus_convert import converted
from training.corpus.foreign import read_foreign
from training.corpus.gates import is_paired
from training.corpus.model import Trace


@pytest.mark.parametrize("key", ["messages", "traj", "history"])
def test_chat_is_found_under_the_names_that_agents_and_benchmarks_have_for_it(key: str) -> None:
    talk = [
        {"role": "user", "content": "A seat."},
        {"role": "assistant", "content": "Which?"},
        {"role": "user", "content": "By the window."},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "find_seat", "arguments": '{"row": 4}'}}
        ]},
        {"role": "tool", "name": "find_seat", "tool_call_id": "a", "content": "4A"},
        {"role": "assistant", "content": "4A."},
        {"role": "user", "content": "Thanks."},
    ]  # fmt: skip
    trace = converted({key: talk, "reward": 1.0, "info": {"source": "user"}})
    assert [one.role for one in trace.messages] == [one["role"] for one in talk]
    assert trace.query == "A seat."
    assert is_paired(trace.messages)
    assert {"tools", "is_success"} <= set(trace.missing)  # a reward of its own is nobody's verdict


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
