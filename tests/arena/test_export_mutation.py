"""Every file of an export in every format: a changed byte, a lost, doubled, swapped or cut part is found and named, and
ends the command with exit code 4; what was altered together with the manifest is found by making it again."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zstandard

from arena.chain.keys import verify
from arena.export.files import CHECKSUM, MANIFEST, SIGNATURE, file_hash, read_manifest, write_manifest
from arena.export.model import FORMATS
from arena.export.verification import verify_export
from foundation.canonical import canonical_bytes
from tests.arena.agents_stand import NOW_MS, AgentsLog, promotion
from tests.arena.export_stand import ExportLog, export, released_race, replace
from tests.arena.log_stand import START_MS
from tests.arena.test_export_hygiene import leaky_episode

PLACES_PER_FILE = 3
KINDS = {
    "README.md",
    "FORMATS.md",
    "agents",
    "agents.jsonl",
    "policies",
    "manifest.json",
    "manifest.sha256",
    "manifest.sig",
    "checkpoints",
    "log",
    "references.jsonl.zst",
    "scrubbed",
    "views/parquet",
    "views/messages",
    "views/datasets/data",
    "views/inspect",
    "views/verifiers/traces.jsonl",
}
UNNAMED = {MANIFEST, CHECKSUM, SIGNATURE}  # what is wrong with one of these is said of the manifest


def kind_of(path: str) -> str:
    """The kind of file a path of an export is."""
    if path.startswith("views/verifiers/"):
        return f"views/verifiers/{path.rsplit('/', 1)[1]}"
    if path.count("/") == 0 or path.endswith("README.md"):
        return path
    return path.rsplit("/", 1)[0]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed export that holds every kind of file: it begins at a signed checkpoint, in the middle of a log, some of
    its rows go out under an earlier release, one had a credential removed, and the source of one agent is open."""
    folder, log = tmp_path_factory.mktemp("export"), AgentsLog()
    released_race(log, "r0", [7])
    log.checkpoint()
    first = export(log, folder / "first")
    log.add_episode(7, "r0", agent="b7")
    leaky_episode(log)
    released_race(log, "r1", [1, 2, 3])
    log.run(1, "r1", "c3", "cheap")
    log.add([promotion("r1", "c3", START_MS)])
    options = {"signer": log.signer, "formats": FORMATS, "rows_per_shard": 3, "now_ms": NOW_MS}
    export(log, folder / "sound", start=first.cursor, **options)
    report = verify_export(folder / "sound", verify)
    assert report.is_ok, report.wrong
    return folder / "sound"


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "copy"))


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def is_named(folder: Path, path: str) -> bool:
    """Whether verification finds this file wrong, first of all, and says so by its name."""
    report = verify_export(folder, verify)
    assert not report.is_ok, path
    return report.wrong[0].place == (MANIFEST if path in UNNAMED else path)


def test_the_export_these_tests_harm_holds_every_kind_of_file(sound: Path) -> None:
    assert {kind_of(path) for path in files(sound)} == KINDS


def test_a_changed_byte_of_any_file_is_found_and_the_file_named(copy: Path) -> None:
    rng = random.Random(11)
    for path in files(copy):
        content = (copy / path).read_bytes()
        for place in {0, len(content) - 1, *(rng.randrange(len(content)) for _ in range(PLACES_PER_FILE))}:
            changed = bytearray(content)
            changed[place] ^= 1 << rng.randrange(8)
            (copy / path).write_bytes(changed)
            assert is_named(copy, path), (path, place)
        (copy / path).write_bytes(content)


def test_a_file_that_is_cut_lengthened_emptied_swapped_or_lost_is_found_and_named(copy: Path) -> None:
    names = files(copy)
    for path, other in zip(names, [*names[1:], names[0]], strict=True):
        content = (copy / path).read_bytes()
        for harmed in (content[:-1], content[1:], content + b"\n", b"", (copy / other).read_bytes()):
            (copy / path).write_bytes(harmed)
            assert is_named(copy, path), path
        (copy / path).unlink()
        if path == SIGNATURE:  # a manifest need not be signed: whose it is, is said
            assert verify_export(copy, verify).signer == ""
        else:
            assert is_named(copy, path), path
        (copy / path).write_bytes(content)


Lines = Callable[[list[bytes]], list[bytes]]
HARMS: dict[str, Lines] = {
    "drop": lambda lines: lines[1:],
    "double": lambda lines: [lines[0], *lines],
    "swap": lambda lines: [lines[1], lines[0], *lines[2:]],
    "cut": lambda lines: lines[:-1],
}


def refit(folder: Path, path: str, content: bytes, rows: int) -> None:
    """Put another file in place, under a manifest of nobody's that fits it."""
    (folder / path).write_bytes(content)
    sha256, size_bytes = file_hash(folder / path)
    manifest = read_manifest(folder)
    named = tuple(
        replace(file, sha256=sha256, size_bytes=size_bytes, rows=rows) if file.path == path else file
        for file in manifest.files
    )
    (folder / SIGNATURE).unlink(missing_ok=True)
    write_manifest(folder, replace(manifest, files=named))


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("kind", ["log", "scrubbed", "views/messages", "views/verifiers/traces.jsonl"])
def test_lines_that_are_dropped_doubled_swapped_or_cut_off_are_found_under_a_fitting_manifest(
    copy: Path, kind: str, harm: str
) -> None:
    path = next(path for path in files(copy) if kind_of(path) == kind)
    content = (copy / path).read_bytes()
    is_packed = path.endswith(".zst")
    plain = zstandard.ZstdDecompressor().stream_reader(content).read() if is_packed else content
    lines = plain.splitlines(keepends=True)
    if len(lines) < 2 and harm == "swap":
        pytest.skip("it has one line")
    harmed = HARMS[harm](lines)
    forged = b"".join(harmed)
    refit(copy, path, zstandard.ZstdCompressor(level=1).compress(forged) if is_packed else forged, len(harmed))
    assert not verify_export(copy, verify).is_ok


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("kind", ["views/parquet", "views/datasets/data"])
def test_parquet_rows_that_are_dropped_doubled_swapped_or_cut_off_are_found_and_named(
    copy: Path, kind: str, harm: str
) -> None:
    path = next(path for path in files(copy) if kind_of(path) == kind)
    table = pq.read_table(copy / path)
    order = [int(number) for number in HARMS[harm]([str(number).encode() for number in range(len(table))])]
    made = io.BytesIO()
    pq.write_table(table.take(order), made, compression="zstd")
    refit(copy, path, made.getvalue(), len(order))
    assert is_named(copy, path)


@pytest.mark.parametrize("harm", ["drop", "double", "change"])
def test_samples_of_an_inspect_log_that_are_dropped_doubled_or_changed_are_found_and_named(
    copy: Path, harm: str
) -> None:
    path = next(path for path in files(copy) if kind_of(path) == "views/inspect")
    with zipfile.ZipFile(copy / path) as log:
        members = [(info, log.read(info)) for info in log.infolist()]
    first = next(number for number, (info, _) in enumerate(members) if info.filename.startswith("samples/"))
    info, content = members[first]
    match harm:
        case "drop":
            del members[first]
        case "double":
            members.insert(first, (zipfile.ZipInfo("samples/999_epoch_1.json"), content))
        case "change":
            members[first] = (info, content.replace(b"shirt", b"skirt"))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as forged:
        for member, data in members:
            forged.writestr(member, data)
    refit(copy, path, made.getvalue(), next(f.rows for f in read_manifest(copy).files if f.path == path))
    assert is_named(copy, path)


@pytest.mark.parametrize("name", ["README.md"])
def test_a_card_that_says_something_else_is_found_and_named(copy: Path, name: str) -> None:
    text = (copy / name).read_text("utf-8")
    other = text.replace("| trajectories | 6 |", "| trajectories | 7 |").replace('"num_examples":', '"num_examples":1')
    assert other != text
    refit(copy, name, other.encode(), 0)
    assert is_named(copy, name)


def test_a_checkpoint_of_another_log_in_its_place_is_found(copy: Path) -> None:
    other = ExportLog()
    released_race(other, "r1", [1])
    other.checkpoint()
    path = next(path for path in files(copy) if kind_of(path) == "checkpoints")
    refit(copy, path, other.points[0].note.encode(), 1)
    assert is_named(copy, path)


# What only the exporter can know: who made it, what an earlier export brought, the block the chain names; and filters
# and limits that leave out nothing of this export.
EXPORTERS_WORD = (
    ("exported_ms",),  # as long as no embargo ends in between
    ("software",),
    ("log", "anchor_block"),
    ("log", "start", "exported_to"),
    ("request", "filters"),
    ("request", "rows_per_shard"),
    ("request", "row_bytes_max"),
)


def leaves(value: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where the scalars of a JSON value stand."""
    if isinstance(value, dict | list):
        for name, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(child, (*place, name))
    else:
        yield place


def altered(value: str | int | bool) -> str | int | bool:
    if isinstance(value, str):
        return value[:-1] + ("0" if value[-1:] != "0" else "1")
    return not value if isinstance(value, bool) else value + 1


def test_any_altered_field_of_the_manifest_is_found_under_a_fitting_checksum(copy: Path) -> None:
    manifest = json.loads((copy / MANIFEST).read_bytes())
    (copy / SIGNATURE).unlink()
    for place in list(leaves(manifest)):
        if any(place[: len(word)] == word for word in EXPORTERS_WORD):
            continue
        parent = functools.reduce(lambda value, name: value[name], place[:-1], manifest)
        stated, parent[place[-1]] = parent[place[-1]], altered(parent[place[-1]])
        content = canonical_bytes(manifest)
        (copy / MANIFEST).write_bytes(content)
        (copy / CHECKSUM).write_text(f"{hashlib.sha256(content).hexdigest()}  {MANIFEST}\n")
        assert not verify_export(copy, verify).is_ok, place
        parent[place[-1]] = stated
