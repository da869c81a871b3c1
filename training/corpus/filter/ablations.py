"""Ablations by switch: which filters to compare with the corpus' own, and how to make their corpora the same size.

Pure. Every arm is a `Rules`, so one reading of the traces serves all of them (`Task.arms`), and an arm's rules
are in its lineage. The leak guard is on in every arm. A comparison of filters is one of kinds of data, not of amounts:
`matched` gives every arm the rows of the smallest, drawn by seed; one by tokens gets as many tokens as the first then
has, in whatever number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import msgspec

from training.corpus.filter.gates import NEVER_OFF
from training.corpus.model import RejectCode, Rules

PER_TRACE: tuple[RejectCode, ...] = (
    "coefficient",
    "pairing",
    "recommend_count",
    "recommend_arguments",
    "tokens",
    "think_stop",
    "subtask",
    "subtask_guess",
    "not_one_path",
    "view_incomplete",
)
SET_LEVEL: tuple[RejectCode, ...] = ("duplicate", "near_duplicate", "ranked_out")
SWEEP_E4 = (0, 5_000, 7_000, 8_000, 9_000, 10_000)

_ONE_SWITCH: Mapping[str, tuple[RejectCode, ...]] = {  # gates that are one rule in two forms go off together
    "agentic_split": ("subtask", "subtask_guess"),
    "deduplication": ("duplicate", "near_duplicate"),
    "ranking": ("ranked_out",),
}


BY_TOKENS = "_by_tokens"  # what the name of an arm ends with that is matched so


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One filter of a comparison, by name, and what its corpus is to have as many of as the others."""

    name: str
    rules: Rules
    by: Literal["rows", "tokens"] = "rows"


def ablations(rules: Rules) -> tuple[Arm, ...]:
    """`full` (the rules themselves), `no_structural_filter`, `outcome_only`, `format_only`, one arm for each gate
    switched off, and the sweep; each but `full` by rows, and again by tokens.

    The token budget stays on where all else is off, since a trainer cannot take a longer row; it is off in its own arm
    only, which shows what it costs. `outcome_only` takes every success, whoever made it and however. `format_only` is
    what a trainer can read: `full` with what code drove beside it, as often as it was recorded, judged or not.
    """
    grouped = {code for codes in _ONE_SWITCH.values() for code in codes}
    single: dict[str, tuple[RejectCode, ...]] = {code: (code,) for code in PER_TRACE if code not in grouped}
    switches = {**single, **_ONE_SWITCH}
    everything = tuple(code for code in (*PER_TRACE, *SET_LEVEL) if code != "tokens")
    unfiltered = without(rules, everything)
    arms = [
        Arm(name="no_structural_filter", rules=unfiltered),
        Arm(name="outcome_only", rules=msgspec.structs.replace(unfiltered, is_success_needed=True)),
        Arm(name="format_only", rules=without(rules, ("coefficient", "subtask", "subtask_guess", *SET_LEVEL))),
    ]
    arms += [Arm(name=f"no_{name}", rules=without(rules, codes)) for name, codes in switches.items()]
    arms += [
        Arm(name=f"coefficient_{one}", rules=msgspec.structs.replace(rules, coefficient_e4_min=one))
        for one in SWEEP_E4
        if one != rules.coefficient_e4_min
    ]
    by_tokens = [Arm(name=f"{arm.name}{BY_TOKENS}", rules=arm.rules, by="tokens") for arm in arms]
    return (Arm(name="full", rules=rules), *arms, *by_tokens)


def without(rules: Rules, codes: Sequence[RejectCode]) -> Rules:
    """The rules with some gates off. Raises ValueError for the guard's codes and for ones that do not exist."""
    wrong = [code for code in codes if code in NEVER_OFF or code not in get_args(RejectCode)]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} cannot be switched off")
    return msgspec.structs.replace(rules, off=tuple(sorted({*rules.off, *codes})))


def matched(arms: Sequence[Arm], kept: Mapping[str, int]) -> tuple[Arm, ...]:
    """The arms by rows with the rows of the smallest of them, `kept` by name; those by tokens are left as they are.
    Raises ValueError when an arm kept nothing."""
    if not all(kept[arm.name] for arm in arms):
        raise ValueError("an arm keeps nothing: there is no size that all can have")
    rows = min(kept[arm.name] for arm in arms if arm.by == "rows")
    return tuple(
        msgspec.structs.replace(arm, rules=msgspec.structs.replace(arm.rules, rows=rows)) if arm.by == "rows" else arm
        for arm in arms
    )


def matched_by_tokens(arms: Sequence[Arm], tokens: int) -> tuple[Arm, ...]:
    """The arms by tokens with at most so many; those by rows are left as they are."""
    return tuple(
        arm
        if arm.by == "rows"
        else msgspec.structs.replace(arm, rules=msgspec.structs.replace(arm.rules, tokens=tokens))
        for arm in arms
    )
