"""Rows handed to the process that writes them arrive as they were, once; and a batch that failed ends its shard."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from arena.export.model import Trajectory
from arena.export.reading import read_row
from arena.export.writing.assembly import whole_line
from arena.export.writing.ipc import Outgoing, Spans, pack, unpack
from arena.export.writing.sinks import AHEAD_BYTES, open_sink
from arena.records.body import encode_body, encode_content
from arena.records.model import SignedRecord
from foundation.errors import ArenaError, Failure
from judge.verdict import UnscoredVerdict
from tests.arena.trajectory_stand import appending, narrating, replace, trajectory

UNJUDGED = UnscoredVerdict(body_sha256="ab", rubric_id="reasoning/1", failure=Failure(code="U3002"))
SHOWN = {
    "agentic": trajectory(1),
    "driven by Python": trajectory(2, narrating(), agent="a2"),
    "unjudged": trajectory(3, verdict=UNJUDGED),
    "without a verdict": trajectory(4, verdict=None, verdict_seq=0, pool="dev"),
    "of other text": trajectory(5, replace(appending(), tools_sha256="₱ \u2028 日本 \U0001f6d2")),
}


def line_of(shown: Trajectory) -> tuple[bytes, Spans, bytes, bytes]:
    """The line of a trajectory, where its bytes stand, and these: content and body."""
    content, body = encode_content(shown.content), encode_body(shown.body).content
    record = SignedRecord(
        validator=shown.validator,
        seq=shown.seq,
        prev="00" * 32,
        content_sha256=shown.content_sha256,
        signature=shown.signature,
        content=content,
    )
    return *whole_line(record, body), content, body


@pytest.mark.parametrize("name", SHOWN)
def test_a_line_holds_the_signed_bytes_where_its_spans_say(name: str) -> None:
    line, spans, content, body = line_of(SHOWN[name])
    assert line[spans.content_start : spans.content_end] == content
    assert line[spans.body_start : spans.body_end] == body
    row = read_row(line)
    assert (bytes(row.content or b""), bytes(row.body or b"")) == (content, body)
    assert msgspec.json.encode(row) == line


def test_what_was_packed_comes_out_again_in_order() -> None:
    rows = [Outgoing(b'{"a":"stub"}')]
    for shown in SHOWN.values():
        line, spans, _, _ = line_of(shown)
        rows.append(Outgoing(line, shown, False, spans))
        rows.append(Outgoing(line, replace(shown, cluster_id="scrubbed"), True, spans))
        rows.append(Outgoing(b'{"a":"stub"}', replace(shown, cluster_id="scrubbed"), True))
        rows.append(Outgoing(b"", shown))
    assert unpack(pack(rows)) == rows
    assert unpack(pack([])) == []


@pytest.mark.parametrize("name", SHOWN)
def test_a_body_that_stands_in_its_line_is_sent_once(name: str) -> None:
    line, spans, _, body = line_of(SHOWN[name])
    assert len(pack([Outgoing(line, SHOWN[name], False, spans)])) < len(line) + len(body)


def test_a_shard_of_which_a_batch_failed_is_never_called_complete(tmp_path: Path) -> None:
    line, spans, _, _ = line_of(SHOWN["agentic"])
    whole = [Outgoing(line, SHOWN["agentic"], False, spans)]
    broken = [Outgoing(line, SHOWN["agentic"], False, replace(spans, body_end=spans.body_start + 1))]
    with open_sink(tmp_path, ["parquet"], in_process=True) as sink:
        sink.write(0, whole)
        first = sink.finish()
        sink.write(1, whole)
        sink.write(1, broken)
        sink.write(1, whole)
        second = sink.finish()
        sink.write(2, whole)
        third = sink.finish()
        assert [file.path for file in first()] == ["log/000000.jsonl.zst", "views/parquet/000000.parquet"]
        with pytest.raises(ArenaError):
            second()
        with pytest.raises(ArenaError):
            third()


def test_batches_wait_by_their_size_and_all_are_written(tmp_path: Path) -> None:
    line = b'{"a":"' + b"x" * (AHEAD_BYTES // 2) + b'"}'
    with open_sink(tmp_path, ["parquet"], in_process=True) as sink:
        for _ in range(5):
            sink.write(0, [Outgoing(line)])
        (file,) = sink.finish()()
    assert file.rows == 5
