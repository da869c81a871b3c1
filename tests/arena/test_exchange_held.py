"""Held logs on disk: whole or not at all, through kills and damage, and no more of them than are kept."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from arena.exchange.peer_logs import PeerLogStore
from foundation.errors import ArenaError
from tests.arena.hold_logs_forever import ROWS, VALIDATOR, hold, row

SCRIPT = Path(__file__).with_name("hold_logs_forever.py")


def whole(held: PeerLogStore, race_id: str) -> bool:
    return [row.seq for row in held.rows(held.held(race_id)[-1])] == list(range(1, ROWS + 1))


def races(held: PeerLogStore) -> list[str]:
    return [log.race_id for log in held.held()]


def test_a_kill_at_any_instant_leaves_whole_logs_and_nothing_else(tmp_path: Path) -> None:
    for run, delay_s in enumerate((0.0, 0.013, 0.037)):
        running = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(tmp_path), f"run{run}"],
            cwd=Path(__file__).parents[2],
            env={"PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert running.stdout is not None
        said = [running.stdout.readline().strip() for _ in range(3)]
        time.sleep(delay_s)
        running.kill()
        said += running.stdout.read().split()
        running.wait()
        held = PeerLogStore(tmp_path, races_kept=5)
        assert said[-1] in races(held)[-2:]  # one more may stand there that it did not come to say
        assert all(whole(held, race_id) for race_id in races(held))
        named = {tmp_path / file.path for log in held.held() for file in log.files}
        assert set((tmp_path / "rows").iterdir()) == named


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(path.read_bytes()[:-5]), Path.unlink])
def test_a_changed_file_is_never_read_and_its_log_is_held_no_longer(tmp_path: Path, damage) -> None:
    held = PeerLogStore(tmp_path)
    hold(held, "r1")
    hold(held, "r2")
    (file,) = held.held("r1")[0].files
    damage(tmp_path / file.path)
    with pytest.raises(ArenaError) as caught:
        whole(held, "r1")
    assert caught.value.failure.code == "V2064"
    assert races(held) == races(PeerLogStore(tmp_path)) == ["r2"]
    assert held.note(VALIDATOR, "") == held.held("r2")[0].note and held.note("5Other", "") is None


def test_a_race_has_no_more_bytes_than_races_have_and_qualifying_may_have_more(tmp_path: Path, monkeypatch) -> None:
    rows = [msgspec.structs.replace(row("r1", seq), content=None, withheld="unreleased") for seq in range(1, 11)]
    monkeypatch.setattr(
        "arena.exchange.peer_logs.RACE_BYTES_MAX", sum(len(msgspec.json.encode(one)) + 1 for one in rows)
    )
    held = PeerLogStore(tmp_path)
    writer, of_a_whole_log = held.writer("r1"), held.writer("")
    writer.write(rows)
    with pytest.raises(ArenaError, match=r"U3043.*stubs too, are over"):
        writer.write(rows[:1])
    for _ in range(3):
        of_a_whole_log.write(rows)
    for each in (writer, of_a_whole_log):
        each.abandon()


def test_an_author_over_its_budget_loses_its_own_oldest_logs_and_stubs_go_once_nobody_asks(
    tmp_path: Path, monkeypatch
) -> None:
    held = PeerLogStore(tmp_path)
    for race_id in ("r1", "r2", "r3"):
        hold(held, race_id)
        hold(held, race_id, "5Other")
    assert [log.shown_after for log in held.held(validator=VALIDATOR)] == [ROWS, 0, 0]
    assert len(list((tmp_path / "stubs").iterdir())) == 4
    size = sum(file.size_bytes for file in held.held("r3", VALIDATOR)[0].kept)
    monkeypatch.setattr("arena.exchange.peer_logs.AUTHOR_BYTES_MAX", 2 * size + 10)
    hold(held, "r4")
    assert [(log.race_id, log.validator) for log in held.held()][-2:] == [("r3", "5Other"), ("r4", VALIDATOR)]
    assert races(PeerLogStore(tmp_path)) == races(held) == ["r1", "r2", "r3", "r3", "r4"]
    monkeypatch.setattr("arena.exchange.peer_logs.AUTHOR_BYTES_MAX", 10)
    with pytest.raises(ArenaError, match="U3043"):
        hold(held, "r5")
    assert {log.validator for log in held.held()} == {"5Other"}
