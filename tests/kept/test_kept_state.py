"""State folders and exports of earlier commits: they open, verify, say the same and go on.

How each was made stands in README.md. Everything goes through the commands, as an operator's upgrade does.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zstandard

from arena.records.body import decode_content, encode_content
from tests.kept.make import COEFFICIENT, ENTRY, VALIDATOR
from tests.neurons.arena_stand import short_folder

HERE = Path(__file__).parent
CASES = sorted(path.name for path in HERE.iterdir() if (path / "expected.json").exists())
OLDEST = "880031d"  # the one that races on in every run of the tests; the others do in `make prove`
FIRST, SECOND = "race-000001", "race-000002"
WAIT_S = 240.0


class Kept:
    """A kept case, unpacked into a folder, its store restored by the present code."""

    def __init__(self, case: str, folder: Path) -> None:
        self.folder, self.state, self.export = folder, folder / "state", folder / "export"
        self.expected = json.loads((HERE / case / "expected.json").read_text("utf-8"))
        for name in ("state", "export"):
            with tarfile.open(HERE / case / f"{name}.tar.xz") as archive:
                archive.extractall(folder, filter="data")
        self.arena("store", "restore", self.state / "backup", *self.here)

    @property
    def here(self) -> tuple[object, ...]:
        return ("--state-dir", self.state)

    def arena(self, *words: object) -> str:
        """Run one command, which ends with 0; what it printed."""
        done = subprocess.run(self.command(*words), cwd=self.folder, env=environment(), capture_output=True, text=True)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def command(self, *words: object) -> list[str]:
        return [sys.executable, "-c", ENTRY, *map(str, words)]

    def export_again(self, name: str, *words: object) -> Path:
        """An export of the state as it stands."""
        views = ("--format", "jsonl", "--format", "parquet", "--format", "messages")
        out = self.folder / name
        self.arena("records", "export", "--out", out, *views, "--wallet.hotkey", VALIDATOR, *self.here, *words)
        self.arena("records", "verify", "--export", out)
        return out

    def run_until_settled(self, race: str) -> None:
        """Run a validator on the state until a race is settled, then stop it as its operator would."""
        self.arena("catalogue", "synth", "--out", self.folder, "--count", 2_000, "--seed", 11)
        self.arena("catalogue", "build", self.folder / "documents.jsonl", "--out", self.folder / "index")
        words = ("--policy", self.state / "policy.json", "--wallet.hotkey", VALIDATOR, "--workers", 1)
        words = (*words, "--catalogue-dir", self.folder / "index", "--log-format", "json")
        command = self.command("validator", *words, *self.here)
        log = self.folder / "validator.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(command, cwd=self.folder, env=environment(), stdout=stream, stderr=stream)
        try:
            end = time.monotonic() + WAIT_S
            while not any(f'"{race}"' in line and '"stage":"settled"' in line for line in lines_so_far(log)):
                assert process.poll() is None and time.monotonic() < end, log.read_text("utf-8")[-3_000:]
                time.sleep(0.2)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        assert process.returncode == 0

    def settled(self) -> dict[str, dict[str, object]]:
        rows = json.loads(self.arena("race", "list", "--json", *self.here))
        return {row["race_id"]: row for row in rows}


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ARENA_", "OPENAI_"))}
    return {**kept, "PYTHONPATH": str(HERE.parents[1])}


@pytest.fixture(scope="module", params=CASES)
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    with short_folder() as folder:
        yield Kept(request.param, folder)


def lines_so_far(log: Path) -> list[str]:
    """The log alone is asked while the validator runs: a command would take a second of its processor each time."""
    return log.read_text("utf-8").splitlines()


def lines_of(file: Path) -> list[bytes]:
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(file.read_bytes()), read_across_frames=True) as stream:
        return stream.read().splitlines()


def log_of(export: Path) -> list[bytes]:
    return [line for file in sorted((export / "log").iterdir()) for line in lines_of(file)]


def has_all(found: object, expected: object) -> bool:
    """Whether everything expected is found as it was; fields that were added since are passed over."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(
            name in found and has_all(found[name], expected[name]) for name in expected
        )
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(has_all, found, expected))
    return found == expected


def test_cases_are_as_they_were_kept() -> None:
    """The oldest is the state of 880031d; none may be lost or made anew in silence."""
    kept = {line.split()[1]: line.split()[0] for line in (HERE / "SHA256SUMS").read_text("utf-8").splitlines()}
    files = [path for case in CASES for path in sorted((HERE / case).iterdir())]
    assert OLDEST in CASES
    assert {path.relative_to(HERE).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files} == kept


def test_the_log_verifies_and_says_what_it_said(kept: Kept) -> None:
    kept.arena("records", "verify", *kept.here)
    (before,) = kept.expected["races"]
    assert has_all(kept.settled()[FIRST], before)


def test_the_export_verifies_and_an_export_of_the_state_has_its_bytes(kept: Kept) -> None:
    kept.arena("records", "verify", "--export", kept.export)
    again = kept.export_again("again")
    assert log_of(again) == log_of(kept.export)
    for file in sorted((kept.export / "views" / "messages").iterdir()):
        assert lines_of(again / "views" / "messages" / file.name) == lines_of(file)


def test_each_record_is_read_and_written_to_the_same_bytes(kept: Kept) -> None:
    kinds = set()
    for line in log_of(kept.export):
        row = json.loads(line)
        if row["content"] is None:
            continue
        content = row["content"].encode() if isinstance(row["content"], str) else msgspec.json.encode(row["content"])
        assert hashlib.sha256(content).hexdigest() == row["content_sha256"]
        read = decode_content(content)
        assert encode_content(read) == content
        kinds.add(type(read.payload).__name__)
    assert len(kinds) == 5


def test_the_race_settles_again_to_the_same_bytes_and_weights(kept: Kept) -> None:
    found = json.loads(kept.arena("race", "replay", FIRST, "--json", *kept.here))
    assert found["differing"] == []
    assert has_all(found["made"], kept.expected["replay"]["made"])


def test_a_corpus_of_the_export_has_the_same_rows(kept: Kept) -> None:
    words = ("--out", kept.folder / "corpus", "--coefficient", COEFFICIENT, "--json", *kept.here)
    (built,) = json.loads(kept.arena("corpus", "build", kept.export, *words))["built"]
    assert built["funnel"]["kept"] == kept.expected["corpus"]["kept"] > 0
    assert built["lineage"]["rows_sha256"] == kept.expected["corpus"]["rows_sha256"]


@pytest.mark.parametrize(
    "kept", [pytest.param(case, marks=() if case == OLDEST else pytest.mark.prove) for case in CASES], indirect=True
)
def test_a_validator_goes_on_with_the_next_race(kept: Kept) -> None:
    kept.run_until_settled(SECOND)
    kept.arena("records", "verify", *kept.here)
    assert json.loads(kept.arena("race", "replay", SECOND, "--json", *kept.here))["differing"] == []
    settled = kept.settled()
    assert has_all(settled[FIRST], kept.expected["races"][0])
    assert settled[SECOND]["state"] == "settled"
    assert settled[SECOND]["policy_sha256"] == settled[FIRST]["policy_sha256"]
    following = kept.export_again("following", "--since-cursor", kept.export)
    assert json.loads(log_of(following)[0])["seq"] == len(log_of(kept.export)) + 1
