"""From stored records to rows: a page of the log is loaded, each record becomes its log row, and its trajectory.

A record is embedded as the bytes that were signed, never re-encoded; one that can't be read becomes a stub and
never an exception. A page of some hundred records is all that is held. `load_page` talks to the store; `assemble` is a
pure function of what it loaded and runs beside the event loop.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from arena.export.files import LOG, REFERENCES, read_rows
from arena.export.model import Cursor, Filters, LogRow, Request, Trajectory, Withheld
from arena.policy import Policy
from arena.records import model
from arena.records.body import decode_body, decode_content, is_canonical, restore_frame
from arena.records.log import SHA256
from arena.secrets import find_secrets, holds_secret, scrub
from arena.visibility.rule import Moment, Thing, may_see, settlement_moment, standing_of
from foundation.errors import ArenaError
from harness.trace import EvaluationBody
from judge.rubric import Rubric
from judge.verdict import UnscoredVerdict, Verdict, counted_verdict
from problems.model import Pool

if TYPE_CHECKING:
    from arena.store.postgres import PostgresStore

AboutProblem = model.EvaluationRecord | model.VerdictRecord | model.AttemptRecord


class Selection:
    """The choice one request makes, given the releases that are in the log up to its end."""

    def __init__(
        self, request: Request, releases: Mapping[str, model.ReleaseRecord], start: Cursor, embargoed: Collection[str]
    ) -> None:
        """`releases`: by race; `embargoed`: the released races whose traces stay sealed for now. Raises ArenaError
        V2030 when a day of the filters is not a day."""
        self.request = request
        self._releases = {
            race_id: {problem.problem_id: problem for problem in record.problems}
            for race_id, record in releases.items()
        }
        self._embargoed = embargoed
        self.start = start
        self._from_ms = _day_ms(request.filters.from_day)
        self._to_ms = _day_ms(request.filters.to_day, days=1)

    def reason(self, seq: int, content: model.RecordContent) -> Withheld | None:
        """Why this record is left out as far as it says itself; None when only its size or contents could hold it."""
        payload = content.payload
        if isinstance(payload, model.ReleaseRecord):
            return None
        if isinstance(payload, model.SettlementRecord):
            race_moment: Moment = "settled" if payload.race_id in self._releases else "racing"
            withheld = self._withheld("settlement", settlement_moment(payload, race_moment))
            is_asked = not self.request.filters.races or payload.race_id in self.request.filters.races
        elif isinstance(payload, model.GateRecord):
            withheld = self._withheld("gate_verdict", "open")
            is_asked = not self.request.filters.races and self._is_of_agent(payload.subject)
        else:
            moment, pool = standing_of(payload.context, self._releases, self._embargoed)
            withheld = self._withheld("verdict" if isinstance(payload, model.VerdictRecord) else "trace", moment, pool)
            is_asked = self._is_asked(content.recorded_ms, payload)
        if withheld:
            return withheld
        if not is_asked:
            return "filter"
        race = race_of(content)
        is_exported = seq <= self.start.exported_to and (not race or race in self.start.races)
        return "exported" if is_exported else None

    def evaluation_reason(
        self, evaluation: model.EvaluationRecord, body: EvaluationBody, verdict: Verdict | UnscoredVerdict | None
    ) -> Withheld | None:
        """Why an evaluation is left out for what its body and verdict say."""
        filters: Filters = self.request.filters
        if filters.buckets and body.bucket not in filters.buckets:
            return "filter"
        if filters.is_agentic_only and not evaluation.is_agentic:
            return "filter"
        least = filters.coefficient_e4_min
        if least and not (isinstance(verdict, Verdict) and verdict.coefficient_e4 >= least):
            return "filter"
        return None

    def is_released(self, race_id: str) -> bool:
        """Whether nothing of this race waits any more. What belongs to no race never waits."""
        return not race_id or (race_id in self._releases and race_id not in self._embargoed)

    def problem(self, evaluation: model.EvaluationRecord) -> tuple[Pool, str]:
        """Pool and cluster id of an evaluation that goes out."""
        released = self._releases.get(evaluation.context.race_id, {}).get(evaluation.context.problem_id)
        if evaluation.context.stage != "race" or released is None:
            return "never_touch", ""
        return released.pool, released.cluster_id

    def _withheld(self, thing: Thing, moment: Moment, pool: Pool | None = None) -> Withheld | None:
        """Why a row about this does not go out to everybody."""
        access = may_see("public", thing, moment, pool=pool, pools=self.request.pools)
        if access.is_seen:
            return None
        return "pool" if access.opens in ("named", "never") else "unreleased"

    def _is_asked(self, recorded_ms: int, payload: AboutProblem) -> bool:
        filters, subject = self.request.filters, payload.subject
        if subject.is_control and subject.agent_version_id not in filters.agents:
            return False  # no miner's work: goes out only when its id is asked for
        if filters.races and payload.context.race_id not in filters.races:
            return False
        if not self._is_of_agent(payload.subject):
            return False
        if not isinstance(payload, model.EvaluationRecord):
            return True
        is_late_enough = self._from_ms is None or recorded_ms >= self._from_ms
        return is_late_enough and (self._to_ms is None or recorded_ms < self._to_ms)

    def _is_of_agent(self, subject: model.Subject) -> bool:
        asked = self.request.filters.agents
        return not asked or bool({subject.agent_version_id, subject.miner_hotkey} & set(asked))


def race_of(content: model.RecordContent) -> str:
    """The race a record's release waits for, or "" for a record that belongs to none."""
    payload = content.payload
    if isinstance(payload, model.ReleaseRecord | model.SettlementRecord):
        return payload.race_id
    if isinstance(payload, model.GateRecord):
        return ""
    return payload.context.race_id if payload.context.stage == "race" else ""


def check_request(request: Request) -> None:
    """Raises ArenaError V2030 for a request nothing can be made of."""
    for day in (request.filters.from_day, request.filters.to_day):
        _day_ms(day)
    if request.rows_per_shard < 1 or request.row_bytes_max < 1:
        raise ArenaError("V2030", "a shard has at least one row, and a row at least one byte")
    if not request.pools or not request.formats:
        raise ArenaError("V2030", "name at least one pool and one format")
    if len(set(request.formats)) != len(request.formats) or len(set(request.pools)) != len(request.pools):
        raise ArenaError("V2030", "a format or pool is named twice")


def _day_ms(day: str, *, days: int = 0) -> int | None:
    """Unix milliseconds at the start of a UTC day, or of the day that many days later; None for ""."""
    if not day:
        return None
    try:
        start = date.fromisoformat(day)
        if start.isoformat() != day:
            raise ValueError("not YYYY-MM-DD")
        start += timedelta(days=days)
    except (ValueError, OverflowError) as error:
        raise ArenaError("V2030", f"{day!r} is not a day: {error}") from error
    return int(datetime.combine(start, time(), UTC).timestamp() * 1000)


def read_releases(folder: Path) -> tuple[model.ReleaseRecord, ...]:
    """The release records of a verified export and of its references, each once, by their numbers. Raises ArenaError
    V2050 for a line that can't be read."""
    references = folder / REFERENCES
    paths = [*([references] if references.exists() else []), *sorted((folder / LOG).glob("*.jsonl.zst"))]
    found: dict[int, model.ReleaseRecord] = {}
    for path in paths:
        for row in read_rows(path):
            payload = None if row.content is None else decode_content(bytes(row.content)).payload
            if isinstance(payload, model.ReleaseRecord):
                found[row.seq] = payload
    return tuple(found[seq] for seq in sorted(found))


class Page(msgspec.Struct, frozen=True):
    """Some records in a row and what is stored about those that may go out."""

    records: list[model.SignedRecord]
    contents: list[model.RecordContent | None]  # None: can't be read
    reasons: list[Withheld | None]
    frames: dict[str, model.BodyFrame]  # bodies at rest, by body hash
    verdicts: dict[str, list[tuple[model.SignedRecord, model.RecordContent]]]  # on a body, in log order
    bodies: dict[str, bytes] = {}  # those that are restored already


class ExportRow(model.Envelope, frozen=True, kw_only=True):
    """One record as it goes out."""

    race_id: str
    line: bytes  # of log/, without its end; empty where only views are made
    kind: str = ""  # "" for a stub
    withheld: Withheld | None = None
    trajectory: Trajectory | None = None
    is_scrubbed: bool = False
    references: tuple[LogRow, ...] = ()


async def load_page(
    store: PostgresStore, validator: str, records: list[model.SignedRecord], selection: Selection
) -> Page:
    """Read the contents, and fetch bodies and verdicts of the evaluations that may go out. Raises V2021."""
    contents = [signed_content(record.content, record.content_sha256) for record in records]
    reasons: list[Withheld | None] = [
        selection.reason(record.seq, content) if content else "undecodable"
        for record, content in zip(records, contents, strict=True)
    ]
    wanted = sorted(
        {
            content.payload.body_sha256
            for content, reason in zip(contents, reasons, strict=True)
            if content and reason is None and isinstance(content.payload, model.EvaluationRecord)
            and SHA256.fullmatch(content.payload.body_sha256)
        }
    )  # fmt: skip
    frames: dict[str, model.BodyFrame] = {}
    verdicts: dict[str, list[tuple[model.SignedRecord, model.RecordContent]]] = {}
    if wanted:
        frames = {frame.body_sha256: frame for frame in await store.frames(wanted, validator)}
        read = {record.content_sha256: content for record, content in zip(records, contents, strict=True)}
        for record in await store.verdicts_on(wanted, validator):  # most stand on the page, behind their evaluation
            name = record.content_sha256
            content = read[name] if name in read else signed_content(record.content, name)
            if content and isinstance(content.payload, model.VerdictRecord):
                verdicts.setdefault(content.payload.verdict.body_sha256, []).append((record, content))
    return Page(records, contents, reasons, frames, verdicts)


def assemble(page: Page, selection: Selection, last_seq: int, policies: Mapping[str, Policy]) -> list[ExportRow]:
    """The page's records as they go out, in order. `last_seq`: the end of the whole export; `policies`: by hash, those
    that settlements of the log state."""
    most = selection.request.row_bytes_max
    restored = {name: restore_frame(one.content, one.size) for name, one in page.frames.items() if one.size <= most}
    bodies = page.bodies | restored  # empty: can't be restored
    rows = []
    for record, content, reason in zip(page.records, page.contents, page.reasons, strict=True):
        if content is None or reason is not None:
            rows.append(_row(record, content, reason or "undecodable"))
        elif isinstance(content.payload, model.EvaluationRecord):
            name = content.payload.body_sha256
            if name in page.frames and name not in bodies:
                rows.append(_row(record, content, "oversize"))
                continue
            said = [one for one in page.verdicts.get(name, ()) if one[0].seq <= last_seq]
            counted = _counted(said, selection, counted_rubric(content.payload, policies))
            rows.append(_evaluation(record, content, content.payload, bodies.get(name), counted, selection))
        else:  # a release always goes out: everything else hangs on it
            is_release = isinstance(content.payload, model.ReleaseRecord)
            rows.append(_row(record, content, None if is_release else _content_reason(record, most)))
    return rows


def counted_rubric(evaluation: model.EvaluationRecord, policies: Mapping[str, Policy]) -> Rubric | None:
    """What verdicts on an evaluation of a race count under; None for any, as in qualifying or under a policy that no
    settlement states. `policies`: by hash."""
    policy = policies.get(evaluation.conditions.policy_sha256) if evaluation.context.race_id else None
    return policy.rubric if policy else None


def signed_content(content: bytes, content_sha256: str) -> model.RecordContent | None:
    """The content of these bytes, or None when they are not what was signed, not of this version or not canonical."""
    return _addressed(content, content_sha256, decode_content)


async def releases_in(
    store: PostgresStore, validator: str, last_seq: int | None = None, *, after_seq: int = 0
) -> AsyncIterator[tuple[model.SignedRecord, model.ReleaseRecord]]:
    """The release records of a range of a log; of two for one race the first counts."""
    seen: set[str] = set()
    async for record in store.records(validator, after_seq=after_seq, kinds=("release",)):
        if last_seq is not None and record.seq > last_seq:
            return
        content = signed_content(record.content, record.content_sha256)
        if content and isinstance(content.payload, model.ReleaseRecord) and content.payload.race_id not in seen:
            seen.add(content.payload.race_id)
            yield record, content.payload


_T = TypeVar("_T", model.RecordContent, EvaluationBody)


def _addressed(content: bytes, sha256: str, decode: Callable[[bytes], _T]) -> _T | None:
    """The value of these bytes, or None when they do not have this hash, can't be read or are not canonical."""
    if hashlib.sha256(content).hexdigest() != sha256:
        return None
    try:
        read = decode(content)
    except ArenaError:
        return None
    return read if is_canonical(content, read) else None


def log_row(record: model.SignedRecord, withheld: Withheld | None = None, body: bytes | None = None) -> LogRow:
    """A record's row: whole, or a stub with the reason why it is `withheld`."""
    envelope = model.envelope_of(record)
    if withheld:
        return LogRow(**envelope, withheld=withheld)
    return LogRow(**envelope, content=msgspec.Raw(record.content), body=None if body is None else msgspec.Raw(body))


def _row(
    record: model.SignedRecord,
    content: model.RecordContent | None,
    withheld: Withheld | None = None,
    body: bytes | None = None,
) -> ExportRow:
    """A record whole, or a stub."""
    return ExportRow(
        **model.envelope_of(record),
        race_id=race_of(content) if content else "",
        line=msgspec.json.encode(log_row(record, withheld, body)),
        kind=kind_of(content) if content and not withheld else "",
        withheld=withheld,
    )


def kind_of(content: model.RecordContent) -> str:
    """The kind of a record."""
    return str(content.payload.__struct_config__.tag)


def _content_reason(record: model.SignedRecord, row_bytes_max: int) -> Withheld | None:
    if len(record.content) > row_bytes_max:
        return "oversize"
    return "secret" if holds_secret(record.content) else None


def _evaluation(
    record: model.SignedRecord,
    content: model.RecordContent,
    evaluation: model.EvaluationRecord,
    stored: bytes | None,
    counted: tuple[model.SignedRecord, Verdict | UnscoredVerdict, Withheld | None] | None,
    selection: Selection,
) -> ExportRow:
    """The row and trajectory of an evaluation that the release rule lets out."""
    body = _addressed(stored, evaluation.body_sha256, decode_body) if stored else None
    if stored is None or body is None:
        return _row(record, content, "undecodable")
    judging, verdict, verdict_withheld = counted or (None, None, None)
    if reason := selection.evaluation_reason(evaluation, body, verdict):
        return _row(record, content, reason)
    if len(record.content) + len(stored) > selection.request.row_bytes_max or verdict_withheld == "oversize":
        return _row(record, content, "oversize")
    is_scrubbed = verdict_withheld == "secret" or holds_secret(record.content) or holds_secret(stored)
    pool, cluster_id = selection.problem(evaluation)
    trajectory = Trajectory(
        **{name: getattr(record, name) for name in ("validator", "seq", "content_sha256", "signature")},
        content=content,
        evaluation=evaluation,
        body=body,
        verdict=verdict,
        verdict_seq=judging.seq if judging else 0,
        pool=pool,
        cluster_id=cluster_id,
    )
    references: tuple[LogRow, ...] = ()
    if judging and not is_scrubbed and (verdict_withheld or judging.seq <= selection.start.after_seq):
        references = (log_row(judging),)
    return msgspec.structs.replace(
        _row(record, content, "secret" if is_scrubbed else None, stored),
        trajectory=cleaned(trajectory) if is_scrubbed else trajectory,
        is_scrubbed=is_scrubbed,
        references=references,
    )


def _counted(
    verdicts: Sequence[tuple[model.SignedRecord, model.RecordContent]], selection: Selection, rubric: Rubric | None
) -> tuple[model.SignedRecord, Verdict | UnscoredVerdict, Withheld | None] | None:
    """What counts of the verdicts that the release rule lets out, and why its record does not stand whole in `log/`, if
    it does not."""
    seen = list[tuple[model.SignedRecord, Verdict | UnscoredVerdict, Withheld | None]]()
    for record, content in verdicts:
        reason = selection.reason(record.seq, content)
        if isinstance(content.payload, model.VerdictRecord) and reason not in ("unreleased", "pool"):
            seen.append((record, content.payload.verdict, reason))
    counted = counted_verdict((verdict for _, verdict, _ in seen), rubric)
    for record, verdict, reason in seen:
        if verdict is counted:
            return record, verdict, _content_reason(record, selection.request.row_bytes_max) or reason
    return None


def cleaned(trajectory: Trajectory) -> Trajectory | None:
    """The trajectory with every credential replaced, or None when it can't be."""
    plain = _scrubbed(msgspec.to_builtins(trajectory))
    try:
        clean = msgspec.convert(plain, Trajectory)
    except msgspec.ValidationError:  # a credential stood where only certain words may
        return None
    return None if holds_secret(msgspec.json.encode(clean)) else clean


def _scrubbed(value: object) -> object:
    if isinstance(value, str):
        return scrub(value) if find_secrets(value) else value
    if isinstance(value, dict):
        return {key: _scrubbed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_scrubbed(item) for item in value]
    return value
