"""Traces as lines for a terminal, and what pages of traces share.

No control character of a trace reaches the terminal (views hold neutral text), and a line is at most as wide as it is
asked for. Everything put into a page is escaped.
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from arena.evaluate import Evaluation
from arena.view.reading import TraceStep, TraceView, view_evaluation
from problems.model import OutcomeScore
from problems.score import FINDINGS, Constraint

TEXT_LINES = 12  # of one step, unless all of it is asked for


class StyledLine(NamedTuple):
    """A line, and what it is: heading, good, bad, soft, call, mark or plain."""

    text: str
    style: str = "plain"


def trace_lines(view: TraceView, width: int, *, is_whole: bool = False) -> Iterator[StyledLine]:
    """A trace from its result to its proof. `is_whole`: results and long texts are not folded."""
    yield StyledLine(view.heading[:width], "heading")
    yield from _wrapped(view.result, width, "heading")
    if view.query:
        yield from _wrapped(view.query, width)
    if view.constraints:
        yield StyledLine("\nWhat was asked, and what was found", "heading")
        for one in view.constraints:
            yield from constraint_lines(one, width)
    if view.slots:
        yield StyledLine("\nScores by product and axis", "heading")
        for (_, number), (_, recommended), *axes, (_, satisfied) in view.slots:
            hits = "  ".join(f"{name} {of_total}" for name, of_total in axes)
            yield from _wrapped(f"{number}  {recommended}  {hits}", width, "good" if satisfied == "yes" else "bad")
    if view.judges:
        yield StyledLine("\nWhat the judge said", "heading")
    for judge in view.judges:
        yield from _wrapped(judge.headline, width)
        for model, sentence in judge.sentences:
            yield from _wrapped(f"{model}: {sentence}", width, indent=2)
        for number, alike in groupby(judge.quotes, lambda one: one.number):
            quote, *others = alike
            gates = ", ".join(dict.fromkeys(one.gate for one in (quote, *others)))
            where = f"span {quote.span}" if quote.is_found else f"NOT in span {quote.span}"
            style = "mark" if quote.is_found else "bad"
            yield from _wrapped(f"[{number}] {gates}, {where}: “{quote.text}”", width, style, indent=2)
    if view.steps:
        yield StyledLine("\nWhat happened", "heading")
    for step in view.steps:
        yield from _step_lines(step, width, is_whole=is_whole)
    yield StyledLine("\nFacts", "heading")
    for name, value in (*view.facts, *view.proof):
        yield from _wrapped(f"{name}: {value}", width, indent=2)


def constraint_lines(one: Constraint, width: int) -> Iterator[StyledLine]:
    """One constraint: met or not, on which product and axis, with both values."""
    mark, style = ("ok", "good") if one.is_met else ("NO", "bad")
    where = f"product {one.slot}" if one.slot else "together"
    text = f"{mark}  {where}, {one.axis}: asked {one.asked}; found {one.found}"
    yield from _wrapped(text, width, style, indent=2)


def loss_lines(evaluation: Evaluation, constraints: Sequence[Constraint], width: int) -> Iterator[StyledLine]:
    """Why a problem earned less than 1, in about fifteen lines: what failed, what the judge said, whose calls."""
    view, outcome = view_evaluation(evaluation, constraints), evaluation.outcome
    score = "no score" if evaluation.score_e4 is None else f"score {evaluation.score_e4 / 10_000:.4f}"
    yield StyledLine(f"{view.name}  {evaluation.body.bucket}  {score}", "heading")
    yield from _wrapped(f"request: {view.query}", width, indent=2)
    asked = ", ".join(dict.fromkeys(f"{one.axis} {one.asked}" for one in view.constraints if one.axis != "title"))
    if asked:
        yield from _wrapped(f"asked: {asked}", width, indent=2)
    facts = dict(view.facts)
    yield from _wrapped(f"recommended: {facts['recommended']}", width, indent=2)
    for one in view.constraints:
        if not one.is_met:
            yield from constraint_lines(one, width)
    for finding in outcome.findings if isinstance(outcome, OutcomeScore) else ():
        yield from _wrapped(FINDINGS.get(finding, finding), width, "bad", indent=2)
    if evaluation.failure is not None:
        yield from _wrapped(f"ended: {facts['ended']}", width, "bad", indent=2)
    for judge in view.judges:
        yield from _wrapped(judge.headline, width, "soft", indent=2)
        for model, sentence in judge.sentences:
            yield from _wrapped(f"{model}: {sentence}", width, "soft", indent=2)
    foreign = next((step for step in view.steps if step.kind == "call" and step.badge != "llm"), None)
    said = "" if foreign is None else f"; the first that was not: {foreign.title} {foreign.text[:160]}"
    totals = evaluation.body.totals
    yield from _wrapped(f"calls: {totals.llm_calls} of {totals.tool_calls} by the model{said}", width, "soft", indent=2)


def _step_lines(step: TraceStep, width: int, *, is_whole: bool) -> Iterator[StyledLine]:
    parts = (str(step.span or ""), step.kind, step.title, step.badge and f"[{step.badge}]", step.facts)
    style = "call" if step.kind == "call" else "soft" if step.kind == "result" else "heading"
    yield from _wrapped(" ".join(part for part in parts if part), width, style)
    if step.rows and not is_whole:
        for row in step.rows:
            yield StyledLine(f"    {row}"[:width], "soft")
        return
    marked = "".join(
        f"«{','.join(map(str, piece.quotes))}: {piece.text}»" if piece.quotes else piece.text for piece in step.pieces
    )
    lines = list(_wrapped(marked, width, indent=4)) if marked else []
    shown = lines if is_whole else lines[:TEXT_LINES]
    yield from shown
    if len(shown) < len(lines):
        yield StyledLine(f"    … {len(lines) - len(shown)} lines more (--whole)", "soft")


def _wrapped(text: str, width: int, style: str = "plain", *, indent: int = 0) -> Iterator[StyledLine]:
    """The text in lines; what continues a line stands two further in."""
    for paragraph in text.split("\n"):
        lines = textwrap.wrap(
            paragraph, width, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2), break_on_hyphens=False
        )
        for line in lines or [""]:
            yield StyledLine(line, style)


@functools.cache
def page_templates() -> Environment:
    """The templates of this folder: escaped, and nothing may be missing. `parts.html.j2` holds what pages share."""
    return Environment(
        loader=PackageLoader("arena.view", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
