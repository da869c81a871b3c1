"""Sealed batches: what they commit to, how they lie on disk, and when anything may leave."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from arena.bank.batch import read_batch, seal, write_batch
from foundation.errors import ArenaError
from problems.clusters import cluster_id
from problems.formats import problem_bytes
from problems.titles import AcceptedTitles, reward_titles
from tests.problems.stand import PROBLEMS

SALT = bytes(range(32))
BATCH = seal("race-1", PROBLEMS, SALT)
TITLES = AcceptedTitles(
    name="qwen@bank-1", accepted={title: frozenset({"7", "101"}) for title in sorted(reward_titles(PROBLEMS))}
)
TITLED = seal("race-1", PROBLEMS, SALT, titles=TITLES)
replace = msgspec.structs.replace


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


# -- on disk (as every file of a bank: test_bank_sealed)


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
