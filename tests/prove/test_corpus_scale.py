"""A corpus from many rows: memory that does not follow them, and a kill that leaves nothing."""

from __future__ import annotations

import multiprocessing
import resource
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec
import pytest

from tests.prove.corpus_scale_run import folder_sha256, make_exports, run_build
from tests.training.labelled import Maker, disguise, make_trace, reword, stand_guard
from training.corpus.model import Rules, Trace
from training.corpus.selection import Task, appraise, decide

pytestmark = pytest.mark.prove

ROWS = 4_000
LOOSE = ("--rule", "off=duplicate,near_duplicate,ranked_out", "--rule", "coefficient_e4_min=0")
BYTES_A_ROW = 1_500  # named in training/corpus/README.md, with room for the allocator
RULES = Rules(off=("tokens",))  # counting them is nothing that is measured here
SHARD_ROWS = 1_000


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four exports of 1,000 rows each."""
    return make_exports(tmp_path_factory.mktemp("days"), ROWS // 4, range(4))


def test_memory_does_not_follow_the_rows(exports: list[Path], tmp_path: Path) -> None:
    peaks_mb = [
        run_build(tmp_path / f"corpus{count}", tmp_path / f"state{count}", exports[:count], *LOOSE)["peak_mb"]
        for count in (1, 4)
    ]
    grown_mb = peaks_mb[1] - peaks_mb[0]
    assert grown_mb << 20 < BYTES_A_ROW * ROWS * 3 // 4 + (24 << 20), peaks_mb  # and one run of the sort, and its like


def test_a_build_killed_while_it_reads_ends_in_the_same_bytes(exports: list[Path], tmp_path: Path) -> None:
    whole = run_build(tmp_path / "whole", tmp_path / "state", exports, *LOOSE, workers=2)
    assert whole["exit_code"] == 0
    out, half_s = tmp_path / "killed", whole["seconds"] / 2
    killed = run_build(out, tmp_path / "state", exports, *LOOSE, kill_when=lambda seconds: seconds > half_s)
    assert killed["exit_code"] == -signal.SIGKILL and not out.exists()
    again = run_build(out, tmp_path / "state", exports, *LOOSE)
    assert again["exit_code"] == 0
    assert folder_sha256(out) == folder_sha256(tmp_path / "whole")


class MadeShard:
    """A thousand made traces, by seed: of five one is another's disguised copy and one its reworded copy."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self) -> Iterator[Trace]:
        maker = Maker(self._seed)
        for _ in range(SHARD_ROWS // 5):
            for kind in ("plain", "silent"):
                yield maker.good(kind).trace
            goods = maker.goods()
            other = msgspec.structs.replace(goods, ids=tuple(str(int(one) + 1_234_567) for one in goods.ids))
            messages = maker.good_messages(goods)
            yield make_trace(goods, messages, place=maker.place())
            yield make_trace(other, disguise(messages, goods, other), place=maker.place())
            yield make_trace(goods, reword(maker.rng, messages), place=maker.place())


def compared(rows: int) -> tuple[int, int]:
    """Near duplicates that the set-level rules found in so many traces, and the bytes that deciding took."""
    shards = [MadeShard(seed) for seed in range(rows // SHARD_ROWS)]
    traces = appraise(shards, Task(arms=(RULES,)), stand_guard)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    codes = decide(traces, RULES).codes
    return codes.count(("near_duplicate",)), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) << 10


def test_the_memory_of_the_comparison_does_not_follow_the_rows() -> None:
    """At 20,000 rows the sorts have gone to disk; from there on a comparison in memory would take 1,150 bytes a row."""
    alone = multiprocessing.get_context("spawn")  # each in a process of its own, whose peak is its own
    with ProcessPoolExecutor(1, mp_context=alone, max_tasks_per_child=1) as pool:
        (few, grown), (many, grown_more) = pool.map(compared, (20_000, 40_000))
    assert many > 3 * few // 2
    assert grown_more - grown < 20_000 * 400, (grown, grown_more)
