"""What a person is shown of one trace: plain values, ready for a page or a terminal.

Everything foreign in here is text that was made harmless (`judge.neutral`), and whoever renders it still
escapes it. Nothing here knows of HTML, terminals, stores or clocks.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from problems.explanation import Constraint

StepKind = Literal["user", "thought", "said", "call", "result", "refused"]
Field = tuple[str, str]  # name and value


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A run of text. `quotes` are the numbers of the judge's quotes that cover it, counted over the trace from 1."""

    text: str
    quotes: tuple[int, ...] = ()


class TraceStep(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened. `span` is its number as judges count; 0: they were not shown it."""

    span: int = 0
    turn: int = 0
    kind: StepKind
    title: str = ""  # the model or the tool
    badge: str = ""  # who wrote a call: llm, echoed, code
    facts: str = ""
    rows: tuple[str, ...] = ()  # a result in short: a product a line
    pieces: tuple[Piece, ...] = ()

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(piece.text for piece in self.pieces)


class SlotRow(msgspec.Struct, frozen=True, kw_only=True):
    """Score of one requested product: hits of total on each axis."""

    slot: int
    recommended: str
    title: str
    price: str
    service: str
    sku: str
    attribute: str
    is_satisfied: bool


class Quote(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge quoted. `is_found`: it stands in that span."""

    number: int
    span: int
    gate: str
    text: str
    is_found: bool


class JudgeView(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict, or why there is none."""

    headline: str
    sentences: tuple[Field, ...] = ()  # model and what it said
    quotes: tuple[Quote, ...] = ()


class TraceView(msgspec.Struct, frozen=True, kw_only=True):
    """One trace. `result` is one line; `proof` says signature and chain state, empty for a local run."""

    name: str
    heading: str
    result: str
    query: str
    facts: tuple[Field, ...]
    constraints: tuple[Constraint, ...] = ()
    slots: tuple[SlotRow, ...] = ()
    judges: tuple[JudgeView, ...] = ()
    steps: tuple[TraceStep, ...] = ()
    proof: tuple[Field, ...] = ()

    @property
    def agent(self) -> Field:
        """Name and id of the agent version that a record is of; empty where that is not known."""
        name, _, version = dict(self.facts).get("version", "").rpartition(" ")
        return name, version


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Why a problem earned less than 1: what failed, with both values, what the judge said, and who wrote the calls."""

    problem_id: str
    bucket: str
    score_e4: int | None
    query: str
    recommended: tuple[str, ...]
    asked: tuple[Constraint, ...]
    failed: tuple[Constraint, ...]
    failure: str = ""  # code and detail, where the run ended in a fault
    findings: tuple[str, ...] = ()
    quality_e4: int | None = None
    coefficient_e4: int | None = None
    gate: str = ""  # the judge's first gate that was not passed
    sentence: str = ""
    calls: int = 0
    llm_calls: int = 0
    first_foreign_call: str = ""  # the first call that the model did not write
