"""README.md's lines for an operator, in the order printed, on a kept state folder in the place of a demo's.

The demo itself is in `make prove` (tests/prove/test_readme_paths.py).
"""

from __future__ import annotations

from tests.kept.make import VALIDATOR
from tests.kept.test_kept_state import OLDEST, Kept
from tests.neurons.arena_stand import short_folder
from tests.readme_blocks import block_under

LATEST = "state/demo/latest"
SEEN = ("ok: every signature", "trajectories in", "ok: ", "records and", "are back")


def test_the_operators_lines_end_as_the_page_says() -> None:
    with short_folder() as folder:
        kept = Kept(OLDEST, folder)
        (folder / "state" / "demo").mkdir()
        (folder / LATEST).symlink_to(kept.state)  # as a demo leaves it
        for line, seen in zip(block_under("I am an operator").lines, SEEN, strict=True):
            assert seen in kept.arena(*line.replace("//Validator", VALIDATOR).split()[1:]), line
        assert SEEN[0] in kept.arena("records", "verify", "--state-dir", "restored")
