"""Whole exports in every format: written, verified by making them again, and found out when a view is another's."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import zstandard

from arena.chain.keys import verify
from arena.export.model import FORMATS
from arena.export.verify.verification import verify_export
from arena.export.writing.manifest import write_manifest
from tests.arena.export_stand import ExportLog, export, released_race


def test_an_export_in_every_format_verifies_and_all_say_the_same(tmp_path: Path) -> None:
    log = ExportLog()
    released_race(log, "r1", range(1, 8))
    manifest = export(log, tmp_path / "out", signer=log.signer, formats=FORMATS, rows_per_shard=3)
    report = verify_export(tmp_path / "out", verify)
    assert not report.wrong
    assert manifest.trajectories == 7
    views = tmp_path / "out" / "views"
    assert {path.name for path in views.iterdir()} == set(FORMATS) - {"jsonl"}
    parquet = [row for path in sorted((views / "parquet").glob("*")) for row in pq.read_table(path).to_pylist()]
    rollouts = [
        json.loads(line)
        for path in sorted((views / "verifiers").glob("*/results.jsonl"))
        for line in path.read_text("utf-8").splitlines()
    ]
    chats = [
        json.loads(line)
        for path in sorted((views / "messages").glob("*"))
        for line in zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read().splitlines()
    ]
    assert len(parquet) == len(rollouts) == len(chats) == 7
    for row, chat, rollout in zip(parquet, chats, rollouts, strict=True):
        facts = chat["metadata"]
        assert {name: row[name] for name in facts} == facts
        assert {name: rollout["info"][name] for name in facts} == facts
        assert [message["content"] for message in row["messages"]] == [one["content"] for one in chat["messages"]]
    card = (views / "datasets" / "README.md").read_text("utf-8")
    assert "| trajectories | 7 |" in card
    assert "| splits | train (7) |" in card


def test_a_view_that_is_not_made_of_the_log_is_found_though_its_hash_is_in_the_manifest(tmp_path: Path) -> None:
    log = ExportLog()
    released_race(log, "r1")
    manifest = export(log, tmp_path, signer=log.signer, formats=("jsonl", "messages"))
    (path,) = (tmp_path / "views" / "messages").glob("*")
    lines = zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read()
    forged = zstandard.ZstdCompressor(level=1).compress(lines.replace(b"I search first.", b"I search last.."))
    path.write_bytes(forged)
    files = tuple(
        msgspec.structs.replace(file, sha256=hashlib.sha256(forged).hexdigest(), size_bytes=len(forged))
        if file.path.endswith(path.name) and "messages" in file.path
        else file
        for file in manifest.files
    )
    write_manifest(tmp_path, msgspec.structs.replace(manifest, files=files), log.signer)
    assert verify_export(tmp_path, verify).wrong
