"""Faults that count: which of a validator's own faults stand against an agent, and which only against the validator.

Pure, and a function of counted records. Only the control agent's records tell the two apart, never another
miner's, so that no number of agents changes what a fault means. A fault that counts takes its validator's place among
those that decide the pair; a result that came after it does not count, so that nothing is won by throwing an attempt
away. The rules, and why they don't pay, stand in `arena/race/AGREEMENT.md`, "Faults".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from arena.policy import RaceRules
from arena.race.model import CountedAttempt, CountedEvaluation
from arena.race.settlement.control import control_subject, witness_subject
from foundation.codes.row import Owner
from problems.scoring.outcome import OutcomeScore

_UNIT = 10_000

Pair = tuple[str, str]  # (agent version id, problem id)


class Ended(msgspec.Struct, frozen=True):
    """How a pair's work at one validator went. `faults`: numbers of the records of its faults, in order; `result_seq`
    the number of its first evaluation with an outcome, None without one."""

    faults: tuple[int, ...] = ()
    result_seq: int | None = None

    @property
    def is_clean(self) -> bool:
        """A result, and no fault before or after it."""
        return self.result_seq is not None and not self.faults


EndedByPair = Mapping[tuple[str, Pair], Ended]  # by validator and pair


def counted_attempts(
    attempts: Iterable[CountedAttempt], evaluations: Iterable[CountedEvaluation], *, is_bounded: bool
) -> tuple[CountedAttempt, ...]:
    """The attempts without a result that a settlement looks at, by validator and number.

    `is_bounded`: the logs are those that a roll counted, up to their sizes. Else (one validator, its own log) one that
    its item's end did not follow is left out: it may have come after the settlement was made.
    """
    last: dict[tuple[str, Pair], int] = {}
    for row in evaluations:
        _note_last(last, row)
    rows = [row for row in attempts if row.record.ended != "evaluated"]
    for attempt in rows:
        if attempt.record.is_closing:
            _note_last(last, attempt)
    kept = [row for row in rows if is_bounded or row.record.is_closing or row.seq < last.get(_key(row), 0)]
    return tuple(sorted(kept, key=lambda row: (row.validator, row.seq)))


def how_they_ended(attempts: Iterable[CountedAttempt], evaluations: Iterable[CountedEvaluation]) -> EndedByPair:
    """Faults and first result of every pair at every validator. Rows of the race's own, each validator's in order.

    A fault is one that closed its item, or the validator's own. A broken problem is nobody's: the control agent lacks
    it, too; nor is an outage, nor a lease that was lost.
    """
    faults: dict[tuple[str, Pair], list[int]] = {}
    first: dict[tuple[str, Pair], int] = {}
    for attempt in attempts:
        record = attempt.record
        owner = record.failure.owner if record.failure else Owner.VALIDATOR
        if record.ended != "faulted" or owner is Owner.PROBLEM:
            continue
        if record.is_closing or owner is Owner.VALIDATOR:
            faults.setdefault(_key(attempt), []).append(attempt.seq)
    for row in evaluations:
        if isinstance(row.record.outcome, OutcomeScore):
            first.setdefault(_key(row), row.seq)
    return {key: Ended(tuple(sorted(faults.get(key, ()))), first.get(key)) for key in faults.keys() | first.keys()}


def charged_to(
    agent_version_id: str, validator: str, drawn: Sequence[str], ended: EndedByPair, rules: RaceRules
) -> frozenset[str]:
    """The problems on which a validator's faults stand against an agent.

    On each the control agent has a result there without a fault, and a witness one that came after the first fault: the
    validator could, before and after. Of pairs with a single fault and a result after it the first `forgiven_e4` of the
    draw, rounded up, are passed over: a host may fail by itself now and then.
    """
    control, witness = control_subject(rules), witness_subject(rules, agent_version_id)
    if control is None or witness is None:
        return frozenset()
    charged, left = set(), -(-rules.forgiven_e4 * len(drawn) // _UNIT)
    for problem_id in drawn:
        pair = ended.get((validator, (agent_version_id, problem_id)), Ended())
        seen = ended.get((validator, (witness.agent_version_id, problem_id)), Ended())
        could = ended.get((validator, (control.agent_version_id, problem_id)), Ended())
        is_after = seen.is_clean and seen.result_seq is not None and pair.faults and seen.result_seq > pair.faults[0]
        if not could.is_clean or not is_after:
            continue
        if len(pair.faults) == 1 and pair.result_seq is not None and left:
            left -= 1
            continue
        charged.add(problem_id)
    return frozenset(charged)


def _note_last(last: dict[tuple[str, Pair], int], row: CountedAttempt | CountedEvaluation) -> None:
    last[_key(row)] = max(row.seq, last.get(_key(row), 0))


def _key(row: CountedAttempt | CountedEvaluation) -> tuple[str, Pair]:
    return row.validator, (row.record.subject.agent_version_id, row.record.context.problem_id)
