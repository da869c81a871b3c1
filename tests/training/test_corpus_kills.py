"""A build that was killed leaves nothing under its name, and is begun anew: the same bytes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.executors.processes import executor_of
from tests.prove.corpus_scale_run import folder_sha256
from tests.training.labelled import make_labelled, stand_guard
from training.corpus.appraisal import Task
from training.corpus.building import Sources, arms_of, filter_sources, write_filtered
from training.corpus.disk import sorted_on_disk
from training.corpus.model import Rules, Trace

RULES = Rules()
ORIGIN = {"partition_sha256": "cd" * 32, "code_commit": "f6"}
KILLED = """
import os, signal, sys
from pathlib import Path
from tests.training.test_corpus_kills import build, dealt
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
    """What `arena corpus build` does once its sources are open."""
    sources = Sources(shards=tuple(shards), hashes=("ab" * 32,), is_trusted_unsigned=False)
    ways = {"executor": executor_of(workers), "progress": progress}
    filtered = filter_sources(sources, Task(arms=(RULES,)), arms_of(RULES, arms), stand_guard, **ways)
    write_filtered(filtered, out, stand_guard, **ORIGIN, **ways)


@pytest.mark.parametrize(("phase", "at", "shards", "workers"), [("filter", 4, 9, 2), ("write", 3, 5, 1)])
def test_a_killed_build_leaves_nothing_and_ends_in_the_same_bytes(
    tmp_path: Path, phase: str, at: int, shards: int, workers: int
) -> None:
    build(tmp_path / "whole", dealt(1))
    out = tmp_path / "corpus"
    words = [sys.executable, "-c", KILLED, str(out), phase, str(at), str(shards), str(workers)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert not out.exists()
    build(out, dealt(shards))
    assert folder_sha256(out) == folder_sha256(tmp_path / "whole")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["corpus", "whole"]


@given(st.lists(st.tuples(st.binary(max_size=6), st.binary(max_size=6)), max_size=60))
def test_pairs_sorted_on_disk_are_sorted(pairs: list[tuple[bytes, bytes]]) -> None:
    assert list(sorted_on_disk(pairs)) == sorted(pairs)
