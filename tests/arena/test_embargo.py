"""A released race whose embargo still runs: its traces are in no export before the moment, then in the next."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arena.chain.keys import verify
from arena.export.files import write_manifest
from arena.export.model import FORMATS
from arena.export.verification import verify_export
from problems.model import POOLS
from tests.arena.export_stand import ExportLog, export, released_race
from tests.arena.log_stand import release, settlement
from tests.arena.test_export import everything

OPENS_MS = 2_000_000_000_000
SEALED = "r-sealed"


def log_under_embargo() -> ExportLog:
    """A race that is open, and one that is settled and released and waits for its moment."""
    log = ExportLog()
    released_race(log, "r-open", [1, 2])
    log.add_episode(7301, SEALED)
    log.add([replace(settlement(SEALED), drawn=("p7301",))])
    log.add([replace(release(SEALED, [7301]), opens_ms=OPENS_MS)])
    log.add_episode(3, "r-open-too")
    log.add([release("r-open-too", [3])])
    log.checkpoint()
    return log


def traces_in(folder) -> tuple[bool, bool]:
    """Whether the tool results of the sealed race's episode, and of another's, are anywhere in an export."""
    found = everything(folder)
    return b'"problem_id":"p7301","bucket"' in found or b"p7301/" in found, b'"p0001"' in found


@pytest.mark.parametrize("pools", [("train",), POOLS])
def test_traces_go_out_with_the_first_export_after_the_moment_and_once(tmp_path, pools):
    log = log_under_embargo()
    first = export(log, tmp_path / "first", formats=FORMATS, pools=pools, now_ms=OPENS_MS - 1)
    assert first.log.embargoed == (SEALED,) and first.trajectories == 3
    assert first.withheld == {"unreleased": 3}  # evaluation, attempt, verdict; rank and score are public
    assert not traces_in(tmp_path / "first")[0]
    second = export(log, tmp_path / "second", start=first.cursor, formats=FORMATS, pools=pools, now_ms=OPENS_MS)
    assert second.trajectories == 1 and "unreleased" not in second.withheld
    for name in ("first", "second"):
        report = verify_export(tmp_path / name, verify)
        assert report.is_ok, report.wrong


def test_an_export_that_brings_an_embargoed_trace_is_found_out(tmp_path):
    """Its maker says that an embargo ran, and brings what it seals."""
    log = log_under_embargo()
    made = export(log, tmp_path / "out", now_ms=OPENS_MS)
    write_manifest(tmp_path / "out", replace(made, log=replace(made.log, embargoed=(SEALED,))), None)
    report = verify_export(tmp_path / "out", verify)
    assert not report.is_ok and "should be withheld: unreleased" in str(report.wrong)
