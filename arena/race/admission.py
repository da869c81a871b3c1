"""Who is let into a race: a validator's ruling on a submission, what all rulings come to, and the field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median_low
from sys import intern
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from arena.chain.port import Commitment
from arena.policy import AdmissionRules, Policy
from arena.race.draw import QualifyingResult, suite_ends
from arena.race.scores import LoggedRecord
from arena.race.weights import UNIT, held_millionths
from arena.records import model
from arena.records.log import agent_version_id
from arena.records.port import AgreedStanding
from arena.submissions.submission import CooldownClass, cooldown_blocks, refused_by_cooldown
from foundation.codes import CAP_REACHED, JOB_QUARANTINED, JUDGE_UNUSABLE, Owner
from judge.verdict import UnscoredVerdict, Verdict
from problems.model import OutcomeScore

Outcome = Literal["accept", "review", "reject"]
TWO = 2  # where there are two validators or more, nothing follows from the word of one


class GateWord(msgspec.Struct, frozen=True, kw_only=True):
    """The last verdict of a validator's gate, and what a person there decided of its hold ("": nothing)."""

    said: model.GateRecord
    decided: Literal["", "accept", "reject"] = ""

    @property
    def ended(self) -> CooldownClass:
        """What the submission costs its hotkey, if this word is right. What a person decides makes it no cheaper."""
        if self.said.outcome == "reject" and self.said.severity:
            return self.said.severity
        return "accepted"


class FieldStanding(msgspec.Struct, frozen=True, kw_only=True):
    """Where a submission stands at a race's close; `candidate` where it may race."""

    subject: model.Subject
    standing: AgreedStanding
    candidate: model.Candidate | None = None


def next_word(before: GateWord | None, record: model.GateRecord) -> GateWord | None:
    """A validator's word after one more record. What a person decides before the gate has spoken says nothing."""
    if record.decided_by == "gate":
        is_same_hold = before is not None and record.outcome == before.said.outcome and record.hold == before.said.hold
        return GateWord(said=record, decided=before.decided if before is not None and is_same_hold else "")
    if before is None or record.outcome == "review":
        return before
    return replace(before, decided=record.outcome)


def outcome_at(word: GateWord, block: int, rules: AdmissionRules) -> Outcome:
    """What a word comes to at a block: a hold is what a person decided of it; undecided, one by a heuristic runs out
    into acceptance, and one for likeness to another's agent does not."""
    if word.said.outcome != "review":
        return word.said.outcome
    if word.decided:
        return word.decided
    return "accept" if word.said.hold == "heuristic" and block >= hold_ends(word.said.subject, rules) else "review"


def hold_ends(subject: model.Subject, rules: AdmissionRules) -> int:
    """The block from which a hold by a heuristic, undecided, counts as accepted."""
    return subject.commitment_block + rules.hold_blocks


def words_floor(policy: Policy, permits: int) -> int:
    """The fewest validators that let an agent in, where `permits` of them are a race's: what the policy requires, and
    two, unless there is only one."""
    return max(policy.qualifying.validators_required, min(TWO, permits))


def asked_count(policy: Policy, permits: int) -> int:
    """How many validators qualify an agent at once; the others stand in."""
    return max(policy.qualifying.validators_asked, min(policy.admission.validators_asked, permits))


def more_than_half(speakers: int, floor: int) -> int:
    """How many of `speakers` have to agree."""
    return max(floor, speakers // 2 + 1)


def is_possible(subject: model.Subject, slots: Mapping[str, Commitment]) -> bool:
    """Whether a subject is what it says: its id follows from hotkey and source, and its hotkey's slot holds its
    commitment in that block or a later one, or something else from a later block."""
    if subject.agent_version_id != agent_version_id(subject.miner_hotkey, subject.agent_sha256):
        return False
    slot = slots.get(subject.miner_hotkey)
    if slot is None or subject.commitment_block <= 0:
        return False
    is_same = slot.sha256 == subject.commitment_sha256
    return slot.block >= subject.commitment_block if is_same else slot.block > subject.commitment_block


def lone_race_refusal(policy: Policy, permits: int) -> str | None:
    """Why a node that asks no other validator can't race, or None when it can.

    Asked before it starts, where `permits` hotkeys hold a permit: what nobody can deliver would else be said only at
    each race's settlement.
    """
    required = policy.qualifying.validators_required if policy.admission.rule == "own" else words_floor(policy, permits)
    if required <= 1:
        return None
    return f"policy {policy.name} admits an agent by the word of {required} validators, and this node asks no other"


REFUSALS_MAX = 3  # tries of the judge at one body, after which nobody asks again


class RaceRecords:
    """Evaluations, verdicts and attempts of one race (or of qualifying), in the order they were taken; and what they
    say by themselves: results of qualifying, and the words of gates on submissions, by submission and validator.

    Of qualifying, which never ends, a node keeps no verdicts, and only evaluations that owe one (`is_lasting`).
    """

    def __init__(self, *, is_lasting: bool = False) -> None:
        self.is_lasting = is_lasting
        self.evaluations: list[LoggedRecord[model.EvaluationRecord]] = []
        self.verdicts: list[LoggedRecord[model.VerdictRecord]] = []
        self.attempts: list[LoggedRecord[model.AttemptRecord]] = []  # of a race: those that gave no result
        self.words: dict[model.Subject, dict[str, GateWord]] = {}
        self.first: dict[tuple[str, str], model.Subject] = {}  # by validator and agent: which submission it qualified
        self._owing: dict[tuple[str, str], list[LoggedRecord[model.EvaluationRecord]]] = {}  # by validator and body
        self._refusals: Counter[tuple[str, str]] = Counter()  # by validator and body
        self._given_up: dict[tuple[str, str], str] = {}  # why a body gets no verdict in a race, by validator and body
        self._results: dict[tuple[str, str], list[QualifyingResult]] = {}  # by agent and policy hash
        self._closings: dict[str, dict[tuple[str, str], Owner]] = {}  # by agent, then by validator and problem id

    def take(self, validator: str, seq: int, content_sha256: str, payload: model.Payload) -> None:
        """Take in one record; kinds that say nothing about a result are passed over. Logs come in their order."""
        logged = partial(LoggedRecord, validator=validator, seq=seq, content_sha256=content_sha256)
        if isinstance(payload, model.EvaluationRecord):
            self._take_evaluation(logged(record=payload))
        elif isinstance(payload, model.VerdictRecord):
            if not self.is_lasting:
                self.verdicts.append(logged(record=payload))
            self._take_verdict((validator, payload.verdict.body_sha256), payload.verdict)
        elif isinstance(payload, model.AttemptRecord):
            if payload.ended != "evaluated" and payload.context.stage == "race":
                self.attempts.append(logged(record=payload))
            if payload.is_closing:
                owner = payload.failure.owner if payload.failure else Owner.VALIDATOR
                closings = self._closings.setdefault(payload.subject.agent_version_id, {})
                closings[validator, payload.context.problem_id] = owner
        elif isinstance(payload, model.GateRecord):
            said = self.words.get(payload.subject, {})
            word = next_word(said.get(validator), payload)
            if word is not None:
                self.words.setdefault(payload.subject, said)[validator] = word

    def _take_evaluation(self, row: LoggedRecord[model.EvaluationRecord]) -> None:
        record = row.record
        if not self.is_lasting:
            self.evaluations.append(row)
        if record.context.stage == "qualifying":
            self.first.setdefault((row.validator, record.subject.agent_version_id), record.subject)
        if isinstance(record.outcome, OutcomeScore):
            self._owing.setdefault((row.validator, record.body_sha256), []).append(row)
            if not record.outcome.is_success:
                self._found(row, (0,))
        else:
            self._found(row, _SCORES.get(record.outcome.failure.owner))

    def _take_verdict(self, key: tuple[str, str], said: Verdict | UnscoredVerdict) -> None:
        if isinstance(said, Verdict):
            for row in self._owing.pop(key, ()):
                if is_success(row.record):
                    self._found(row, (said.coefficient_e4,))
        elif said.failure.code == JUDGE_UNUSABLE:
            self._refusals[key] += 1
        elif said.failure.code in (JOB_QUARANTINED, CAP_REACHED):
            self._given_up[key] = said.failure.code

    def _found(self, row: LoggedRecord[model.EvaluationRecord], score: tuple[int | None] | None) -> None:
        """Keep what an evaluation says of its problem: a score, None for a withdrawn one; nothing for no `score`."""
        record = row.record
        if score is not None and record.context.stage == "qualifying":
            agent = (intern(record.subject.agent_version_id), intern(record.conditions.policy_sha256))
            result = QualifyingResult(
                validator=intern(row.validator), problem_id=intern(record.context.problem_id), score_e4=score[0]
            )
            self._results.setdefault(agent, []).append(result)

    def owed(self, validator: str) -> list[LoggedRecord[model.EvaluationRecord]]:
        """A validator's evaluations with an outcome and no verdict yet, successes first, then oldest first.

        A body that the judge refused `REFUSALS_MAX` times is not asked about again, nor in a race one that is
        quarantined or met a cap on cost: the race ends without it.
        """
        rows = [
            row
            for key, owing in self._owing.items()
            for row in owing
            if row.validator == validator
            and self._refusals[key] < REFUSALS_MAX
            and not (row.record.context.stage == "race" and key in self._given_up)
        ]
        return sorted(rows, key=lambda row: (not is_success(row.record), row.seq))

    def done(self, validator: str) -> tuple[tuple[str, str], ...]:
        """(agent version id, problem id) of every pair of a race that a validator is done with, sorted; never how it
        ended.

        A pair is done once its evaluation has an outcome and its body a verdict, whatever the outcome: asking for the
        verdict of successes alone would tell them from failures while a judge is away.
        """
        found = {
            (row.record.subject.agent_version_id, row.record.context.problem_id)
            for row in self.evaluations
            if row.validator == validator
            and isinstance(row.record.outcome, OutcomeScore)
            and (validator, row.record.body_sha256) not in self._owing
        }
        return tuple(sorted(found))

    def quarantined(self, validator: str) -> list[LoggedRecord[model.EvaluationRecord]]:
        """A validator's evaluations whose judging ended the workers of two slots, and that have no verdict."""
        keys = [key for key, code in self._given_up.items() if code == JOB_QUARANTINED and key[0] == validator]
        return [row for key in keys for row in self._owing.get(key, ())]

    def forget(self, agent_version_id: str, policy_sha256: str) -> None:
        """Let go of an agent's results under a policy: it was decided."""
        self._results.pop((agent_version_id, policy_sha256), None)

    def qualifying_results(self, agent_version_id: str, policy_sha256: str) -> Iterator[QualifyingResult]:
        """What validators found of an agent under a policy: outcome x coefficient, zeros, withdrawn problems."""
        yield from self._results.get((agent_version_id, policy_sha256), ())
        for (validator, problem_id), owner in self._closings.get(agent_version_id, {}).items():
            for score_e4 in _SCORES.get(owner) or ():
                yield QualifyingResult(validator=validator, problem_id=problem_id, score_e4=score_e4)


# What an item without an outcome says, by who was at fault: withdrawn, zero, or nothing.
_SCORES: dict[Owner, tuple[int | None]] = {Owner.PROBLEM: (None,), Owner.AGENT: (0,)}


def is_success(record: model.EvaluationRecord) -> bool:
    """Whether the episode solved its problem."""
    return isinstance(record.outcome, OutcomeScore) and record.outcome.is_success


def field_standings(
    records: RaceRecords,
    validators: Iterable[str],
    commitments: Iterable[Commitment],
    closing_block: int,
    suite: Sequence[str],
    policy: Policy,
) -> tuple[FieldStanding, ...]:
    """Every submission that enough of the race's validators know, committed by the closing block, and whether it may
    race.

    `commitments` are those of the subnet's hotkeys at the closing block: no submission is later than its slot. What
    fewer know stands nowhere: nobody can be refused for it, or enter by it. Of several commitments to one source the
    earliest that may race stands for it.
    """
    permitted = frozenset(validators)
    slots = {commitment.hotkey: commitment for commitment in commitments}
    words = {
        subject: {validator: word for validator, word in said.items() if validator in permitted}
        for subject, said in records.words.items()
    }
    speakers = len(frozenset().union(*words.values()))
    floor = words_floor(policy, len(permitted))
    needed = more_than_half(speakers, floor)
    known = {
        subject: list(said.values())
        for subject, said in words.items()
        if len(said) >= needed and is_possible(subject, slots)
    }
    # what one costs is the lower median of what the validators' words make it cost
    costs = {one: median_low([cooldown_blocks(word.ended, policy.cooldown) for word in known[one]]) for one in known}
    too_early, results = refused_by_cooldown(costs), _results_by_subject(records, permitted, policy)
    at_once = more_than_half(min(speakers, asked_count(policy, len(permitted))), floor)
    rows, raced = [], set()
    for subject in sorted(known, key=lambda each: (each.commitment_block, each.commitment_sha256)):
        here = [word for word in known[subject] if word.said.policy_sha256 == policy.policy_sha256]
        outcomes = [outcome_at(word, closing_block, policy.admission) for word in here]
        accepts, rejects = outcomes.count("accept"), outcomes.count("reject")
        ends = list(suite_ends(results.get(subject, ()), suite, policy).values())
        passes = sum(end.is_passed for end in ends)
        suite_needed = more_than_half(len(ends), at_once)
        is_accepted = accepts >= needed and subject not in too_early
        is_racing = is_accepted and passes >= suite_needed and subject.agent_version_id not in raced
        standing = AgreedStanding(
            is_racing=is_racing,
            state="cooldown"
            if subject in too_early
            else "accepted"
            if is_accepted
            else "rejected"
            if rejects >= needed
            else "held",
            accepts=accepts,
            rejects=rejects,
            speakers=speakers,
            needed=needed,
            suite_passes=passes,
            suite_finished=len(ends),
            suite_needed=suite_needed,
            allowed_block=too_early.get(subject, 0),
        )
        candidate = None
        if is_racing:
            raced.add(subject.agent_version_id)
            means = [end.mean_e4 for end in ends if end.mean_e4 is not None]
            score_e4 = None if policy.qualifying.worker_ms else median_low(means)
            candidate = model.Candidate(subject=subject, qualifying_score_e4=score_e4, origin=_stated_origin(here))
        rows.append(FieldStanding(subject=subject, standing=standing, candidate=candidate))
    return tuple(rows)


def _stated_origin(words: Iterable[GateWord]) -> model.Origin | UnsetType:
    """What most words state of each part of an origin, the least of equals; unset where none states one."""
    stated = [word.said.origin for word in words if isinstance(word.said.origin, model.Origin)]
    if not stated:
        return UNSET
    counts = {name: Counter(getattr(one, name) for one in stated) for name in model.Origin.__struct_fields__}
    most = {name: min(counted, key=lambda each: (-counted[each], each)) for name, counted in counts.items()}
    return model.Origin(**most)


def _results_by_subject(
    records: RaceRecords, permitted: Collection[str], policy: Policy
) -> dict[model.Subject, list[QualifyingResult]]:
    """By submission: its qualifying results. A validator's first evaluation of an agent says which submission it is
    about."""
    found: dict[model.Subject, list[QualifyingResult]] = {}
    for agent in {agent for _, agent in records.first}:
        for result in records.qualifying_results(agent, policy.policy_sha256):
            subject = records.first.get((result.validator, agent))
            if subject is not None and result.validator in permitted:
                found.setdefault(subject, []).append(result)
    return found


def select_candidates(
    candidates: Iterable[model.Candidate], closing_block: int, eliminated: frozenset[str] = frozenset()
) -> tuple[model.Candidate, ...]:
    """Who may race, by agent version id: one agent version of each owner, the best qualified, or the newest where no
    score is stated. Pass only agents that qualified, and the incumbent, which races whatever else its owner has
    submitted.

    A candidate needs a commitment in a block up to `closing_block` (the caller passes a finalized one). `eliminated`
    holds version ids that left by an earlier settlement; the incumbent is never among the eliminated.
    """
    best: dict[str, model.Candidate] = {}
    for candidate in candidates:
        if not candidate.subject.commitment_sha256 or candidate.subject.commitment_block > closing_block:
            continue
        if candidate.subject.agent_version_id in eliminated and not candidate.is_incumbent:
            continue
        rival = best.get(candidate.owner)
        if rival is None or _preference(candidate) < _preference(rival):
            best[candidate.owner] = candidate
    return tuple(sorted(best.values(), key=lambda candidate: candidate.subject.agent_version_id))


def _preference(candidate: model.Candidate) -> tuple[bool, int, tuple[int, int, str]]:
    """Smaller is preferred."""
    block, order, agent = candidate.place
    if candidate.qualifying_score_e4 is None:
        block, order = -block, -order
    return not candidate.is_incumbent, -(candidate.qualifying_score_e4 or 0), (block, order, agent)


_SEATED_FROM = 2 * UNIT  # evidence that gives a claim to the first half of the seats


def seat(
    wanted: Sequence[model.Candidate], before: model.Evidence, validators: int, seats: int
) -> tuple[model.Candidate, ...]:
    """The field of a race: the incumbent, and of the others as many as there are `seats` (0: all), in the order given.

    Half of the seats go by evidence held in this reign (`before`), highest first; the others by fewest races in it.
    A class of likeness has a second one only after every other has one. Ties go by commitment. No score of qualifying
    plays a part, so nobody gains by drawing it again.
    """
    if not seats:
        return tuple(wanted)
    known = {one.miner_hotkey: (held_millionths(one, validators), one.races) for one in before.held}
    held = {one: known.get(one.subject.miner_hotkey, (UNIT, 0)) for one in wanted}  # evidence, and races
    others = sorted((one for one in wanted if not one.is_incumbent), key=lambda one: one.place)
    able = sorted((one for one in others if held[one][0] >= _SEATED_FROM), key=lambda one: -held[one][0])
    seated = _firsts(able, ())[: seats // 2]
    rest = sorted((one for one in others if one not in seated), key=lambda one: held[one][1])
    firsts = _firsts(rest, (one.head for one in wanted if one.is_incumbent or one in seated))
    seated += (firsts + [one for one in rest if one not in firsts])[: seats - len(seated)]
    return tuple(one for one in wanted if one.is_incumbent or one in seated)


def _firsts(ordered: Iterable[model.Candidate], seated: Iterable[str]) -> list[model.Candidate]:
    """The first of every class of likeness that has no seat; `seated` are the heads of those that have one."""
    heads, firsts = set(seated), []
    for candidate in ordered:
        if candidate.head not in heads:
            firsts.append(candidate)
            heads.add(candidate.head)
    return firsts
