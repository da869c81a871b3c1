"""Who is let into a race: a validator's ruling on a submission, what all rulings come to, and the field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from sys import intern
from typing import Literal

import msgspec
from msgspec.structs import replace

from arena.chain.port import Commitment
from arena.policy import AdmissionRules, CooldownRules, Policy
from arena.race.draw import QualifyingResult, qualify
from arena.race.model import Candidate, LoggedRecord
from arena.race.scores import results_needed
from arena.records.commitments import agent_version_id
from arena.records.model import AttemptRecord, EvaluationRecord, GateRecord, Payload, Subject, VerdictRecord
from arena.submissions.admission import CooldownClass, Submitted, cooldown_blocks, refused_by_cooldown
from foundation.codes.names import JOB_QUARANTINED, JUDGE_UNUSABLE
from foundation.codes.row import Owner
from judge.rubric import lower_median
from judge.verdict import Verdict
from problems.outcome import OutcomeScore

Outcome = Literal["accept", "review", "reject"]
Words = Mapping[Subject, Mapping[str, "GateWord"]]  # by submission, then by validator

RulingState = Literal["accepted", "rejected", "held", "cooldown"]
TWO = 2  # where there are two validators or more, nothing follows from the word of one


class GateWord(msgspec.Struct, frozen=True, kw_only=True):
    """The last verdict of a validator's gate, and what a person there decided of its hold ("": nothing)."""

    said: GateRecord
    decided: Literal["", "accept", "reject"] = ""

    @property
    def ended(self) -> CooldownClass:
        """What the submission costs its hotkey, if this word is right. What a person decides makes it no cheaper."""
        if self.said.outcome == "reject" and self.said.severity:
            return self.said.severity
        return "accepted"


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """Where a submission stands with the gates of all. `speakers`: validators whose logs hold any word on anything."""

    subject: Subject
    state: RulingState
    accepts: int
    rejects: int
    speakers: int
    needed: int
    allowed_block: int = 0  # `cooldown`: the first block whose commitment would have counted


def next_word(before: GateWord | None, record: GateRecord) -> GateWord | None:
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


def hold_ends(subject: Subject, rules: AdmissionRules) -> int:
    """The block from which a hold by a heuristic, undecided, counts as accepted."""
    return subject.commitment_block + rules.hold_blocks


def cost_blocks(word: GateWord, rules: CooldownRules) -> int:
    """The cooldown that follows from a word."""
    return cooldown_blocks(word.ended, rules)


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


def is_possible(subject: Subject, slots: Mapping[str, Commitment]) -> bool:
    """Whether a subject is what it says: its id follows from hotkey and source, and its hotkey's slot holds its
    commitment in that block or a later one, or something else from a later block."""
    if subject.agent_version_id != agent_version_id(subject.miner_hotkey, subject.agent_sha256):
        return False
    slot = slots.get(subject.miner_hotkey)
    if slot is None or subject.commitment_block <= 0:
        return False
    is_same = slot.sha256 == subject.commitment_sha256
    return slot.block >= subject.commitment_block if is_same else slot.block > subject.commitment_block


def speakers_of(words: Words, permitted: Collection[str]) -> frozenset[str]:
    """The race's validators whose logs hold any word of a gate."""
    return frozenset(validator for said in words.values() for validator in said if validator in permitted)


def rulings(
    words: Words, permitted: Collection[str], slots: Mapping[str, Commitment], closing_block: int, policy: Policy
) -> dict[Subject, Ruling]:
    """What follows for every submission that enough validators know, committed by the closing block.

    `permitted` are the race's validators, `slots` the commitments of the subnet's hotkeys at the closing block: no
    submission is later than its slot. What fewer know is none: nobody can be refused for it, or enter by it.
    """
    speakers = len(speakers_of(words, permitted))
    needed = more_than_half(speakers, words_floor(policy, len(permitted)))
    known: dict[Subject, list[GateWord]] = {}
    for subject, said in words.items():
        counted = [word for validator, word in said.items() if validator in permitted]
        if len(counted) >= needed and is_possible(subject, slots):
            known[subject] = counted
    by_hotkey: dict[str, list[Submitted[Subject]]] = {}
    for subject, counted in known.items():
        # what a submission costs is the lower median of what the validators' words make it cost
        entry = Submitted(
            what=subject,
            block=subject.commitment_block,
            sha256=subject.commitment_sha256,
            cost_blocks=lower_median([cost_blocks(word, policy.cooldown) for word in counted]),
        )
        by_hotkey.setdefault(subject.miner_hotkey, []).append(entry)
    # those that came too early after an earlier one of their hotkey, each with the block it had to wait for
    allowed = {subject: block for past in by_hotkey.values() for subject, block in refused_by_cooldown(past).items()}
    policy_sha256, found = policy.policy_sha256, {}
    for subject, counted in known.items():
        here = [word for word in counted if word.said.policy_sha256 == policy_sha256]
        outcomes = [outcome_at(word, closing_block, policy.admission) for word in here]
        accepts, rejects = outcomes.count("accept"), outcomes.count("reject")
        state: RulingState = "accepted" if accepts >= needed else "rejected" if rejects >= needed else "held"
        found[subject] = Ruling(
            subject=subject,
            state="cooldown" if subject in allowed else state,
            accepts=accepts,
            rejects=rejects,
            speakers=speakers,
            needed=needed,
            allowed_block=allowed.get(subject, 0),
        )
    return found


def lone_race_refusal(policy: Policy, validators: Collection[str]) -> str | None:
    """Why one validator's own results can't qualify agents or settle a race, or None when they can.

    Asked before a node starts where it can't see other validators' records: what nobody can deliver would else be said
    only at each race's settlement. `validators` hold a permit. A race asks for fewer results where fewer permits exist,
    and admission by agreement (`words_floor`) for fewer words; a policy's own number of qualifying validators stays.
    """
    required = policy.qualifying.validators_required
    if policy.admission.rule == "agreed":
        required = words_floor(policy, len(validators))
    if required > 1:
        return (
            f"policy {policy.name} qualifies an agent by {required} validators, and this one sees only its own results"
        )
    needed = results_needed(policy.race, len(validators))
    if needed > 1:
        return (
            f"policy {policy.name} needs {needed} results per problem, {len(validators)} validators hold a permit, "
            "and this one sees only its own results"
        )
    return None


REFUSALS_MAX = 3  # tries of the judge at one body, after which nobody asks again


class RaceRecords:
    """Evaluations, verdicts and closings of one race (or of qualifying), in the order they were taken; and for
    qualifying what gates say of submissions: by submission, then by validator."""

    def __init__(self) -> None:
        self.evaluations: list[LoggedRecord[EvaluationRecord]] = []
        self.verdicts: list[LoggedRecord[VerdictRecord]] = []
        self.attempts: list[LoggedRecord[AttemptRecord]] = []  # of a race: those that gave no result
        self.words: dict[Subject, dict[str, GateWord]] = {}
        self._first: dict[tuple[str, str], Verdict] = {}  # by validator and body
        self._refusals: Counter[tuple[str, str]] = Counter()  # by validator and body
        self._quarantined: set[tuple[str, str]] = set()  # validator and body
        self._of_agent: dict[str, list[LoggedRecord[EvaluationRecord]]] = {}
        self._compacted: dict[str, list[tuple[str, QualifyingResult]]] = {}  # by agent: policy hash and result
        self._closings: dict[str, dict[tuple[str, str], Owner]] = {}  # by agent, then by validator and problem id

    def take(self, validator: str, seq: int, content_sha256: str, payload: Payload) -> None:
        """Take in one record; kinds that say nothing about a result are passed over. Logs come in their order."""
        logged = partial(LoggedRecord, validator=validator, seq=seq, content_sha256=content_sha256)
        if isinstance(payload, EvaluationRecord):
            row = logged(record=payload)
            self.evaluations.append(row)
            self._of_agent.setdefault(payload.subject.agent_version_id, []).append(row)
        elif isinstance(payload, VerdictRecord):
            self.verdicts.append(logged(record=payload))
            key = (validator, payload.verdict.body_sha256)
            if isinstance(payload.verdict, Verdict):
                self._first.setdefault(key, payload.verdict)
            elif payload.verdict.failure.code == JUDGE_UNUSABLE:
                self._refusals[key] += 1
            elif payload.verdict.failure.code == JOB_QUARANTINED:
                self._quarantined.add(key)
        elif isinstance(payload, AttemptRecord):
            if payload.ended != "evaluated" and payload.context.stage == "race":
                self.attempts.append(logged(record=payload))
            if payload.is_closing:
                owner = payload.failure.owner if payload.failure else Owner.VALIDATOR
                closings = self._closings.setdefault(payload.subject.agent_version_id, {})
                closings[validator, payload.context.problem_id] = owner
        elif isinstance(payload, GateRecord):
            said = self.words.get(payload.subject, {})
            word = next_word(said.get(validator), payload)
            if word is not None:
                self.words.setdefault(payload.subject, said)[validator] = word

    def owed(self, validator: str) -> list[LoggedRecord[EvaluationRecord]]:
        """A validator's evaluations with an outcome and no verdict yet, successes first, then oldest first.

        A body that the judge refused `REFUSALS_MAX` times is not asked about again, nor in a race one that is
        quarantined.
        """
        rows = [row for row in self.evaluations if row.validator == validator and self._is_owed(row)]
        return sorted(rows, key=lambda row: not is_success(row.record))

    def quarantined(self, validator: str) -> list[LoggedRecord[EvaluationRecord]]:
        """A validator's evaluations whose judging ended the workers of two slots, and that have no verdict."""
        keys = self._quarantined - self._first.keys()
        return [row for row in self.evaluations if row.validator == validator and _key(row) in keys]

    def compact(self) -> None:
        """Keep of evaluations on which nothing is owed their qualifying results alone, and of verdicts nothing else."""
        kept: list[LoggedRecord[EvaluationRecord]] = []
        for row in self.evaluations:
            if self._is_owed(row):
                kept.append(row)
                continue
            result = self._result(row)
            if result is None:  # it never says anything
                continue
            policy_sha256, agent = row.record.conditions.policy_sha256, row.record.subject.agent_version_id
            small = QualifyingResult(
                validator=intern(result.validator), problem_id=intern(result.problem_id), score_e4=result.score_e4
            )
            self._compacted.setdefault(agent, []).append((intern(policy_sha256), small))
        bodies = {_key(row) for row in kept}
        self.evaluations, self.verdicts, self._of_agent = kept, [], {}
        for row in kept:
            self._of_agent.setdefault(row.record.subject.agent_version_id, []).append(row)
        self._first = {key: verdict for key, verdict in self._first.items() if key in bodies}
        self._refusals = Counter({key: count for key, count in self._refusals.items() if key in bodies})
        self._quarantined &= bodies

    def forget(self, agent_version_id: str, policy_sha256: str) -> None:
        """Let go of an agent's compacted results under a policy: it was decided."""
        rows = self._compacted.pop(agent_version_id, [])
        left = [(policy, result) for policy, result in rows if policy != policy_sha256]
        if left:
            self._compacted[agent_version_id] = left

    def qualifying_results(self, agent_version_id: str, policy_sha256: str) -> Iterator[QualifyingResult]:
        """What validators found of an agent under a policy: outcome x coefficient, zeros, withdrawn problems."""
        for policy, result in self._compacted.get(agent_version_id, ()):
            if policy == policy_sha256:
                yield result
        for row in self._of_agent.get(agent_version_id, ()):
            if row.record.conditions.policy_sha256 == policy_sha256:
                found = self._result(row)
                if found is not None:
                    yield found
        for (validator, problem_id), owner in self._closings.get(agent_version_id, {}).items():
            closed = _unscored(validator, problem_id, owner)
            if closed is not None:
                yield closed

    def _result(self, row: LoggedRecord[EvaluationRecord]) -> QualifyingResult | None:
        """Outcome x coefficient of an evaluation, or None while that is owed."""
        outcome, problem_id = row.record.outcome, row.record.context.problem_id
        if not isinstance(outcome, OutcomeScore):
            return _unscored(row.validator, problem_id, outcome.failure.owner)
        if not outcome.is_success:
            return QualifyingResult(validator=row.validator, problem_id=problem_id, score_e4=0)
        verdict = self._first.get(_key(row))
        if verdict is None:
            return None
        return QualifyingResult(validator=row.validator, problem_id=problem_id, score_e4=verdict.coefficient_e4)

    def _is_owed(self, row: LoggedRecord[EvaluationRecord]) -> bool:
        key = _key(row)
        is_judgeable = isinstance(row.record.outcome, OutcomeScore) and key not in self._first
        is_over = row.record.context.stage == "race" and key in self._quarantined
        return is_judgeable and not is_over and self._refusals[key] < REFUSALS_MAX


def is_success(record: EvaluationRecord) -> bool:
    """Whether the episode solved its problem."""
    return isinstance(record.outcome, OutcomeScore) and record.outcome.is_success


def _key(row: LoggedRecord[EvaluationRecord]) -> tuple[str, str]:
    return row.validator, row.record.body_sha256


def _unscored(validator: str, problem_id: str, owner: Owner) -> QualifyingResult | None:
    """What an item without an outcome says: withdrawn, zero, or nothing."""
    if owner is Owner.PROBLEM:
        return QualifyingResult(validator=validator, problem_id=problem_id, score_e4=None)
    return QualifyingResult(validator=validator, problem_id=problem_id, score_e4=0) if owner is Owner.AGENT else None


class FieldStanding(msgspec.Struct, frozen=True, kw_only=True):
    """Where a submission stands at the close. `finished` validators did its suite, of whom `passes` passed it and
    `needed` had to; `candidate` where it may race."""

    ruling: Ruling
    passes: int = 0
    finished: int = 0
    needed: int = 0
    candidate: Candidate | None = None


def field_standings(
    records: RaceRecords,
    validators: Iterable[str],
    commitments: Iterable[Commitment],
    closing_block: int,
    suite: Sequence[str],
    policy: Policy,
) -> tuple[FieldStanding, ...]:
    """Every submission that enough validators know, and whether it may race, under a policy that admits by agreement.

    Of several commitments to one source the earliest that may race stands for it.
    """
    permitted = frozenset(validators)
    slots = {commitment.hotkey: commitment for commitment in commitments}
    ruled = rulings(records.words, permitted, slots, closing_block, policy)
    speakers = len(speakers_of(records.words, permitted))
    # who evaluated which submission in qualifying: what a validator says of an agent first is what it did
    first: dict[tuple[str, str], Subject] = {}
    for evaluation in records.evaluations:
        subject = evaluation.record.subject
        if evaluation.validator in permitted and evaluation.record.context.stage == "qualifying":
            first.setdefault((evaluation.validator, subject.agent_version_id), subject)
    claims: dict[Subject, set[str]] = {}
    for (validator, _), subject in first.items():
        claims.setdefault(subject, set()).add(validator)
    rows, raced = [], set()
    for subject in sorted(ruled, key=lambda each: (each.commitment_block, each.commitment_sha256)):
        row = _standing(ruled[subject], records, claims, speakers, len(permitted), suite, policy)
        if row.candidate is not None and subject.agent_version_id in raced:
            row = msgspec.structs.replace(row, candidate=None)
        elif row.candidate is not None:
            raced.add(subject.agent_version_id)
        rows.append(row)
    return tuple(rows)


def _standing(
    ruling: Ruling,
    records: RaceRecords,
    claims: Mapping[Subject, set[str]],
    speakers: int,
    permits: int,
    suite: Sequence[str],
    policy: Policy,
) -> FieldStanding:
    subject = ruling.subject
    by_validator: dict[str, list[QualifyingResult]] = {}
    for result in records.qualifying_results(subject.agent_version_id, policy.policy_sha256):
        if result.validator in claims.get(subject, ()):
            by_validator.setdefault(result.validator, []).append(result)
    alone = [qualify(rows, suite, policy) for rows in by_validator.values()]
    means = [found.score_e4 for found in alone if found.score_e4 is not None]
    passes = sum(found.passes for found in alone)
    at_once = more_than_half(min(speakers, asked_count(policy, permits)), words_floor(policy, permits))
    needed = more_than_half(len(means), at_once)
    is_in = ruling.state == "accepted" and passes >= needed
    candidate = Candidate(subject=subject, qualifying_score_e4=lower_median(means)) if is_in else None
    return FieldStanding(
        ruling=ruling, passes=passes, finished=len(means), needed=needed, candidate=candidate
    )  # fmt: skip


def select_candidates(
    candidates: Iterable[Candidate], closing_block: int, eliminated: frozenset[str] = frozenset()
) -> tuple[Candidate, ...]:
    """The field of a race, by agent version id: one agent version per hotkey. Pass only agents that qualified, and the
    incumbent, which races whatever else its hotkey has submitted.

    A candidate needs a commitment in a block up to `closing_block` (the caller passes a finalized one). `eliminated`
    holds version ids that left by an earlier settlement; the incumbent is never among the eliminated.
    """
    best: dict[str, Candidate] = {}
    for candidate in candidates:
        if not candidate.subject.commitment_sha256 or candidate.subject.commitment_block > closing_block:
            continue
        if candidate.subject.agent_version_id in eliminated and not candidate.is_incumbent:
            continue
        rival = best.get(candidate.subject.miner_hotkey)
        if rival is None or _preference(candidate) < _preference(rival):
            best[candidate.subject.miner_hotkey] = candidate
    return tuple(sorted(best.values(), key=lambda candidate: candidate.subject.agent_version_id))


def _preference(candidate: Candidate) -> tuple[bool, int, int, str]:
    """Smaller is preferred."""
    subject = candidate.subject
    return (
        not candidate.is_incumbent,
        -candidate.qualifying_score_e4,
        subject.commitment_block,
        subject.agent_version_id,
    )
