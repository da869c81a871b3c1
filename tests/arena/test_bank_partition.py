"""Partition files, sealing ahead, disclosure: pools come from one signed manifest, batches and releases keep to it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.bank.batch import check_release, seal
from arena.bank.partition_file import assign, read_partition, read_public_manifest, unpartitioned, write_partition
from arena.bank.sealing import deal, lock_all, open_batch, race_named
from arena.chain.beacon import LocalBeacon, LocalTimelock, local_round
from arena.chain.keys import keypair_signer, verify
from arena.records.model import ReleaseRecord
from foundation.errors import ArenaError
from problems.partition import freeze
from problems.synthesis import ProblemMaker
from problems.title_index import TitleIndex
from tests.problems.stand import make_catalogue

OPERATOR, STRANGER = keypair_signer("//Operator"), keypair_signer("//Stranger")
MAKER = ProblemMaker(TitleIndex(make_catalogue(600)))
SUITE, FROZEN, FRESH = (MAKER.make(seed=n, counts={"product": 8, "shop": 4, "voucher": 4}) for n in (1, 2, 3))
KEY = bytes(range(32))
ONE_EACH = {"product": 1, "shop": 1, "voucher": 1}
MANIFEST = freeze(FROZEN, SUITE, seed=7, key=KEY, eval_counts=ONE_EACH, dev_counts=ONE_EACH)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "partition.json"
    write_partition(path, MANIFEST, KEY, OPERATOR)
    return path


def disguised(problem, problem_id: str):
    """The same answers asked for in other words."""
    return replace(problem, problem_id=problem_id, query="another wish for the same thing")


# -- the file


@pytest.mark.parametrize(("key", "code"), [("00" * 32, "P4026"), ("00" * 31, "P4010"), ("z" * 64, "P4010")])
def test_a_partition_opens_with_its_own_key_alone(path, key, code):
    path.write_bytes(path.read_bytes().replace(KEY.hex().encode(), key.encode()))
    with pytest.raises(ArenaError, match=code):
        read_partition(path, verify)


# -- new problems
def test_new_problems_go_where_their_answers_are_and_suites_answers_are_never_raced(path):
    eval_problem = next(problem for problem in FROZEN if assign(path, [problem], OPERATOR, verify).pools == ("eval",))
    new = [disguised(eval_problem, "p_eval"), FRESH[0], disguised(SUITE[0], "p_suite")]
    assigned = assign(path, new, OPERATOR, verify)
    assert [problem.problem_id for problem in assigned.problems] == ["p_eval", FRESH[0].problem_id]
    assert assigned.pools == ("eval", "train")
    assert assigned.refused == ("p_suite",)


def test_the_successor_follows_the_frozen_manifest_and_every_one_is_kept(path):
    assigned = assign(path, FRESH, OPERATOR, verify)
    public = path.parent / "partitions" / f"{assigned.partition_sha256}.json"
    assert read_public_manifest(public, OPERATOR.hotkey, verify).previous_sha256 == MANIFEST.sha256
    assert assign(path, FRESH, OPERATOR, verify) == assigned
    assert len(list((path.parent / "partitions").iterdir())) == 2


# -- sealing ahead
CLOSES_MS = tuple(1_800_000_000_000 + day * 86_400_000 for day in range(4))


@given(st.permutations(FRESH))
def test_batches_share_no_problem_and_have_one_mix_whatever_the_order(problems):
    dealt = deal(unpartitioned(problems), 4, 4)
    ids = [problem.problem_id for one in dealt for problem in one.problems]
    assert len(set(ids)) == len(ids) == 16
    assert all([p.bucket for p in one.problems].count("product") == 2 for one in dealt)
    assert dealt == deal(unpartitioned(FRESH), 4, 4)


def test_too_few_and_repeated_problems_are_refused_and_sealed_ones_passed_over():
    with pytest.raises(ArenaError, match=r"P4014.*16 problems are left to race, 4 races take 20"):
        deal(unpartitioned(FRESH), 4, 5)
    with pytest.raises(ArenaError, match="P4009"):
        deal(unpartitioned([*FRESH, FRESH[0]]), 4, 4)
    first = deal(unpartitioned(FRESH), 1, 4)[0].problems
    used = {problem.problem_id for problem in first}
    second = deal(unpartitioned(FRESH), 1, 4, used)[0].problems
    assert not used & {problem.problem_id for problem in second}


def test_each_batch_is_locked_to_the_round_after_its_close_under_a_salt_of_its_own(path):
    assigned = assign(path, FRESH, OPERATOR, verify)
    beacon, timelock = LocalBeacon(lambda: 0), LocalTimelock()
    files = list(
        lock_all(
            deal(assigned, 4, 4),
            CLOSES_MS,
            timelock=timelock,
            beacon=beacon,
            signer=OPERATOR,
            random_bytes=random.Random(1).randbytes,
            now_ms=lambda: 5,
        )
    )
    assert [file.notice.race_id for file in files] == [race_named(close_ms) for close_ms in CLOSES_MS]
    assert all(file.notice.partition_sha256 == assigned.partition_sha256 for file in files)
    opened = []
    for file, close_ms in zip(files, CLOSES_MS, strict=True):
        assert timelock.opens_ms(file.notice.round - 1) <= close_ms < timelock.opens_ms(file.notice.round)
        opened.append(open_batch(file, local_round(file.notice.round), timelock=timelock))
    assert len({batch.salt for batch in opened}) == 4
    ids = [problem.problem_id for batch in opened for problem in batch.problems]
    assert len(set(ids)) == len(ids)


# -- disclosure
BATCH = seal("race-1", FRESH[:3], bytes(range(32)), partition_sha256="ab" * 32)
RECORD = ReleaseRecord(
    race_id="race-1",
    batch_sha256=BATCH.batch_sha256,
    partition_sha256=BATCH.partition_sha256,
    problems=BATCH.released_problems,
    salt=BATCH.salt,
)


def checked(record: ReleaseRecord = RECORD, batch=BATCH):
    return check_release(record, BATCH.public, batch)


def test_an_honest_release_keeps_every_commitment_with_or_without_the_batch():
    assert checked().is_ok and checked().batch == "kept"
    alone = checked(batch=None)
    assert alone.is_ok and alone.batch == "unknown"
    assert not alone.broken


@pytest.mark.parametrize(
    "change",
    [
        {"salt": "00" * 32},
        {"salt": "no hex"},
        {"batch_sha256": "00" * 32},
        {"partition_sha256": ""},
        {"problems": RECORD.problems[:2]},
        {"problems": RECORD.problems[::-1]},
        {"problems": (replace(RECORD.problems[0], cluster_id="00" * 32), *RECORD.problems[1:])},
        {"problems": (replace(RECORD.problems[0], problem_id="p_other"), *RECORD.problems[1:])},
    ],
)
def test_a_release_that_opens_something_else_is_named_without_the_batch(change):
    assert not checked(replace(RECORD, **change), batch=None).is_ok


def test_pools_and_problems_are_checked_against_the_batch():
    moved = replace(RECORD, problems=(replace(RECORD.problems[0], pool="eval"), *RECORD.problems[1:]))
    assert not checked(moved).is_ok
    other = seal("race-1", FRESH[3:6], bytes(range(32)), partition_sha256="ab" * 32)
    assert checked(batch=other).batch == "broken"
