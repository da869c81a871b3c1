"""How records look as text: verification results, one-line summaries, one record with its outcome and its turns.

Everything agents and models wrote is shown as it is: never as markup, never as terminal control codes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from arena.records.body import Unread
from arena.records.model import (
    AttemptRecord,
    EvaluationRecord,
    GateRecord,
    Payload,
    RecordContent,
    ReleaseRecord,
    SettlementRecord,
    SignedRecord,
    VerdictRecord,
)
from arena.records.verify.report import DEFECTS_KEPT, VerifyReport
from arena.records.verify.sources import SourcesReport
from harness.trace import Completion, EvaluationBody, ToolCall
from judge.verdict import UnscoredVerdict, Verdict
from neurons.cli.presenter import cut, printable, share_text
from problems.scoring.outcome import OutcomeScore, UnscoredOutcome

DEFECTS_SHOWN = 10
EMPTY: Mapping[str, str] = MappingProxyType({})


def report_lines(report: VerifyReport) -> Iterator[str]:
    """The verification's result: how far it went, what it could not check, and the bad records, the first one first."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in report.kinds.items())
    yield f"{report.records} records ({kinds or 'none'}), {report.bodies} bodies, {len(report.logs)} logs"
    for log in report.logs:
        point = log.checkpoint
        yield f"  {point.validator}  {log.head.seq} records  head {log.head.hash[:16]}  root {point.root[:16]}"
    checked = sum(anchor.is_checked for anchor in report.anchors)
    if report.checkpoints:
        yield f"  compared with {report.checkpoints} signed checkpoints, {checked} of them with the chain"
    if checked < len(report.anchors):
        yield f"  {len(report.anchors) - checked} anchors not checked against the chain: give --chain"
    if report.leaves:
        yield f"  {report.leaves} records before --since: chain and tree checked, contents not read"
    for name, count in report.unread.items():
        yield f"  {count} of {name}: a later format, its hashes and signatures hold, its content was not read"
    if report.is_ok:
        yield "ok: every signature, link, body and reference holds" + " after --since" * bool(report.leaves)
        return
    first = report.defects[0]
    yield printable(f"V2050 record {first.seq} of {first.validator} does not verify: {first.rule}: {first.detail}")
    for defect in report.defects[1:DEFECTS_SHOWN]:
        yield printable(f"      record {defect.seq} of {defect.validator}: {defect.rule}: {defect.detail}")
    if report.defect_count > DEFECTS_SHOWN:
        yield f"      and {report.defect_count - DEFECTS_SHOWN} more; up to {DEFECTS_KEPT} of them with --json"


def source_lines(report: SourcesReport) -> Iterator[str]:
    """What became of the agents' sources beside the log."""
    if report.checked:
        yield f"{report.checked} sources of agents, {len(report.defects)} of them wrong"
    for wrong in report.defects[:DEFECTS_SHOWN]:
        yield printable(f"V2050 agent {wrong.agent_version_id} in the store of {wrong.validator}: {wrong.detail}")


def record_line(record: SignedRecord, content: RecordContent, names: Mapping[str, str] = EMPTY) -> str:
    """One record in one line of 80 columns. `names`: of agent versions, where they are known."""
    payload = content.payload
    if isinstance(payload, SettlementRecord | ReleaseRecord):
        about = f"race {payload.race_id}"
    elif isinstance(payload, GateRecord):
        about = f"{payload.decided_by:<8} {_named(payload.subject.agent_version_id, names)}"
    else:
        about = f"{payload.context.problem_id[:8]} {_named(payload.subject.agent_version_id, names)}"
    when = f"{record.seq:>6} {utc_time(content.recorded_ms)[5:]} {kind_of(payload):<10}"
    return printable(f"{when} {about} {result_of(payload, names)}")


def _named(agent_version_id: str, names: Mapping[str, str]) -> str:
    """An agent's name and its hash, in 22 columns."""
    name = names.get(agent_version_id, "").split(" ")[0]
    return f"{name[:13]} {agent_version_id[:8]}".strip().ljust(22)


def result_of(payload: Payload, names: Mapping[str, str] = EMPTY) -> str:
    """One payload's result in a few words."""
    if isinstance(payload, EvaluationRecord):
        if not isinstance(payload.outcome, OutcomeScore):
            return f"unscored {payload.outcome.failure.code}"
        ended = f" ({payload.failure.code})" if payload.failure else ""
        return ("success" if payload.outcome.is_success else "failure") + ended
    if isinstance(payload, VerdictRecord):
        verdict = payload.verdict
        return f"quality {share_text(verdict.quality_e4)}" if isinstance(verdict, Verdict) else verdict.failure.code
    if isinstance(payload, AttemptRecord):
        return payload.ended + (f" {payload.failure.code}" if payload.failure else "")
    if isinstance(payload, ReleaseRecord):
        return f"{len(payload.problems)} problems released"
    if isinstance(payload, GateRecord):
        return " ".join(part for part in (payload.outcome, payload.severity or payload.hold) if part)
    return f"{payload.state}, top {_named(payload.top_agent_version_id, names)}".strip()


def render_record(
    record: SignedRecord,
    content: RecordContent | Unread | None,
    body: EvaluationBody | None,
    verdicts: Sequence[Verdict | UnscoredVerdict],
) -> list[RenderableType]:
    """One record, part by part. `verdicts` are those on the body of an evaluation."""
    if not isinstance(content, RecordContent):
        what = f"{content.name}: a later format" if content else "its content can't be decoded"
        shown = record.content.decode(errors="replace")
        return [_text(f"record {record.seq} of {record.validator}\n{what}\n{shown}")]
    payload = content.payload
    parts: list[RenderableType] = [
        _text(f"record {record.seq} of {record.validator}"),
        _text(f"{kind_of(payload)} · {utc_time(content.recorded_ms)} · {result_of(payload)}"),
        _text(f"content {record.content_sha256}  prev {record.prev}"),
    ]
    if not isinstance(payload, EvaluationRecord):
        return [*parts, _fields(plain(payload))]
    parts.append(_fields({"attempt": payload.attempt_id, **plain(payload.subject), **plain(payload.context)}))
    parts.append(_fields(plain(payload.conditions) | {"stop": payload.stop, **plain(payload.totals)}))
    parts += _render_outcome(payload.outcome)
    for verdict in verdicts:
        if not isinstance(verdict, Verdict):
            parts.append(_text(f"no verdict: {verdict.failure.code} {verdict.failure.detail}"))
            continue
        shares = f"quality {share_text(verdict.quality_e4)}, coefficient {share_text(verdict.coefficient_e4)}"
        parts.append(_text(f"verdict {verdict.rubric_id}: {shares}, spread {share_text(verdict.spread_e4)}"))
        for opinion in verdict.opinions:
            about = f"{share_text(opinion.quality_e4)}: {cut(opinion.explanation)}"
            parts.append(_text(f"  {opinion.model}: {about}"))
            parts += [_text(f"    span {one.span} ({one.gate}): “{one.quote}”") for one in opinion.citations]
    if body is None:
        return [*parts, _text(f"body {payload.body_sha256} is not stored")]
    return [*parts, _text(f"body {payload.body_sha256}\nquery: {body.query}"), *_render_turns(body)]


def _render_outcome(outcome: OutcomeScore | UnscoredOutcome) -> list[RenderableType]:
    from problems.scoring.score import FINDINGS

    if not isinstance(outcome, OutcomeScore):
        return [_text(f"unscored: {outcome.failure.code} {outcome.failure.detail}")]
    axes = ("title", "price", "service", "sku", "attribute")
    table = Table("slot", "recommended", "answer", *axes, "rule", title="outcome by slot and axis")
    for place, slot in enumerate(outcome.slots, start=1):
        hits = [f"{getattr(slot, axis).hits}/{getattr(slot, axis).total}" for axis in axes]
        answer = "yes" if slot.is_answer else ("unsurfaced" if slot.is_unsurfaced else "no")
        table.add_row(str(place), slot.recommended_id or "-", answer, *hits, f"{slot.rule_hits}/{slot.rule_total}")
    facts = {
        "success": outcome.is_success,
        "rule": share_text(outcome.rule_e4),
        "reward": share_text(outcome.reward_e4),
    }
    said = "; ".join(f"{one}: {FINDINGS[one]}" if one in FINDINGS else one for one in outcome.findings)
    return [table, _fields(facts | {"titles": outcome.titles, "findings": said or "-"})]


def _render_turns(body: EvaluationBody) -> list[RenderableType]:
    from harness.emission.attribution import EMISSION, FIRST_EMISSION, emitters_of, version_of
    from harness.emission.call_reader import CallReader
    from harness.tools.registry import PROFILES, profile_schemas

    turns: list[RenderableType] = []
    for event in body.events:
        if isinstance(event, Completion):
            tokens = f"{event.prompt_tokens}+{event.completion_tokens} tokens"
            turns.append(_text(f"[{event.step}] {event.model} ({tokens}): {cut(event.reasoning + event.content)}"))
        elif isinstance(event, ToolCall):
            said = f"{event.name} by {event.emitter} {cut(event.arguments)}"
            turns.append(_text(f"    {said}\n    -> {cut(event.result)}"))
        else:
            turns.append(_text(f"[{event.step}] refused: {event.failure.code} {event.failure.detail}"))
    turns.append(_text(f"stop: {body.stop}; recommended: {', '.join(body.recommended or ()) or '-'}"))
    if body.tool_profile in PROFILES and version_of(body) in (FIRST_EMISSION, EMISSION):
        recorded = tuple(event.emitter for event in body.events if isinstance(event, ToolCall))
        again = emitters_of(body, CallReader(profile_schemas(body.tool_profile)))
        differ = sum(one != two for one, two in zip(recorded, again, strict=True))
        said = f"{differ} of {len(again)} calls come out otherwise" if differ else "as recorded"
        turns.append(_text(f"who wrote the calls, worked out again by {version_of(body)}: {said}"))
    return turns


def _fields(values: dict[str, Any]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for name, value in values.items():
        table.add_row(_text(name), _text(cut(str(value))))
    return table


def _text(text: str) -> Text:
    return Text(printable(text))


def utc_time(unix_ms: int) -> str:
    """A time of a record, in UTC to the second; as a number where no calendar has it."""
    try:
        return datetime.fromtimestamp(unix_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{unix_ms} ms"


def kind_of(payload: Payload) -> str:
    """The kind's name, as in the canonical bytes."""
    return str(payload.__struct_config__.tag)


def plain(value: object) -> Any:
    """Builtins of a typed value, for JSON and for tables of fields."""
    return msgspec.to_builtins(value)


def plain_content(record: SignedRecord, content: RecordContent | Unread | None) -> Any:
    """A content's builtins; the text of one that was not decoded."""
    return plain(content) if isinstance(content, RecordContent) else record.content.decode(errors="replace")


def envelope(record: SignedRecord) -> dict[str, Any]:
    """What surrounds a record's content."""
    return {name: value for name, value in plain(record).items() if name != "content"}
