"""An export is read whole, once, in order, the same from log and view; and not at all unless it verifies."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import obstore
import pytest

from arena.chain.keys import verify
from arena.export.files import bring_export, read_manifest
from arena.export.row import row_of
from arena.store.objects import _open_place, folder_location
from foundation.errors import ArenaError
from foundation.executors.port import HERE
from foundation.executors.processes import ProcessExecutor
from neurons.cli.app import main
from tests.arena.conftest import bucket, s3  # noqa: F401 - fixtures
from tests.arena.trajectory_stand import Episode as Run
from tests.arena.trajectory_stand import says, trajectory
from tests.prove.corpus_scale_run import folder_sha256
from tests.readme_blocks import ROOT, block_under
from tests.training.conftest import DAY
from tests.training.firehose import read_traces
from training.corpus.exports import Export, ViewShard, export_shards, open_export, trace_of_row
from training.corpus.model import Quarantined, Trace


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


@pytest.fixture
def location(day: Path, tmp_path: Path) -> str:
    """Where a copy of it lies."""
    shutil.copytree(day, tmp_path / "there")
    return folder_location(tmp_path / "there")


def rows_of(shard: ViewShard) -> list[Trace | Quarantined]:
    return list(shard())


def test_it_comes_whole_once_and_what_is_there_now_is_what_is_here(location: str, day: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    folder = bring_export(location, tmp_path / "exports", lambda done, of: told.append((done, of)))
    assert folder_sha256(folder) == folder_sha256(day) and told[-1][0] == told[-1][1]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.zst")}
    (folder / "log" / "extra").write_text("left by nobody")
    next(iter(before)).write_bytes(b"damaged")
    assert bring_export(location, tmp_path / "exports") == folder and folder_sha256(folder) == folder_sha256(day)
    assert sum(path.stat().st_mtime_ns != before[path] for path in before) == 1
    (tmp_path / "there" / "log" / "more").write_bytes(b"one too many")
    bring_export(location, tmp_path / "exports")
    with pytest.raises(ArenaError, match=r"V2095.*log/more"):
        open_export(folder, verify)


@pytest.mark.parametrize("is_bucket", [False, True])
def test_a_machine_without_the_folder_reads_the_same_rows_by_url(
    location: str, day: Path, tmp_path: Path, is_bucket: bool, request: pytest.FixtureRequest
) -> None:
    if is_bucket:
        location = str(request.getfixturevalue("bucket"))
        for path in (path for path in sorted(day.rglob("*")) if path.is_file()):
            obstore.put(_open_place(location), path.relative_to(day).as_posix(), path.read_bytes())
    folder = bring_export(location, tmp_path / "exports")
    plain = [rows_of(shard) for shard in export_shards(open_export(day, verify))]
    shards = export_shards(open_export(folder, verify, location=location))
    folder.rename(tmp_path / "gone")
    assert sum(map(len, plain)) == DAY
    for executor in (HERE, ProcessExecutor(2)):
        assert list(executor.map(rows_of, shards, died="V2052")) == plain


@pytest.mark.parametrize(("name", "code"), [("log/a\u202eb", "V2050"), ("a\x1b[2Jb", "V2029")])
def test_a_name_that_could_drive_a_terminal_is_refused_before_anything_is_fetched(
    tmp_path: Path, name: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    there, location = tmp_path / "there", folder_location(tmp_path / "there")
    (there / name).parent.mkdir(parents=True)
    (there / name).write_bytes(b"x")
    with pytest.raises(ArenaError) as caught:
        bring_export(location, tmp_path / "exports")
    assert caught.value.failure.code == code
    assert not (tmp_path / "exports").exists()
    with pytest.raises(SystemExit):
        main(["records", "verify", "--export", location, "--state-dir", str(tmp_path / "state")])
    said = capsys.readouterr().err
    assert code in said and said.replace("\n", "").isprintable()
