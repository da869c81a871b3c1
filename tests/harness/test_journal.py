"""The completion journal: one contract for both twins, and what the file outlives."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.codes import Owner
from harness.inference.journal import FileJournal, MemoryJournal
from harness.inference.port import ModelReply, RecordedAnswer

ROOT = Path(__file__).parents[2]
Open = Callable[[], MemoryJournal]  # begins an attempt


def answer(request: str, content: str = "x", model: str = "m") -> RecordedAnswer:
    reply = ModelReply(model="m-1", content=content, prompt_tokens=1, completion_tokens=1, message="{}")
    return RecordedAnswer(request_sha256=request, model=model, reply=reply)


@pytest.fixture(params=["memory", "file"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "file":
        return lambda: FileJournal(tmp_path / "stage.race" / "item.journal")
    kept = MemoryJournal()

    def reopen() -> MemoryJournal:
        kept.next_attempt()
        return kept

    return reopen


def test_a_restart_gets_every_answer_once_in_the_order_of_equal_requests(opened: Open) -> None:
    first = opened()
    for name, content in (("a", "1"), ("b", "2"), ("a", "3")):
        first.add(answer(name, content))
    again = opened()
    assert again.owed() == 3
    taken = [again.take(name) for name in ("a", "a", "b", "a")]
    assert [one.reply.content if one and one.reply else None for one in taken] == ["1", "3", "2", None]
    assert again.owed() == 0
    assert opened().owed() == 3  # the next one owes them again


def test_what_is_forgiven_is_still_given_and_owed_only_once_it_was_taken(opened: Open) -> None:
    first = opened()
    for name in "abc":
        first.add(answer(name))
    first.forgive()
    again = opened()
    assert again.owed() == 0 and again.take("b") == answer("b")
    again.add(answer("new"))
    last = opened()
    assert last.owed() == 2  # b and the new one
    assert (last.take("b"), last.take("new"), last.owed()) == (answer("b"), answer("new"), 0)
    assert last.take("a") == answer("a")


# -- the file


@given(st.lists(st.sampled_from(["a", "b", "c", "!", "take a", "take b", "open"]), max_size=12), st.data())
def test_any_beginning_of_a_file_is_a_journal_of_what_is_whole(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "one.journal"
    twin, journal = MemoryJournal(), FileJournal(path)
    for step in steps:
        for one in (twin, journal):
            if step == "!":
                one.forgive()
            elif step.startswith("take"):
                one.take(step[-1])
            elif step != "open":
                one.add(answer(step))
        if step == "open":
            journal.close()
            journal = FileJournal(path)
            twin.next_attempt()
        assert (journal.owed(), journal.models()) == (twin.owed(), twin.models())
    journal.close()
    whole = path.read_bytes()
    rows = whole.splitlines(keepends=True)
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    FileJournal(path).close()
    assert path.read_bytes() in [b"".join(rows[:count]) for count in range(len(rows) + 1)]


def test_an_answer_stands_when_its_process_is_killed_in_the_next_instant(tmp_path: Path) -> None:
    path = tmp_path / "one.journal"
    code = f"""
import os, signal
from pathlib import Path
from tests.harness.test_journal import answer
from harness.inference.journal import FileJournal
journal = FileJournal(Path({str(path)!r}))
journal.add(answer("a"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == -9
    assert FileJournal(path).owed() == 1


def test_a_file_that_cannot_grow_is_a_fault_of_ours_and_leaves_a_whole_journal(tmp_path: Path) -> None:
    path = tmp_path / "one.journal"
    journal = FileJournal(path)
    journal.add(answer("a"))
    code = f"""
import resource, signal
from pathlib import Path
from tests.harness.test_journal import answer
from harness.inference.journal import FileJournal
from foundation.errors import ArenaError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal = FileJournal(Path({str(path)!r}))
resource.setrlimit(resource.RLIMIT_FSIZE, ({path.stat().st_size + 40},) * 2)
try:
    journal.add(answer("b"))
except ArenaError as error:
    print(error.owner.value)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == Owner.VALIDATOR.value
    again = FileJournal(path)
    assert (again.owed(), again.take("b")) == (1, None)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
