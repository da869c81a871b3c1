"""How a record is filed follows from its content alone, and is what the append function of the schema makes of it."""

from __future__ import annotations

import pytest

from arena.records.body import encode_content
from arena.records.model import Filing, Payload, RecordContent, filing_of
from tests.arena.log_stand import HOST, START_MS, attempt, episode, release, settlement

PAYLOADS, STORED = episode(1)
NAME = STORED.body_sha256


@pytest.mark.parametrize(
    ("payload", "filing"),
    [
        (PAYLOADS[0], Filing("attempt", "r1", NAME)),
        (PAYLOADS[1], Filing("evaluation", "r1", NAME)),
        (PAYLOADS[2], Filing("verdict", "r1", NAME)),
        (attempt(1), Filing("attempt", "r1", "")),
        (settlement("r7"), Filing("settlement", "r7", "")),
        (release("r8"), Filing("release", "r8", "")),
    ],
)
def test_each_kind_is_filed_under_its_race_and_the_body_it_is_about(payload: Payload, filing: Filing) -> None:
    assert filing_of(encode_content(RecordContent(recorded_ms=START_MS, host=HOST, payload=payload))) == filing
