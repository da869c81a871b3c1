"""Two machines' worth on one host: a validator, and a miner in a folder of its own who has the chain's address only.

From an example file to the file of the winner after its embargo, by the commands alone. Two to four minutes, most of
them waiting: closes and embargoes stand at whole minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import bittensor_core
import pytest
from msgspec.structs import replace

from arena.policies import DEMO
from arena.policy import EmbargoRules, Policy
from harness.agents.registry import baseline_source
from neurons.demo.demo import running_validator
from tests.arena.tail_stand import free_port
from tests.neurons.arena_stand import build_small_catalogue, make_run, short_folder

FIRST_S = 100  # until the close: the validator starts, and the agent is submitted and qualifies
END_S = 300.0


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
    at_minute = opens.hour * 60 + opens.minute
    embargo = EmbargoRules(timezone="UTC", opens_at_minute=at_minute, is_weekday_only=False)  # on any day
    promotion = replace(DEMO.promotion, evidence_alone=1)  # three problems hold little evidence
    return replace(DEMO, name="calendar", qualifying=qualifying, race=race, promotion=promotion, embargo=embargo)


class Miner:
    """Somebody with a wallet and a folder, who knows the chain's address and no path of the validator's."""

    def __init__(self, folder: Path, network: str) -> None:
        self.folder = folder
        key = bittensor_core.Keypair.create_from_mnemonic(bittensor_core.Keypair.generate_mnemonic())
        path = folder / "wallets" / "mine" / "hotkeys" / "first"
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(bittensor_core.serialized_keypair_to_keyfile_data(key)))
        self._environment = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "HOME": str(folder),
            "ARENA_STATE_DIR": str(folder / "state"),
            "ARENA_NETWORK": network,
            "ARENA_WALLET_PATH": str(folder / "wallets"),
            "ARENA_WALLET_NAME": "mine",
            "ARENA_WALLET_HOTKEY": "first",
        }

    def arena(self, *arguments: object) -> tuple[int, str]:
        """Exit code and words of a command."""
        command = [sys.executable, "-m", "neurons.cli.app", *map(str, arguments)]
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False
        )
        print(f"$ arena {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
        return done.returncode, done.stdout or done.stderr

    def until(self, is_so: Callable[[int, str], bool], *arguments: object) -> str:
        """Give a command again until it answers so."""
        end_s = time.monotonic() + END_S
        while not is_so(*(answer := self.arena(*arguments))):
            assert time.monotonic() < end_s, answer
            time.sleep(3)
        return answer[1]


@pytest.mark.prove
def test_a_miner_of_another_user_goes_the_whole_way(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = {name: free_port() for name in ("DOOR_PORT", "SERVE_PORT", "LOCAL_CHAIN_PORT")}
    for name, port in ports.items():
        monkeypatch.setenv(f"ARENA_{name}", str(port))
    with short_folder() as base:
        catalogue = build_small_catalogue(base)
        run = make_run(base, catalogue, policy=calendar_policy(datetime.now(UTC)), names=("nobody",))
        with running_validator(run) as process:
            for name in ports:
                monkeypatch.delenv(f"ARENA_{name}")
            miner = Miner(base / "miner", f"http://127.0.0.1:{ports['LOCAL_CHAIN_PORT']}")
            agent = miner.folder / "my_agent.py"
            agent.write_text(baseline_source("scripted-expert"))
            assert miner.arena("check", agent)[0] == miner.arena("run", agent, "--count", 2)[0] == 0
            told = miner.until(lambda code, _: code == 0, "submit", agent, "--register", "--yes", "--json")
            miner.until(lambda _, said: "qualified" in said, "status")
            miner.until(lambda _, said: "rank 1 of 1, took the top" in said, "status")
            code, sealed = miner.arena("winner")
            assert code == 3 and "V2089" in sealed and "until" in sealed, sealed
            won = miner.folder / "winner.py"
            found = miner.until(lambda code, _: code == 0, "winner", "--out", won, "--json")
            assert json.loads(found)["agent_version_id"] == json.loads(told)["agent_version_id"]
            assert won.read_text() == agent.read_text()
        assert process.returncode == 0, (run.folder / "validator.log").read_text()[-2_000:]
