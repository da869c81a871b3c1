"""Sealed batches: what they commit to, how they lie on disk, and when anything may leave."""

from __future__ import annotations

import hashlib
import os
import random
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.bank import sealing
from arena.bank.batch import check_release, read_batch, seal, write_batch
from arena.bank.partition_file import assign, read_partition, read_public_manifest, unpartitioned, write_partition
from arena.bank.stock import Bank
from arena.chain.beacon import LocalBeacon, LocalTimelock, local_round
from arena.chain.keys import keypair_signer, verify
from arena.policies import PAPER
from arena.race.schedule import shared_closes_ms
from arena.records.model import ReleaseRecord
from foundation.errors import ArenaError
from problems.clusters import cluster_id
from problems.formats import problem_bytes
from problems.model import Problem
from problems.partition import freeze
from problems.suites import accept_lexically
from problems.synthesis import ProblemMaker
from problems.title_index import TitleIndex
from problems.titles import AcceptedTitles, reward_titles
from tests.arena.bank_stand import TIMELOCK, SeededMaker, open_bank, problems_of
from tests.arena.test_chain_beacon import STANDS, Stand
from tests.problems.stand import PROBLEMS, make_catalogue

SALT = bytes(range(32))
BATCH = seal("race-1", PROBLEMS, SALT)
TITLES = AcceptedTitles(
    name="qwen@bank-1", accepted={title: frozenset({"31415926"}) for title in sorted(reward_titles(PROBLEMS))}
)
TITLED = seal("race-1", PROBLEMS, SALT, titles=TITLES)


def test_the_batch_hash_changes_with_race_salt_order_and_any_field():
    other_query = replace(PROBLEMS[0], query="another wish")
    other_answer = replace(PROBLEMS[0], rewards=(replace(PROBLEMS[0].rewards[0], product_id="9"),))
    batches = [
        BATCH,
        seal("race-2", PROBLEMS, SALT),
        seal("race-1", PROBLEMS, bytes(32)),
        seal("race-1", PROBLEMS[::-1], SALT),
        seal("race-1", PROBLEMS[:2], SALT),
        seal("race-1", (other_query, *PROBLEMS[1:]), SALT),
        seal("race-1", (other_answer, *PROBLEMS[1:]), SALT),
        TITLED,
        seal("race-1", PROBLEMS, SALT, titles=replace(TITLES, name="qwen@bank-2")),
        seal("race-1", PROBLEMS, SALT, titles=replace(TITLES, accepted=dict.fromkeys(TITLES.accepted, frozenset("7")))),
    ]
    assert len({batch.batch_sha256 for batch in batches}) == len(batches)
    assert seal("race-1", PROBLEMS, SALT).batch_sha256 == BATCH.batch_sha256


def test_nothing_published_is_a_plain_hash_of_something_guessable():
    guesses = {
        hashlib.sha256(content).hexdigest()
        for problem in PROBLEMS
        for content in (
            problem_bytes(problem),
            cluster_id(problem).encode(),
            *(item.product_id.encode() for item in problem.rewards),
            *(item.title[0].encode() for item in problem.rewards),
        )
    }
    public = BATCH.public
    published = {public.batch_sha256, *(problem.cluster_commitment for problem in public.problems)}
    assert not published & (guesses | {cluster_id(problem) for problem in PROBLEMS})


def test_a_batch_refuses_repeated_ids_unsound_problems_and_short_salts():
    with pytest.raises(ArenaError, match="P4009"):
        seal("race-1", (*PROBLEMS, PROBLEMS[0]), SALT)
    with pytest.raises(ArenaError, match="P4003"):
        seal("race-1", (replace(PROBLEMS[0], rewards=()),), SALT)
    with pytest.raises(ValueError, match="32 bytes"):
        seal("race-1", PROBLEMS, b"short")


@pytest.mark.parametrize("titles", [{}, {**TITLES.accepted, "Kettle": frozenset({"9"})}])
def test_a_batch_holds_the_accepted_titles_of_its_own_problems_all_of_them_and_no_others(titles):
    with pytest.raises(ArenaError, match=r"P4001.*race-1"):
        seal("race-1", PROBLEMS, SALT, titles=replace(TITLES, accepted=titles))


# -- on disk


@pytest.mark.parametrize(
    ("field", "value"), [("salt", "00"), ("salt", "no hex"), ("version", 2), ("problems", []), ("problems", "none")]
)
def test_an_edited_batch_file_is_refused(tmp_path, field, value):
    path = tmp_path / "batch.json"
    write_batch(path, BATCH)
    held = msgspec.json.decode(path.read_bytes())
    (held if field in held else held["batch"])[field] = value
    path.write_bytes(msgspec.json.encode(held))
    with pytest.raises(ArenaError, match="P4010"):
        read_batch(path)


# -- partition files, sealing ahead, disclosure: pools come from one signed manifest, batches and releases keep to it


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
    dealt = sealing.deal(unpartitioned(problems), 4, 4)
    ids = [problem.problem_id for one in dealt for problem in one.problems]
    assert len(set(ids)) == len(ids) == 16
    assert all([p.bucket for p in one.problems].count("product") == 2 for one in dealt)
    assert dealt == sealing.deal(unpartitioned(FRESH), 4, 4)


def test_too_few_and_repeated_problems_are_refused_and_sealed_ones_passed_over():
    with pytest.raises(ArenaError, match=r"P4014.*16 problems are left to race, 4 races take 20"):
        sealing.deal(unpartitioned(FRESH), 4, 5)
    with pytest.raises(ArenaError, match="P4009"):
        sealing.deal(unpartitioned([*FRESH, FRESH[0]]), 4, 4)
    first = sealing.deal(unpartitioned(FRESH), 1, 4)[0].problems
    used = {problem.problem_id for problem in first}
    second = sealing.deal(unpartitioned(FRESH), 1, 4, used)[0].problems
    assert not used & {problem.problem_id for problem in second}


def test_each_batch_is_locked_to_the_round_after_its_close_under_a_salt_of_its_own(path):
    assigned = assign(path, FRESH, OPERATOR, verify)
    beacon, timelock = LocalBeacon(lambda: 0), LocalTimelock()
    files = list(
        sealing.lock_all(
            sealing.deal(assigned, 4, 4),
            CLOSES_MS,
            timelock=timelock,
            beacon=beacon,
            signer=OPERATOR,
            random_bytes=random.Random(1).randbytes,
            now_ms=lambda: 5,
        )
    )
    assert [file.notice.race_id for file in files] == [sealing.race_named(close_ms) for close_ms in CLOSES_MS]
    assert all(file.notice.partition_sha256 == assigned.partition_sha256 for file in files)
    opened = []
    for file, close_ms in zip(files, CLOSES_MS, strict=True):
        assert timelock.opens_ms(file.notice.round - 1) <= close_ms < timelock.opens_ms(file.notice.round)
        opened.append(sealing.open_batch(file, local_round(file.notice.round), timelock=timelock))
    assert len({batch.salt for batch in opened}) == 4
    ids = [problem.problem_id for batch in opened for problem in batch.problems]
    assert len(set(ids)) == len(ids)


# -- disclosure
FRESH_BATCH = seal("race-1", FRESH[:3], bytes(range(32)), partition_sha256="ab" * 32)
FRESH_RECORD = ReleaseRecord(
    race_id="race-1",
    batch_sha256=FRESH_BATCH.batch_sha256,
    partition_sha256=FRESH_BATCH.partition_sha256,
    problems=FRESH_BATCH.released_problems,
    salt=FRESH_BATCH.salt,
)


def checked(record: ReleaseRecord = FRESH_RECORD, batch=FRESH_BATCH):
    return check_release(record, FRESH_BATCH.public, batch)


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
        {"problems": FRESH_RECORD.problems[:2]},
        {"problems": FRESH_RECORD.problems[::-1]},
        {"problems": (replace(FRESH_RECORD.problems[0], cluster_id="00" * 32), *FRESH_RECORD.problems[1:])},
        {"problems": (replace(FRESH_RECORD.problems[0], problem_id="p_other"), *FRESH_RECORD.problems[1:])},
    ],
)
def test_a_release_that_opens_something_else_is_named_without_the_batch(change):
    assert not checked(replace(FRESH_RECORD, **change), batch=None).is_ok


def test_pools_and_problems_are_checked_against_the_batch():
    moved = replace(FRESH_RECORD, problems=(replace(FRESH_RECORD.problems[0], pool="eval"), *FRESH_RECORD.problems[1:]))
    assert not checked(moved).is_ok
    other = seal("race-1", FRESH[3:6], bytes(range(32)), partition_sha256="ab" * 32)
    assert checked(batch=other).batch == "broken"


# -- sealed batch files: signed, public in their notice alone, unreadable before their round, and what they committed
# to after it


IN_POOLS = seal("race-1", PROBLEMS, SALT, pools=("train", "eval", "dev"), partition_sha256="ab" * 32)
ROUND = 1


def locked(stand: Stand, batch=IN_POOLS, signer=OPERATOR) -> sealing.SealedFile:
    return sealing.lock_batch(batch, ROUND, timelock=stand.timelock, signer=signer, made_ms=1_800_000_000_000)


@pytest.fixture(params=STANDS)
def stand(request: pytest.FixtureRequest) -> Stand:
    return STANDS[request.param]


def code_of(caught: pytest.ExceptionInfo[ArenaError]) -> str:
    return caught.value.failure.code


# -- when it opens
def test_accepted_titles_lie_inside_and_cannot_be_read_before_the_round(stand):
    sealed = locked(stand, TITLED)
    held, public = msgspec.json.encode(sealed), sealing.notice_bytes(sealed)
    assert sealed.notice.titles == "qwen@bank-1"  # the matcher's name alone
    for secret in (b"31415926", *(title.encode() for title in TITLES.accepted)):
        assert secret in msgspec.json.encode(TITLES)
        assert secret not in sealed.ciphertext and secret not in held and secret not in public
    with pytest.raises(ArenaError, match=r"V2085.*race-1 opens at .*, round 1"):
        sealing.open_batch(sealed, None, timelock=stand.timelock)
    assert sealing.open_batch(sealed, stand.published, timelock=stand.timelock).titles == TITLES


def test_a_content_other_than_the_notice_committed_to_is_refused(stand):
    promised = locked(stand)
    for batch in (
        seal("race-2", PROBLEMS, bytes(range(32)), pools=IN_POOLS.pools, partition_sha256="ab" * 32),
        seal("race-1", PROBLEMS, bytes(32), pools=IN_POOLS.pools, partition_sha256="ab" * 32),
        seal("race-1", PROBLEMS, SALT, pools=("train",) * 3, partition_sha256="ab" * 32),
        seal("race-1", PROBLEMS, SALT, pools=IN_POOLS.pools, partition_sha256="cd" * 32),
        seal("race-1", PROBLEMS[:2], bytes(range(32)), pools=IN_POOLS.pools[:2], partition_sha256="ab" * 32),
        replace(IN_POOLS, titles=TITLES),
    ):
        swapped = sealing.SealedFile(signed=promised.signed, ciphertext=locked(stand, batch).ciphertext)
        with pytest.raises(ArenaError) as caught:
            sealing.open_batch(swapped, stand.published, timelock=stand.timelock)
        assert code_of(caught) == "P4010"


# -- integrity and signature


def test_a_file_of_another_key_is_refused_whatever_it_says_of_itself(stand):
    foreign = locked(stand, signer=STRANGER)
    with pytest.raises(ArenaError, match="P4010"):
        sealing.decode_sealed(msgspec.json.encode(foreign), OPERATOR.hotkey, verify, "f")
    posing = replace(foreign.notice, signer=OPERATOR.hotkey)
    signed = sealing.SignedNotice(notice=posing, signature=STRANGER.sign(b"anything").hex())
    with pytest.raises(ArenaError, match=r"P4010.*the signature does not fit"):
        sealing.decode_sealed(msgspec.json.encode(replace(foreign, signed=signed)), OPERATOR.hotkey, verify, "f")


# -- at rest, whatever the file of a bank


def lay(kind: str, folder: Path) -> tuple[Path, Callable[[Path], object], object]:
    """Where it lies, how it is read, and what it holds."""
    path = folder / "file"
    if kind == "batch":
        write_batch(path, TITLED)
        return path, read_batch, TITLED
    if kind == "sealed":
        sealed = locked(STANDS["local"])
        sealing.write_sealed(path, sealed)
        return path, lambda path: sealing.read_sealed(path, OPERATOR.hotkey, verify), sealed
    write_partition(path, MANIFEST, KEY, OPERATOR)
    if kind == "partition":
        return path, lambda path: read_partition(path, verify).manifest, MANIFEST
    public = folder / "partitions" / f"{MANIFEST.sha256}.json"
    assert KEY.hex().encode() not in public.read_bytes()
    return public, lambda path: read_public_manifest(path, OPERATOR.hotkey, verify), MANIFEST


@pytest.mark.parametrize("kind", ["batch", "sealed", "partition", "public partition"])
def test_a_file_reads_back_equal_is_its_owners_and_is_refused_torn_or_with_a_flipped_byte(kind, tmp_path):
    path, read, held = lay(kind, tmp_path)
    assert read(path) == held
    assert kind == "public partition" or stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_bytes()
    for place in (-1, *range(0, len(content), 7)):
        damaged = bytearray(content[:-9] if place < 0 else content)
        damaged[place] ^= 1 << place % 7
        path.write_bytes(damaged)
        with pytest.raises(ArenaError) as caught:
            read(path)
        assert code_of(caught) in ("P4001", "P4003", "P4010", "P4026"), place
    path.unlink()
    with pytest.raises(ArenaError, match=f"P4001.*{path.name}"):
        read(path)


# -- the bank: a race, a batch, once, opened by its round and by nothing else


CATALOGUE = make_catalogue(160)
SETS = [problems_of(CATALOGUE, number) for number in (1, 2, 3)]
BEACON = LocalBeacon(lambda: 10**12)
ROUNDS = (101, 102, 103)


def put(folder: Path, name: str, problems: Sequence[Problem], opens_with: int, signer=OPERATOR, **more: object) -> None:
    """A sealed file of the operator in a node's folder."""
    sealed = sealing.lock_batch(
        seal(name, problems, bytes(range(32)), **more), opens_with, timelock=TIMELOCK, signer=signer, made_ms=5_000
    )
    folder.mkdir(exist_ok=True)
    sealing.write_sealed(folder / f"{name}.sealed.json", sealed)


def sealed_bank(folder: Path, *, is_real: bool = False) -> Bank:
    return Bank(folder, OPERATOR.hotkey, verify, TIMELOCK, BEACON, is_real=is_real)


def filled_sealed(folder: Path) -> Bank:
    for name, problems, opens_with in zip("abc", SETS, ROUNDS, strict=True):
        put(folder, name, problems, opens_with)
    return sealed_bank(folder)


def test_a_race_keeps_its_batch_and_opens_it_with_its_round(tmp_path):
    bank = filled_sealed(tmp_path / "bank")
    described = bank.notice_for("race-1", 3, round_number=101)
    assert bank.notice_for("race-1", 3, round_number=101) == described
    bank.open("race-1", local_round(101))
    bank.open("race-1", local_round(101))
    batch = bank.batch("race-1")
    assert batch is bank.batch("race-1")  # what did not change is not read again
    assert batch.public == described.batch and batch.problems == SETS[0]
    with pytest.raises(ArenaError, match=r"P4014.*b of .* holds 3 problems, a race draws 4"):
        bank.notice_for("race-2", 4, round_number=102)


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
    notice = bank.notice_for("race-000001", 3, round_number=101)
    assert bank.notice_for("race-000001", 3, round_number=101) == notice  # made once
    bank.open("race-000001", local_round(101))
    assert bank.batch("race-000001").public == notice.batch
    assert bank.level((), 0).is_made_here and not filled_sealed(tmp_path / "other").level((), 0).is_made_here
    (tmp_path / "bank" / "old.batch.json").write_bytes(b"{")
    with pytest.raises(ArenaError, match=r"P4001.*old\.batch\.json"):
        bank.notice_for("race-000002", 3, round_number=102)


def test_a_batch_serves_the_race_of_its_round_and_no_other(tmp_path):
    bank = filled_sealed(tmp_path / "bank")
    notice = bank.notice_for("race-1", 3, round_number=102)
    assert [each.problem_id for each in notice.problems] == [problem.problem_id for problem in SETS[1]]
    with pytest.raises(ArenaError, match=r"P4014.*round 104 of local-beacon: no file"):
        bank.notice_for("race-1", 3, round_number=104)
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
            bank.notice_for("race-1", 3, round_number=opens_with)
    assert bank.notice_for("race-1", 3, round_number=102).titles == titles.name
    bank.open("race-1", local_round(102))
    assert bank.batch("race-1").titles == titles


def test_a_file_of_another_key_serves_no_race_and_hides_no_good_one(tmp_path):
    folder = tmp_path / "bank"
    put(folder, "foreign", SETS[0], 101, STRANGER)
    with pytest.raises(ArenaError, match="P4010"):
        sealed_bank(folder).notice_for("race-1", 3, round_number=101)
    put(folder, "good", SETS[1], 101)
    (folder / "torn.sealed.json").write_bytes(b"{")
    assert sealed_bank(folder).notice_for("race-1", 3, round_number=101).race_id == "good"


def test_two_batches_for_one_round_are_refused_since_validators_could_choose_differently(tmp_path):
    folder = tmp_path / "bank"
    put(folder, "a", SETS[0], 101)
    put(folder, "b", SETS[1], 101)
    with pytest.raises(ArenaError, match=r"P4014.*a\.sealed\.json, b\.sealed\.json"):
        sealed_bank(folder).notice_for("race-1", 3, round_number=101)


def test_a_problem_that_was_raced_never_comes_back_by_its_id(tmp_path):
    folder = tmp_path / "bank"
    put(folder, "a", SETS[0], 101)
    put(folder, "b", (*SETS[1], SETS[0][0]), 102)
    bank = sealed_bank(folder)
    bank.open("race-1", local_round(101))
    with pytest.raises(ArenaError, match=f"P4029.*{SETS[0][0].problem_id} of b was raced in a"):
        bank.notice_for("race-2", 3, round_number=102)
    assert bank.notice_for("race-1", 3, round_number=101).race_id == "a"  # its own batch is no earlier one


def test_a_problem_that_was_raced_never_comes_back_under_another_id(tmp_path):
    folder = tmp_path / "bank"
    put(folder, "a", SETS[0], 101)
    put(folder, "b", (*SETS[1], replace(SETS[0][2], problem_id="p_new")), 102)
    bank = sealed_bank(folder)
    bank.open("race-1", local_round(101))
    bank.notice_for("race-2", 3, round_number=102)
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
    closes_ms = [close for _, close in zip(range(4), shared_closes_ms(now_ms, PAPER.race), strict=False)]
    for day in (0, 1, 3):
        put(folder, f"day-{day}", SETS[0], BEACON.round_after(closes_ms[day]))
    level = sealed_bank(folder).level(closes_ms, now_ms)
    assert (level.races, level.lasts_ms) == (2, closes_ms[2] - now_ms)
