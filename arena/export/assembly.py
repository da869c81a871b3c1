"""From stored records to rows: a page of the log is loaded, each record becomes its log row, and its trajectory.

A record is embedded as the bytes that were signed, never re-encoded; one that can't be read becomes a stub and
never an exception. A page of some hundred records is all that is held. `load_page` talks to the store; `assemble` is a
pure function of what it loaded and runs beside the event loop.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

import msgspec
import zstandard

from arena.export.model import LogRow, Trajectory, Withheld
from arena.export.selection import Selection, race_of
from arena.records.body import BODY_BYTES_MAX, decode_body, decode_content, is_canonical
from arena.records.model import (
    RECORD_VERSION,
    BodyFrame,
    Envelope,
    EvaluationRecord,
    RecordContent,
    ReleaseRecord,
    SignedRecord,
    VerdictRecord,
)
from arena.records.port import Store
from arena.secrets import find_secrets, holds_secret, scrub
from foundation.errors import ArenaError
from harness.trace import BODY_VERSION, EvaluationBody
from judge.verdict import UnscoredVerdict, Verdict

_SHA256 = re.compile("[0-9a-f]{64}")
_NOTHING = b'"content":null,"body":null,"withheld":null}'  # how a row without contents ends
_CONTENT, _BODY, _END = b'"content":', b',"body":', b',"withheld":null}'


class Page(msgspec.Struct, frozen=True):
    """Some records in a row and what is stored about those that may go out."""

    records: list[SignedRecord]
    contents: list[RecordContent | None]  # None: can't be read
    reasons: list[Withheld | None]
    frames: dict[str, BodyFrame]  # bodies at rest, by body hash
    verdicts: dict[str, list[tuple[SignedRecord, RecordContent]]]  # on a body, in log order
    bodies: dict[str, bytes] = {}  # those that are restored already


class Assembled(msgspec.Struct, frozen=True, kw_only=True):
    """One record as it goes out."""

    seq: int
    race_id: str
    prev: str
    content_sha256: str
    line: bytes  # of log/, without its end; empty where only views are made
    kind: str = ""  # "" for a stub
    withheld: Withheld | None = None
    trajectory: Trajectory | None = None
    is_scrubbed: bool = False
    references: tuple[LogRow, ...] = ()


async def load_page(store: Store, validator: str, records: list[SignedRecord], selection: Selection) -> Page:
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
            if content and reason is None and isinstance(content.payload, EvaluationRecord)
            and _SHA256.fullmatch(content.payload.body_sha256)
        }
    )  # fmt: skip
    frames: dict[str, BodyFrame] = {}
    verdicts: dict[str, list[tuple[SignedRecord, RecordContent]]] = {}
    if wanted:
        frames = {frame.body_sha256: frame for frame in await store.frames(wanted, validator)}
        read = {record.content_sha256: content for record, content in zip(records, contents, strict=True)}
        for record in await store.verdicts_on(wanted, validator):  # most stand on the page, behind their evaluation
            name = record.content_sha256
            content = read[name] if name in read else signed_content(record.content, name)
            if content and isinstance(content.payload, VerdictRecord):
                verdicts.setdefault(content.payload.verdict.body_sha256, []).append((record, content))
    return Page(records, contents, reasons, frames, verdicts)


def assemble(page: Page, selection: Selection, last_seq: int) -> list[Assembled]:
    """The page's records as they go out, in order. `last_seq`: the end of the whole export."""
    most = selection.request.row_bytes_max
    restore = zstandard.ZstdDecompressor()
    bodies: dict[str, bytes | None] = {**page.bodies}  # None: can't be restored
    for name, frame in page.frames.items():
        if frame.size <= most:
            bodies[name] = None
            with contextlib.suppress(zstandard.ZstdError):
                is_small = zstandard.frame_content_size(frame.content) <= BODY_BYTES_MAX
                if is_small and 0 < frame.size <= BODY_BYTES_MAX:
                    bodies[name] = restore.decompress(frame.content, max_output_size=frame.size)
    rows = []
    for record, content, reason in zip(page.records, page.contents, page.reasons, strict=True):
        if content is None or reason is not None:
            rows.append(_row(record, content, reason or "undecodable"))
        elif isinstance(content.payload, EvaluationRecord):
            name = content.payload.body_sha256
            if name in page.frames and name not in bodies:
                rows.append(_row(record, content, "oversize"))
                continue
            counted = _counted(page.verdicts.get(name, ()), selection, last_seq)
            rows.append(_evaluation(record, content, content.payload, bodies.get(name), counted, selection))
        else:  # a release always goes out: everything else hangs on it
            is_release = isinstance(content.payload, ReleaseRecord)
            rows.append(_row(record, content, None if is_release else _content_reason(record, most)))
    return rows


def signed_content(content: bytes, content_sha256: str) -> RecordContent | None:
    """The content of these bytes, or None when they are not what was signed, not of this version or not canonical."""
    read = _addressed(content, content_sha256, decode_content)
    return read if read is not None and read.version == RECORD_VERSION else None


async def releases_in(
    store: Store, validator: str, last_seq: int | None = None
) -> AsyncIterator[tuple[SignedRecord, ReleaseRecord]]:
    """The release records of a log, up to the end of a range; of two for one race the first counts."""
    seen: set[str] = set()
    async for record in store.records(validator, kinds=("release",)):
        if last_seq is not None and record.seq > last_seq:
            return
        content = signed_content(record.content, record.content_sha256)
        if content and isinstance(content.payload, ReleaseRecord) and content.payload.race_id not in seen:
            seen.add(content.payload.race_id)
            yield record, content.payload


_T = TypeVar("_T", RecordContent, EvaluationBody)


def _addressed(content: bytes, sha256: str, decode: Callable[[bytes], _T]) -> _T | None:
    """The value of these bytes, or None when they do not have this hash, can't be read or are not canonical."""
    if hashlib.sha256(content).hexdigest() != sha256:
        return None
    try:
        read = decode(content)
    except ArenaError:
        return None
    return read if is_canonical(content, read) else None


def log_row(
    record: SignedRecord, *, withheld: Withheld | None = None, content: bytes | None = None, body: bytes | None = None
) -> LogRow:
    """A record's row: whole with `content`, a stub with `withheld`."""
    return LogRow(
        **{name: getattr(record, name) for name in Envelope.__struct_fields__},
        content=None if content is None else msgspec.Raw(content),
        body=None if body is None else msgspec.Raw(body),
        withheld=withheld,
    )


def whole_line(record: SignedRecord, body: bytes | None) -> bytes:
    """The line of a whole row, as `LogRow` is encoded, with the signed bytes copied once."""
    envelope = msgspec.json.encode(log_row(record)).removesuffix(_NOTHING)
    return b"".join((envelope, _CONTENT, record.content, _BODY, body or b"null", _END))


def _row(
    record: SignedRecord, content: RecordContent | None, withheld: Withheld | None = None, body: bytes | None = None
) -> Assembled:
    """A record whole, or a stub."""
    is_whole = content is not None and withheld is None
    return Assembled(
        seq=record.seq,
        race_id=race_of(content) if content else "",
        prev=record.prev,
        content_sha256=record.content_sha256,
        line=whole_line(record, body) if is_whole else msgspec.json.encode(log_row(record, withheld=withheld)),
        kind=kind_of(content) if content is not None and is_whole else "",
        withheld=withheld,
    )


def kind_of(content: RecordContent) -> str:
    """The kind of a record."""
    return str(content.payload.__struct_config__.tag)


def _content_reason(record: SignedRecord, row_bytes_max: int) -> Withheld | None:
    if len(record.content) > row_bytes_max:
        return "oversize"
    return "secret" if holds_secret(record.content) else None


def _evaluation(
    record: SignedRecord,
    content: RecordContent,
    evaluation: EvaluationRecord,
    stored: bytes | None,
    counted: tuple[SignedRecord, Verdict | UnscoredVerdict, Withheld | None] | None,
    selection: Selection,
) -> Assembled:
    """The row and trajectory of an evaluation that the release rule lets out."""
    body = _addressed(stored, evaluation.body_sha256, decode_body) if stored else None
    if stored is None or body is None or body.version != BODY_VERSION:
        return _row(record, content, "undecodable")
    judging, verdict, verdict_withheld = counted or (None, None, None)
    if reason := selection.evaluation_reason(evaluation, body, verdict):
        return _row(record, content, reason)
    if len(record.content) + len(stored) > selection.request.row_bytes_max or verdict_withheld == "oversize":
        return _row(record, content, "oversize")
    is_scrubbed = verdict_withheld == "secret" or holds_secret(record.content) or holds_secret(stored)
    pool, cluster_id = selection.problem(evaluation)
    trajectory = Trajectory(
        validator=record.validator,
        seq=record.seq,
        content_sha256=record.content_sha256,
        signature=record.signature,
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
        references = (log_row(judging, content=judging.content),)
    return msgspec.structs.replace(
        _row(record, content, "secret" if is_scrubbed else None, stored),
        trajectory=cleaned(trajectory) if is_scrubbed else trajectory,
        is_scrubbed=is_scrubbed,
        references=references,
    )


def _counted(
    verdicts: Sequence[tuple[SignedRecord, RecordContent]], selection: Selection, last_seq: int
) -> tuple[SignedRecord, Verdict | UnscoredVerdict, Withheld | None] | None:
    """The first verdict that the release rule lets out, and why its record does not stand whole in `log/`, if it does
    not; later ones on the same body never count."""
    for record, content in verdicts:
        if record.seq <= last_seq and isinstance(content.payload, VerdictRecord):
            reason = selection.reason(record.seq, content)
            if reason not in ("unreleased", "pool"):
                withheld = _content_reason(record, selection.request.row_bytes_max) or reason
                return record, content.payload.verdict, withheld
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
