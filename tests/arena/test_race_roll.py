"""Rolls, receipts, quorum and the timeline; closes and embargoes in local time, through both changes of clocks."""

from __future__ import annotations

import random
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.chain.port import Commitment, Metagraph, Neuron
from arena.policies import DEMO, PAPER, POLICIES
from arena.policy import EmbargoRules, RaceRules
from arena.race.agreement import (
    RACES_REMEMBERED,
    VALIDATORS_MAX,
    RollName,
    believed,
    compare_words,
    counted_roll,
    countersign_value,
    quorum_of,
    race_validators,
    read_receipt,
    receipt,
)
from arena.race.draw import is_work_due
from arena.race.machine import AnchoredLog, ChainRead, ProgressClaims, RaceState, coming_race
from arena.race.schedule import closing_ms, embargo_ends_ms, timeline, timeline_refusal
from tests.arena.race_stand import batch, candidate, digest, drawn_of, inputs, policy

VALIDATORS = tuple(sorted(f"val-{n:03}" for n in range(5)))
NAME = RollName(roll="results", race_id="race-000001", policy_sha256="", validators=VALIDATORS)


def slot(hotkey: str, sha256: str) -> Commitment:
    return Commitment(hotkey=hotkey, sha256=sha256, block=7)


def rolled(anchors, receipts, stakes, countersigned=()) -> RaceState:
    """A race of `NAME` under these stakes, with what the chain held at the moments of its results."""
    names = enumerate(sorted({*VALIDATORS, *stakes}))
    neurons = (
        Neuron(uid=n, hotkey=h, stake_rao=stakes.get(h, 0), has_validator_permit=h in VALIDATORS) for n, h in names
    )
    subnet = Metagraph(netuid=1, block=1, tempo=1, neurons=tuple(neurons))
    held = {"closing": (), "settling": anchors, "results_receipt": receipts, "countersign": countersigned}
    reads = (ChainRead(moment=at, block=7, commitments=tuple(rows), metagraph=subnet) for at, rows in held.items())
    return RaceState(race_id=NAME.race_id, reads=tuple(reads))


@given(st.sets(st.sampled_from(VALIDATORS)))
def test_a_receipt_says_which_logs_are_held_and_reads_back(held):
    written = receipt(NAME, held)
    assert len(written) == 64 and bytes.fromhex(written)
    assert read_receipt(NAME, written) == held


def test_a_receipt_of_another_roll_race_policy_or_field_of_validators_is_none():
    fields = {"roll": "field", "race_id": "race-000002", "policy_sha256": "aa" * 32, "validators": VALIDATORS[1:]}
    for name, other in fields.items():
        assert read_receipt(NAME, receipt(replace(NAME, **{name: other}), VALIDATORS[:2])) is None
    for text in ("", "zz", "ab" * 31, "ab" * 33, "ab" * 32, "é" * 64):
        assert read_receipt(NAME, text) is None


def test_more_validators_than_bits_are_refused_and_never_asked_for():
    neurons = tuple(
        Neuron(uid=uid, hotkey=f"hk-{uid:04}", has_validator_permit=True, stake_rao=uid) for uid in range(300)
    )
    chosen = race_validators(Metagraph(netuid=1, block=1, tempo=1, neurons=neurons))
    assert len(chosen) == VALIDATORS_MAX and list(chosen) == sorted(chosen)
    assert min(int(hotkey[3:]) for hotkey in chosen) == 300 - VALIDATORS_MAX  # the most stake
    name = RollName(roll="field", race_id="r", policy_sha256="", validators=tuple(f"v{n:03}" for n in range(129)))
    with pytest.raises(ValueError, match="129 validators"):
        receipt(name, [])


@given(st.lists(st.integers(1, 50), min_size=5, max_size=5), st.integers(0, 2**32))
def test_a_log_that_counts_is_held_by_somebody_honest_while_these_have_more_than_half(weights, seed):
    chance = random.Random(seed)
    stakes = dict(zip(VALIDATORS, weights, strict=True))
    liars: set[str] = set()
    for hotkey in chance.sample(VALIDATORS, 5):
        if 2 * (stakes[hotkey] + sum(stakes[liar] for liar in liars)) < sum(weights):
            liars.add(hotkey)
    holders = {hotkey: set(chance.sample(VALIDATORS, chance.randint(0, 5))) for hotkey in VALIDATORS}
    receipts = [slot(h, receipt(NAME, VALIDATORS if h in liars else holders[h])) for h in VALIDATORS]
    counted = counted_roll(rolled([slot(h, digest(h)) for h in VALIDATORS], receipts, stakes), "results")
    for log in counted.logs:
        assert any(log.validator in holders[hotkey] for hotkey in VALIDATORS if hotkey not in liars)


def test_exactly_half_of_the_stake_is_no_majority_and_strangers_and_the_stakeless_do_not_count():
    anchors = [slot(VALIDATORS[0], digest("log"))]
    stakes = {VALIDATORS[0]: 10, VALIDATORS[1]: 10, VALIDATORS[2]: 0}
    yes, no = receipt(NAME, VALIDATORS[:1]), receipt(NAME, [])
    half = [slot(VALIDATORS[0], yes), slot(VALIDATORS[1], no), slot(VALIDATORS[2], yes), slot("stranger", yes)]
    counted = counted_roll(rolled(anchors, half, {**stakes, "stranger": 99}), "results")
    assert counted.logs == () and counted.participating_rao == 20
    assert counted.participants == VALIDATORS[:2]
    counted = counted_roll(rolled(anchors, [slot(VALIDATORS[0], yes)], stakes), "results")
    assert counted.logs == (AnchoredLog(validator=VALIDATORS[0], note_sha256=digest("log")),)
    assert counted_roll(rolled(anchors, [], stakes), "results").logs == ()


def test_a_quorum_needs_more_than_half_of_those_who_took_part():
    receipts = [slot(hotkey, receipt(NAME, [])) for hotkey in VALIDATORS[:4]]
    stakes = dict.fromkeys(VALIDATORS, 10)
    value, other = countersign_value("race-000001", "aa" * 32), countersign_value("race-000001", "bb" * 32)
    half = [slot(VALIDATORS[0], value), slot(VALIDATORS[1], value), slot(VALIDATORS[2], other)]
    assert quorum_of(rolled([], receipts, stakes, half)) is None
    assert quorum_of(rolled([], receipts, stakes, [*half, slot(VALIDATORS[3], value)])) == value
    assert quorum_of(rolled([], receipts, stakes, [*half, slot(VALIDATORS[4], value)])) is None  # it took no part


# -- when
@pytest.mark.parametrize("name", ["paper", "sn15-2026-08", "agentic", "winner"])
def test_every_shipped_policy_leaves_time_to_agree_before_the_next_close(name):
    rules = POLICIES[name].race
    assert timeline_refusal(rules) is None
    assert "run_ms is 1;" in str(timeline_refusal(replace(rules, run_ms=1)))
    for window in ("reveal_ms", "agree_ms", "stand_in_ms"):
        assert f"{window} 1999" in str(timeline_refusal(replace(rules, **{window: 1_999})))
    plan = timeline(0, rules)
    moments = [
        plan.closing_ms,
        plan.field_anchor_ms,
        plan.field_receipt_ms,
        plan.settling_ms,
        plan.results_receipt_ms,
        plan.countersign_ms,
    ]
    assert moments == sorted(set(moments))
    assert plan.countersign_ms < 23 * 3_600_000  # the day that is an hour short
    commitment_limit_ms = 100 * 12_000
    # anchor, receipt and countersignature each find the slot free: no two windows lie nearer than the chain's limit
    assert plan.field_receipt_ms - 2 * plan.lead_ms - (plan.field_anchor_ms - plan.lead_ms) >= commitment_limit_ms
    assert plan.is_quiet(plan.settling_ms - plan.lead_ms - commitment_limit_ms)
    assert not plan.is_quiet(plan.closing_ms) and not plan.is_quiet(plan.countersign_ms)


# -- whose work


@given(st.permutations(VALIDATORS), st.integers(0, 5), st.sets(st.sampled_from(VALIDATORS)), st.integers(0, 40))
def test_a_stand_in_comes_later_the_further_back_it_stands_and_never_where_enough_is_done(order, asked, done, waited):
    order = tuple(order)
    for place, validator in enumerate(order):
        due = is_work_due(order, validator, asked, waited, 10, done)
        if place < asked:
            assert due
        else:
            before = sum(hotkey in done for hotkey in order[:place])
            assert due == (before < max(1, asked) and waited >= 10 * (place - asked + 1))
    assert not is_work_due(order, "stranger", asked, 10**9, 10, done)


PACIFIC = ZoneInfo("America/Los_Angeles")
HOUR_MS = 3_600_000
MOMENTS = st.integers(1_700_000_000_000, 1_900_000_000_000)


def at(text: str, zone: ZoneInfo = PACIFIC) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1000)


@pytest.mark.parametrize(
    ("opened", "minute", "closes"),
    [
        ("2026-08-03T12:00", 720, "2026-08-04T12:00"),
        ("2026-08-03T11:59", 720, "2026-08-03T12:00"),
        ("2026-03-07T12:00", 720, "2026-03-08T12:00"),  # clocks go forward: 23 hours
        ("2026-10-31T12:00", 720, "2026-11-01T12:00"),  # clocks go back: 25
        ("2026-03-08T00:00", 150, "2026-03-08T03:30"),  # a minute that the clocks skip
        ("2026-11-01T01:30", 90, "2026-11-02T01:30"),  # one that they repeat closes once
    ],
)
def test_a_race_closes_at_the_next_local_minute(opened, minute, closes):
    assert closing_ms(at(opened), RaceRules(closes_at_minute=minute)) == at(closes)


@given(MOMENTS, st.integers(0, 1_439))
def test_a_close_is_strictly_later_and_at_most_25_hours_away(opened_ms, minute):
    closes = closing_ms(opened_ms, RaceRules(closes_at_minute=minute))
    assert opened_ms < closes <= opened_ms + 25 * HOUR_MS


@pytest.mark.parametrize(
    ("promoted", "opens"),
    [
        ("2026-08-03T09:00", "2026-08-03T12:00"),  # Monday morning
        ("2026-08-03T12:00", "2026-08-04T12:00"),
        ("2026-08-07T12:00", "2026-08-10T12:00"),  # Friday noon to Monday
        ("2026-03-06T12:00", "2026-03-09T12:00"),  # over a change of clocks
        ("2026-11-01T01:30", "2026-11-02T12:00"),  # and back
        ("2027-12-31T12:00", "2028-01-03T12:00"),
    ],
)
def test_the_winners_source_opens_at_the_next_weekday_noon(promoted, opens):
    assert embargo_ends_ms(at(promoted), EmbargoRules()) == at(opens)


def test_the_next_race_is_counted_by_a_validator_alone_and_by_the_calendar_among_several():
    now_ms = at("2026-08-03T09:00")
    assert coming_race((), now_ms, DEMO) == ("race-000001", now_ms + 15_000)
    assert coming_race([RaceState(race_id="race-000001")], now_ms, DEMO)[0] == "race-000002"
    days = datetime(2026, 8, 3).toordinal() - datetime(2000, 1, 1).toordinal()
    assert coming_race((), now_ms, PAPER) == (f"race-{days:06}", at("2026-08-03T12:00"))


RULES = policy(validators_per_problem=3, results_required=2, stand_in_ms=10)
FIELD = tuple(candidate(name) for name in "abcdef")
BATCH, SEED = batch(), digest("seed")
DRAWN = drawn_of(RULES, BATCH)
PAIRS = frozenset((who.subject.agent_version_id, problem) for who in FIELD for problem in DRAWN)


def shown(*validators: str):
    """A race in which these did every pair, and their logs show it."""
    return inputs(FIELD, lambda *_: (True, 9_000), rules=RULES, validators=validators)


def test_a_word_is_kept_when_the_log_holds_all_that_was_said_and_broken_when_it_lacks_one_pair():
    (one, *_) = PAIRS
    said = {"val-a": PAIRS, "val-b": {one}, "val-c": {one}, "val-d": (), "val-e": {*PAIRS, ("v-a", "never drawn")}}
    words = compare_words(said, shown("val-a", "val-b", "val-d", "val-e"))
    assert words == ProgressClaims(kept=("val-a", "val-b"), broken=("val-c", "val-e"))


def test_a_success_without_a_verdict_bears_out_no_word():
    raced = inputs(FIELD, lambda *_: (True, None), rules=RULES, validators=("val-a",))
    assert compare_words({"val-a": PAIRS}, raced).broken == ("val-a",)


def test_nobody_is_believed_before_it_kept_its_word():
    assert believed([]) == frozenset()
    assert believed([ProgressClaims(), ProgressClaims(kept=("val-a",))]) == {"val-a"}


@pytest.mark.parametrize("races", [1, RACES_REMEMBERED - 1, RACES_REMEMBERED])
def test_who_broke_its_word_is_not_believed_until_it_is_forgotten_whatever_it_does_meanwhile(races):
    since = [ProgressClaims(kept=("val-a", "val-b"))] * races
    is_forgotten = races >= RACES_REMEMBERED
    assert believed([ProgressClaims(broken=("val-b",)), *since]) == ({"val-a", "val-b"} if is_forgotten else {"val-a"})
