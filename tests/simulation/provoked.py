"""Races in which some miners provoke faults at will, settled from records made as validators would make them.

Two sybils fault at every validator wherever they like; a gambler throws away each attempt whose luck is bad, and tries
its luck anew. The same races are run with agents in their places that do nothing: what honest miners get, and who pays
for what, must be the same. Nothing here runs an agent: only `settle` and what validators record decide.
"""

from __future__ import annotations

import random

import msgspec
from msgspec.structs import replace

from arena.policy import Policy
from arena.race.scores import SettlementInputs
from arena.race.settle import settle
from arena.records.model import Candidate, SettlementRecord, Top
from tests.arena.race_stand import candidate, raced

HONEST = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6)  # how often each solves a problem
GAMBLER_SKILL = 0.25
ATTEMPTS = 5  # of a pair at one validator, after which its item is closed
DAY_MS = 86_400_000


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """One series of races. `refused`: how many problems of the batch every second validator's endpoint, and a lone
    one's, refuses for a word in them; `faults_e4`: how often a host fails by itself; `gamble_e4`: how often the gambler
    throws away what is bad."""

    policy: Policy
    validators: int
    seed: int
    races: int = 3
    is_provoking: bool = True
    refused: int = 0
    faults_e4: int = 20
    gamble_e4: int = 10_000
    has_others: bool = True  # the honest and the sybils; else the gambler races alone


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one race ended, as far as honest miners are concerned."""

    state: str
    void: tuple[str, ...]
    top: str
    uids: tuple[int, ...]
    weights: tuple[int, ...]
    honest: tuple[tuple[str, int], ...]  # agent and score, best first
    gambler_e4: int


def small(policy: Policy, problems: int) -> Policy:
    """A shipped policy with fewer problems."""
    race = replace(policy.race, problems=problems, batch_problems=problems + problems // 5)
    return replace(policy, race=race)


def difference(some: tuple[Outcome, ...], others: tuple[Outcome, ...]) -> tuple[str, ...]:
    """What of two series of races is not the same, the gambler's own score aside."""
    found = []
    for number, (one, other) in enumerate(zip(some, others, strict=True)):
        fields = (name for name in Outcome.__struct_fields__ if name != "gambler_e4")
        found += [f"{name} of race {number}" for name in fields if getattr(one, name) != getattr(other, name)]
    return tuple(found)


def run(scene: Scene) -> tuple[Outcome, ...]:
    """The races one after the other, each after what came of those before."""
    top: Top | None = None
    history: list[SettlementRecord] = []
    ends = []
    for number in range(scene.races):
        race = _Race(scene, number)
        field = race.field(top)
        made = race.inputs(field)
        closes_ms = (number + 1) * DAY_MS
        record = settle(replace(made, closes_ms=closes_ms, incumbent=top, history=tuple(history)))
        history.append(record)
        if record.is_promotion:
            crowned = next(each for each in field if each.subject.agent_version_id == record.top_agent_version_id)
            top = Top(
                agent_version_id=record.top_agent_version_id,
                miner_hotkey=crowned.subject.miner_hotkey,
                promoted_ms=closes_ms,
            )
        ends.append(_outcome(record))
    return tuple(ends)


def _outcome(record: SettlementRecord) -> Outcome:
    return Outcome(
        state=record.state,
        void=record.void,
        top=record.top_agent_version_id,
        uids=record.uids,
        weights=record.weights_u16,
        honest=tuple(
            (row.agent_version_id, row.race_score_e4)
            for row in record.standings
            if row.agent_version_id.startswith("v-honest")
        ),
        gambler_e4=sum(row.race_score_e4 for row in record.standings if "gambler" in row.agent_version_id),
    )


class _Race:
    """What everybody does in one race: all of it follows from the seed."""

    def __init__(self, scene: Scene, number: int) -> None:
        self.scene, self.number = scene, number
        self.hotkeys = tuple(f"val-{letter}" for letter in "abcdefgh"[: scene.validators])

    def field(self, top: Top | None) -> tuple[Candidate, ...]:
        """The honest miners, the incumbent among them, and three others under new versions each day."""
        if not self.scene.has_others:
            return (self._others("gambler"),)
        honest = [candidate(f"honest{place}") for place in range(len(HONEST))]
        others = [self._others(name) for name in ("sybil0", "sybil1", "gambler")]
        return (
            *(replace(each, is_incumbent=bool(top) and _id(each) == top.agent_version_id) for each in honest),
            *others,
        )

    def _others(self, name: str) -> Candidate:
        made = candidate(name)
        return replace(made, subject=replace(made.subject, agent_version_id=f"v-{name}-{self.number}"))

    def inputs(self, field: tuple[Candidate, ...]) -> SettlementInputs:
        return raced(
            field,
            self.result,
            self.faults,
            rules=self.scene.policy,
            validators=self.hotkeys,
            lacks_control=self.is_refused,
            lacks_witness=lambda agent, problem_id, validator: self.is_refused(problem_id, validator),
        )

    def dice(self, *about: str) -> random.Random:
        return random.Random(" ".join((str(self.scene.seed), str(self.number), *about)))

    def is_refused(self, problem_id: str, validator: str) -> bool:
        """Whether a validator's endpoint refuses everybody who speaks of this problem."""
        return int(problem_id.removeprefix("p")) < self.scene.refused and self.hotkeys.index(validator) % 2 == 0

    def result(self, agent: str, problem_id: str, validator: str) -> tuple[bool, int] | None:
        """What a validator has of an episode in the end; None where its endpoint refuses to answer."""
        if self.is_refused(problem_id, validator):
            return None
        if agent.startswith("v-honest"):
            skill = HONEST[int(agent.removeprefix("v-honest"))]
            is_solved = self.dice("solved", agent, problem_id).random() < skill
            is_flipped = self.dice("noise", agent, problem_id, validator).random() < 0.03
            return is_solved != is_flipped, 9_000
        if not self.scene.is_provoking:
            return False, 1_000
        if agent.startswith("v-sybil"):
            says_word = self.scene.refused and self.dice("says", agent, problem_id).random() < 0.5
            return None if says_word else (False, 1_000)
        return self._tries(agent, problem_id, validator)[-1], 9_000

    def faults(self, agent: str, problem_id: str, validator: str) -> int:
        """Honest agents meet the host's own; sybils close whatever they like; the gambler tries again."""
        if self.is_refused(problem_id, validator):
            return 0
        if agent.startswith("v-honest"):
            return int(self.dice("host", agent, problem_id, validator).random() * 10_000 < self.scene.faults_e4)
        if not self.scene.is_provoking:
            return 0
        if agent.startswith("v-sybil"):
            return -ATTEMPTS if self.dice("closes", agent, problem_id).random() < 0.7 else 0
        tries = self._tries(agent, problem_id, validator)
        return -ATTEMPTS if len(tries) == ATTEMPTS and not tries[-1] else len(tries) - 1

    def _tries(self, agent: str, problem_id: str, validator: str) -> list[bool]:
        """The gambler's luck, attempt by attempt, until it keeps one."""
        dice, tries = self.dice("luck", agent, problem_id, validator), []
        while len(tries) < ATTEMPTS:
            tries.append(dice.random() < GAMBLER_SKILL)
            if tries[-1] or dice.random() * 10_000 >= self.scene.gamble_e4:
                break
        return tries


def _id(each: Candidate) -> str:
    return each.subject.agent_version_id
