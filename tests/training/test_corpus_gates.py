"""The per-trace rules: precise and complete on traces whose faults are known by construction."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.training.labelled import Labelled, Maker, make_labelled, stand_guard
from training.corpus.appraisal import Appraised, Task, codes_under
from training.corpus.gates import NEVER_OFF, codes_of, gates, recommended_ids
from training.corpus.model import RejectCode, Rules
from training.corpus.selection import appraise

# without what the filter's own rules do not ask for
PER_TRACE: tuple[RejectCode, ...] = tuple(code for code in get_args(RejectCode)[:12] if code != "failed")


@pytest.fixture(scope="module")
def labelled() -> list[Labelled]:
    return make_labelled(2_400)


@pytest.fixture(scope="module")
def appraised(labelled: list[Labelled]) -> Appraised:
    return appraise([lambda: [one.trace for one in labelled]], Task(arms=(Rules(),)), stand_guard)


def test_every_trace_is_rejected_for_exactly_what_is_wrong_with_it(
    labelled: list[Labelled], appraised: Appraised
) -> None:
    assert len(labelled) >= 2_000
    found = [codes_under(one, Rules()) for one in appraised]
    wrong = {(one.kind, one.codes, codes) for one, codes in zip(labelled, found, strict=True) if codes != one.codes}
    assert not wrong


def test_a_gate_that_is_off_rejects_nothing_and_changes_no_other(labelled: list[Labelled]) -> None:
    every = gates()
    for one in labelled[:200]:
        for code in set(PER_TRACE) - NEVER_OFF:
            expected = tuple(found for found in codes_of(one.trace, Rules(), every) if found != code)
            assert codes_of(one.trace, Rules(off=(code,)), every) == expected


@pytest.mark.parametrize("code", sorted(NEVER_OFF))
def test_the_leak_guard_cannot_be_switched_off(code: RejectCode) -> None:
    with pytest.raises(ValueError, match=code):
        codes_of(Maker(1).good("silent").trace, Rules(off=(code,)), gates())
    with pytest.raises(ValueError, match=code):
        Task(arms=(Rules(), Rules(off=(code,))))


def test_ids_of_a_trace_that_records_none_are_held_against_the_callers() -> None:
    one = Maker(2).malformed("nothing known to surface")
    ids = frozenset(one.trace.facts.recommended or ())
    assert codes_of(one.trace, Rules(), gates()) == ("recommend_arguments",)
    assert codes_of(one.trace, Rules(), gates(ids)) == ()
    assert codes_of(one.trace, Rules(), gates(frozenset({"77"}))) == ("recommend_arguments",)


@pytest.mark.parametrize(
    ("arguments", "strict", "lenient"),
    [
        ('{"product_ids": "1, 2,,1"}', ("1", "2"), ("1", "2")),
        ('{"product_ids": ["1", "2"]}', (), ("1", "2")),
        ('{"product_id": "1"}', (), ("1",)),
        ('{"product_ids": ["1", 2]}', (), ()),
        ('{"product_ids": null}', (), ()),
        ("[" * 5_000, (), ()),
        ('"1"', (), ()),
    ],
)
def test_the_forms_of_a_recommendation_that_are_read(
    arguments: str, strict: tuple[str, ...], lenient: tuple[str, ...]
) -> None:
    assert recommended_ids(arguments, is_strict=True) == strict
    assert recommended_ids(arguments, is_strict=False) == lenient
