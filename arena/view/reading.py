"""From what is stored of a trace to what a person is shown of it. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from arena.evaluate import Evaluation
from arena.records.model import StoredCheckpoint
from harness.trace import Completion, EvaluationBody, Event, ToolCall
from judge.render import Span, neutral_name, neutral_text, render
from judge.rubric import GATES, QUALITY_LEVELS_E4, Rubric
from judge.verdict import UnscoredVerdict, Verdict, counted_verdict
from problems.model import AXES, OutcomeScore, UnscoredOutcome
from problems.score import Constraint

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
    slots: tuple[tuple[Field, ...], ...] = ()  # the scores of each requested product: hits of total on each axis
    judges: tuple[JudgeView, ...] = ()
    steps: tuple[TraceStep, ...] = ()
    proof: tuple[Field, ...] = ()


ROW_CHARS = 100  # of a product in a folded result
ROWS_SHOWN = 10
_KINDS: dict[str, StepKind] = {"completion": "said", "call": "call", "result": "result", "refused": "refused"}
GATE_QUESTIONS = {  # what each gate asks, as people say it
    "inference_present": "does the model think for itself?",
    "results_analysed": "does it say what the results show?",
    "data_cited": "does it name a price, a title or an attribute?",
    "candidates_compared": "does it compare candidates before it chooses?",
}


class _FoundProduct(msgspec.Struct):
    """The fields of a product in a tool result that are shown when it is folded."""

    product_id: str = ""
    title: str = ""
    price: float | None = None
    service: tuple[str, ...] = ()
    sku_options: dict[str, dict[str, str]] = {}
    attributes: dict[str, tuple[str, ...]] = {}

    def __str__(self) -> str:
        if self.title or self.price is not None:
            price = "-" if self.price is None else f"{self.price:g}"
            return f"{self.product_id}  {price} PHP  {' '.join(self.service) or '-'}  {self.title}"
        known = {name: "/".join(values) for name, values in self.attributes.items()}
        for option in self.sku_options.values():
            known |= {name: f"{known[name]}/{value}" if name in known else value for name, value in option.items()}
        return f"{self.product_id}  {', '.join(f'{name}: {value}' for name, value in known.items()) or 'no attributes'}"


_PRODUCTS = msgspec.json.Decoder(list[_FoundProduct])


def view_trace(
    body: EvaluationBody,
    *,
    name: str = "",
    outcome: OutcomeScore | UnscoredOutcome | None = None,
    verdicts: Sequence[Verdict | UnscoredVerdict] = (),
    rubric: Rubric | None = None,
    constraints: Sequence[Constraint] = (),
    facts: Sequence[Field] = (),
    proof: Sequence[Field] = (),
) -> TraceView:
    """The view of a body with what is known about it. `facts` stand before the body's own; `rubric`: under which a
    verdict counts."""
    trace = render(body)
    texts = {span.number: span.whole for span in trace.spans}
    judges = tuple(_numbered(verdicts, texts))
    quotes = [quote for judge in judges for quote in judge.quotes if quote.is_found]
    totals = body.totals
    own = (
        ("problem", body.problem_id),
        ("bucket", body.bucket),
        ("agent", body.agent_sha256),
        ("ended", body.stop + (f": {body.failure.code} {body.failure.detail}" if body.failure else "")),
        ("recommended", ", ".join(body.recommended or ()) or "nothing"),
        ("calls", f"{totals.llm_calls} by the model, {totals.echoed_calls} echoed, {totals.code_calls} by code"),
        ("tokens", f"{totals.prompt_tokens} read, {totals.completion_tokens} written, {totals.steps} completions"),
        ("body", body.body_hash()),
    )
    return TraceView(
        name=name or neutral_name(body.problem_id),
        heading=f"{neutral_name(body.problem_id)} ({body.bucket})",
        result=result_line(outcome, verdicts, rubric),
        query=neutral_text(body.query),
        facts=tuple((key, neutral_text(value)) for key, value in (*facts, *own)),
        constraints=tuple(  # a problem may come from a file of anybody's
            msgspec.structs.replace(one, asked=neutral_text(one.asked), found=neutral_text(one.found))
            for one in constraints
        ),
        slots=tuple(_slots(outcome)) if isinstance(outcome, OutcomeScore) else (),
        judges=judges,
        steps=tuple(_steps(body, trace.spans, quotes)),
        proof=tuple((key, neutral_text(value)) for key, value in proof),
    )


def view_evaluation(evaluation: Evaluation, constraints: Sequence[Constraint]) -> TraceView:
    """The view of a local run on one problem."""
    verdicts = () if evaluation.verdict is None else (evaluation.verdict,)
    facts = (("sandbox", evaluation.sandbox.name), ("time", f"{evaluation.cost.episode_ms / 1000:.1f} s"))
    return view_trace(
        evaluation.body, outcome=evaluation.outcome, verdicts=verdicts, constraints=constraints, facts=facts
    )


def result_line(
    outcome: OutcomeScore | UnscoredOutcome | None,
    verdicts: Sequence[Verdict | UnscoredVerdict] = (),
    rubric: Rubric | None = None,
) -> str:
    """Outcome, coefficient and score in one line."""
    if outcome is None:
        return "not scored here"
    if not isinstance(outcome, OutcomeScore):
        return f"unscored: {outcome.failure.code} {neutral_text(outcome.failure.detail)}"
    said = f"{'solved' if outcome.is_success else 'not solved'}, rule {outcome.rule_e4 / 10_000:.4f}"
    counted = counted_verdict(verdicts, rubric)
    if not isinstance(counted, Verdict):
        return f"{said}, not judged"
    score_e4 = counted.coefficient_e4 if outcome.is_success else 0
    return f"{said}, coefficient {counted.coefficient_e4 / 10_000:.4f}, score {score_e4 / 10_000:.4f}"


def _slots(outcome: OutcomeScore) -> Iterator[tuple[Field, ...]]:
    for number, slot in enumerate(outcome.slots, 1):
        how = " (the answer)" if slot.is_answer else " (unsurfaced)" if slot.is_unsurfaced else ""
        recommended = f"{neutral_name(slot.recommended_id)}{how}" if slot.recommended_id else "nothing"
        axes = ((axis, getattr(slot, axis)) for axis in AXES)
        hits = ((name, f"{axis.hits}/{axis.total}" if axis.total else "-") for name, axis in axes)
        satisfied = "yes" if slot.is_satisfied else "NO"
        yield ("product", str(number)), ("recommended", recommended), *hits, ("satisfied", satisfied)


def _numbered(verdicts: Sequence[Verdict | UnscoredVerdict], texts: dict[int, str]) -> Iterator[JudgeView]:
    numbers: dict[tuple[int, str], int] = {}  # the same words are one quote, whatever they are said for
    for verdict in verdicts:
        if not isinstance(verdict, Verdict):
            yield JudgeView(headline=f"no verdict: {verdict.failure.code} {neutral_text(verdict.failure.detail)}")
            continue
        quotes = []
        for opinion in verdict.opinions:
            for cited in opinion.citations:
                text = neutral_text(cited.quote)
                number = numbers.setdefault((cited.span, text.strip()), len(numbers) + 1)
                found = text.strip() in texts.get(cited.span, "")
                quotes.append(Quote(number=number, span=cited.span, gate=cited.gate, text=text, is_found=found))
        passed = sum(level <= verdict.quality_e4 for level in QUALITY_LEVELS_E4) - 1
        missed = GATES[max(0, passed)] if passed < len(GATES) else ""  # the first that the trace did not pass
        asked = f"; first gate missed: {missed} ({GATE_QUESTIONS[missed]})" if missed else "; every gate passed"
        refused = tuple(
            (neutral_name(one.model), f"no usable reply: {neutral_text(one.reason)}") for one in verdict.refused
        )
        if verdict.refused and len(verdict.opinions) <= len(verdict.refused):
            asked = "; half of the panel or more was put off by the trace"
        shares = f"quality {verdict.quality_e4 / 10_000:.4f}, coefficient {verdict.coefficient_e4 / 10_000:.4f}"
        said = tuple((neutral_name(one.model), neutral_text(one.explanation)) for one in verdict.opinions)
        yield JudgeView(
            headline=f"{verdict.rubric_id}: {shares}{asked}",
            sentences=(*said, *refused) or (("code", "no inference before the recommendation, so no model was asked"),),
            quotes=tuple(quotes),
        )


def _steps(body: EvaluationBody, spans: Sequence[Span], quotes: Sequence[Quote]) -> Iterator[TraceStep]:
    """Every event: those that judges are shown by the numbers of their spans, then what is beyond."""
    shown = iter(spans[1:])
    yield TraceStep(span=1, kind="user", title="the user", pieces=_pieces(spans[0], quotes))
    for event in body.events:
        for place in range(2 if isinstance(event, ToolCall) else 1):
            span = next(shown, None)
            if span is None:
                yield _unshown(event, place)
                continue
            facts = []
            rows: tuple[str, ...] = ()
            if isinstance(event, Completion):
                facts.append(f"{event.prompt_tokens} + {event.completion_tokens} tokens")
                if span.echo_e4:
                    facts.append(f"{span.echo_e4 // 100} % stood in the request")
            if span.kind == "result" and isinstance(event, ToolCall):
                rows = result_rows(event.result)
                facts.append(f"{len(event.result)} characters")
            if span.surfaced:
                facts.append(f"{len(span.surfaced)} new product{'s' if len(span.surfaced) != 1 else ''}")
            if span.is_error:
                facts.append("tool error")
            yield TraceStep(
                span=span.number,
                turn=span.step,
                kind=_KINDS[span.kind],
                title=span.model or span.tool,
                badge=span.emitter or "",
                facts=", ".join(facts),
                rows=rows,
                pieces=_pieces(span, quotes),
            )


def _unshown(event: Event, place: int) -> TraceStep:
    """An event beyond what judges are shown. `place` 1: a call's result."""
    if isinstance(event, Completion):
        text = neutral_text("\n".join(part for part in (event.reasoning, event.content) if part.strip()))
        return TraceStep(turn=event.step, kind="said", title=neutral_name(event.model), pieces=(Piece(text=text),))
    if not isinstance(event, ToolCall):
        return TraceStep(kind="refused")
    title, pieces = neutral_name(event.name), (Piece(text=neutral_text(event.result if place else event.arguments)),)
    if place:
        return TraceStep(turn=event.step, kind="result", title=title, pieces=pieces)
    return TraceStep(turn=event.step, kind="call", title=title, badge=event.emitter, pieces=pieces)


def _pieces(span: Span, quotes: Sequence[Quote]) -> tuple[Piece, ...]:
    """The span's whole text, cut where quotes begin and end; each quote is marked where it first stands."""
    text = span.whole
    places = []
    for quote in quotes:
        wanted = quote.text.strip()
        if quote.span == span.number and wanted and (start := text.find(wanted)) >= 0:
            places.append((start, start + len(wanted), quote.number))
    edges = sorted({0, len(text), *(edge for start, end, _ in places for edge in (start, end))})
    return tuple(
        Piece(
            text=text[start:end],
            quotes=tuple(dict.fromkeys(number for begin, until, number in places if begin <= start and end <= until)),
        )
        for start, end in itertools.pairwise(edges)
    )


def result_rows(result: str) -> tuple[str, ...]:
    """Products in short: price, service and title of each, or its attributes and options; none for another result."""
    try:
        products = _PRODUCTS.decode(result)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ()
    return tuple(neutral_text(str(one))[:ROW_CHARS].replace("\n", " ") for one in products[:ROWS_SHOWN])


def chain_fact(seq: int, points: Sequence[StoredCheckpoint]) -> Field:
    """The first signed checkpoint over a record, and the block that holds it."""
    over = sorted((point for point in points if point.size >= seq), key=lambda point: point.size)
    first = next((point for point in over if point.anchor_block), next(iter(over), None))
    if first is None:
        return "chain", "no signed checkpoint covers it yet"
    held = f"anchored in block {first.anchor_block}" if first.anchor_block else "not anchored on chain yet"
    return "chain", f"under the signed checkpoint of {first.size} records, {held}"
