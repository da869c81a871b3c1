"""Slots at an endpoint: never more at once than there are, over threads and processes, and free again after a kill."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
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


def test_no_more_requests_at_once_than_slots(tmp_path: Path) -> None:
    slots, lock = RequestSlots(tmp_path, 2, 10_000), threading.Lock()
    inside, most = 0, 0
    both = threading.Barrier(2, timeout=5)

    def ask(place: int) -> None:
        nonlocal inside, most
        with slots.held():
            with lock:
                inside += 1
                most = max(most, inside)
            if place < 2:
                both.wait()  # two are held at once, so the bound is not one by accident
            with lock:
                inside -= 1

    first = [threading.Thread(target=ask, args=(place,)) for place in range(2)]
    for thread in first:
        thread.start()
    rest = [threading.Thread(target=ask, args=(place,)) for place in range(2, 9)]
    for thread in rest:
        thread.start()
    for thread in first + rest:
        thread.join(10)
    assert (inside, most) == (0, 2)


def test_a_slot_of_a_killed_process_is_free_and_a_held_one_is_waited_for(tmp_path: Path) -> None:
    waits: list[float] = []
    slots = RequestSlots(tmp_path, 1, 100, sleep=waits.append, clock_ms=lambda: len(waits) * 50)
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(ArenaError, match=r"U3008.*1 slots.*100 ms"), slots.held():
            pass
        assert len(waits) == 2
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
        with slots.held():
            pass


def test_a_folder_that_cannot_be_written_is_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArenaError, match="V2012"), RequestSlots(tmp_path / "file", 1, 100).held():
        pass
