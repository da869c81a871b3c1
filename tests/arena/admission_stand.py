"""Miners, validators and their gates as a small model: what honest ones say follows from a toy gate over real orders.

A source is a word or two: `good`, `weak` (fails the suite), `evil` (integrity), `unsafe` (security), `broken` (form),
`odd` (held by a heuristic), `near X` (like the source X of somebody else). Equal sources of two hotkeys: the later one
is rejected. Ground truth is computed here by itself, from what miners did.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from arena.chain.port import Commitment
from arena.policies import PAPER
from arena.policy import Policy
from arena.race.admission import FieldStanding, RaceRecords, field_standings, next_word, select_candidates
from arena.records.commitments import agent_version_id
from arena.records.model import Context, GateRecord, Payload, Subject
from arena.submissions.admission import commitment_order, neighbourhood
from tests.arena import race_stand as stand

SUITE = ("p0", "p1")
CLOSING = 20_000
RULES = replace(stand.policy(), admission=PAPER.admission, cooldown=PAPER.cooldown)
HOUR = 300  # blocks
_VERDICTS = {"evil": ("reject", "integrity"), "unsafe": ("reject", "security"), "broken": ("reject", "form")}


def submission(name: str, source: str, block: int) -> Subject:
    """What a hotkey commits to in a block."""
    sha256 = stand.digest("source", source)
    return Subject(
        agent_version_id=agent_version_id(f"hk-{name}", sha256),
        miner_hotkey=f"hk-{name}",
        agent_sha256=sha256,
        commitment_block=block,
        commitment_sha256=stand.digest("commitment", name, source),
    )


def slots_of(subjects: Iterable[Subject]) -> dict[str, Commitment]:
    """What each hotkey's slot holds at last."""
    return {
        each.miner_hotkey: Commitment(
            hotkey=each.miner_hotkey, sha256=each.commitment_sha256, block=each.commitment_block
        )
        for each in sorted(subjects, key=commitment_order)
        if each.commitment_block <= CLOSING
    }


def verdict(subject: Subject, sources: Mapping[Subject, str], known: Iterable[Subject]) -> tuple[str, str, str, str]:
    """The toy gate: outcome, severity, hold, and the hash of what it was compared with."""
    around, source = neighbourhood(subject, known), sources[subject]
    others = {sources[other] for other in around.others}
    outcome, severity, hold = *_VERDICTS.get(source.split()[0], ("accept", "")), ""
    if outcome == "accept" and source in others:
        outcome, severity = "reject", "integrity"
    elif outcome == "accept" and source.startswith("near ") and source[5:] in others:
        outcome, hold = "review", "likeness"
    elif outcome == "accept" and source.startswith("odd"):
        outcome, hold = "review", "heuristic"
    return outcome, severity, hold, around.sha256


def said(subject: Subject, outcome: str, severity: str = "", hold: str = "", **more: str) -> GateRecord:
    """A record of a gate (or, with `decided_by`, of a person)."""
    about = {"policy_sha256": stand.hash_of(RULES), "decided_by": "gate"} | more
    return GateRecord(subject=subject, outcome=outcome, severity=severity, hold=hold, **about)


def suite_rows(validator: str, subject: Subject, is_passed: bool, seq: int, rules: Policy = RULES) -> list[Payload]:
    """A whole suite of qualifying records."""
    rows: list[Payload] = []
    for problem in SUITE:
        seq += 1
        row = stand.evaluation(
            rules, stand.batch(), stand.candidate("x"), problem, validator, seq, is_success=is_passed
        )
        context = Context(stage="qualifying", race_id="", problem_id=problem)
        body = stand.digest("body", validator, subject, problem, seq)
        record = replace(row.record, subject=subject, context=context, body_sha256=body)
        rows += [record, stand.verdict(rules, replace(row, record=record), 9_000, seq).record]
    return rows


class Honest:
    """A validator that runs the gate over what it knows, again whenever a source comes in before another."""

    def __init__(self, name: str, sources: Mapping[Subject, str]) -> None:
        self.name, self.sources = name, sources
        self.log: list[Payload] = []
        self.known: list[Subject] = []
        self._said: dict[Subject, GateRecord] = {}

    def receive(self, subject: Subject) -> None:
        """A source arrives; all that stands after it in the order of commitments is inspected again."""
        self.known.append(subject)
        self.log += suite_rows(self.name, subject, self.sources[subject] != "weak", len(self.log))
        for each in sorted(self.known, key=commitment_order):
            rejected = {other for other, record in self._said.items() if record.outcome == "reject"}
            outcome, severity, hold, around = verdict(
                each, self.sources, [other for other in self.known if other == each or other not in rejected]
            )
            record = said(each, outcome, severity, hold, neighbours_sha256=around)
            if self._said.get(each) != record:
                self._said[each] = record
                self.log.append(record)

    def decide(self, subject: Subject, outcome: str) -> None:
        """A person here answers a hold."""
        self.log.append(said(subject, outcome, decided_by="person"))


class Liar(Honest):
    """Says by chance what it likes of real and made-up submissions, often the opposite of what is so."""

    def __init__(self, name: str, sources: Mapping[Subject, str], chance: random.Random, aims: list[Subject]) -> None:
        super().__init__(name, sources)
        self.chance, self.aims = chance, aims

    def receive(self, subject: Subject) -> None:
        """Lie about one submission, and about made-up ones of the same hotkey."""
        chance = self.chance
        truth = verdict(subject, self.sources, [*self.known, subject])[0]
        self.known.append(subject)
        targets = [subject, *self.aims]
        if chance.random() < 0.5:
            targets.append(replace(subject, commitment_block=max(1, subject.commitment_block - chance.randrange(400))))
        for target in targets:
            is_opposite = chance.random() < 0.7
            outcome = chance.choice(["accept", "reject", "review"])
            if is_opposite:
                outcome = "reject" if truth == "accept" else "accept"
            severity = chance.choice(["integrity", "security", "form"]) if outcome == "reject" else ""
            hold = chance.choice(["heuristic", "likeness"]) if outcome == "review" else ""
            self.log.append(said(target, outcome, severity, hold))
            if outcome == "review":
                self.log.append(said(target, chance.choice(["accept", "reject"]), decided_by="person"))
            is_passed = (truth != "accept" or self.sources[subject] == "weak") if is_opposite else chance.random() < 0.5
            self.log += suite_rows(self.name, target, is_passed, len(self.log))


def fold(logs: Mapping[str, list[Payload]], order: Iterable[str]) -> RaceRecords:
    """The records of logs, each in its order, the logs one after another."""
    records = RaceRecords()
    for validator in order:
        for seq, payload in enumerate(logs[validator], 1):
            records.take(validator, seq, stand.digest(validator, seq), payload)
    return records


def standings(
    logs: Mapping[str, list[Payload]],
    permitted: Iterable[str],
    slots: Mapping[str, Commitment],
    order: Iterable[str] = (),
    rules: Policy = RULES,
) -> tuple[FieldStanding, ...]:
    """What a validator that holds these logs makes of them."""
    records = fold(logs, tuple(order) or sorted(logs))
    return field_standings(records, permitted, slots.values(), CLOSING, SUITE, rules)


def field_of(rows: Iterable[FieldStanding]) -> tuple[str, ...]:
    """The agents that race, by version id."""
    found = [row.candidate for row in rows if row.candidate is not None]
    return tuple(each.subject.agent_version_id for each in select_candidates(found, CLOSING))


def last_word(records: Iterable[GateRecord]):
    """The word that some records of one validator come to."""
    word = None
    for record in records:
        word = next_word(word, record)
    return word
