"""Slots at an endpoint: never more at once than there are, over threads and processes, and free again after a kill."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from foundation.errors import ArenaError
from harness.inference.client import RequestSlots

HOLDER = """
import sys, time
from pathlib import Path
from harness.inference.client import RequestSlots
with RequestSlots(Path(sys.argv[1]), 1, 1_000).held():
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_slot_of_a_killed_process_is_free_and_a_held_one_is_waited_for(tmp_path: Path) -> None:
    slots = RequestSlots(tmp_path, 1, 100)
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(ArenaError, match=r"U3008.*1 slots.*100 ms"), slots.held():
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
        with slots.held():
            pass


def test_a_folder_that_cannot_be_written_is_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArenaError, match="V2027"), RequestSlots(tmp_path / "file", 1, 100).held():
        pass
