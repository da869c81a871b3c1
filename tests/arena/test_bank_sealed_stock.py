"""Banks: what both keep (a race, a batch, once), and what only the operator's sealed files keep."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.bank.batch import seal
from arena.bank.sealing import encode_sealed, lock_batch
from arena.bank.stock import Bank, BatchStock, SealedStock
from arena.chain.beacon import LocalBeacon, LocalTimelock, QuicknetTimelock, local_round
from arena.chain.keys import keypair_signer, verify
from arena.chain.opening import open_beacon
from arena.policies import PAPER
from arena.race.schedule import coming_closes_ms
from foundation.errors import ArenaError
from problems.model import Problem
from problems.suites import accept_lexically
from problems.synthesis import synthesize
from problems.title_index import TitleIndex
from problems.titles import AcceptedTitles
from tests.arena.test_chain_beacon import ROUND_1
from tests.problems.stand import make_catalogue

CATALOGUE = make_catalogue(160)
SETS = [
    tuple(sorted(synthesize(CATALOGUE, seed=number, counts={"product": 3}), key=lambda problem: problem.problem_id))
    for number in (1, 2, 3)
]
OPERATOR, STRANGER = keypair_signer("//Operator"), keypair_signer("//Stranger")
TIMELOCK, BEACON = LocalTimelock(), LocalBeacon(lambda: 10**12)
ROUNDS = (101, 102, 103)


def put(
    folder: Path,
    name: str,
    problems: tuple[Problem, ...],
    round_number: int,
    signer=OPERATOR,
    partition_sha256: str = "",
    titles: AcceptedTitles | None = None,
) -> Path:
    """A sealed file of the operator in a node's folder."""
    batch = seal(name, problems, os.urandom(32), partition_sha256=partition_sha256, titles=titles)
    sealed = lock_batch(batch, round_number, timelock=TIMELOCK, signer=signer, made_ms=5_000)
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.sealed.json"
    path.write_bytes(encode_sealed(sealed))
    return path


def sealed_bank(folder: Path) -> SealedStock:
    return SealedStock(folder, OPERATOR.hotkey, verify, TIMELOCK, BEACON)


def filled_sealed(folder: Path) -> Bank:
    for name, problems, opens_with in zip("abc", SETS, ROUNDS, strict=True):
        put(folder, name, problems, opens_with)
    return sealed_bank(folder)


def filled_own(folder: Path) -> Bank:
    stock = BatchStock(folder, os.urandom)
    for name, problems in zip("abc", SETS, strict=True):
        stock.add(name, problems)
    return stock


@pytest.fixture(params=[filled_sealed, filled_own])
def bank(request: pytest.FixtureRequest, tmp_path: Path) -> Bank:
    make: Callable[[Path], Bank] = request.param
    return make(tmp_path / "bank")


# -- both banks
def test_a_race_keeps_its_batch_and_opens_it_with_its_round(bank):
    described = bank.seal_for("race-1", 3, round_number=101)
    again = bank.seal_for("race-1", 3, round_number=101)
    assert (again.batch_sha256, again.problem_ids) == (described.batch_sha256, described.problem_ids)
    assert bank.serves(described.batch_sha256, 101)
    bank.open("race-1", local_round(101))
    bank.open("race-1", local_round(101))
    batch = bank.batch("race-1")
    assert batch.batch_sha256 == described.batch_sha256
    assert batch.cluster_commitments == described.cluster_commitments
    assert batch.problems == SETS[0]


def test_a_batch_too_small_for_the_draw_is_not_used(bank):
    with pytest.raises(ArenaError, match="P4015"):
        bank.seal_for("race-1", 4, round_number=101)


# -- sealed files alone
def test_before_its_draw_a_race_has_nothing_to_read(tmp_path):
    bank = filled_sealed(tmp_path / "bank")
    bank.seal_for("race-1", 3, round_number=101)
    with pytest.raises(ArenaError, match="P4001"):
        bank.batch("race-1")
    assert not any(
        problem.query.encode() in b"".join(p.read_bytes() for p in (tmp_path / "bank").iterdir()) for problem in SETS[0]
    )


def test_after_the_round_the_published_signature_opens_a_real_timelock(tmp_path):
    folder, timelock = tmp_path / "bank", QuicknetTimelock()
    folder.mkdir()
    batch = seal("close", SETS[0], os.urandom(32))
    sealed = lock_batch(batch, 1, timelock=timelock, signer=OPERATOR, made_ms=5_000)
    (folder / "close.sealed.json").write_bytes(encode_sealed(sealed))
    bank = SealedStock(folder, OPERATOR.hotkey, verify, timelock, open_beacon("finney", lambda: 10**12))
    bank.open("race-1", ROUND_1)  # drand's own first round, offline
    assert bank.batch("race-1") == batch


def test_a_batch_serves_the_race_of_its_round_and_no_other(tmp_path):
    bank = filled_sealed(tmp_path / "bank")
    notice = bank.seal_for("race-1", 3, round_number=102)
    assert notice.problem_ids == tuple(problem.problem_id for problem in SETS[1])
    assert [bank.serves(notice.batch_sha256, opens_with) for opens_with in (101, 102, 103, 104)] == [0, 1, 0, 0]
    with pytest.raises(ArenaError, match=r"P4027.*round 104 of local-beacon: no file"):
        bank.seal_for("race-1", 3, round_number=104)
    with pytest.raises(ArenaError, match="P4026"):
        bank.open("race-1", replace(local_round(102), round=101))


def test_where_a_partition_is_required_a_batch_without_one_serves_no_race(tmp_path):
    folder = tmp_path / "bank"
    put(folder, "bare", SETS[0], 101)
    put(folder, "dealt", SETS[1], 102, partition_sha256="ab" * 32)
    bank = SealedStock(folder, OPERATOR.hotkey, verify, TIMELOCK, BEACON, is_partition_required=True)
    with pytest.raises(ArenaError, match=r"P4030.*bare"):
        bank.seal_for("race-1", 3, round_number=101)
    assert bank.seal_for("race-1", 3, round_number=102).race_id == "dealt"


def test_where_titles_are_required_a_batch_without_them_serves_no_race(tmp_path):
    folder = tmp_path / "bank"
    titles = accept_lexically(SETS[1], TitleIndex(CATALOGUE), "test")
    put(folder, "bare", SETS[0], 101)
    put(folder, "titled", SETS[1], 102, titles=titles)
    bank = SealedStock(folder, OPERATOR.hotkey, verify, TIMELOCK, BEACON, are_titles_required=True)
    with pytest.raises(ArenaError, match=r"P4030.*bare"):
        bank.seal_for("race-1", 3, round_number=101)
    assert bank.seal_for("race-1", 3, round_number=102).titles == titles.name
    bank.open("race-1", local_round(102))
    assert bank.batch("race-1").titles == titles


def test_a_file_of_another_key_serves_no_race_and_hides_no_good_one(tmp_path):
    folder = tmp_path / "bank"
    put(folder, "foreign", SETS[0], 101, STRANGER)
    with pytest.raises(ArenaError, match="P4025"):
        sealed_bank(folder).seal_for("race-1", 3, round_number=101)
    put(folder, "good", SETS[1], 101)
    (folder / "torn.sealed.json").write_bytes(b"{")
    assert sealed_bank(folder).seal_for("race-1", 3, round_number=101).race_id == "good"


def test_two_batches_for_one_round_are_refused_since_validators_could_choose_differently(tmp_path):
    folder = tmp_path / "bank"
    put(folder, "a", SETS[0], 101)
    put(folder, "b", SETS[1], 101)
    with pytest.raises(ArenaError, match=r"P4027.*a\.sealed\.json, b\.sealed\.json"):
        sealed_bank(folder).seal_for("race-1", 3, round_number=101)


def test_a_problem_that_was_raced_never_comes_back_by_its_id(tmp_path):
    folder = tmp_path / "bank"
    put(folder, "a", SETS[0], 101)
    put(folder, "b", (*SETS[1], SETS[0][0]), 102)
    bank = sealed_bank(folder)
    bank.open("race-1", local_round(101))
    with pytest.raises(ArenaError, match=f"P4029.*{SETS[0][0].problem_id} of b was raced in a"):
        bank.seal_for("race-2", 3, round_number=102)
    assert bank.seal_for("race-1", 3, round_number=101).race_id == "a"  # its own batch is no earlier one


def test_a_problem_that_was_raced_never_comes_back_under_another_id(tmp_path):
    folder = tmp_path / "bank"
    put(folder, "a", SETS[0], 101)
    put(folder, "b", (*SETS[1], replace(SETS[0][2], problem_id="p_new")), 102)
    bank = sealed_bank(folder)
    bank.open("race-1", local_round(101))
    bank.seal_for("race-2", 3, round_number=102)
    with pytest.raises(ArenaError, match=r"P4029.*p_new of b was raced in a"):
        bank.open("race-2", local_round(102))
    with pytest.raises(ArenaError, match="P4001"):
        bank.batch("race-2")


def test_a_folder_that_cannot_be_written_is_a_coded_failure(tmp_path):
    bank = filled_sealed(tmp_path / "bank")
    (tmp_path / "bank" / "race-1.batch.json.part").mkdir()
    with pytest.raises(ArenaError, match="V2064"):
        bank.open("race-1", local_round(101))


# -- the level
def test_the_stock_lasts_until_the_first_race_without_a_batch(tmp_path):
    folder, now_ms = tmp_path / "bank", 1_800_000_000_000
    closes_ms = coming_closes_ms(now_ms, PAPER.race, 40)
    for day in (0, 1, 3):
        put(folder, f"day-{day}", SETS[0], BEACON.round_after(closes_ms[day]))
    level = sealed_bank(folder).level(closes_ms, now_ms)
    assert (level.races, level.lasts_ms) == (2, closes_ms[2] - now_ms)
    assert (level.oldest_made_ms, level.newest_made_ms) == (5_000, 5_000)
    assert level.is_low(30) and not level.is_low(2)


def test_a_stock_of_ones_own_counts_races_and_one_that_makes_problems_never_runs_low(tmp_path):
    now_ms = 1_800_000_000_000
    closes_ms = coming_closes_ms(now_ms, PAPER.race, 10)
    stock = filled_own(tmp_path / "own")
    level = stock.level(closes_ms, now_ms)
    assert (level.races, level.lasts_ms) == (3, closes_ms[3] - now_ms) and level.oldest_made_ms is not None
    assert level.is_low(30)
    assert not BatchStock(tmp_path / "empty", os.urandom, lambda _: SETS[0]).level(closes_ms, now_ms).is_low(30)
    assert filled_sealed(tmp_path / "sealed").level((), now_ms).lasts_ms == 0
