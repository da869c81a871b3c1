"""`arena doctor`: every shortfall is named with its fix, a broken check is a row and not a crash."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from arena.chain.local import LocalSubtensor
from arena.chain.port import StatePrunedError
from foundation.errors import ArenaError
from neurons.cli.app import app
from neurons.health.metrics import Metrics
from neurons.node import doctor
from neurons.node.doctor import BEHIND_MS, DoctorCheck, examine, examine_network
from neurons.node.opening import open_node
from neurons.settings.settings import Settings, resolve
from tests.keys import generate_signer
from tests.neurons.clock_stand import Time


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return resolve({"state_dir": tmp_path / "state"}).settings


def test_what_cannot_be_examined_fails_with_its_reason_and_the_rest_still_runs(settings: Settings) -> None:
    def broken(_: Settings) -> DoctorCheck:
        raise ArenaError("V2020", "no user nobody")

    def unmade(_: Settings) -> DoctorCheck:
        raise PermissionError("denied")

    thing, other, memory = examine(settings, [("thing", broken), ("other", unmade), ("memory", doctor.check_memory)])
    assert (thing.status, thing.name) == ("fail", "thing") and "V2020" in thing.found and thing.fix
    assert (other.status, other.found, memory.name) == ("fail", "denied", "memory")


def test_the_command_examines_the_node_that_its_flags_describe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Settings] = []

    def keep(settings: Settings) -> DoctorCheck:
        seen.append(settings)
        return DoctorCheck("ok", "")

    monkeypatch.setattr("neurons.node.doctor.CHECKS", (("kept", keep),))
    config = tmp_path / "node.toml"
    config.write_text('policy = "demo"\nnetuid = 3\n')
    flags = ["--subtensor.network", "finney", "--netuid=7", "--wallet.hotkey", "//Alice", "--state-dir", str(tmp_path)]
    result = CliRunner().invoke(app, ["doctor", *flags, "--config", str(config), "--json"])
    assert result.exit_code == 0, result.output
    (settings,) = seen
    assert (settings.network, settings.netuid, settings.policy) == ("finney", 7, "demo")
    assert (settings.wallet_hotkey, settings.state_dir) == ("//Alice", tmp_path)


async def test_a_hotkey_without_a_place_fails_and_a_chain_that_stands_still_or_forgets_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    time, signer = Time(), generate_signer()
    chain = LocalSubtensor(tmp_path / "chain.sqlite", now_ms=time)
    seen = []
    with pytest.raises(ArenaError, match=r"U3035.*not registered"):
        await examine_network(chain, signer.hotkey, time())
    await chain.register(signer)
    with pytest.raises(ArenaError, match=r"U3035.*no permit") as refused:
        await examine_network(chain, signer.hotkey, time())
    assert "btcli" in refused.value.fix and "stake" in refused.value.fix
    await chain.set_stake(signer.hotkey, 10 * chain.rules.permit_stake_rao)
    time.pass_s(3_600)
    seen.append(await examine_network(chain, signer.hotkey, time()))
    seen.append(await examine_network(chain, signer.hotkey, time() + 2 * BEHIND_MS))
    seen.append(await examine_network(chain, signer.hotkey, time() - 90_000))

    async def pruned(hotkey: str, block: int | None = None) -> None:
        raise StatePrunedError("U3033", f"block {block}")

    monkeypatch.setattr(chain, "commitment", pruned)  # the twin forgets nothing
    seen.append(await examine_network(chain, signer.hotkey, time()))
    assert [one.status for one in seen] == ["ok", "warn", "warn", "warn"]
    said = ("uid 0", "no final block", "-90 s off", "forgotten")
    assert all(found in one.found for one, found in zip(seen, said, strict=True))
    assert "archive" in seen[3].fix


PAPER = {"policy": "paper", "openai_base_url": "http://127.0.0.1:9/v1"}
REFUSED: tuple[tuple[str, dict[str, str]], ...] = (
    ("V2010", {"catalogue_dir": "/nowhere"}),
    ("V2014", {"public_host": "192.0.2.1"}),
    ("V2021", {"database_dsn": "postgresql://arena:S3 CRET@127.0.0.1:9/arena"}),
    ("V2027", {"state_dir": "/proc/nowhere"}),
    ("V2029", {"bodies_url": "file:///proc/nowhere"}),
    ("V2030", {"bank_hotkey": "garbage"}),
    ("V2030", {"operator_hotkey": "garbage"}),
    ("V2030", {"public_endpoint": "garbage"}),
    ("V2030", {"policy": "nowhere"}),
    ("V2030", {"wallet_hotkey": "nowhere"}),
    ("V2060", {"guest_dir": "/proc/nowhere"}),
    ("V2062", {**PAPER, "judge_base_url": "http://127.0.0.1:9/v1", "sandbox": "reference-agents-only"}),
    ("U3001", {"policy": "paper"}),
    ("U3001", PAPER),
    ("U3030", {"network": "http://127.0.0.1:9"}),
)


@pytest.mark.parametrize(("code", "flags"), REFUSED)
def test_doctor_and_a_dry_run_refuse_what_the_start_refuses(code: str, flags: dict[str, str], tmp_path: Path) -> None:
    given = {"policy": "demo", "wallet_hotkey": "//Alice", "state_dir": str(tmp_path / "node"), **flags}
    words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)]

    with pytest.raises(ArenaError, match=code) as refused:
        asyncio.run(open_node(resolve(given).settings, Metrics()).__aenter__())
    said = [str(refused.value)]
    for command in (["doctor"], ["validator", "--dry-run"]):
        done = CliRunner().invoke(app, [*command, *words])
        said.append(f"{done.output}{done.exception}")
        assert done.exit_code and code in said[-1], command
    assert "CRET" not in "".join(said) and "`arena doctor`" not in said[1]
    assert not (made := tmp_path / "node").exists() or not made.stat().st_mode & 0o007
