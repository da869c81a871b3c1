"""The whole filter: one answer for one set of traces, whatever order, shards and processes it comes in."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from foundation.errors import ArenaError
from foundation.executors.processes import executor_of
from tests.training.labelled import Labelled, make_labelled, select, stand_guard
from training.corpus.appraisal import Task
from training.corpus.building import Filtered, ablations
from training.corpus.funnel import funnel_of
from training.corpus.model import CorpusRow, Quarantined, Rejection, Rules, Trace
from training.corpus.selection import appraise, decide, kept_rows, rejections

TASK = Task(arms=(Rules(),))


class Stored:
    """A shard in memory that a process can be sent."""

    def __init__(self, rows: Sequence[Trace | Quarantined]) -> None:
        self._rows = tuple(rows)

    def __call__(self) -> tuple[Trace | Quarantined, ...]:
        return self._rows


class Dying:
    """A shard whose reader dies."""

    def __call__(self) -> tuple[Trace, ...]:
        os._exit(3)


@pytest.fixture(scope="module")
def labelled() -> list[Labelled]:
    return make_labelled(420, seed=5)


@pytest.fixture(scope="module")
def traces(labelled: list[Labelled]) -> list[Trace]:
    return [one.trace for one in labelled]


@pytest.fixture(scope="module")
def selection(traces: list[Trace]) -> Filtered:
    return select([Stored(traces)], TASK, stand_guard)


def rows_of(shards: Sequence[Stored], found: Filtered, workers: int = 0) -> list[CorpusRow]:
    rows = kept_rows(shards, found.appraised, found.decisions[0], executor=executor_of(workers))
    return sorted(rows, key=lambda row: (row.trace.trace_id, row.trace.source.place))


def rejected(found: Filtered) -> list[Rejection]:
    return sorted(rejections(found.appraised, found.decisions[0]), key=lambda one: one.place)


def test_shuffled_and_dealt_to_shards_the_same_corpus_comes_out(traces: list[Trace], selection: Filtered) -> None:
    shuffled = traces[:]
    random.Random(3).shuffle(shuffled)
    shards = [Stored(shuffled[start::7]) for start in range(7)]
    other = select(shards, TASK, stand_guard)
    assert rows_of(shards, other) == rows_of([Stored(traces)], selection)
    assert rejected(other) == rejected(selection)
    assert other.funnels[0] == selection.funnels[0]


def test_the_funnel_adds_up(traces: list[Trace], selection: Filtered) -> None:
    one = selection.funnels[0]
    assert one.traces == len(traces)
    assert one.kept == selection.decisions[0].kept
    assert sum(count for _, count in one.removed) == one.traces - one.kept
    for parts in (one.days, one.buckets, one.agents):
        assert sum(part.traces for part in parts) == one.traces
        assert sum(part.kept for part in parts) == one.kept
        for code in one.codes:
            assert sum(dict(part.codes).get(code.code, 0) for part in parts) == code.count
    for code in one.codes:
        places = {
            trace.source.place
            for trace, codes in zip(traces, selection.decisions[0].codes, strict=True)
            if code.code in codes
        }
        assert code.count == len(places)
        assert 0 < len(code.examples) <= 5
        assert places.issuperset(code.examples)
    assert one.before.turns.traces == one.traces
    assert one.after.turns.traces == one.kept
    assert one.after.tokens.missing == 0
    assert one.after.teams == 5
    assert one.before.shape_entropy_mbit > 0


def test_one_reading_serves_every_ablation(traces: list[Trace]) -> None:
    arms = ablations(Rules())
    shard = Stored(traces[:110])
    read_once = appraise([shard], Task(arms=tuple(arm.rules for arm in arms)), stand_guard)
    for arm in arms:
        alone = select([shard], Task(arms=(arm.rules,)), stand_guard)
        decision = decide(read_once, arm.rules)
        assert decision.codes == alone.decisions[0].codes
        assert funnel_of(read_once, decision).kept == alone.funnels[0].kept
        assert "leak" in {code.code for code in alone.funnels[0].codes}


def test_a_size_matched_corpus_is_a_seeded_part_of_the_whole(traces: list[Trace], selection: Filtered) -> None:
    read_once = selection.appraised
    whole = {i for i, rank in enumerate(selection.decisions[0].ranks) if rank}
    draws = []
    for seed in (1, 1, 2):
        decision = decide(read_once, Rules(rows=30, seed=seed))
        draws.append({i for i, rank in enumerate(decision.ranks) if rank})
        assert Counter(decision.codes)["sampled_out",] == len(whole) - 30
    assert draws[0] == draws[1] != draws[2]
    assert all(len(drawn) == 30 and drawn < whole for drawn in draws)
    assert decide(read_once, Rules(rows=10_000)).kept == len(whole)


def test_a_source_that_changed_between_the_readings_is_noticed(traces: list[Trace], selection: Filtered) -> None:
    for changed in (traces[1:], traces[:1]):
        with pytest.raises(ArenaError) as caught:
            list(kept_rows([Stored(changed)], selection.appraised, selection.decisions[0]))
        assert caught.value.failure.code == "V2027"


def test_a_process_that_dies_is_named_and_nothing_is_decided() -> None:
    with pytest.raises(ArenaError) as caught:
        appraise([Dying(), Dying()], TASK, stand_guard, executor=executor_of(2))
    assert caught.value.failure.code == "V2052"
