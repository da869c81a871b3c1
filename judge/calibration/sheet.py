"""A blind sheet: traces for people to rate, without a verdict, and what the filled-in forms say of raters and panel.

The form is CSV (`trace`, `quality`, `note`), one copy a rater. A trace's number says nothing of where it comes from;
which is which stands in the key, which raters do not get.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec

from foundation.canonical import text_hash
from foundation.errors import ArenaError
from harness.trace import EvaluationBody
from judge.calibration.measurement import krippendorff_alpha, quadratic_kappa
from judge.render import render
from judge.rubric import QUALITY_LEVELS_E4

FORM_FIELDS = ("trace", "quality", "note")
_LEVELS = {f"{level / 10_000:.1f}": place for place, level in enumerate(QUALITY_LEVELS_E4)}


class SheetKey(msgspec.Struct, frozen=True, kw_only=True):
    """Which trace of a sheet is which body, and the panel's quality (None: owed or not asked)."""

    body_sha256s: tuple[str, ...]
    panel_e4: tuple[int | None, ...]


class RaterAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement in ten-thousandths; None: not defined. `with_panel` is each rater's kappa with the panel, `between`
    that of two raters by their names."""

    traces: int
    alpha_e4: int | None  # between the raters
    alpha_with_panel_e4: int | None  # with the panel as one more of them
    between: Mapping[str, int | None]
    with_panel: Mapping[str, int | None]


def shuffled(bodies: Mapping[str, EvaluationBody], seed: str) -> list[str]:
    """Hashes of the bodies in an order that says nothing, the same for the same seed."""
    return sorted(bodies, key=lambda body_sha256: text_hash(f"{seed} {body_sha256}"))


def sheet_text(bodies: Sequence[EvaluationBody], instructions: str) -> str:
    """The sheet that a rater reads: how to rate, then every trace as a judge sees it."""
    traces = (f"==== TRACE {number} ====\n\n{render(body).text}" for number, body in enumerate(bodies, 1))
    return "\n\n".join((instructions, *traces)) + "\n"


def empty_form(traces: int) -> str:
    """A form with a line for each trace, to be filled in."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(FORM_FIELDS)
    writer.writerows((number, "", "") for number in range(1, traces + 1))
    return stream.getvalue()


def read_form(text: str, traces: int) -> tuple[int | None, ...]:
    """A rater's levels (places 0..4) in the sheet's order; None where the line is empty.

    Raises ArenaError V2081 naming the line that is none of the form.
    """
    given: list[int | None] = [None] * traces
    for line, row in enumerate(csv.DictReader(io.StringIO(text)), start=2):
        number, quality = (row.get("trace") or "").strip(), (row.get("quality") or "").strip().replace(",", ".")
        if not number.isdecimal() or not 1 <= int(number) <= traces:
            raise ArenaError("V2081", f"line {line} of the form: no trace {number!r}")
        if quality and quality not in _LEVELS:
            raise ArenaError(
                "V2081", f"line {line} of the form: quality {quality!r} is not one of {', '.join(_LEVELS)}"
            )
        given[int(number) - 1] = _LEVELS[quality] if quality else None
    return tuple(given)


def compare_raters(forms: Mapping[str, Sequence[int | None]], key: SheetKey) -> RaterAgreement:
    """How far raters agree with each other and with the panel."""
    panel = [None if quality is None else QUALITY_LEVELS_E4.index(quality) for quality in key.panel_e4]
    columns = list(forms.values())
    return RaterAgreement(
        traces=len(panel),
        alpha_e4=_e4(krippendorff_alpha(list(zip(*columns, strict=True)))),
        alpha_with_panel_e4=_e4(krippendorff_alpha(list(zip(*columns, panel, strict=True)))),
        between={f"{one} and {two}": _kappa(forms[one], forms[two]) for one, two in combinations(sorted(forms), 2)},
        with_panel={name: _kappa(given, panel) for name, given in sorted(forms.items())},
    )


def _kappa(one: Sequence[int | None], other: Sequence[int | None]) -> int | None:
    return _e4(quadratic_kappa([(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]))


def _e4(value: float | None) -> int | None:
    return None if value is None else round(value * 10_000)
