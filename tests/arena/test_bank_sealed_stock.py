"""The bank: a race, a batch, once, opened by its round and by nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.bank.batch import seal
from arena.bank.sealing import lock_batch, write_sealed
from arena.bank.stock import Bank
from arena.chain.beacon import LocalBeacon, local_round
from arena.chain.keys import keypair_signer, verify
from arena.policies import PAPER
from arena.race.schedule import coming_closes_ms
from foundation.errors import ArenaError
from problems.model import Problem
from problems.suites import accept_lexically
from problems.title_index import TitleIndex
from tests.arena.bank_stand import OPERATOR, TIMELOCK, SeededMaker, open_bank, problems_of
from tests.problems.stand import make_catalogue

CATALOGUE = make_catalogue(160)
SETS = [problems_of(CATALOGUE, number) for number in (1, 2, 3)]
STRANGER, BEACON = keypair_signer("//Stranger"), LocalBeacon(lambda: 10**12)
ROUNDS = (101, 102, 103)


def put(folder: Path, name: str, problems: Sequence[Problem], opens_with: int, signer=OPERATOR, **more: object) -> None:
    """A sealed file of the operator in a node's folder."""
    sealed = lock_batch(
        seal(name, problems, bytes(range(32)), **more), opens_with, timelock=TIMELOCK, signer=signer, made_ms=5_000
    )
    folder.mkdir(exist_ok=True)
    write_sealed(folder / f"{name}.sealed.json", sealed)


def sealed_bank(folder: Path, *, is_real: bool = False) -> Bank:
    return Bank(folder, OPERATOR.hotkey, verify, TIMELOCK, BEACON, is_real=is_real)


def filled_sealed(folder: Path) -> Bank:
    for name, problems, opens_with in zip("abc", SETS, ROUNDS, strict=True):
        put(folder, name, problems, opens_with)
    return sealed_bank(folder)


def test_a_race_keeps_its_batch_and_opens_it_with_its_round(tmp_path):
    bank = filled_sealed(tmp_path / "bank")
    described = bank.seal_for("race-1", 3, round_number=101)
    assert bank.seal_for("race-1", 3, round_number=101) == described
    bank.open("race-1", local_round(101))
    bank.open("race-1", local_round(101))
    batch = bank.batch("race-1")
    assert batch is bank.batch("race-1")  # what did not change is not read again
    assert batch.public == described.batch and batch.problems == SETS[0]
    with pytest.raises(ArenaError, match=r"P4014.*b of .* holds 3 problems, a race draws 4"):
        bank.seal_for("race-2", 4, round_number=102)


def test_a_batch_that_was_changed_while_its_race_runs_is_refused_though_it_was_read_before(tmp_path):
    """Its size and its time of change are put back, as by somebody who hides it."""
    bank, path = filled_sealed(tmp_path / "bank"), tmp_path / "bank" / "race-1.batch.json"
    bank.open("race-1", local_round(101))
    before, content = path.stat(), path.read_bytes()
    assert bank.batch("race-1").problems == SETS[0]
    place = content.index(SETS[0][0].query.encode())
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ArenaError, match="P4010"):
        bank.batch("race-1")


def test_a_bank_with_a_maker_makes_what_it_lacks_under_its_own_key_and_repeats_no_answer(tmp_path):
    bank = open_bank(tmp_path / "bank", BEACON, SeededMaker(CATALOGUE))
    bank.prepare()
    notice = bank.seal_for("race-000001", 3, round_number=101)
    assert bank.seal_for("race-000001", 3, round_number=101) == notice  # made once
    bank.open("race-000001", local_round(101))
    assert bank.batch("race-000001").public == notice.batch
    assert not bank.level((), 0).is_low(30) and filled_sealed(tmp_path / "other").level((), 0).is_low(30)
    (tmp_path / "bank" / "old.batch.json").write_bytes(b"{")
    with pytest.raises(ArenaError, match=r"P4001.*old\.batch\.json"):
        bank.seal_for("race-000002", 3, round_number=102)


def test_a_batch_serves_the_race_of_its_round_and_no_other(tmp_path):
    bank = filled_sealed(tmp_path / "bank")
    notice = bank.seal_for("race-1", 3, round_number=102)
    assert [each.problem_id for each in notice.problems] == [problem.problem_id for problem in SETS[1]]
    with pytest.raises(ArenaError, match=r"P4014.*round 104 of local-beacon: no file"):
        bank.seal_for("race-1", 3, round_number=104)
    with pytest.raises(ArenaError, match="P4026"):
        bank.open("race-1", replace(local_round(102), round=101))


def test_on_a_real_network_a_batch_without_partition_or_titles_serves_no_race(tmp_path):
    folder = tmp_path / "bank"
    titles = accept_lexically(SETS[1], TitleIndex(CATALOGUE), "test")
    put(folder, "bare", SETS[0], 101, titles=accept_lexically(SETS[0], TitleIndex(CATALOGUE), "test"))
    put(folder, "whole", SETS[1], 102, partition_sha256="ab" * 32, titles=titles)
    put(folder, "untitled", SETS[2], 103, partition_sha256="ab" * 32)
    bank = sealed_bank(folder, is_real=True)
    for name, opens_with in (("bare", 101), ("untitled", 103)):
        with pytest.raises(ArenaError, match=rf"P4014.*{name}"):
            bank.seal_for("race-1", 3, round_number=opens_with)
    assert bank.seal_for("race-1", 3, round_number=102).titles == titles.name
    bank.open("race-1", local_round(102))
    assert bank.batch("race-1").titles == titles


def test_a_file_of_another_key_serves_no_race_and_hides_no_good_one(tmp_path):
    folder = tmp_path / "bank"
    put(folder, "foreign", SETS[0], 101, STRANGER)
    with pytest.raises(ArenaError, match="P4010"):
        sealed_bank(folder).seal_for("race-1", 3, round_number=101)
    put(folder, "good", SETS[1], 101)
    (folder / "torn.sealed.json").write_bytes(b"{")
    assert sealed_bank(folder).seal_for("race-1", 3, round_number=101).race_id == "good"


def test_two_batches_for_one_round_are_refused_since_validators_could_choose_differently(tmp_path):
    folder = tmp_path / "bank"
    put(folder, "a", SETS[0], 101)
    put(folder, "b", SETS[1], 101)
    with pytest.raises(ArenaError, match=r"P4014.*a\.sealed\.json, b\.sealed\.json"):
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
    assert level.is_low(30) and not level.is_low(2)
