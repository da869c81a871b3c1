"""Long runs of token characters: no look at whole words misses one, so a credential is found wherever it begins."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.export.redaction import LONG_BYTES, find_secrets, long_runs
from tests.arena.test_export_scrubbing import EVERY

LARGE = 9_000  # of texts that are looked at by whole words first
RUN = re.compile(rb"[A-Za-z0-9_+/-]{%d,}" % LONG_BYTES)
PIECES = st.one_of(
    st.integers(min_value=1, max_value=60).map(lambda length: b"aZ09_-+/"[length % 8 :][:1] * length),
    st.text(max_size=30).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=30),
)


@given(st.lists(PIECES, max_size=30).map(b"".join))
def test_every_long_run_lies_whole_in_one_stretch_and_stretches_stand_in_order(data: bytes) -> None:
    stretches = list(long_runs(data))
    assert stretches == sorted(stretches) and all(0 <= first < end <= len(data) or not data for first, end in stretches)
    for run in RUN.finditer(data):
        assert sum(first <= run.start() and run.end() <= end for first, end in stretches) == 1


@pytest.mark.parametrize(("kind", "secret"), EVERY)
def test_a_credential_in_a_large_text_is_found_wherever_it_begins_and_ends(kind: str, secret: str) -> None:
    for before in range(8):
        for after in range(4):
            text = f"{'words, and more. ' * (LARGE // 16)}{'.' * before} {secret}{' ' * after}"
            start = len(text) - len(secret) - after
            assert [(one.kind, one.start, one.end) for one in find_secrets(text)] == [
                (kind, start, start + len(secret))
            ], (before, after)


@given(st.lists(st.one_of(PIECES, st.sampled_from([secret.encode() for _, secret in EVERY])), max_size=20))
def test_a_large_text_has_the_findings_its_parts_have(parts: list[bytes]) -> None:
    text, filling = b"\n".join(parts), b". " * LARGE
    large = find_secrets(filling + b"\n" + text)
    assert [(one.kind, one.start - len(filling) - 1, one.end - len(filling) - 1) for one in large] == [
        (one.kind, one.start, one.end) for one in find_secrets(text)
    ]
