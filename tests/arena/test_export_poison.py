"""What a hostile agent, judge or validator may have put into a log: it never stops an export or its verification, and
no credential in any text of a record reaches any file of any format."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from arena.chain.keys import verify
from arena.export.files import read_lines
from arena.export.model import FORMATS
from arena.export.verification import verify_export
from arena.records.body import encode_body, encode_content
from arena.records.log import head_after, signing_message
from arena.records.model import (
    Payload,
    RecordContent,
    SignedRecord,
    StoredBody,
    VerdictRecord,
)
from foundation.canonical import canonical_bytes
from foundation.errors import Failure
from harness.trace import FailedCompletion
from judge.verdict import Refusal
from tests.arena.export_stand import SECRET, ExportLog, export, released_race, replace
from tests.arena.log_stand import HOST, START_MS, attempt, body, episode, release

DEPTH = 100_000


def put(log: ExportLog, content: bytes) -> int:
    """Append bytes as its validator would sign them, whatever they are; the record's number."""
    seq, sha256 = log.end.seq + 1, hashlib.sha256(content).hexdigest()
    signature = log.signer.sign(signing_message(log.validator, seq, log.end.hash, sha256)).hex()
    record = SignedRecord(
        validator=log.validator,
        seq=seq,
        prev=log.end.hash,
        content_sha256=sha256,
        signature=signature,
        content=content,
    )
    log.log.append(record)
    log.end = head_after(record)
    return seq


def content_of(payload: Payload) -> bytes:
    return encode_content(RecordContent(recorded_ms=START_MS, host=HOST, payload=payload))


def poisons() -> dict[str, bytes]:
    sound = content_of(attempt(9))
    return {
        "empty": b"",
        "no JSON": b"\x00\xff",
        "not UTF-8": sound.replace(b'"p9:1"', b'"\xff"'),
        "half a surrogate": sound.replace(b'"p9:1"', b'"\\ud800"'),
        "nested without end": sound[:-1] + b',"zz":' + b"[" * DEPTH + b"]" * DEPTH + b"}",
        "a member twice": sound[:-1] + b',"version":1}',
        "another layout": sound.replace(b'"version":1', b'"version": 1'),
        "two lines": sound.replace(b'"version":1', b'"version":1\n'),
        "members in another order": b'{"version":1,' + sound[1:].replace(b',"version":1', b""),
        "a number beyond exact ones": sound.replace(str(START_MS).encode(), b"18446744073709551616"),
        "a float": sound.replace(str(START_MS).encode(), b"1.5"),
        "of a later version": sound.replace(b'"version":1', b'"version":2'),
        "of an unknown kind": sound.replace(b'"kind":"attempt"', b'"kind":"rebuttal"'),
        "a list": b"[]",
        "null": b"null",
    }


def test_records_that_can_not_be_read_are_quarantined_and_named_and_the_rest_goes_out(tmp_path: Path) -> None:
    log, bad = ExportLog(), []
    for content in poisons().values():
        bad.append(put(log, content))
    released_race(log, "r1")
    log.checkpoint()
    manifest = export(log, tmp_path / "out", formats=FORMATS)
    assert manifest.quarantined == tuple(bad)
    assert (manifest.withheld, manifest.trajectories) == ({"undecodable": len(bad)}, 3)
    report = verify_export(tmp_path / "out", verify)
    assert report.is_ok, report.wrong


@pytest.mark.parametrize("harm", ["nested", "layout", "missing", "not a frame"])
def test_a_body_that_can_not_be_read_quarantines_its_evaluation_alone(tmp_path: Path, harm: str) -> None:
    log = ExportLog()
    sound = encode_body(body(5)).content
    content = {
        "nested": sound[:-1] + b',"zz":' + b"[" * DEPTH + b"]" * DEPTH + b"}",
        "layout": sound.replace(b'"version":1', b'"version": 1'),
    }.get(harm, sound)
    name = hashlib.sha256(content).hexdigest()
    attempted, evaluated, judged = episode(5)[0]
    assert isinstance(judged, VerdictRecord)
    named = [replace(attempted, body_sha256=name), replace(evaluated, body_sha256=name)]
    log.add([*named, replace(judged, verdict=replace(judged.verdict, body_sha256=name))])
    if harm != "missing":
        held = b"junk" if harm == "not a frame" else content
        log.stored[name] = StoredBody(body_sha256=name, content=held)
    log.add_episode(1)
    log.add([release("r1", [1, 5])])
    log.checkpoint()
    manifest = export(log, tmp_path / "out", formats=FORMATS)
    assert (manifest.quarantined, manifest.trajectories) == ((2,), 1)
    assert verify_export(tmp_path / "out", verify).is_ok


def test_fields_of_a_later_minor_version_go_out_whole_and_views_leave_them_aside(tmp_path: Path) -> None:
    log = ExportLog()
    released_race(log, "r1", [1])
    plain = msgspec.json.decode(content_of(attempt(5))) | {"zz_of_later": {"words": ["new"]}}
    seq = put(log, canonical_bytes(plain))
    made = msgspec.json.decode(encode_body(body(1)).content) | {"a_of_later": "new"}
    content = canonical_bytes(made)
    name = hashlib.sha256(content).hexdigest()
    log.stored[name] = StoredBody(body_sha256=name, content=content)
    evaluated = replace(episode(1, agent="b7")[0][1], body_sha256=name)
    later = msgspec.json.decode(content_of(evaluated))
    put(log, canonical_bytes(later | {"payload": later["payload"] | {"of_later": 1}}))
    log.checkpoint()
    manifest = export(log, tmp_path / "out", formats=FORMATS)
    assert manifest.withheld == {"pool": 1}  # the attempt: of a problem that the release does not name
    assert manifest.trajectories == 2
    lines = b"\n".join(read_lines(tmp_path / "out" / "log" / "000000.jsonl.zst"))
    assert b"a_of_later" in lines and b'"of_later":1' in lines
    report = verify_export(tmp_path / "out", verify)
    assert report.is_ok, report.wrong
    assert seq == 5


def everything(folder: Path) -> bytes:
    """All that is in an export, unpacked."""
    parts = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.suffix == ".zst":
            parts += read_lines(path)
        elif path.suffix == ".parquet":
            parts.append(repr(pq.read_table(path).to_pylist()).encode())
        elif path.suffix == ".eval":
            with zipfile.ZipFile(path) as log:
                parts += [log.read(name) for name in log.namelist()]
        parts.append(path.read_bytes())
    return b"\n".join(parts)


def test_a_credential_in_any_text_of_a_body_record_or_verdict_reaches_no_file_of_any_format(tmp_path: Path) -> None:
    log, told = ExportLog(), f"it is {SECRET} !"
    fault, refusal = Failure(code="A1050", detail=told), Refusal(model="judge", attempts=1, reason=told)
    first, second = body(1).events
    turn = replace(first, content=told, reasoning=told, logprobs=told)
    call = replace(second, arguments=told, result=told, failure=fault, ignored_parameters=(told,))
    for number, changes in enumerate(
        (
            {"query": told, "events": (turn, call, FailedCompletion(step=2, failure=fault))},
            {"failure": fault, "claim": told, "unsurfaced": (told,), "recommended": (told,), "messages": (told,)},
            {},
        ),
        1,
    ):
        made = encode_body(replace(body(number), **changes))
        attempted, evaluated, judged = episode(number)[0]
        verdict = replace(judged.verdict, body_sha256=made.body_sha256)
        if not changes:  # in the records alone
            attempted = replace(attempted, failure=fault)
            verdict = replace(verdict, refused=(refusal,))
        named = {"body_sha256": made.body_sha256}
        failed = {"failure": changes["failure"]} if "failure" in changes else {}
        log.add(
            [replace(attempted, **named), replace(evaluated, **named, **failed), replace(judged, verdict=verdict)],
            [made],
        )
    log.add([release("r1", [1, 2, 3])])
    log.checkpoint()
    manifest = export(log, tmp_path / "out", formats=FORMATS)
    assert SECRET.encode() not in everything(tmp_path / "out")
    assert (manifest.trajectories, manifest.scrubbed) == (3, 3)  # nothing is lost to the views for it
    report = verify_export(tmp_path / "out", verify)
    assert report.is_ok, report.wrong
