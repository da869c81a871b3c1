"""Who is let into a race: counted words of gates, cooldowns and suites, with liars in both directions."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from arena.race.admission import asked_count, more_than_half, outcome_at, select_candidates, words_floor
from arena.records.model import Subject
from arena.submissions.admission import commitment_order, hashes_before, neighbourhood
from tests.arena.admission_stand import (
    CLOSING,
    HOUR,
    RULES,
    Honest,
    Liar,
    field_of,
    last_word,
    said,
    slots_of,
    standings,
    submission,
    suite_rows,
)
from tests.arena.agreement_world import HOUR_MS, PLAN, run

NAMES = ("val-a", "val-b", "val-c", "val-d", "val-e")


def world(miners: dict[Subject, str], honest: int, liars: int, seed: int = 0, aims: tuple[Subject, ...] = ()):
    """Logs of validators after every source reached each of them, in an order of its own."""
    chance = random.Random(seed)
    validators: list[Honest] = [Honest(name, miners) for name in NAMES[:honest]]
    sources = miners | dict.fromkeys(aims, "good")
    validators += [Liar(name, sources, chance, list(aims)) for name in NAMES[honest : honest + liars]]
    for validator in validators:
        for subject in chance.sample(list(miners), len(miners)):
            validator.receive(subject)
    return {validator.name: validator.log for validator in validators}


def agreed(logs, miners, seed: int = 0, permitted=None) -> tuple[str, ...]:
    """The one field that everybody fixes, whatever the order in which it reads the logs."""
    chance, found = random.Random(seed), set()
    for _ in range(3):
        order = chance.sample(sorted(logs), len(logs))
        found.add(field_of(standings(logs, permitted or tuple(logs), slots_of(miners), order)))
    (field,) = found
    return field


def ids(*subjects: Subject) -> tuple[str, ...]:
    return tuple(sorted(each.agent_version_id for each in subjects))


# -- the numbers
@pytest.mark.parametrize(
    ("permits", "floor", "at_once", "of_all"), [(1, 1, 1, 1), (2, 2, 2, 2), (3, 2, 3, 2), (4, 2, 4, 3), (5, 2, 5, 3)]
)
def test_how_many_words_it_takes(permits, floor, at_once, of_all):
    assert words_floor(RULES, permits) == floor
    assert asked_count(RULES, permits) == at_once
    assert more_than_half(permits, floor) == of_all


# -- one who lies, and more
GOOD, WEAK = submission("good", "good", 100), submission("weak", "weak", 110)
EVIL, UNSAFE = submission("evil", "evil", 120), submission("unsafe", "unsafe", 130)
COPY, NEAR = submission("copy", "good", 140), submission("near", "near good", 150)
MINERS = {GOOD: "good", WEAK: "weak", EVIL: "evil", UNSAFE: "unsafe", COPY: "good", NEAR: "near good"}


@pytest.mark.parametrize(("honest", "liars"), [(1, 0), (2, 0), (3, 0), (2, 1), (3, 1), (4, 1), (3, 2)])
def test_liars_below_the_threshold_let_nobody_in_and_keep_nobody_out(honest, liars):
    for seed in range(12):
        assert agreed(world(MINERS, honest, liars, seed), MINERS, seed) == ids(GOOD)


def test_what_two_of_five_make_up_is_no_submission():
    """A source that only the liars were given, of a victim's hotkey or of a friend's: nobody else ever said a word."""
    hidden, victim = submission("friend", "evil twin", 60), replace(GOOD, commitment_block=90)
    false = submission("good", "never seen", 95)  # as if the victim had just submitted, so that its agent is too early
    for seed in range(8):
        logs = world({GOOD: "good"}, 3, 2, seed, aims=(hidden, victim, false))
        for liar in NAMES[3:5]:
            for made_up in (hidden, victim, false):
                logs[liar] += [said(made_up, "accept"), *suite_rows(liar, made_up, True, 99)]
        slots = slots_of([GOOD, hidden])
        assert field_of(standings(logs, NAMES, slots)) == ids(GOOD)


def test_words_of_strangers_and_of_another_policy_do_not_count():
    logs = world({GOOD: "good"}, 1, 0) | {
        name: [said(GOOD, "accept"), *suite_rows(name, GOOD, True, 1)] for name in ("stranger", "other")
    }
    assert standings(logs, NAMES[:3], slots_of([GOOD])) == ()  # one word of one validator: no submission at all
    logs = {name: [said(GOOD, "accept")] for name in NAMES[:3]} | {"stranger": [], "other": []}
    for name in ("val-a", "stranger", "other"):
        logs[name] += suite_rows(name, GOOD, True, 1)
    (row,) = standings(logs, NAMES[:3], slots_of([GOOD]))
    stands = row.standing
    assert (stands.accepts, stands.suite_passes, stands.suite_finished, row.candidate) == (3, 1, 1, None)
    old = {name: [said(GOOD, "accept", policy_sha256="0" * 64)] for name in NAMES[:3]}
    for name in old:
        old[name] += suite_rows(name, GOOD, True, 1)
    assert field_of(standings(old, NAMES[:3], slots_of([GOOD]))) == ()


def test_what_a_submission_says_of_itself_is_checked_against_hash_and_chain():
    forged = replace(GOOD, agent_sha256="00" * 32)
    early, late = replace(GOOD, commitment_block=3), submission("good", "good", CLOSING + 1)
    for who in (forged, late):
        logs = {name: [said(who, "accept"), *suite_rows(name, who, True, 1)] for name in NAMES[:3]}
        assert field_of(standings(logs, NAMES[:3], slots_of([GOOD, WEAK]))) == ()
    logs = {name: [said(early, "accept"), *suite_rows(name, early, True, 1)] for name in NAMES[:3]}
    assert field_of(standings(logs, NAMES[:3], {})) == ()  # a hotkey that left the subnet
    assert field_of(standings(logs, NAMES[:3], slots_of([GOOD]))) == ids(GOOD)  # committed again since: it stays


# -- order and time


def test_a_validator_that_begins_late_or_misses_sources_changes_nothing():
    newer = submission("good", "good two", 100 + 20 * HOUR)  # GOOD's slot holds this one by now
    miners = MINERS | {newer: "good two"}
    logs = world(miners, 2, 0)
    newcomer = Honest("val-c", miners)
    for subject in (newer, NEAR):  # it never saw what NEAR is like, nor the older version
        newcomer.receive(subject)
    assert agreed(logs | {"val-c": newcomer.log}, miners) == agreed(logs, miners, permitted=NAMES[:3]) == ids(GOOD)


def test_neighbours_are_those_committed_before():
    own = submission("near", "older", 90)
    around = neighbourhood(NEAR, [*MINERS, own])
    assert around.others == (own, GOOD, WEAK, EVIL, UNSAFE, COPY)
    assert around.sha256 == hashes_before([*MINERS, own])[NEAR.agent_version_id]
    assert around.sha256 != neighbourhood(NEAR, list(MINERS)).sha256
    same_block = replace(GOOD, commitment_block=NEAR.commitment_block)
    first, second = sorted((same_block, NEAR), key=commitment_order)
    assert neighbourhood(second, [first]).others == (first,) and neighbourhood(first, [second]).others == ()


# -- cooldown
def again(block: int, source: str = "good again") -> Subject:
    return submission("evil", source, block)


@pytest.mark.parametrize(
    ("source", "after", "is_in"),
    [
        ("evil", 12 * HOUR - 1, False),
        ("evil", 12 * HOUR, True),
        ("unsafe", HOUR - 1, False),
        ("unsafe", HOUR, True),
        ("broken", 1, True),
        ("weak", 12 * HOUR - 1, False),
    ],
)
def test_a_cooldown_follows_from_commitments_and_counted_verdicts(source, after, is_in):
    first = submission("evil", source, 100)
    second = again(100 + after)
    miners = {first: source, second: "good again"}
    logs = world(miners, 2, 0)
    # in both directions: that it cost nothing, and that it cost all
    for liar in ([said(first, "reject", "form")], [said(first, "reject", "integrity")], [said(first, "accept")]):
        lying = [*liar, said(second, "accept"), *suite_rows("val-c", second, True, 1)]
        field = field_of(standings(logs | {"val-c": lying}, NAMES[:3], slots_of(miners)))
        assert (second.agent_version_id in field) is is_in
    rows = {row.subject: row.standing for row in standings(logs, NAMES[:2], slots_of(miners))}
    assert (rows[second].state == "cooldown") is not is_in
    assert rows[second].allowed_block == (0 if is_in else 100 + (12 * HOUR if source != "unsafe" else HOUR))


# -- holds
ODD = submission("odd", "odd", CLOSING - RULES.admission.hold_blocks)


def holds(subject: Subject, hold: str, decisions: tuple[str, ...]):
    """Three validators that hold it, and what persons there decided (`-`: nothing)."""
    logs = {}
    for name, decided in zip(NAMES, decisions, strict=False):
        logs[name] = [said(subject, "review", "", hold), *suite_rows(name, subject, True, 1)]
        logs[name] += [said(subject, decided, decided_by="person")] if decided != "-" else []
    return standings(logs, NAMES[:3], slots_of([subject]))


@pytest.mark.parametrize(
    ("decisions", "is_in_before", "is_in_after"),
    [
        (("-", "-", "-"), False, True),
        (("accept", "-", "-"), False, True),
        (("accept", "accept", "-"), True, True),
        (("reject", "-", "-"), False, True),
        (("reject", "reject", "-"), False, False),
        (("accept", "reject", "reject"), False, False),
    ],
)
def test_a_heuristic_hold_runs_out_into_admission_unless_enough_persons_reject(decisions, is_in_before, is_in_after):
    assert bool(field_of(holds(ODD, "heuristic", decisions))) is is_in_after
    fresh = replace(ODD, commitment_block=ODD.commitment_block + 1)
    assert bool(field_of(holds(fresh, "heuristic", decisions))) is is_in_before


@pytest.mark.parametrize(
    ("decisions", "is_in"), [(("-", "-", "-"), False), (("accept", "-", "-"), False), (("accept", "accept", "-"), True)]
)
def test_a_hold_for_likeness_runs_out_into_nothing(decisions, is_in):
    assert bool(field_of(holds(ODD, "likeness", decisions))) is is_in


def test_a_persons_word_counts_for_the_hold_it_answered_and_no_other():
    held, person = said(ODD, "review", "", "heuristic"), said(ODD, "accept", decided_by="person")
    like, rejected = said(ODD, "review", "", "likeness"), said(ODD, "reject", "integrity")
    block = ODD.commitment_block
    cases = {
        (held, person): "accept",
        (held, person, held): "accept",  # looked at again, and held for the same
        (held, person, like): "review",
        (held, person, rejected): "reject",
        (rejected, person): "reject",  # what is certain is no person's to decide
        (person, held): "review",
        (held, said(ODD, "reject", decided_by="person")): "reject",
        (held, said(ODD, "review", decided_by="person")): "review",
    }
    for records, outcome in cases.items():
        assert outcome_at(last_word(records), block, RULES.admission) == outcome, records
    assert last_word([person]) is None


# -- by chance
def test_random_liars_below_the_threshold_change_no_field():
    """Ground truth by itself: good sources, first of their code, out of their hotkey's cooldown."""
    chance = random.Random(15)
    for seed in range(60):
        miners: dict[Subject, str] = {}
        allowed: dict[str, int] = {}
        racing: dict[str, Subject] = {}
        for block in sorted(chance.sample(range(100, 9_000), 10)):
            name = f"m{chance.randrange(6)}"
            source = chance.choice(["good", "good x", "good y", f"good {block}", "weak", "evil", "unsafe", "broken"])
            who = submission(name, source, block)
            if any(who.agent_version_id == other.agent_version_id for other in miners) or block < allowed.get(name, 0):
                continue
            others = {earlier for other, earlier in miners.items() if other.miner_hotkey != who.miner_hotkey}
            miners[who] = source
            allowed[name] = block + {"unsafe": HOUR, "broken": 0}.get(source, 12 * HOUR)
            if source.startswith("good") and source not in others:
                racing.setdefault(name, who)
        honest, liars = chance.choice([(2, 1), (3, 1), (3, 2), (4, 1), (5, 0)])
        logs = world(miners, honest, liars, seed)
        assert agreed(logs, miners, seed) == ids(*racing.values()), seed
        assert {row.subject for row in standings(logs, NAMES[: honest + liars], slots_of(miners))} == set(miners)


# -- through the whole machine: which logs count is agreed on, too
@pytest.mark.parametrize(("honest", "liars"), [(3, 0), (2, 1), (3, 2), (4, 1)])
def test_honest_validators_fix_one_field_whatever_liars_say_show_and_anchor(honest, liars):
    names, fixed = NAMES[: honest + liars], 0
    for seed in range(10):
        logs = world(MINERS, honest, liars, seed)

        def field_of(counted, validators, logs=logs):
            kept = {log.validator: logs[log.validator] for log in counted}
            rows = standings(kept, validators, slots_of(MINERS))
            return select_candidates([row.candidate for row in rows if row.candidate], CLOSING)

        network = run(
            dict.fromkeys(names[:honest], 10),
            dict.fromkeys(names[honest:], 5),
            seed,
            loss=0.2,
            wakes_ms={"val-a": PLAN.closing_ms + HOUR_MS // 4 if seed % 2 else 0},
            field_of=field_of,
        )
        fields = [member.state.field.field for member in network.members.values() if member.state.field]
        assert all([each.subject for each in field] == [GOOD] for field in fields), seed
        fixed += len(fields)
    assert fixed >= 9 * honest


def test_a_winner_revealed_by_the_commitment_is_told_apart_and_stands_in_the_hash():
    winner, at = GOOD.agent_version_id, NEAR.commitment_block
    plain = neighbourhood(NEAR, MINERS)
    for block, winners in ((at - 1, (GOOD,)), (at, (GOOD,)), (at + 1, ())):
        around = neighbourhood(NEAR, MINERS, {winner: block})
        assert (around.winners, around.others) == (winners, plain.others)
        assert (around.sha256 != plain.sha256) is bool(winners)
        assert around.sha256 == hashes_before(MINERS, {winner: block})[NEAR.agent_version_id]
