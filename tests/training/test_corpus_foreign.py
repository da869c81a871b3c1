"""Trajectories as other projects publish them: chat under other names, results without ids, printed conversations."""

from __future__ import annotations

import zipfile
from pathlib import Path

import msgspec
import pytest

from foundation.errors import ArenaError
from tests.training.foreign_shares import conversions
from tests.training.test_corpus_convert import converted
from training.corpus.foreign import read_foreign
from training.corpus.gates import is_paired
from training.corpus.model import Trace

CALLING = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "find_seat", "arguments": "{}"}}]}


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


@pytest.mark.parametrize(
    ("answers", "is_whole"),
    [
        ([{"content": "4A"}], True),
        ([{"content": "4A"}, {"content": "4B"}], False),
        ([], False),
    ],
)
def test_results_without_ids_are_those_of_the_calls_right_before_them(
    answers: list[dict[str, object]], is_whole: bool
) -> None:
    talk = [{"role": "user", "content": "A seat."}, CALLING, *({"role": "tool"} | one for one in answers)]
    assert is_paired(converted({"messages": talk}).messages) == is_whole


def test_a_folder_of_foreign_files_has_a_row_each_with_where_it_is_from(tmp_path: Path) -> None:
    talk = {"messages": [{"role": "user", "content": "A seat."}, CALLING, {"role": "tool", "content": "4A"}]}
    (tmp_path / "trajectories").mkdir()
    (tmp_path / "trajectories" / "a.jsonl").write_bytes(msgspec.json.encode(talk))
    (tmp_path / "trajectories" / "b.jsonl").write_bytes(b'"user: Hi\\nassistant: Hi"')
    origin = {"trajectories/a.jsonl": {"source": "github.com/x/y", "version": "ab12", "date": "2026-05-04"}}
    (tmp_path / "sources.json").write_bytes(msgspec.json.encode(origin))
    first, second = conversions(tmp_path)
    assert (first.source, first.version, first.date, first.is_red) == ("github.com/x/y", "ab12", "2026-05-04", False)
    assert (first.result, len(first.sha256)) == ("1 of 1 rows, 1 with calls, all answered in 1", 64)
    assert (second.source, second.is_red) == ("not given", True) and "V2097" in second.result


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
