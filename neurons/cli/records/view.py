"""How records look as text: verification results, one-line summaries, one record. A trace looks as in `arena view`.

Everything agents and models wrote is shown as it is: never as markup, never as terminal control codes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import msgspec

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
from arena.view.lines import StyledLine, trace_lines
from arena.view.model import Field, TraceView
from harness.trace import EvaluationBody, ToolCall
from judge.verdict import Verdict
from neurons.cli.presenter import cut, printable, share_text
from problems.scoring.outcome import OutcomeScore

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
        yield f"  anchors not checked against the chain: {len(report.anchors) - checked}; --chain checks them"
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


def record_lines(
    record: SignedRecord, content: RecordContent | Unread | None, trace: TraceView | None, *, width: int, is_whole: bool
) -> Iterator[StyledLine]:
    """One record: what it says, and of an evaluation its `trace`. `is_whole`: nothing is folded or cut."""
    yield StyledLine(f"record {record.seq} of {record.validator}", "heading")
    if not isinstance(content, RecordContent):
        yield StyledLine(f"{content.name}: a later format" if content else "its content can't be decoded", "bad")
        yield StyledLine(printable(record.content.decode(errors="replace")))
        return
    payload = content.payload
    yield StyledLine(printable(f"{kind_of(payload)} · {utc_time(content.recorded_ms)} · {result_of(payload)}"), "soft")
    if trace is not None:
        yield from trace_lines(trace, width, is_whole=is_whole)
        return
    yield from _field_lines(
        {"content": record.content_sha256, "prev": record.prev, **plain(payload)}, is_whole=is_whole
    )


def _field_lines(fields: Mapping[str, Any], indent: int = 0, *, is_whole: bool) -> Iterator[StyledLine]:
    """A line a field; the fields of a value inside stand below its name, two further in."""
    for name, value in fields.items():
        label = f"{' ' * indent}{name.replace('_', ' ')}"
        inside = value if isinstance(value, list | tuple) else [value]
        if inside and all(isinstance(one, dict) for one in inside):
            for number, one in enumerate(inside, 1):
                yield StyledLine(f"{label} {number}" if len(inside) > 1 else label)
                yield from _field_lines(one, indent + 2, is_whole=is_whole)
            continue
        text = "-" if value in ("", None, (), []) else str(value)
        yield StyledLine(printable(f"{label:<22} {text if is_whole else cut(text)}"))


def attribution_facts(body: EvaluationBody) -> tuple[Field, ...]:
    """Who wrote the calls, worked out again from the body; none for a profile or a rule that this release lacks."""
    from harness.emission.attribution import EMISSION, emitters_of
    from harness.emission.call_reader import CallReader
    from harness.tools.registry import PROFILES, profile_schemas

    if body.tool_profile not in PROFILES or (body.emission or EMISSION) != EMISSION:
        return ()
    recorded = tuple(event.emitter for event in body.events if isinstance(event, ToolCall))
    again = emitters_of(body, CallReader(profile_schemas(body.tool_profile)))
    differ = sum(one != two for one, two in zip(recorded, again, strict=True))
    said = f"{differ} of {len(again)} calls come out otherwise" if differ else "as recorded"
    return ((f"who wrote the calls, worked out again by {EMISSION}", said),)


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
