"""An export is read whole, once, in order, the same from log and view; and not at all unless it verifies."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from arena.chain.keys import verify
from arena.export.files import read_manifest
from arena.export.row import row_of
from foundation.errors import ArenaError
from tests.arena.trajectory_stand import Episode as Run
from tests.arena.trajectory_stand import says, trajectory
from tests.readme_blocks import ROOT, block_under
from tests.training.conftest import DAY
from tests.training.export_reading import read_traces
from training.corpus.exports import Export, export_shards, open_export, trace_of_row
from training.corpus.model import Trace


def refusal(work: Callable[[], object]) -> str:
    with pytest.raises(ArenaError) as raised:
        work()
    return raised.value.failure.code


def as_trace(made: object) -> Trace:
    """The trace of a body, by way of its row."""
    return trace_of_row(row_of(trajectory(made=made)), is_verified=True)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def opened(day: Path) -> Export:
    return open_export(day, verify)


@pytest.fixture(scope="module")
def traces(opened: Export) -> list[Trace]:
    return [row for row in read_traces(opened) if isinstance(row, Trace)]


def test_every_trajectory_comes_out_once_and_in_order(opened: Export, traces: list[Trace]) -> None:
    numbers = [int(trace.source.place.rpartition(":")[2]) for trace in traces]
    assert len(numbers) == DAY == opened.manifest.trajectories
    assert numbers == sorted(set(numbers))
    assert all(trace.source.is_verified for trace in traces)


def test_the_block_of_the_page_reads_a_whole_export(day: Path, opened: Export, tmp_path: Path) -> None:
    block = block_under("What comes in", ROOT / "training" / "corpus" / "README.md")
    seen: list[Trace] = []
    names: dict[str, object] = {
        "open_export": open_export,
        "export_shards": export_shards,
        "verify": verify,
        "Trace": Trace,
        "folder": day,
        "folder_of_my_own": tmp_path,
        "guard": lambda row: seen.append(row) or (),
    }
    exec(compile(block.text, block.page, "exec"), names)
    assert len(seen) == DAY and all(trace.source.is_verified for trace in seen)


def test_a_message_of_no_known_role_is_refused_by_code() -> None:
    run = Run([says(content="Yes.")])
    run.chat({"role": "narrator", "content": "Once."})
    assert refusal(lambda: as_trace(run.body())) == "V2097"


def test_a_changed_byte_in_any_file_is_refused_though_the_export_was_sealed(day: Path, tmp_path: Path) -> None:
    seals = tmp_path / "seals"
    open_export(day, verify, seals=seals)
    for file in read_manifest(day).files:
        copy = tmp_path / "copy"
        shutil.copytree(day, copy)
        content = bytearray((copy / file.path).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / file.path).write_bytes(content)
        assert refusal(lambda copy=copy: open_export(copy, verify, seals=seals)) == "V2095"
        shutil.rmtree(copy)


def test_a_sealed_export_is_not_verified_again(day: Path, tmp_path: Path, opened: Export) -> None:
    asked: list[str] = []

    def counted(hotkey: str, message: bytes, signature: bytes) -> bool:
        asked.append(hotkey)
        return verify(hotkey, message, signature)

    assert open_export(day, counted, seals=tmp_path) == opened
    first = len(asked)
    assert open_export(day, counted, seals=tmp_path) == opened
    assert first > DAY
    assert len(asked) - first == 1  # the manifest's own
