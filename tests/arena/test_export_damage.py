"""Damage to an export: whatever is changed, lost, added, swapped or doubled is found, and the first place named."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import msgspec
import pytest
import zstandard

from arena.chain.keys import generate_signer, verify
from arena.export.files import MANIFEST, describe, read_lines, read_manifest, write_manifest
from arena.export.verification import verify_export
from foundation.errors import ArenaError
from tests.arena.export_stand import ExportLog, export, released_race, replace

LOG = "log/000000.jsonl.zst"


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """A signed export of one released race and one that waits, in two shards."""
    log = ExportLog()
    released_race(log, "r1", [1, 2, 3])
    log.add_episode(4, "r2")
    folder = tmp_path_factory.mktemp("export") / "sound"
    export(log, folder, signer=log.signer, rows_per_shard=2)
    assert verify_export(folder, verify).is_ok
    return folder


@pytest.fixture
def copy(sound, tmp_path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "copy"))


@pytest.mark.parametrize("number", [2**53, 2**64, 10**30])
def test_a_manifest_with_a_number_that_can_not_be_hashed_is_refused(copy: Path, number: int) -> None:
    content = re.sub(rb'"trajectories":\d+', b'"trajectories":%d' % number, (copy / MANIFEST).read_bytes())
    (copy / MANIFEST).write_bytes(content)
    (copy / "manifest.sha256").write_text(f"{hashlib.sha256(content).hexdigest()}  {MANIFEST}\n", encoding="ascii")
    with pytest.raises(ArenaError, match="V2074"):
        read_manifest(copy)
    assert "manifest" in wrong(copy)


def wrong(folder: Path) -> str:
    """The first wrong place and what is wrong there."""
    report = verify_export(folder, verify)
    assert not report.is_ok
    return f"{report.wrong[0].place}: {report.wrong[0].detail}"


def forge(folder: Path, lines: list[bytes], **fields) -> None:
    """Put other rows into the first shard of the log, under a manifest that fits them and is signed by nobody."""
    (folder / LOG).write_bytes(zstandard.ZstdCompressor().compress(b"".join(line + b"\n" for line in lines)))
    manifest = read_manifest(folder)
    file = describe(folder, folder / LOG, len(lines))
    named = tuple(file if other.path == LOG else other for other in manifest.files)
    (folder / "manifest.sig").unlink(missing_ok=True)
    write_manifest(folder, replace(manifest, files=named, **fields))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"I search first.", b"I search later."),  # body and verdict
        (b'"is_success":true', b'"is_success":false'),
        (b'"withheld":null', b'"withheld":"pool"'),
        (b'"signature":"', b'"signature":"00'),
        (b'"seq":2', b'"seq":9'),
    ],
)
def test_a_changed_row_is_found_under_a_fitting_manifest(copy, old, new):
    lines = list(read_lines(copy / LOG))
    assert any(old in line for line in lines)
    forge(copy, [line.replace(old, new) for line in lines])
    assert not verify_export(copy, verify).is_ok


@pytest.mark.parametrize(
    "fields",
    [
        {"trajectories": 4},
        {"records": {"evaluation": 4}},
        {"withheld": {}},
        {"quarantined": (1,)},
        {"policies": ()},
        {"races": ("r1", "r2")},
        {"scrubbed": 1},
        {"partitions": ("aa",)},
    ],
)
def test_a_manifest_that_states_something_else_than_its_rows_is_found(copy, fields):
    (copy / "manifest.sig").unlink()
    write_manifest(copy, replace(read_manifest(copy), **fields))
    name = next(iter(fields))
    assert wrong(copy) == f"{MANIFEST}: the rows do not bear out `{name}`"


def test_a_whole_row_of_a_race_that_is_not_released_is_found(tmp_path):
    log = ExportLog()
    released_race(log, "r1", [1])
    log.checkpoint()
    manifest = export(log, tmp_path / "out")
    lines = list(read_lines(tmp_path / "out" / LOG))
    hidden = msgspec.json.decode(lines[3]) | {"content": None, "withheld": "secret"}  # the release itself
    forge(tmp_path / "out", [*lines[:3], msgspec.json.encode(hidden)], withheld={"secret": 1})
    assert "it is whole and should be withheld: unreleased" in wrong(tmp_path / "out")
    assert manifest.trajectories == 1


def test_an_end_that_the_log_does_not_lead_to_is_refused_by_the_exporter(tmp_path):
    log, other = ExportLog(), ExportLog()
    released_race(log, "r1", [1])
    log.checkpoint()
    released_race(other, "r1", [1])
    log.log[1] = replace(other.log[1], validator=log.validator)
    with pytest.raises(ArenaError, match="V2050"):
        export(log, tmp_path / "out")
    assert not (tmp_path / "out" / MANIFEST).exists()


def test_a_manifest_signed_by_somebody_else_shows_whose_it_is(copy):
    stranger = generate_signer()
    write_manifest(copy, read_manifest(copy), stranger)
    assert verify_export(copy, verify).signer == stranger.hotkey


def test_a_folder_that_is_no_export_is_refused_without_an_exception(tmp_path):
    assert wrong(tmp_path).startswith(MANIFEST)
    (tmp_path / MANIFEST).write_bytes(b"{}")
    assert wrong(tmp_path).startswith(MANIFEST)
