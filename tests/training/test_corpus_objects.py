"""An export in an object store: verified as a folder is, its shards read by URL where the folder is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import obstore
import pytest

from arena.chain.keys import verify
from arena.export.files import bring_export
from arena.store.objects import _open_place, folder_location
from foundation.errors import ArenaError
from foundation.executors import HERE, ProcessExecutor
from neurons.cli.app import main
from tests.arena.conftest import bucket, s3  # noqa: F401 - fixtures
from tests.prove.corpus_scale_run import folder_sha256
from tests.training.firehose_export import write_real_day
from training.corpus.exports import ViewShard, export_shards, open_export
from training.corpus.model import Quarantined, Trace


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed export of 40 trajectories in four shards."""
    return write_real_day(tmp_path_factory.mktemp("day"), 40)


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
    assert sum(map(len, plain)) == 40
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
