"""From stored records to rows: a page of the log is loaded, each record becomes its log row, and its trajectory.

A record is embedded as the bytes that were signed, never re-encoded; one that can't be read becomes a stub and
never an exception. A page of some hundred records is all that is held. `load_page` talks to the store; `assemble` is a
pure function of what it loaded and runs beside the event loop.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Sequence

import msgspec
import zstandard

from arena.export.model import LogRow, Trajectory, Withheld
from arena.export.selection import Selection, race_of
from arena.records.body import BODY_BYTES_MAX, decode_body, decode_content, is_canonical
from arena.records.model import (
    RECORD_VERSION,
    BodyFrame,
    EvaluationRecord,
    RecordContent,
    ReleaseRecord,
    SignedRecord,
    VerdictRecord,
)
from arena.secrets import find_secrets, holds_secret, scrub
from arena.store.port import Store
from foundation.errors import ArenaError
from harness.trace import BODY_VERSION, EvaluationBody
from judge.verdict import UnscoredVerdict, Verdict

_SHA256 = re.compile("[0-9a-f]{64}")
_NOTHING = b'"content":null,"body":null,"withheld":null}'  # how a row without contents ends
_CONTENT, _BODY, _END = b'"content":', b',"body":', b',"withheld":null}'


class Signed(msgspec.Struct, frozen=True):
    """A record whose content could be read."""

    record: SignedRecord
    content: RecordContent


class Page(msgspec.Struct, frozen=True):
    """Some records in a row and what is stored about those that may go out."""

    records: list[SignedRecord]
    contents: list[RecordContent | None]  # None: can't be read
    reasons: list[Withheld | None]
    frames: dict[str, BodyFrame]  # bodies at rest, by body hash
    verdicts: dict[str, list[Signed]]  # on a body, in log order


class Assembled(msgspec.Struct, frozen=True):
    """One record as it goes out."""

    seq: int
    race_id: str
    prev: str
    content_sha256: str
    line: bytes  # of log/, without its end
    kind: str  # "" for a stub
    withheld: Withheld | None
    trajectory: Trajectory | None = None
    is_scrubbed: bool = False
    references: tuple[LogRow, ...] = ()


class ExportedVerdict(msgspec.Struct, frozen=True):
    """The verdict that counts for an evaluation, and why its record does not stand whole in `log/`, if it does not."""

    record: SignedRecord
    verdict: Verdict | UnscoredVerdict
    withheld: Withheld | None


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
    verdicts: dict[str, list[Signed]] = {}
    if wanted:
        frames = {frame.body_sha256: frame for frame in await store.frames(wanted, validator)}
        page = {record.seq: place for place, record in enumerate(records)}  # most stand behind their evaluation
        for record in await store.verdicts_on(wanted, validator):
            place = page.get(record.seq)
            if place is not None and records[place] == record:
                content = contents[place]
            else:
                content = signed_content(record.content, record.content_sha256)
            if content and isinstance(content.payload, VerdictRecord):
                verdicts.setdefault(content.payload.verdict.body_sha256, []).append(Signed(record, content))
    return Page(records, contents, reasons, frames, verdicts)


def assemble(page: Page, selection: Selection, *, first_seq: int, last_seq: int, row_bytes_max: int) -> list[Assembled]:
    """The page's records as they go out, in order. `first_seq` and `last_seq` are those of the whole export."""
    restore = zstandard.ZstdDecompressor()
    bodies: dict[str, bytes | None] = {}  # None: can't be restored
    for name, frame in page.frames.items():
        if frame.size <= row_bytes_max:
            bodies[name] = None
            with contextlib.suppress(zstandard.ZstdError):
                is_small = zstandard.frame_content_size(frame.content) <= BODY_BYTES_MAX
                if is_small and 0 < frame.size <= BODY_BYTES_MAX:
                    bodies[name] = restore.decompress(frame.content, max_output_size=frame.size)
    rows = []
    for record, content, reason in zip(page.records, page.contents, page.reasons, strict=True):
        if content is None or reason is not None:
            rows.append(_stub(record, content, reason or "undecodable"))
        elif isinstance(content.payload, EvaluationRecord):
            name = content.payload.body_sha256
            if name in page.frames and name not in bodies:
                rows.append(_stub(record, content, "oversize"))
                continue
            body = bodies.get(name)
            counted = _counted(page.verdicts.get(name, ()), selection, last_seq, row_bytes_max)
            rows.append(_evaluation(record, content, body, counted, selection, first_seq, row_bytes_max))
        elif isinstance(content.payload, ReleaseRecord):  # always goes out: everything else hangs on it
            rows.append(_whole(record, content, None))
        else:
            held = _content_reason(record, row_bytes_max)
            rows.append(_stub(record, content, held) if held else _whole(record, content, None))
    return rows


def signed_content(content: bytes, content_sha256: str) -> RecordContent | None:
    """The content of these bytes, or None when they are not what was signed, not of this version or not canonical."""
    if hashlib.sha256(content).hexdigest() != content_sha256:
        return None
    try:
        read = decode_content(content)
    except ArenaError:
        return None
    return read if read.version == RECORD_VERSION and is_canonical(content, read) else None


def addressed_body(content: bytes, body_sha256: str) -> EvaluationBody | None:
    """The body of these bytes, or None when they do not have this hash, are not of this version or not canonical."""
    if hashlib.sha256(content).hexdigest() != body_sha256:
        return None
    try:
        read = decode_body(content)
    except ArenaError:
        return None
    return read if read.version == BODY_VERSION and is_canonical(content, read) else None


def log_row(
    record: SignedRecord, *, withheld: Withheld | None = None, content: bytes | None = None, body: bytes | None = None
) -> LogRow:
    """A record's row: whole with `content`, a stub with `withheld`."""
    return LogRow(
        validator=record.validator,
        seq=record.seq,
        prev=record.prev,
        content_sha256=record.content_sha256,
        signature=record.signature,
        content=None if content is None else msgspec.Raw(content),
        body=None if body is None else msgspec.Raw(body),
        withheld=withheld,
    )


def whole_line(record: SignedRecord, body: bytes | None) -> bytes:
    """The line of a whole row, as `LogRow` is encoded, with the signed bytes copied once."""
    envelope = msgspec.json.encode(log_row(record)).removesuffix(_NOTHING)
    return b"".join((envelope, _CONTENT, record.content, _BODY, body or b"null", _END))


def _stub(record: SignedRecord, content: RecordContent | None, reason: Withheld) -> Assembled:
    return Assembled(
        record.seq,
        race_of(content) if content else "",
        record.prev,
        record.content_sha256,
        msgspec.json.encode(log_row(record, withheld=reason)),
        "",
        reason,
    )


def _content_reason(record: SignedRecord, row_bytes_max: int) -> Withheld | None:
    if len(record.content) > row_bytes_max:
        return "oversize"
    return "secret" if holds_secret(record.content) else None


def _whole(record: SignedRecord, content: RecordContent, body: bytes | None) -> Assembled:
    return Assembled(
        record.seq,
        race_of(content),
        record.prev,
        record.content_sha256,
        whole_line(record, body),
        str(content.payload.__struct_config__.tag),
        None,
    )


def _evaluation(
    record: SignedRecord,
    content: RecordContent,
    stored: bytes | None,
    counted: ExportedVerdict | None,
    selection: Selection,
    first_seq: int,
    row_bytes_max: int,
) -> Assembled:
    """The row and trajectory of an evaluation that the release rule lets out."""
    evaluation = content.payload
    assert isinstance(evaluation, EvaluationRecord)
    body = addressed_body(stored, evaluation.body_sha256) if stored else None
    if stored is None or body is None:
        return _stub(record, content, "undecodable")
    verdict = counted.verdict if counted else None
    if reason := selection.evaluation_reason(evaluation, body, verdict):
        return _stub(record, content, reason)
    if len(record.content) + len(stored) > row_bytes_max or (counted and counted.withheld == "oversize"):
        return _stub(record, content, "oversize")
    is_secret = holds_secret(record.content) or holds_secret(stored)
    row = _stub(record, content, "secret") if is_secret else _whole(record, content, stored)
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
        verdict_seq=counted.record.seq if counted else 0,
        pool=pool,
        cluster_id=cluster_id,
    )
    is_scrubbed = is_secret or (counted is not None and counted.withheld == "secret")
    references: tuple[LogRow, ...] = ()
    if counted and not is_scrubbed and (counted.withheld or counted.record.seq < first_seq):
        references = (log_row(counted.record, content=counted.record.content),)
    shown = cleaned(trajectory) if is_scrubbed else trajectory
    return msgspec.structs.replace(
        row,
        trajectory=shown,
        is_scrubbed=is_scrubbed,
        references=references,
    )


def _counted(
    verdicts: Sequence[Signed], selection: Selection, last_seq: int, row_bytes_max: int
) -> ExportedVerdict | None:
    """The first verdict that the release rule lets out; later ones on the same body never count."""
    for one in verdicts:
        record, payload = one.record, one.content.payload
        if record.seq > last_seq or not isinstance(payload, VerdictRecord):
            continue
        reason = selection.reason(record.seq, one.content)
        if reason not in ("unreleased", "pool"):
            withheld = _content_reason(record, row_bytes_max) or reason
            return ExportedVerdict(record, payload.verdict, withheld)
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
