"""Two machines' worth on one host: a validator, and a miner of another user with a wallet and the chain's address only.

From an example file to the file of the winner after its embargo, by the commands alone. Two to four minutes, most of
them waiting: closes and embargoes stand at whole minutes.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

import pytest
from msgspec.structs import replace

from arena.policies import DEMO
from arena.policy import EmbargoRules, Policy
from harness.agents.registry import baseline_source
from neurons.demo.demo import running_validator
from tests.neurons.arena_stand import build_small_catalogue, make_run, short_folder
from tests.neurons.outsider_stand import Outsider, why_no_outsider
from tests.neurons.shared_nodes_stand import free_port

FIRST_S = 100  # until the close: the validator starts, and the agent is submitted and qualifies
END_S = 300.0
_SATURDAY = 5


def calendar_policy(now: datetime) -> Policy:
    """A policy with the next close in about FIRST_S, and an embargo that ends some two minutes after it (UTC)."""
    closes = now + timedelta(seconds=FIRST_S + 60 - (now.second + FIRST_S) % 60)
    opens = closes + timedelta(minutes=2)
    race = replace(
        DEMO.race,
        timezone="UTC",
        closes_at_minute=closes.hour * 60 + closes.minute,
        closes_after_ms=None,
        qualifying_grace_ms=5_000,
        reveal_ms=5_000,
        run_ms=40_000,
        agree_ms=5_000,
        beacon_grace_ms=30_000,
        problems=3,
        batch_problems=4,
        lease_ms=6_000,
    )
    qualifying = replace(DEMO.qualifying, problems=2, score_min_e4=0)  # how an agent does on the problems drawn is luck
    embargo = EmbargoRules(timezone="UTC", opens_at_minute=opens.hour * 60 + opens.minute)
    return replace(DEMO, name="calendar", qualifying=qualifying, race=race, embargo=embargo)


class Screen:
    """What a running command prints, as it comes."""

    def __init__(self, stream: IO[str]) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        self.seen: list[str] = []
        threading.Thread(target=lambda: [self._lines.put(line) for line in stream], daemon=True).start()

    def wait_for(self, what: str, within_s: float) -> str:
        """The first new line that says it."""
        end_s = time.monotonic() + within_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, end_s - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"{what}: not within {within_s} s\n{''.join(self.seen)}") from None
            self.seen.append(line)
            if what in line:
                return line


@pytest.fixture
def base() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@pytest.mark.prove
def test_a_miner_of_another_user_goes_the_whole_way(
    base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if reason := why_no_outsider():
        pytest.skip(reason)
    if (datetime.now(UTC) + timedelta(minutes=6)).weekday() >= _SATURDAY:
        pytest.skip("embargoes end on weekdays alone")
    catalogue = build_small_catalogue(base)
    ports = {name: free_port() for name in ("DOOR_PORT", "SERVE_PORT", "LOCAL_CHAIN_PORT")}
    for name, port in ports.items():
        monkeypatch.setenv(f"ARENA_{name}", str(port))
    run = make_run(base, catalogue, policy=calendar_policy(datetime.now(UTC)), names=("nobody",))
    for private in (run.folder / "chain", base / "policy.json"):
        private.chmod(0o700)
    run.folder.chmod(0o711)  # its Postgres runs under a user of its own
    with running_validator(run) as process, capsys.disabled():
        miner = Outsider(base / "miner", f"http://127.0.0.1:{ports['LOCAL_CHAIN_PORT']}")
        for theirs in (run.folder, run.folder / "chain", base / "policy.json"):
            assert not miner.can_read(theirs)
        agent = miner.folder / "my_agent.py"
        agent.write_text(baseline_source("scripted-expert"))
        print(miner.arena("check", agent))
        print(miner.arena("run", agent, "--count", 2))
        log = run.folder / "validator.log"
        until(lambda: '"event":"door\'s address published"' in log.read_text(), process.poll, log)
        submitted = json.loads(miner.arena("submit", agent, "--register", "--json"))
        watching = miner.start("status", "--watch")
        try:
            assert watching.stdout is not None
            screen = Screen(watching.stdout)
            screen.wait_for("qualified", 90)
            assert "rank 1 of 1, at the top" in screen.wait_for("rank", END_S)
        finally:
            watching.terminate()
            watching.wait()
        print("".join(screen.seen))
        sealed = miner.arena("winner", exit_code=3)
        assert "V2089" in sealed and "until" in sealed, sealed
        print(sealed)
        opens = run_until_open(miner)
        found = json.loads(opens)
        assert found["agent_version_id"] == submitted["agent_version_id"]
        assert (miner.folder / "winner.py").read_text() == agent.read_text()
    assert process.returncode == 0, log.read_text()[-2_000:]


def run_until_open(miner: Outsider) -> str:
    """What `arena winner` prints as soon as the embargo is over."""
    end_s = time.monotonic() + END_S
    while True:
        try:
            return miner.arena("winner", "--out", miner.folder / "winner.py", "--json")
        except AssertionError as error:
            assert "V2089" in str(error) and time.monotonic() < end_s, error
        time.sleep(3)


def until(is_so: Callable[[], bool], ended: Callable[[], int | None], log: Path) -> None:
    """Wait, while the validator runs, until it is so."""
    end_s = time.monotonic() + END_S
    while not is_so():
        assert ended() is None and time.monotonic() < end_s, log.read_text()[-3_000:]
        time.sleep(0.2)
