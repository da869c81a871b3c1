"""A whole row's line holds the signed bytes as they are, and is the row as it is encoded."""

from __future__ import annotations

import msgspec
import pytest

from arena.export.assembly import log_row, whole_line
from arena.export.files import read_row
from arena.export.model import Trajectory
from arena.records.body import encode_body, encode_content
from arena.records.model import SignedRecord
from foundation.errors import Failure
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


@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
@pytest.mark.parametrize("has_body", [True, False])
def test_a_line_is_the_row_as_it_is_encoded(shown: Trajectory, has_body: bool) -> None:
    content = encode_content(shown.content)
    body = encode_body(shown.body).content if has_body else None
    record = SignedRecord(
        validator=shown.validator,
        seq=shown.seq,
        prev="00" * 32,
        content_sha256=shown.content_sha256,
        signature=shown.signature,
        content=content,
    )
    line = whole_line(record, body)
    assert line == msgspec.json.encode(log_row(record, content=content, body=body))
    row = read_row(line)
    assert row.content is not None and bytes(row.content) == content
    assert (None if row.body is None else bytes(row.body)) == body
