"""Episodes of a control agent are no miner's work: an export, and so a corpus, has them only when asked by their id."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from arena.chain.keys import verify
from arena.export.verification import verify_export
from arena.records.body import decode_content
from tests.arena.export_stand import ExportLog, export, rows
from tests.arena.log_stand import episode, release

CONTROL = "c0" * 32


def log_with_control() -> ExportLog:
    log = ExportLog()
    log.add_episode(1)
    payloads, body = episode(2, agent="c0")
    nobody = [replace(payload, subject=replace(payload.subject, miner_hotkey="")) for payload in payloads]
    log.add(nobody, [body])
    log.add([release("r1", [1, 2])])
    log.checkpoint()
    return log


def shown(folder: Path) -> set[str]:
    contents = [decode_content(bytes(row.content)).payload for row in rows(folder) if row.content is not None]
    return {payload.subject.agent_version_id for payload in contents if hasattr(payload, "subject")}


def test_a_control_agent_stays_out_unless_asked_for(tmp_path: Path) -> None:
    log = log_with_control()
    manifest = export(log, tmp_path / "all")
    assert (manifest.trajectories, manifest.withheld) == (1, {"filter": 3})
    assert shown(tmp_path / "all") == {"a1" * 32}
    asked = export(log, tmp_path / "asked", agents=(CONTROL,))
    assert asked.trajectories == 1 and shown(tmp_path / "asked") == {CONTROL}
    for name in ("all", "asked"):
        assert verify_export(tmp_path / name, verify).is_ok
