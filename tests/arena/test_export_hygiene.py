"""Credentials in what was recorded: never in the log, never in a view, counted in the manifest."""

from __future__ import annotations

import hashlib

import msgspec

from arena.chain.keys import verify
from arena.export.files import read_lines
from arena.export.verification import verify_export
from arena.records.model import StoredBody
from foundation.canonical import canonical_bytes
from foundation.errors import Failure
from tests.arena.export_stand import ExportLog, export, replace
from tests.arena.log_stand import attempt, body, episode, release

SECRET = "sk-or-v1-" + hashlib.sha256(b"a key that was never one").hexdigest()


def everything(folder) -> bytes:
    return b"".join(
        b"\n".join(read_lines(path)) if path.name.endswith(".zst") else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    )


def leaky_episode(log: ExportLog) -> None:
    """An episode whose query holds a credential."""
    content = canonical_bytes(replace(body(1), query=f"shirts, with {SECRET}"))
    name = hashlib.sha256(content).hexdigest()
    payloads, _ = episode(1)
    attempted, evaluated, judged = payloads
    verdict = replace(judged.verdict, body_sha256=name)
    log.add(
        [replace(attempted, body_sha256=name), replace(evaluated, body_sha256=name), replace(judged, verdict=verdict)],
        [StoredBody(body_sha256=name, content=content)],
    )


def test_a_body_with_a_credential_is_a_stub_in_the_log_and_scrubbed_for_the_views(tmp_path):
    log = ExportLog()
    leaky_episode(log)
    log.add([release("r1", [1])])
    log.checkpoint()
    manifest = export(log, tmp_path / "out")
    assert (manifest.withheld, manifest.trajectories, manifest.scrubbed) == ({"secret": 1}, 1, 1)
    assert SECRET.encode() not in everything(tmp_path / "out")
    (line,) = read_lines(tmp_path / "out" / "scrubbed" / "000000.jsonl.zst")
    assert msgspec.json.decode(line)["body"]["query"].startswith("shirts, with [REDACTED:")
    report = verify_export(tmp_path / "out", verify)
    assert report.is_ok, report.wrong


def test_a_credential_in_any_other_record_leaves_a_stub(tmp_path):
    log = ExportLog()
    log.add([replace(attempt(1), failure=Failure(code="U3001", detail=f"refused {SECRET}")), release("r1", [1])])
    log.checkpoint()
    manifest = export(log, tmp_path / "out")
    assert manifest.withheld == {"secret": 1}
    assert SECRET.encode() not in everything(tmp_path / "out")
    assert verify_export(tmp_path / "out", verify).is_ok
