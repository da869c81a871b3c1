"""Nothing held out gets past the guard, whatever it looks like and whatever it says of itself; training rows do."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from problems.clusters import content_words
from problems.model import BUCKETS, Pool, Problem
from problems.partition import OpenPartition, freeze
from problems.synthesis import synthesize
from training.corpus.foreign import convert_row
from training.corpus.gates import Guard
from training.corpus.model import Trace, TraceFacts

replace = msgspec.structs.replace
KEY = bytes(range(32))


@pytest.fixture(scope="module")
def bank() -> tuple[Problem, ...]:
    from harness.catalogue.synthetic import generate

    return synthesize(list(generate(4_000, 5)), seed=9, counts={"product": 105, "shop": 100, "voucher": 100})


@pytest.fixture(scope="module")
def partition(bank: Sequence[Problem]) -> OpenPartition:
    """The bank in its four pools: 75 to evaluate on, 60 for `dev`, 90 in the suites, the rest to train on."""
    suites = [problem for bucket in BUCKETS for problem in bank if problem.bucket == bucket][::3][:90]
    return OpenPartition(freeze(bank, suites, seed=4, key=KEY), KEY)


@pytest.fixture(scope="module")
def by_pool(bank: Sequence[Problem], partition: OpenPartition) -> dict[Pool, list[Problem]]:
    pools: dict[Pool, list[Problem]] = {"never_touch": [], "eval": [], "dev": [], "train": []}
    for problem in bank:
        row = partition.row_of(partition.token(f"problem {problem.problem_id}"))
        assert row is not None
        pools[row.pool].append(problem)
    return pools


@pytest.fixture(scope="module")
def held_out(by_pool: dict[Pool, list[Problem]]) -> dict[Pool, list[Problem]]:
    return {pool: problems for pool, problems in by_pool.items() if pool != "train"}


@pytest.fixture(scope="module")
def guard(partition: OpenPartition, held_out: dict[Pool, list[Problem]]) -> Guard:
    return Guard(partition.manifest, held_out)


def foreign(problem: Problem, *, query: str = "", ids: Sequence[str] = (), titles: Sequence[str] = ()) -> Trace:
    """A chat row somebody made of a problem; it recommends `ids`, which a search listed under `titles`."""
    hits = [{"product_id": one, "title": title} for one, title in zip(ids, titles, strict=False)]
    call = {"id": "c1", "function": {"name": "find_product", "arguments": "{}"}}
    last = {"id": "c2", "function": {"name": "recommend_product", "arguments": {"product_ids": ",".join(ids)}}}
    messages = [
        {"role": "user", "content": query or problem.query},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": hits},
        {"role": "assistant", "tool_calls": [last]},
    ]
    return convert_row({"messages": messages, "metadata": {"pool": "train"}}, "rows.jsonl:1", "00" * 32)


def arena(trace: Trace, **facts: object) -> Trace:
    """The same as a row of an export, with these facts of its release."""
    return replace(trace, source=replace(trace.source, kind="arena"), facts=replace(TraceFacts(), **facts))


def test_a_released_row_enters_by_its_pool_and_cluster(
    guard: Guard, partition: OpenPartition, by_pool: dict[Pool, list[Problem]]
) -> None:
    for pool, problems in by_pool.items():
        for problem in problems:
            row = partition.row_of(partition.token(f"problem {problem.problem_id}"))
            assert row is not None
            trace = arena(foreign(problem), pool=pool, cluster_id=row.cluster)
            assert guard(trace) == (() if pool == "train" else ("pool",))
            mislabelled = arena(foreign(problem), pool="train", cluster_id=row.cluster)
            assert guard(mislabelled) == (() if pool == "train" else ("leak",))


@pytest.mark.parametrize("is_keyed", [False, True])
def test_a_released_row_that_answers_its_problem_with_a_held_out_product_does_not_enter(
    partition: OpenPartition, by_pool: dict[Pool, list[Problem]], held_out: dict[Pool, list[Problem]], is_keyed: bool
) -> None:
    """By the product's id alone, and by its title under another id."""
    guard = Guard(partition=partition) if is_keyed else Guard(partition.manifest, held_out)
    asked = by_pool["train"][0]
    row = partition.row_of(partition.token(f"problem {asked.problem_id}"))
    released = {"pool": "train", "cluster_id": row.cluster if row else "ab" * 32}
    own = [item.product_id for item in asked.rewards]
    assert guard(arena(foreign(asked, ids=own, titles=[item.title[0] for item in asked.rewards]), **released)) == ()
    for problem in (one for problems in held_out.values() for one in problems):
        for item in problem.rewards:
            for ids, titles in (([*own, item.product_id], []), (["9" + item.product_id], [item.title[0]])):
                assert guard(arena(foreign(asked, ids=ids, titles=titles), **released)) == ("leak",)


@pytest.mark.parametrize("is_keyed", [False, True])
def test_no_held_out_problem_enters_from_elsewhere(
    partition: OpenPartition, held_out: dict[Pool, list[Problem]], is_keyed: bool
) -> None:
    """By its query alone, by its answer alone, and by its answer's title under another id; with the key alone too."""
    guard = Guard(partition=partition) if is_keyed else Guard(partition.manifest, held_out)
    for problem in (one for problems in held_out.values() for one in problems):
        ids = [item.product_id for item in problem.rewards]
        other = {"ids": [f"9{one}" for one in ids], "titles": [item.title[0] for item in problem.rewards]}
        assert guard(foreign(problem)) == ("leak",)
        for answer in ({"ids": ids}, other):
            assert guard(foreign(problem, query="something else entirely", **answer)) == ("leak",)


def test_a_query_is_found_behind_another_and_among_other_text(
    guard: Guard, held_out: dict[Pool, list[Problem]], by_pool: dict[Pool, list[Problem]]
) -> None:
    other = by_pool["train"][0]
    for problem in held_out["eval"]:
        trace = foreign(problem)
        assert guard(replace(trace, query=other.query)) == ("leak",)
        if len(content_words(problem.query)) >= 4:
            told = f"You are a careful assistant and answer in tags. <user>{problem.query}</user> <think>So.</think>"
            assert guard(foreign(other, query=told)) == ("leak",)
