"""Shipped policies: what each sets, and that a changed number changes the hash."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from arena.policies import POLICIES
from arena.policy import Policy, RaceRules
from foundation.canonical import canonical_bytes
from harness.inference.port import InferenceRules
from judge.rubric import Rubric

GOLDEN = Path(__file__).parent / "golden"


class LaterRules(RaceRules, frozen=True, kw_only=True):
    """Race rules of a later release: one field more, which means "as before" by default."""

    later_ms: int = 60_000


class LaterPolicy(Policy, frozen=True, kw_only=True):
    """A policy of a later release."""

    race: LaterRules = LaterRules()
    is_shadow: bool = False


def flat(fields: dict[str, object], prefix: str = "") -> dict[str, object]:
    rows: dict[str, object] = {}
    for key, value in fields.items():
        if isinstance(value, dict):
            rows |= flat(value, f"{prefix}{key}.")
        else:
            rows[prefix + key] = tuple(value) if isinstance(value, list) else value
    return rows


HASHES = {  # a changed number of a shipped policy makes it another rule set: it needs another name or version
    "paper": "d41449aef5a9d1b9",
    "sn15-2026-08": "5c47f02ba28af347",
    "sn15-environment": "81a0ca3e92e8cd71",
    "agentic": "153cbeb7c94b9ce8",
    "winner": "3709cad902fe29d0",
    "demo": "9f97359e8da8492c",
}


def test_every_shipped_number_is_pinned_by_the_policys_hash():
    assert {name: policy.policy_sha256[:16] for name, policy in POLICIES.items()} == HASHES


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
