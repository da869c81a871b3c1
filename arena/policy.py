"""Policy: every number of the mechanism as one frozen, hashed value. `policy_sha256` is in every record.

Source of the values: the paper's section 4, and ours where it is silent (docs/architecture.md#the-mechanism). Harness
and judge get slices of it and never import this module. Shares and scores are ten-thousandths (`_e4`).

The hash is over what a policy states beyond the defaults of its version, so a later release may add a field (with a
default that means "as before") and every policy keeps its hash. A default itself never changes within one version: the
release that changes one raises `version`.
"""

from __future__ import annotations

import hashlib
from functools import cache, cached_property
from typing import Literal

import msgspec

from arena.gate.rules import GateRules
from foundation.canonical import canonical_bytes
from harness.inference.port import InferenceRules
from harness.limits import EpisodeLimits
from judge.rubric import Rubric


class CooldownRules(msgspec.Struct, frozen=True, kw_only=True):
    """Per hotkey, from commitment to commitment, in blocks (12 s each on chain)."""

    accepted_blocks: int = 3_600
    integrity_blocks: int = 3_600
    security_blocks: int = 300


class AdmissionRules(msgspec.Struct, frozen=True, kw_only=True):
    """Whose word lets an agent into a race (`arena/race/AGREEMENT.md`)."""

    rule: Literal["own", "agreed"] = "own"  # whose races: of this validator alone, or of all that hold a permit
    validators_asked: int = 5  # so many qualify an agent at once
    hold_blocks: int = 7_200  # from the commitment; what the gate holds by a heuristic counts as accepted from then on
    # true: a source without its hotkey's signature is taken by its commitment alone
    is_commitment_enough: bool = False


class QualifyingRules(msgspec.Struct, frozen=True, kw_only=True):
    """The bar an agent must pass on the active public suite."""

    suite: str = "s1"
    problems: int = 30
    score_min_e4: int = 2_000
    validators_required: int = 1
    validators_asked: int = 1
    variant_blocks: int = 0  # after the commitment: that block's hash draws the agent's variants; 0: the suite itself
    # For which an agent's own code may hold workers over the suite; such a suite ends, and states no score, as soon as
    # its end is certain. 0: not limited, and run to its last problem.
    worker_ms: int = 0


class RaceRules(msgspec.Struct, frozen=True, kw_only=True):
    """Schedule, draw, assignment, voids."""

    timezone: str = "America/Los_Angeles"
    closes_at_minute: int = 720  # minutes after local midnight
    closes_after_ms: int | None = None  # instead of the daily schedule: a race closes this long after it opened
    problems: int = 90
    batch_problems: int = 120
    validators_per_problem: int = 3
    results_required: int = 2
    void_agents_e4: int = 1_000  # kept for the hashes of policies, no effect
    cancel_void_e4: int = 1_000
    lambda_e4: int = 0  # a problem that was not agentic counts 1 - lambda of its score
    attempts: int = 5  # at one episode, ended by faults of ours; then it is closed
    refused_attempts: int = 0  # attempts at an episode whose request an endpoint refuses (U3006), all stages; 0: no cap
    lease_ms: int = 120_000
    retry_ms: int = 10_000  # before an episode that failed through a fault of ours is tried again; doubles each time
    retry_max_ms: int = 600_000
    qualifying_grace_ms: int = 3_600_000  # after the close, for qualifying work of agents committed in time
    beacon_grace_ms: int = 86_400_000  # after the close; a beacon that is later cancels the race
    run_ms: int = 72_000_000  # after the close, a validator alone: after the draw; what is not anchored then is missing
    reveal_ms: int = 1_800_000  # from anchor to receipt, and from receipt to countersignature (arena/race/AGREEMENT.md)
    agree_ms: int = 7_200_000  # after the countersign block, for a log that is still lacking
    stand_in_ms: int = 7_200_000  # after the draw, times the stand-in's place
    control_sha256: str = ""  # source of the control agent, by which problems are void; no race runs without one
    forgiven_e4: int = 100  # share of the draw on which an agent's single fault at a validator is passed over
    worker_ms: int = 0  # for which an agent's own code may hold workers over a race; 0: not limited
    body_bytes: int = 0  # of an agent's episodes that a race stores; 0: not limited
    seats: int = 0  # beside the top agent's (`arena.race.admission.seat`); 0: all that qualify race


class PromotionRules(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence against the top agent, or a margin over it that decays linearly to zero."""

    kind: Literal["margin", "window", "evidence"] = "margin"
    margin_e4: int = 300
    decay_ms: int = 7 * 86_400_000
    window_races: int = 3
    elimination_e4: int = 0  # share of the field eliminated by raw score
    evidence: int = 200  # that takes the top, whichever single validator is ignored
    evidence_alone: int = 600  # the same where fewer than three validators hold a permit
    evidence_races: int = 2  # that a hotkey has to run in a reign before it takes the top


class WeightRules(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the weight vector. The rest burns to `burn_uid`."""

    kind: Literal["taper", "winner_takes_all"] = "taper"
    top_e4: int = 2_500
    burn_uid: int = 0


class EmbargoRules(msgspec.Struct, frozen=True, kw_only=True):
    """Source and traces of a race stay sealed until this local minute of the next weekday, or day, after its settlement
    (`arena.visibility`). A race with `closes_after_ms` keeps no calendar and has no embargo."""

    timezone: str = "America/Los_Angeles"
    opens_at_minute: int = 720
    is_weekday_only: bool = True


class GuestRules(msgspec.Struct, frozen=True, kw_only=True):
    """The guest's Python; a mismatch may run but not race."""

    python_version: str = "3.11"
    is_racing_level_required: bool = True  # records of a jail that may not race are left out of settlements


class Policy(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One complete rule set."""

    name: str
    version: int = 1
    tool_profile: Literal["paper4", "sn15", "compact", "environment"] = "sn15"
    is_surfaced_rule_on: bool = True
    agentic_min_e4: int = 9_500
    limits: EpisodeLimits = EpisodeLimits()
    inference: InferenceRules
    rubric: Rubric
    gate: GateRules = GateRules()
    cooldown: CooldownRules = CooldownRules()
    qualifying: QualifyingRules = QualifyingRules()
    admission: AdmissionRules = AdmissionRules()
    race: RaceRules = RaceRules()
    promotion: PromotionRules = PromotionRules()
    weights: WeightRules = WeightRules()
    embargo: EmbargoRules = EmbargoRules()
    guest: GuestRules = GuestRules()
    traces_licence: str = ""  # terms under which anybody may use published traces: an SPDX id, or text; "": not stated

    @cached_property
    def stated(self) -> bytes:
        """Canonical JSON of its name, its version and every field that is not at its default: the same in each release
        that knows these rules."""
        return canonical_bytes({"version": self.version} | _stated(self))

    @cached_property
    def policy_sha256(self) -> str:
        """Identity of the rule set: the hash of what it states."""
        return hashlib.sha256(self.stated).hexdigest()


def _stated(rules: msgspec.Struct) -> dict[str, object]:
    """The fields of `rules` that differ from their defaults, as plain data, at every level."""
    values = {name: (getattr(rules, name), default) for name, default in _defaults(type(rules)).items()}
    return {name: _plain(value) for name, (value, default) in values.items() if value != default}


@cache
def _defaults(rules: type[msgspec.Struct]) -> dict[str, object]:
    """Every field's default, `msgspec.NODEFAULT` where it has none."""
    return {field.name: field.default for field in msgspec.structs.fields(rules)}


def _plain(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return _stated(value)
    return [_plain(part) for part in value] if isinstance(value, tuple) else value
