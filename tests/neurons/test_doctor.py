"""`arena doctor`: every shortfall is named with its fix, a broken check is a row and not a crash."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from arena.chain.local import LocalSubtensor
from foundation.errors import ArenaError
from neurons.cli.app import app
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
    wrong = CliRunner().invoke(app, ["doctor", "--subtensor.netwrok", "finney"])
    assert wrong.exit_code == 2 and "--subtensor.network" in wrong.output


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
        raise ArenaError("U3033", f"block {block}")

    monkeypatch.setattr(chain, "commitment", pruned)  # the twin forgets nothing
    seen.append(await examine_network(chain, signer.hotkey, time()))
    assert [one.status for one in seen] == ["ok", "warn", "warn", "warn"]
    said = ("uid 0", "no final block", "-90 s off", "forgotten")
    assert all(found in one.found for one, found in zip(seen, said, strict=True))
    assert "archive" in seen[3].fix


STARTS = (  # what the start calls, the codes that it raises, and the row that calls it, too
    ("settings", "neurons.node.opening.require_settings", "V2029 V2030"),
    ("settings", "neurons.node.opening.alone_on_host", "V2024 V2027"),
    ("release", "neurons.loops.operator_files.with_held_release", "V2064 V2105"),
    ("release", "neurons.loops.operator_files.operator_of", "U3030 U3048 V2030"),
    ("sandbox", "harness.sandbox.probe.open_sandbox", "V2001"),
    ("sandbox", "neurons.node.opening.require_racing_level", "V2062"),
    ("postgres", "arena.store.embedded.start_embedded", "V2020 V2021 V2022 V2023 V2024 V2026"),
    ("ports", "neurons.node.opening.require_ports", "V2014"),
    ("bodies", "neurons.node.opening.open_bodies", "V2028 V2029"),
    ("model", "neurons.node.doctor.chosen_endpoints", "U3001"),
    ("suite", "neurons.node.doctor.titles_file", "V2040"),
    ("suite", "neurons.node.doctor.prepare_suite", "V2010 P4001 P4006 P4010 P4014"),
    ("network", "neurons.node.doctor.chain_of", "U3030 U3037 U3039 V2032"),
    ("network", "neurons.node.doctor.examine_network", "U3035 V2062"),
)


def test_every_code_that_a_start_can_raise_has_a_row_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = {"state_dir": tmp_path, "network": "ws://127.0.0.1:9", "operator_hotkey": generate_signer().hotkey}
    settings = resolve(about).settings
    for name, function, codes in STARTS:
        for code in codes.split():
            with monkeypatch.context() as patch:
                patch.setattr("neurons.node.doctor.chain_of", lambda _: None)
                for signer in ("neurons.node.opening.require_settings", "neurons.node.doctor.signer_of"):
                    patch.setattr(signer, lambda _: generate_signer())
                patch.setattr("neurons.node.doctor.titles_file", lambda _: "")
                patch.setattr(function, Mock(side_effect=ArenaError(code, "postgresql://arena:S3CRET@127.0.0.1/arena")))
                (row,) = examine(settings, [one for one in doctor.CHECKS if one[0] == name])
            assert row.status == "fail" and code in row.found and "S3CRET" not in row.found, (name, function, code)
    text = re.sub(r"V2020 to V2024", "V2020 V2021 V2022 V2023 V2024", open_node.__doc__ or "")
    raised = set(re.findall(r"[AVUP]\d{4}", text)) - {"V2080"}  # the log itself: `arena records verify`
    assert raised <= {code for _, _, codes in STARTS for code in codes.split()}
