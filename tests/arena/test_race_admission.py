"""Who is let into a race: counted words of gates, cooldowns and suites, with liars in both directions.

Ground truth is a table of what honest gates and suites say of each submission; liars say by chance the opposite or
anything, also of submissions that nobody made.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from arena.chain.port import Commitment
from arena.policies import PAPER
from arena.race.admission import RaceRecords, field_standings, next_word, outcome_at, select_candidates
from arena.records.log import agent_version_id
from arena.records.model import Candidate, GateRecord, Origin, Payload, Subject
from arena.submissions.submission import commitment_order, hashes_before, neighbourhood
from tests.arena import race_stand as stand

SUITE, CLOSING, HOUR = ("p0", "p1"), 20_000, 300  # an hour in blocks
RULES = replace(stand.policy(), admission=PAPER.admission, cooldown=PAPER.cooldown)
NAMES = ("val-a", "val-b", "val-c", "val-d", "val-e")
Logs = Mapping[str, list[Payload]]


def submission(name: str, source: str, block: int) -> Subject:
    sha256 = stand.digest("source", source)
    return Subject(
        agent_version_id=agent_version_id(f"hk-{name}", sha256),
        miner_hotkey=f"hk-{name}",
        agent_sha256=sha256,
        commitment_block=block,
        commitment_sha256=stand.digest("commitment", name, source),
    )


def said(subject: Subject, outcome: str, severity: str = "", hold: str = "", **more: Any) -> GateRecord:
    about = {"policy_sha256": stand.hash_of(RULES), "decided_by": "gate"} | more
    return GateRecord(subject=subject, outcome=outcome, severity=severity, hold=hold, **about)


def suite_rows(validator: str, subject: Subject, is_passed: bool = True) -> list[Payload]:
    """A whole suite of qualifying records."""
    rows: list[Payload] = []
    for problem in SUITE:
        who = Candidate(subject=subject, qualifying_score_e4=0)
        record = stand.evaluation(RULES, who, problem, validator, is_success=is_passed, stage="qualifying")
        rows += [record, stand.verdict(RULES, record)]
    return rows


def standings(logs: Logs, permitted: Iterable[str], committed: Iterable[Subject], order: Iterable[str] = ()):
    """What a validator that reads these logs in that order makes of them; each slot holds the last commitment."""
    records = RaceRecords()
    for validator in order or sorted(logs):
        for seq, payload in enumerate(logs[validator], 1):
            records.take(validator, seq, stand.digest(validator, seq), payload)
    slots = {
        each.miner_hotkey: Commitment(
            hotkey=each.miner_hotkey, sha256=each.commitment_sha256, block=each.commitment_block
        )
        for each in sorted(committed, key=commitment_order)
        if each.commitment_block <= CLOSING
    }
    return field_standings(records, permitted, slots.values(), CLOSING, SUITE, RULES)


def field_of(rows) -> tuple[str, ...]:
    found = [row.candidate for row in rows if row.candidate is not None]
    return tuple(each.subject.agent_version_id for each in select_candidates(found, CLOSING))


def ids(*subjects: Subject) -> tuple[str, ...]:
    return tuple(sorted(each.agent_version_id for each in subjects))


GOOD, WEAK = submission("good", "good", 100), submission("weak", "weak", 110)
EVIL, COPY, NEAR = submission("evil", "evil", 120), submission("copy", "good", 140), submission("near", "near", 150)
TRUTH = {
    GOOD: ("accept",),
    WEAK: ("accept",),  # and fails the suite
    EVIL: ("reject", "integrity"),
    COPY: ("reject", "integrity"),
    NEAR: ("review", "", "likeness"),
}


def honest(name: str, truth: Mapping[Subject, tuple[str, ...]] = TRUTH) -> list[Payload]:
    return [
        payload
        for subject, verdict in truth.items()
        for payload in (said(subject, *verdict), *suite_rows(name, subject, subject != WEAK))
    ]


def lies(name: str, chance: random.Random, aims: Iterable[Subject]) -> list[Payload]:
    """Often the opposite of what is so, else anything; of real submissions, moved ones, and `aims`."""
    log: list[Payload] = []
    moved = [replace(each, commitment_block=max(1, each.commitment_block - chance.randrange(400))) for each in TRUTH]
    for target in [*TRUTH, *chance.sample(moved, 2), *aims]:
        is_good = TRUTH.get(target, ("accept",))[0] == "accept"
        outcome = chance.choice(["reject" if is_good else "accept"] * 3 + ["accept", "reject", "review"])
        severity = chance.choice(["integrity", "security", "form"]) if outcome == "reject" else ""
        log.append(said(target, outcome, severity, "likeness" if outcome == "review" else ""))
        if outcome == "review":
            log.append(said(target, chance.choice(["accept", "reject"]), decided_by="person"))
        log += suite_rows(name, target, target != GOOD and chance.random() < 0.8)
    return log


def world(count: int, liars: int, seed: int, aims: Iterable[Subject] = ()) -> dict[str, list[Payload]]:
    chance = random.Random(seed)
    logs = {name: honest(name) for name in NAMES[:count]}
    return logs | {name: lies(name, chance, aims) for name in NAMES[count : count + liars]}


@pytest.mark.parametrize(("count", "liars"), [(1, 0), (2, 0), (2, 1), (3, 1), (4, 1), (3, 2)])
def test_liars_below_the_threshold_let_nobody_in_and_keep_nobody_out_in_any_order_of_logs(count, liars):
    for seed in range(12):
        logs, chance = world(count, liars, seed), random.Random(seed)
        for _ in range(3):
            order = chance.sample(sorted(logs), len(logs))
            assert field_of(standings(logs, NAMES[: count + liars], TRUTH, order)) == ids(GOOD), seed


def test_what_two_of_five_make_up_is_no_submission():
    """A source that only the liars were given, of a victim's hotkey or of a friend's: nobody else ever said a word."""
    hidden, victim = submission("friend", "evil twin", 60), replace(GOOD, commitment_block=90)
    false = submission("good", "never seen", 95)  # as if the victim had just submitted, so that its agent is too early
    for seed in range(8):
        logs = world(3, 2, seed, aims=(hidden, victim, false))
        for liar in NAMES[3:5]:
            for made_up in (hidden, victim, false):
                logs[liar] += [said(made_up, "accept"), *suite_rows(liar, made_up)]
        assert field_of(standings(logs, NAMES, [*TRUTH, hidden])) == ids(GOOD)


def test_words_of_strangers_and_of_another_policy_do_not_count():
    only = {GOOD: TRUTH[GOOD]}
    logs = {name: honest(name, only) for name in ("val-a", "stranger", "other")}
    assert standings(logs, NAMES[:3], only) == ()  # one word of one validator: no submission at all
    (row,) = standings(logs | {name: [said(GOOD, "accept")] for name in NAMES[1:3]}, NAMES[:3], only)
    stands = row.standing
    assert (stands.accepts, stands.suite_passes, stands.suite_finished, row.candidate) == (3, 1, 1, None)
    old = {name: [said(GOOD, "accept", policy_sha256="0" * 64), *suite_rows(name, GOOD)] for name in NAMES[:3]}
    assert field_of(standings(old, NAMES[:3], only)) == ()


def test_what_a_submission_says_of_itself_is_checked_against_hash_and_chain():
    def fixed(who: Subject, committed: list[Subject]) -> tuple[str, ...]:
        return field_of(standings({name: honest(name, {who: ("accept",)}) for name in NAMES[:3]}, NAMES[:3], committed))

    early, late = replace(GOOD, commitment_block=3), submission("good", "good", CLOSING + 1)
    assert fixed(replace(GOOD, agent_sha256="00" * 32), [GOOD]) == fixed(late, [GOOD]) == ()
    assert fixed(early, []) == ()  # a hotkey that left the subnet
    assert fixed(early, [GOOD]) == ids(GOOD)  # committed again since: it stays


@pytest.mark.parametrize(
    ("verdict", "after", "is_in"),
    [
        (("reject", "integrity"), 12 * HOUR - 1, False),
        (("reject", "integrity"), 12 * HOUR, True),
        (("reject", "security"), HOUR - 1, False),
        (("reject", "security"), HOUR, True),
        (("reject", "form"), 1, True),
        (("accept",), 12 * HOUR - 1, False),
    ],
)
def test_a_cooldown_follows_from_commitments_and_counted_verdicts(verdict, after, is_in):
    first, second = submission("evil", "first", 100), submission("evil", "good again", 100 + after)
    logs = {name: [said(first, *verdict), said(second, "accept"), *suite_rows(name, second)] for name in NAMES[:2]}
    for lie in (("reject", "form"), ("reject", "integrity")):  # that it cost nothing, and that it cost all
        lying = [said(first, *lie), said(second, "accept"), *suite_rows("val-c", second)]
        field = field_of(standings(logs | {"val-c": lying}, NAMES[:3], [first, second]))
        assert (second.agent_version_id in field) is is_in
    rows = {row.subject: row.standing for row in standings(logs, NAMES[:2], [first, second])}
    assert (rows[second].state == "cooldown") is not is_in
    assert rows[second].allowed_block == (0 if is_in else 100 + (HOUR if "security" in verdict else 12 * HOUR))


ODD = submission("odd", "odd", CLOSING - RULES.admission.hold_blocks)


def is_held_in(subject: Subject, hold: str, decisions: str) -> bool:
    """Whether it races where three validators hold it, and persons there decided so (`-`: nothing)."""
    words = {"-": [], "a": [said(subject, "accept", decided_by="person")]}
    words["r"] = [said(subject, "reject", decided_by="person")]
    logs = {
        name: [said(subject, "review", "", hold), *suite_rows(name, subject), *words[decided]]
        for name, decided in zip(NAMES, decisions, strict=False)
    }
    return bool(field_of(standings(logs, NAMES[:3], [subject])))


@pytest.mark.parametrize(
    ("decisions", "is_in_before", "is_in_after"),
    [("---", False, True), ("aa-", True, True), ("r--", False, True), ("rr-", False, False), ("arr", False, False)],
)
def test_a_heuristic_hold_runs_out_unless_enough_persons_reject_and_one_for_likeness_does_not(
    decisions, is_in_before, is_in_after
):
    assert is_held_in(ODD, "heuristic", decisions) is is_in_after
    assert is_held_in(replace(ODD, commitment_block=ODD.commitment_block + 1), "heuristic", decisions) is is_in_before
    assert is_held_in(ODD, "likeness", decisions) is (decisions == "aa-")


def test_whose_an_agent_is_follows_from_most_words_and_of_equals_from_the_least():
    one, two = (Origin(owner=name, head="h", order=0) for name in ("ck-1", "ck-2"))
    late, lie = replace(two, order=5), Origin(owner="", head="", order=-1)
    for stated, expected in (
        ((one, two, two), two),
        ((two, one), one),
        ((two, UNSET, UNSET), two),
        ((two, two, late, lie, late), two),
        ((UNSET,) * 2, UNSET),
    ):
        logs = {
            name: [said(GOOD, "accept", origin=origin), *suite_rows(name, GOOD)]
            for name, origin in zip(NAMES, stated, strict=False)
        }
        (row,) = standings(logs, NAMES[: len(stated)], [GOOD])
        assert row.candidate.origin == expected


def test_a_persons_word_counts_for_the_hold_it_answered_and_no_other():
    held, person = said(ODD, "review", "", "heuristic"), said(ODD, "accept", decided_by="person")
    like, rejected = said(ODD, "review", "", "likeness"), said(ODD, "reject", "integrity")
    cases = {
        (held, person): "accept",
        (held, person, held): "accept",  # looked at again, and held for the same
        (held, person, like): "review",
        (held, person, rejected): "reject",
        (rejected, person): "reject",  # what is certain is no person's to decide
        (person, held): "review",
        (held, said(ODD, "review", decided_by="person")): "review",
    }
    for records, outcome in cases.items():
        word = None
        for record in records:
            word = next_word(word, record)
        assert outcome_at(word, ODD.commitment_block, RULES.admission) == outcome, records
    assert next_word(None, person) is None


def test_neighbours_are_those_committed_before_and_a_revealed_winner_is_told_apart():
    own, winner, at = submission("near", "older", 90), GOOD.agent_version_id, NEAR.commitment_block
    around = neighbourhood(NEAR, [*TRUTH, own])
    assert around.others == (own, GOOD, WEAK, EVIL, COPY)
    plain = neighbourhood(NEAR, TRUTH).sha256
    assert around.sha256 != plain
    beside = replace(GOOD, commitment_block=at)  # of one block: who was first says the chain
    assert (neighbourhood(beside, [NEAR]).others, neighbourhood(NEAR, [beside]).others) == ((NEAR,), (beside,))
    for block, winners in ((at, (GOOD,)), (at + 1, ())):
        around = neighbourhood(NEAR, TRUTH, {winner: block})
        assert (around.winners, around.sha256 != plain) == (winners, bool(winners))
        assert around.sha256 == hashes_before(TRUTH, {winner: block})[NEAR.agent_version_id]
