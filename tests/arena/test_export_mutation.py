"""Every file of an export in every format: a changed byte, a lost, doubled, swapped or cut part is found and named, and
ends the command with exit code 4; what was altered together with the manifest is found by making it again."""

from __future__ import annotations

import functools
import hashlib
import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zstandard

from arena.chain.keys import generate_signer, verify
from arena.export.files import CHECKSUM, MANIFEST, SIGNATURE, file_hash, read_lines, read_manifest, write_manifest
from arena.export.model import FORMATS, Filters
from arena.export.verification import verify_export
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError
from tests.arena.agents_stand import NOW_MS, AgentsLog, promotion
from tests.arena.export_stand import ExportLog, export, leaky_episode, released_race, replace
from tests.arena.log_stand import START_MS

PLACES_PER_FILE = 3
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


def test_any_other_file_is_found_under_a_fitting_manifest(copy: Path) -> None:
    """Of each kind one, with the bytes of another: what does not follow from the log is found by making it again."""
    kinds = {kind_of(path): path for path in files(copy) if path not in UNNAMED}
    for path, other in zip(kinds.values(), [*list(kinds.values())[1:], MANIFEST], strict=True):
        manifest, content = read_manifest(copy), (copy / path).read_bytes()
        refit(copy, path, (copy / other).read_bytes(), 1)
        assert not verify_export(copy, verify).is_ok, path
        (copy / path).write_bytes(content)
        write_manifest(copy, manifest)


def test_a_whole_row_of_a_race_that_is_not_released_is_found(tmp_path: Path) -> None:
    log = ExportLog()
    released_race(log, "r1", [1])
    log.checkpoint()
    export(log, tmp_path)
    path = "log/000000.jsonl.zst"
    lines = list(read_lines(tmp_path / path))
    hidden = msgspec.json.decode(lines[3]) | {"content": None, "withheld": "secret"}  # the release itself
    made = b"".join(line + b"\n" for line in [*lines[:3], msgspec.json.encode(hidden)])
    refit(tmp_path, path, zstandard.ZstdCompressor().compress(made), 4)
    write_manifest(tmp_path, replace(read_manifest(tmp_path), withheld={"secret": 1}))
    assert "it is whole and should be withheld: unreleased" in verify_export(tmp_path, verify).wrong[0].detail


def test_what_is_no_export_is_refused_and_another_signer_shown(copy: Path, tmp_path: Path) -> None:
    stranger = generate_signer()
    write_manifest(copy, read_manifest(copy), stranger)
    assert verify_export(copy, verify).signer == stranger.hotkey
    assert verify_export(tmp_path / "none", verify).wrong[0].place == MANIFEST
    manifest = (copy / MANIFEST).read_bytes()
    numbers = [re.sub(rb'"trajectories":\d+', b'"trajectories":%d' % huge, manifest) for huge in (2**53, 10**30)]
    versions = [manifest.replace(b'"version":1', b'"version":%d' % version) for version in (0, 2)]
    for content in (b"{}", *numbers, *versions):
        assert content != manifest
        (copy / MANIFEST).write_bytes(content)
        (copy / CHECKSUM).write_text(f"{hashlib.sha256(content).hexdigest()}  {MANIFEST}\n")
        assert verify_export(copy, verify).wrong[0].place == MANIFEST
        with pytest.raises(ArenaError, match="V2095"):
            read_manifest(copy)


def test_rows_that_the_stated_request_keeps_back_are_found(copy: Path) -> None:
    (copy / SIGNATURE).unlink()
    manifest = read_manifest(copy)
    for request, words in (
        (replace(manifest.request, row_bytes_max=10), "should be withheld: oversize"),
        (replace(manifest.request, pools=("eval",)), "should be withheld: pool"),
        (replace(manifest.request, filters=Filters(buckets=("shop",))), "should be withheld: filter"),
        (replace(manifest.request, filters=Filters(agents=("nobody",))), "should be withheld: filter"),
    ):
        write_manifest(copy, replace(manifest, request=request))
        assert words in verify_export(copy, verify).wrong[0].detail


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
