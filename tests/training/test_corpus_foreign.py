"""Trajectories as other projects publish them: chat under other names, results without ids, printed conversations."""

from __future__ import annotations

import zipfile
from pathlib import Path

import msgspec
import pytest

from foundation.errors import ArenaError
from training.corpus.foreign import read_foreign
from training.corpus.model import Trace


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
