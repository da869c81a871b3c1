"""A build that was killed: taken up again it ends in the same bytes, and nothing it had read is read again."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation.errors import ArenaError
from foundation.executors.processes import executor_of
from tests.prove.corpus_scale_run import folder_sha256
from tests.training.labelled import make_labelled, stand_guard
from training.corpus.appraisal import Task
from training.corpus.building import Origin, Sources, arms_of, filter_sources, open_journal, write_filtered
from training.corpus.disk import AppraisalJournal, sorted_on_disk
from training.corpus.model import Rules, Trace

RULES = Rules()
ORIGIN = Origin(partition_sha256="cd" * 32, code_commit="f6")
KILLED = """
import os, signal, sys
from pathlib import Path
from tests.training.test_corpus_resume import build, dealt
def progress(phase, done, total):
    if phase == sys.argv[2] and done == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
build(Path(sys.argv[1]), dealt(int(sys.argv[4])), workers=int(sys.argv[5]), progress=progress)
"""


class Dealt:
    """A shard that a process can be sent."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        self._traces = tuple(traces)

    def __call__(self) -> Iterator[Trace]:
        return iter(self._traces)


def dealt(count: int) -> list[Dealt]:
    """The same 90 labelled traces, in `count` shards."""
    traces = [one.trace for one in make_labelled(90, seed=4)]
    return [Dealt(traces[start::count]) for start in range(count)]


def build(out: Path, shards: Sequence[Dealt], *, workers: int = 0, progress: object = None, arms: tuple[str, ...] = ()):
    """What `arena corpus build` does once its sources are open; how many shards it found done."""
    sources = Sources(shards=tuple(shards), hashes=("ab" * 32,), is_trusted_unsigned=False)
    task, compared = Task(arms=(RULES,)), arms_of(RULES, arms)
    journal = open_journal(out, sources, task, compared, "guard")
    done = journal.shards
    filtered = filter_sources(
        sources, task, compared, stand_guard, executor=executor_of(workers), progress=progress, journal=journal
    )
    write_filtered(filtered, out, stand_guard, ORIGIN, executor=executor_of(workers), progress=progress)
    journal.discard()
    return done


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The hash of the corpus that an undisturbed build of one shard makes."""
    out = tmp_path_factory.mktemp("whole") / "corpus"
    build(out, dealt(1))
    return folder_sha256(out)


@pytest.mark.parametrize(
    ("phase", "at", "shards", "workers"),
    [("filter", 1, 5, 1), ("filter", 4, 9, 2), ("compare", 30, 5, 1), ("write", 3, 5, 1)],
)
def test_a_killed_build_goes_on_and_ends_in_the_same_bytes(
    whole: str, tmp_path: Path, phase: str, at: int, shards: int, workers: int
) -> None:
    out = tmp_path / "corpus"
    words = [sys.executable, "-c", KILLED, str(out), phase, str(at), str(shards), str(workers)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert not out.exists()
    assert build(out, dealt(shards)) == (at if phase == "filter" else shards)
    assert folder_sha256(out) == whole
    assert [one.name for one in tmp_path.iterdir()] == ["corpus"]


@given(st.integers(1, 12), st.integers(0, 3_000), st.integers(0, 2**32))
@settings(max_examples=8, deadline=None)
def test_a_journal_cut_or_damaged_anywhere_gives_up_only_what_it_lost(
    whole: str, tmp_path_factory: pytest.TempPathFactory, shards: int, cut: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    out, sources = folder / "corpus", dealt(shards)
    with pytest.raises(KeyboardInterrupt):
        build(out, sources, progress=interrupted(shards))
    journal = folder / ".corpus.journal"
    content = bytearray(journal.read_bytes())
    place = random.Random(seed).randrange(len(content))
    content[place] ^= 0x55
    journal.write_bytes(content[: max(0, len(content) - cut)])
    assert build(out, sources) <= shards
    assert folder_sha256(out) == whole


def interrupted(shards: int):
    """Progress that ends the build once all shards are read."""

    def progress(phase: str, done: int, total: int) -> None:
        if done == shards:
            raise KeyboardInterrupt

    return progress


def test_a_journal_of_other_rules_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "j"
    first = AppraisalJournal(path, "a" * 64)
    build_into(first)
    assert first.shards == 3
    del first
    assert AppraisalJournal(path, "a" * 64).shards == 3
    assert AppraisalJournal(path, "b" * 64).shards == 0
    assert AppraisalJournal(path, "a" * 64).shards == 0


def build_into(journal: AppraisalJournal) -> None:
    """Three shards appraised into a journal."""
    sources = Sources(shards=tuple(dealt(3)), hashes=(), is_trusted_unsigned=False)
    filter_sources(sources, Task(arms=(RULES,)), arms_of(RULES, ()), stand_guard, journal=journal)


def test_two_builds_to_one_folder_at_once_are_refused(tmp_path: Path) -> None:
    first = AppraisalJournal(tmp_path / "j", "a" * 64)
    with pytest.raises(ArenaError, match="another build is using it") as caught:
        AppraisalJournal(tmp_path / "j", "a" * 64)
    assert caught.value.failure.code == "V2027"
    assert first.shards == 0


def test_a_comparison_that_is_killed_leaves_no_part_of_itself(tmp_path: Path) -> None:
    out = tmp_path / "study"

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "write" and done == total - 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(out, dealt(3), progress=progress, arms=("no_ranking",))
    assert not out.exists()
    assert build(out, dealt(3), arms=("no_ranking",)) == 3
    assert sorted(one.name for one in out.iterdir()) == ["full", "no_ranking"]


@given(st.lists(st.tuples(st.binary(max_size=6), st.binary(max_size=6)), max_size=60))
def test_pairs_sorted_on_disk_are_sorted(pairs: list[tuple[bytes, bytes]]) -> None:
    assert list(sorted_on_disk(pairs)) == sorted(pairs)
