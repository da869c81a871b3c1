"""Shipped policies: what each sets, and that a changed number changes the hash."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from arena.policies import (
    AGENTIC,
    DEMO,
    EVIDENCE,
    PAPER,
    POLICIES,
    SN15_2026_08,
    SN15_ENVIRONMENT,
    WINNER,
    policy_by_name,
)
from arena.policy import AdmissionRules, Policy, RaceRules
from foundation.canonical import canonical_bytes
from harness.inference.port import InferenceRules
from judge.prompts import prompt_sha256
from judge.rubric import Rubric

GOLDEN = Path(__file__).parent / "golden"


class LaterRules(RaceRules, frozen=True, kw_only=True):
    """Race rules of a later release: one field more, which means "as before" by default."""

    later_ms: int = 60_000


class LaterPolicy(Policy, frozen=True, kw_only=True):
    """A policy of a later release."""

    race: LaterRules = LaterRules()
    is_shadow: bool = False


def differences(policy: Policy) -> dict[str, object]:
    """Dotted fields in which a policy differs from PAPER."""
    return dict(flat(msgspec.to_builtins(policy)).items() - flat(msgspec.to_builtins(PAPER)).items())


def flat(fields: dict[str, object], prefix: str = "") -> dict[str, object]:
    rows: dict[str, object] = {}
    for key, value in fields.items():
        if isinstance(value, dict):
            rows |= flat(value, f"{prefix}{key}.")
        else:
            rows[prefix + key] = tuple(value) if isinstance(value, list) else value
    return rows


def test_paper_is_what_the_paper_and_the_design_say():
    fields = flat(msgspec.to_builtins(PAPER))
    expected = {
        "tool_profile": "sn15",
        "is_surfaced_rule_on": True,
        "agentic_min_e4": 9_500,
        "limits.steps": 25,
        "limits.agent_time_ms": 300_000,
        "limits.source_bytes": 1_000_000,
        "limits.result_bytes": 8 << 20,
        "limits.trace_bytes": 1 << 20,
        "limits.body_bytes": 16 << 20,
        "rubric.rubric_id": "reasoning/2",
        "rubric.inference_tokens_min": 30,
        "cooldown.accepted_blocks": 3_600,
        "cooldown.integrity_blocks": 3_600,
        "cooldown.security_blocks": 300,
        "qualifying.problems": 30,
        "qualifying.score_min_e4": 2_000,
        "qualifying.validators_required": 1,
        "qualifying.validators_asked": 1,
        "qualifying.variant_blocks": 5,
        "admission.rule": "agreed",
        "admission.validators_asked": 5,
        "admission.hold_blocks": 7_200,
        "race.timezone": "America/Los_Angeles",
        "race.closes_at_minute": 720,
        "race.closes_after_ms": None,
        "race.problems": 90,
        "race.batch_problems": 120,
        "race.validators_per_problem": 3,
        "race.results_required": 2,
        "race.void_agents_e4": 1_000,
        "race.cancel_void_e4": 1_000,
        "race.lambda_e4": 0,
        "promotion.kind": "margin",
        "promotion.margin_e4": 300,
        "promotion.decay_ms": 604_800_000,
        "weights.kind": "taper",
        "weights.top_e4": 2_500,
        "weights.burn_uid": 0,
        "embargo.opens_at_minute": 720,
        "guest.is_racing_level_required": True,
    }
    assert {key: fields[key] for key in expected} == expected


def test_every_other_policy_is_paper_with_named_differences():
    assert differences(SN15_2026_08) == {
        "name": "sn15-2026-08",
        "admission.is_commitment_enough": True,
        "cooldown.accepted_blocks": 5_400,
        "cooldown.integrity_blocks": 5_400,
        "qualifying.validators_required": 2,
        "qualifying.validators_asked": 3,
        "promotion.kind": "window",
        "promotion.elimination_e4": 6_500,
        "limits.completions": 200,
    }
    assert differences(SN15_ENVIRONMENT) == {
        **differences(SN15_2026_08),
        "name": "sn15-environment",
        "tool_profile": "environment",
        "inference.is_call_required_allowed": True,
    }
    assert differences(AGENTIC) == {"name": "agentic", "race.lambda_e4": 3_000}
    assert differences(EVIDENCE) == {"name": "evidence", "promotion.kind": "sequential"}
    assert differences(WINNER) == {"name": "winner", "weights.kind": "winner_takes_all", "weights.top_e4": 10_000}


def test_demo_runs_on_shipped_parts_with_one_validator():
    assert DEMO.inference.models == ("scripted-expert", "scripted-careful", "scripted-hasty")
    assert DEMO.rubric.models == ("scripted-judge",)
    assert (DEMO.race.validators_per_problem, DEMO.race.results_required) == (1, 1)
    assert DEMO.race.problems <= DEMO.race.batch_problems
    assert DEMO.race.closes_after_ms == 15_000
    assert DEMO.admission == AdmissionRules(is_commitment_enough=True)


def test_every_policy_pins_the_shipped_prompt():
    for policy in POLICIES.values():
        assert policy.rubric.prompt_sha256 == prompt_sha256(policy.rubric.rubric_id)


def test_every_policy_can_be_hashed_and_read_back():
    hashes = {policy.policy_sha256 for policy in POLICIES.values()}
    assert len(hashes) == len(POLICIES)
    for policy in POLICIES.values():
        again = msgspec.json.decode(canonical_bytes(policy), type=Policy)
        assert again == policy and again.policy_sha256 == policy.policy_sha256


@pytest.mark.parametrize(
    "path",
    ["limits.steps", "rubric.attempts_per_model", "race.void_agents_e4", "promotion.margin_e4", "weights.top_e4"],
)
def test_one_changed_number_changes_the_hash(path):
    part, name = path.split(".")
    section = getattr(PAPER, part)
    changed = msgspec.structs.replace(section, **{name: getattr(section, name) + 1})
    assert msgspec.structs.replace(PAPER, **{part: changed}).policy_sha256 != PAPER.policy_sha256


def test_a_policy_states_its_version_and_its_names_even_at_their_defaults():
    assert msgspec.structs.replace(PAPER, version=2).policy_sha256 != PAPER.policy_sha256
    assert msgspec.structs.replace(PAPER, name="other").policy_sha256 != PAPER.policy_sha256


def test_a_field_added_with_a_default_changes_no_hash():
    for policy in POLICIES.values():
        later = msgspec.json.decode(canonical_bytes(policy), type=LaterPolicy)
        assert later.policy_sha256 == policy.policy_sha256
        moved = msgspec.structs.replace(later, race=msgspec.structs.replace(later.race, later_ms=1))
        assert moved.policy_sha256 != policy.policy_sha256


def test_every_default_of_this_version_is_pinned():
    """Hashes leave defaults out, so a changed default would give other rules the same name: it needs a new `version`
    and a new file. A new field is added to the file."""
    bare = Policy(name="", inference=InferenceRules(models=()), rubric=Rubric(models=(), prompt_sha256=""))
    now = json.loads(canonical_bytes(flat(msgspec.to_builtins(bare))))
    assert now == json.loads((GOLDEN / f"policy_defaults_{bare.version}.json").read_text("utf-8"))


def test_a_policy_is_found_by_name_and_an_unknown_one_names_the_others():
    assert all(policy_by_name(name) is policy for name, policy in POLICIES.items())
    with pytest.raises(KeyError, match="known: agentic, demo, evidence, paper"):
        policy_by_name("papper")
