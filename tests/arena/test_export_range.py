"""What goes out of a log: each released episode once, nothing that waits, and all else as stubs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.chain.keys import verify
from arena.export.exporter import continued
from arena.export.files import read_manifest
from arena.export.model import FORMATS
from arena.export.verification import verify_export
from arena.records.body import decode_content
from arena.records.model import EvaluationRecord
from foundation.errors import ArenaError
from problems.model import POOLS
from tests.arena.export_stand import ExportLog, export, released_race, replace, request_of, rows
from tests.arena.log_stand import attempt, episode, gate, release, settlement
from tests.arena.test_export_poison import everything


@pytest.fixture
def log() -> ExportLog:
    return ExportLog()


def brought(folder: Path) -> list[tuple[str, str]]:
    """Race and problem of every evaluation that is whole."""
    found = []
    for row in rows(folder):
        if row.content is not None:
            payload = decode_content(bytes(row.content)).payload
            if isinstance(payload, EvaluationRecord):
                found.append((payload.context.race_id, payload.context.problem_id))
    return found


def test_an_export_holds_every_record_of_its_range_and_verifies_without_a_store(log, tmp_path):
    released_race(log, "r1")
    log.add([settlement("r1"), attempt(9)])
    log.checkpoint()
    manifest = export(log, tmp_path / "out")
    assert [row.seq for row in rows(tmp_path / "out")] == list(range(1, len(log.log) + 1))
    assert manifest.trajectories == 3
    assert manifest.records == {"attempt": 3, "evaluation": 3, "release": 1, "settlement": 1, "verdict": 3}
    assert manifest.withheld == {"pool": 1}  # the released batch has no problem 9
    report = verify_export(tmp_path / "out", verify)
    assert report.is_ok, report.wrong
    assert (report.first_seq, report.last_seq, report.signer) == (1, len(log.log), "")


def test_filters_leave_out_evaluations_and_the_export_still_verifies(log, tmp_path):
    released_race(log, "r1")
    released_race(log, "r2", [4])
    log.add([gate(1), gate(1, decided_by="person", outcome="accept")])
    log.checkpoint()
    for number, (filters, count, gates) in enumerate(
        (
            ({}, 4, 2),
            ({"races": ("r2",)}, 1, 0),
            ({"agents": ("5miner",)}, 4, 2),
            ({"agents": ("nobody",)}, 0, 0),
            ({"buckets": ("shop",)}, 0, 2),
            ({"coefficient_e4_min": 9_125}, 4, 2),
            ({"coefficient_e4_min": 9_126}, 0, 2),
            ({"is_agentic_only": True}, 4, 2),
            ({"from_day": "2026-09-21", "to_day": "2026-09-21"}, 4, 2),
            ({"to_day": "2026-09-20"}, 0, 2),
            ({"from_day": "2026-09-22"}, 0, 2),
        )
    ):
        manifest = export(log, tmp_path / str(number), **filters)
        assert (manifest.trajectories, manifest.records.get("gate", 0)) == (count, gates), filters
        assert sum(manifest.records.values()) + sum(manifest.withheld.values()) == len(log.log)
        report = verify_export(tmp_path / str(number), verify)
        assert report.is_ok, report.wrong


def test_without_a_checkpoint_there_is_no_export_unless_the_logs_hotkey_signs_one(log, tmp_path):
    released_race(log, "r1")
    with pytest.raises(ArenaError, match="V2053"):
        export(log, tmp_path / "refused")
    manifest = export(log, tmp_path / "out", signer=log.signer)
    assert manifest.log.last_seq == len(log.log)
    report = verify_export(tmp_path / "out", verify)
    assert report.is_ok, report.wrong
    assert report.signer == log.validator


def test_an_earlier_export_is_continued_by_the_same_request_alone(log, tmp_path):
    released_race(log, "r1")
    log.checkpoint()
    manifest = export(log, tmp_path / "out")
    assert export(log, tmp_path / "out") == manifest, "a finished export is given back"
    assert continued(manifest, request_of(log)) == manifest.cursor
    for other in ({"pools": ("eval",)}, {"races": ("r1",)}):
        with pytest.raises(ArenaError, match="V2030"):
            continued(manifest, request_of(log, **other))
        with pytest.raises(ArenaError, match="V2027"):
            export(log, tmp_path / "out", **other)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from("abcABCe"), max_size=24), st.integers(1, 4))
def test_any_series_of_incremental_exports_brings_every_released_episode_once(steps, rows_per_shard):
    """Small letters append an episode of that race, capitals release it, `e` exports what is new."""
    log, released, number = ExportLog(), set[str](), 0
    episodes: list[tuple[str, str]] = []
    found: list[tuple[str, str]] = []
    cursor = None
    planned = {race: [n + 1 for n, step in enumerate(steps) if step == race] for race in "abc"}
    with tempfile.TemporaryDirectory() as made:
        for count, step in enumerate([*steps, "e"]):
            if step == "e":
                if not log.log:
                    continue
                log.checkpoint()
                folder = Path(made) / str(count)
                manifest = export(log, folder, start=cursor, rows_per_shard=rows_per_shard)
                report = verify_export(folder, verify)
                assert report.is_ok, report.wrong
                found += brought(folder)
                cursor = read_manifest(folder).cursor
                assert manifest.cursor == cursor
            elif step.islower():
                number = count + 1
                log.add_episode(number, step)
                episodes.append((step, f"p{number:04d}"))
            elif step.lower() not in released:
                released.add(step.lower())
                log.add([release(step.lower(), planned[step.lower()])])
        assert sorted(found) == sorted(about for about in episodes if about[0] in released)


def test_a_control_agent_is_no_miners_work_and_stays_out_unless_asked_for(log, tmp_path):
    log.add_episode(1)
    payloads, body = episode(2, agent="c0")
    log.add([replace(each, subject=replace(each.subject, miner_hotkey="")) for each in payloads], [body])
    log.add([release("r1", [1, 2])])
    log.checkpoint()
    manifest = export(log, tmp_path / "all")
    assert (manifest.trajectories, manifest.withheld, brought(tmp_path / "all")) == (
        1,
        {"filter": 3},
        [("r1", "p0001")],
    )
    assert export(log, tmp_path / "asked", agents=("c0" * 32,)).trajectories == 1
    assert brought(tmp_path / "asked") == [("r1", "p0002")]
    for name in ("all", "asked"):
        assert verify_export(tmp_path / name, verify).is_ok


WAITING, LATE = "r-waiting", "r-late"


def log_with_secrets() -> tuple[ExportLog, list[bytes]]:
    """A released race, one that waits and one whose release stands behind the checkpoint; what names the last two."""
    log = ExportLog()
    released_race(log, "r-open", [1, 2])
    log.add([settlement("r-open")])
    for race_id, problem in ((WAITING, 3301), (LATE, 4401)):
        log.add_episode(problem, race_id)
        log.add([replace(settlement(race_id), drawn=(f"p{problem}",))])
    log.checkpoint()
    log.add([release(LATE, [4401])])
    held = [r for r in log.log if WAITING.encode() in r.content or LATE.encode() in r.content]
    names = [decode_content(r.content).payload for r in held if b'"kind":"evaluation"' in r.content]
    return log, [b"p3301", b"p4401", WAITING.encode(), LATE.encode(), *(name.body_sha256.encode() for name in names)]


requests = st.fixed_dictionaries(
    {
        "pools": st.lists(st.sampled_from(POOLS), min_size=1, unique=True).map(tuple),
        "races": st.lists(st.sampled_from(["r-open", WAITING, LATE]), unique=True).map(tuple),
        "agents": st.sampled_from([(), ("5miner",), ("a1" * 32,)]),
        "buckets": st.sampled_from([(), ("product",)]),
        "is_agentic_only": st.booleans(),
        "coefficient_e4_min": st.sampled_from([0, 9_000]),
        "from_day": st.sampled_from(["", "2026-09-21"]),
        "rows_per_shard": st.integers(1, 3),
    }
)


@settings(max_examples=12, deadline=None)
@given(requests, st.integers(0, 8), st.lists(st.sampled_from([WAITING, LATE]), unique=True), st.integers(0, 40))
def test_no_request_and_no_cursor_brings_anything_of_a_race_that_waits(fields, after_seq, races, exported_to):
    """The cursor's claims about earlier exports come from a file that anybody may have written."""
    log, secrets = log_with_secrets()
    named = [race.encode() for race in fields["races"]]  # the request itself is in the manifest
    named += [race.encode() for race in races]
    with tempfile.TemporaryDirectory() as made:
        first = log.cursor_at(after_seq)
        start = replace(first, races=tuple(races), exported_to=exported_to)
        export(log, Path(made) / "out", formats=FORMATS, start=start, **fields)
        found = everything(Path(made) / "out")
        assert [word for word in secrets if word in found and word not in named] == []
        assert verify_export(Path(made) / "out", verify).is_ok


def test_the_settlement_of_a_race_that_was_never_drawn_goes_out_and_holds_up_no_cursor(tmp_path):
    """No release will ever come for it: it used to wait for one, and every later export began there again."""
    log = ExportLog()
    log.add([replace(settlement("r-undrawn"), state="cancelled", drawn=(), reason="the beacon did not come")])
    released_race(log, "r-open", [1])
    log.add([settlement("r-open")])
    log.checkpoint()
    first = export(log, tmp_path / "first", formats=FORMATS, pools=POOLS)
    assert "unreleased" not in first.withheld and b"r-undrawn" in everything(tmp_path / "first")
    assert first.cursor.after_seq == first.cursor.exported_to  # nothing waits
    assert verify_export(tmp_path / "first", verify).is_ok
