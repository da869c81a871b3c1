"""Nothing of a race that waits for its release is in any file of an export, whatever its request and cursor say."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from arena.chain.keys import verify
from arena.export.model import FORMATS
from arena.export.verification import verify_export
from arena.records.body import decode_content
from problems.model import POOLS
from tests.arena.export_stand import ExportLog, export, released_race, replace
from tests.arena.log_stand import release, settlement
from tests.arena.test_export_poison import everything

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
