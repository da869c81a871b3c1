"""`arena doctor`: every shortfall is named with its fix, a broken check is a row and not a crash."""

from __future__ import annotations

import json
from pathlib import Path

import bittensor_core as core
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from arena.chain.keys import generate_signer
from arena.chain.local.chain import LocalSubtensor
from foundation.errors import ArenaError
from neurons.cli.app import app
from neurons.node import doctor
from neurons.node.doctor import BEHIND_MS, CHECKS, DoctorCheck, examine, examine_network
from neurons.settings.settings import Settings, resolve
from tests.neurons.clock_stand import Time


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return resolve({"state_dir": tmp_path / "state"}).settings


@pytest.mark.parametrize(
    ("version", "status"), [((3, 10), "fail"), ((3, 11), "ok"), ((3, 12), "warn"), ((3, 14), "warn")]
)
def test_only_the_raced_python_is_fully_well(version: tuple[int, int], status: str) -> None:
    assert doctor.judge_python(version).status == status


@pytest.mark.parametrize(
    ("system", "machine", "libc", "status", "said"),
    [
        ("linux", "x86_64", ("glibc", "2.36"), "ok", ""),
        ("linux", "aarch64", ("glibc", "2.31"), "ok", ""),
        ("linux", "x86_64", ("musl", "1.2"), "fail", "musl"),
        ("linux", "x86_64", ("", ""), "fail", "glibc"),
        ("linux", "riscv64", ("glibc", "2.36"), "fail", "aarch64"),
        ("darwin", "arm64", ("", ""), "fail", "Linux"),
    ],
)
def test_an_unsupported_platform_is_named_with_a_way_out(
    system: str, machine: str, libc: tuple[str, str], status: str, said: str
) -> None:
    row = doctor.judge_platform(system, machine, libc)
    assert row.status == status
    assert said in row.fix


@given(free=st.integers(min_value=0, max_value=1 << 45))
def test_less_memory_never_looks_better(free: int) -> None:
    order = ["fail", "warn", "ok"]
    row, more = (doctor.judge_bytes(amount, 1 << 30, 4 << 30) for amount in (free, free * 2 + 1))
    assert order.index(row.status) <= order.index(more.status)
    assert bool(row.fix) == (row.status != "ok")


@pytest.mark.parametrize(
    ("error", "found", "fix"),
    [
        (ArenaError("V2020", "no user nobody"), "V2020", "read the server log"),
        (ImportError("No module named 'numba'"), "numba", "make install"),
        (PermissionError("denied"), "denied", "see the reason"),
    ],
)
def test_what_cannot_be_examined_fails_with_its_reason_and_the_rest_still_runs(
    settings: Settings, error: Exception, found: str, fix: str
) -> None:
    def broken(_: Settings) -> DoctorCheck:
        raise error

    rows = list(examine(settings, [("thing", broken), ("python", doctor.check_python)]))
    assert [row.name for row in rows] == ["thing", "python"]
    assert rows[0].status == "fail"
    assert found in rows[0].found
    assert fix in rows[0].fix


def test_a_state_folder_that_cannot_be_written_is_a_failure_with_the_command(
    settings: Settings, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    row = doctor.check_disk(settings.model_copy(update={"state_dir": blocked}))
    assert row.status == "fail"
    assert str(blocked) in row.fix


def test_this_hosts_postgres_engine_keys_and_zones_are_examined_for_real(settings: Settings) -> None:
    wanted = {"postgres", "search engine", "chain keys", "time zones", "memory", "cores"}
    rows = {row.name: row for row in examine(settings, [(n, c) for n, c in CHECKS if n in wanted])}
    assert set(rows) == wanted
    assert {
        name for name in ("postgres", "search engine", "chain keys", "time zones") if rows[name].status != "ok"
    } == set()
    assert "PostgreSQL" in rows["postgres"].found


def test_a_model_endpoint_that_is_not_there_fails_with_its_address(settings: Settings) -> None:
    deaf = settings.model_copy(update={"openai_base_url": "http://127.0.0.1:9/v1"})
    (row,) = examine(deaf, [("model", doctor.check_model)])
    assert row.status == "fail"
    assert "OPENAI_BASE_URL" in row.fix or "endpoint" in row.fix


def test_without_an_endpoint_the_scripted_model_answers(settings: Settings) -> None:
    assert doctor.check_model(settings.model_copy(update={"openai_base_url": ""})).status == "ok"


def test_the_command_prints_a_row_for_each_check_and_its_exit_code_follows_the_rows(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--json", "--state-dir", str(tmp_path / "state")])
    report = json.loads(result.stdout)
    assert len(report["rows"]) == len(CHECKS)
    assert report["is_ready"] == all(row["status"] != "fail" for row in report["rows"])
    assert result.exit_code == (0 if report["is_ready"] else 3)
    assert not [row for row in report["rows"] if row["status"] == "fail" and not row["fix"]]


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
    wrong = CliRunner().invoke(app, ["doctor", "--subtensor.netwrok", "finney"])
    assert isinstance(wrong.exception, ArenaError) and wrong.exception.failure.code == "V2030"


def test_a_mistyped_network_is_a_row_that_says_so(tmp_path: Path) -> None:
    settings = resolve({"state_dir": tmp_path, "network": "finny", "wallet_path": tmp_path}).settings
    wallet = tmp_path / "default" / "hotkeys"
    wallet.mkdir(parents=True)
    key = core.Keypair.create_from_uri("//Somebody")
    (wallet / "default").write_bytes(bytes(core.serialized_keypair_to_keyfile_data(key)))
    (row,) = examine(settings, [("network", doctor.check_network)])
    assert (row.status, row.fix) == ("fail", "did you mean `finney`?") and row.found.startswith("V2030")


def test_a_bank_that_lasts_for_too_few_days_is_a_warning_with_its_fix(tmp_path: Path) -> None:
    sealed = resolve({"state_dir": tmp_path, "network": "finney", "bank_hotkey": "5F" + "x" * 46}).settings
    row = doctor.check_bank(sealed)
    assert (row.status, row.found) == ("warn", "0 races, 0 days") and "ask the operator" in row.fix
    assert doctor.check_bank(resolve({"state_dir": tmp_path}).settings).status == "ok"


async def test_a_hotkey_without_a_place_fails_and_a_chain_that_stands_still_or_forgets_is_a_warning(
    tmp_path: Path,
) -> None:
    time, signer = Time(), generate_signer()
    chain = LocalSubtensor(tmp_path / "chain.sqlite", now_ms=time)
    stranger = await examine_network(chain, signer.hotkey, time())
    await chain.register(signer)
    miner = await examine_network(chain, signer.hotkey, time())
    assert (stranger.status, miner.status) == ("fail", "fail")
    assert "is not registered" in stranger.found and "no permit" in miner.found and "btcli" in miner.fix
    await chain.set_stake(signer.hotkey, 10 * chain.rules.permit_stake_rao)
    time.pass_s(3_600)
    row = await examine_network(chain, signer.hotkey, time())
    assert (row.status, "uid 0" in row.found) == ("ok", True)
    stale = await examine_network(chain, signer.hotkey, time() + 2 * BEHIND_MS)
    assert (stale.status, "no final block" in stale.found) == ("warn", True)

    async def pruned(hotkey: str, block: int | None = None) -> None:
        raise ArenaError("U3033", f"block {block}")

    chain.commitment = pruned  # type: ignore[method-assign]  # the twin forgets nothing
    forgetful = await examine_network(chain, signer.hotkey, time())
    assert (forgetful.status, "archive" in forgetful.fix) == ("warn", True)
