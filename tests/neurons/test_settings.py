"""Settings: precedence, sources, nearest names, masked secrets."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ArenaError
from neurons.settings.settings import (
    Settings,
    format_rows,
    refuse_unknown_flags,
    resolve,
    resolve_arguments,
    split_flags,
)


@pytest.fixture(autouse=True)
def quiet_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No setting of the machine that runs the tests counts; the working folder is empty."""
    import os

    for variable in list(os.environ):
        if variable.startswith(("ARENA_", "OPENAI_")):
            monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def source_of(name: str, *arguments: str) -> tuple[str, str]:
    row = next(row for row in resolve_arguments(arguments).rows if row.name == name)
    return row.value, row.source


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert source_of("netuid") == ("15", "default")
    (tmp_path / "arena.toml").write_text("netuid = 3\n")
    assert source_of("netuid") == ("3", "arena.toml")
    monkeypatch.setenv("ARENA_NETUID", "4")
    assert source_of("netuid") == ("4", "environment")
    assert source_of("netuid", "--netuid", "5") == ("5", "flag")


def test_the_ecosystems_dotted_flags_are_understood_and_the_rest_is_handed_back() -> None:
    found = resolve_arguments(
        [
            "--wallet.name",
            "alice",
            "--wallet.hotkey=h1",
            "--subtensor.network",
            "finney",
            "--dry-run",
            "--logging.debug",
        ]
    )
    settings, rest = found.settings, list(found.rest)
    assert (settings.wallet_name, settings.wallet_hotkey, settings.network) == ("alice", "h1", "finney")
    assert settings.log_level == "debug"
    assert rest == ["--dry-run"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--wallet.name", "alice", "--wallet.hotkey", "h1", "--subtensor.network", "finney"],
        ["--wallet", "alice", "--wallet-hotkey", "h1", "-n", "finney"],
        ["-w", "alice", "-H", "h1", "--network", "finney"],
        ["--wallet-name", "alice", "--wallet-hotkey=h1", "--subtensor.chain_endpoint", "finney"],
    ],
)
def test_a_wallet_is_spelled_as_any_of_the_ecosystems_tools_spells_it(arguments: list[str]) -> None:
    found = resolve_arguments(arguments)
    settings = found.settings
    assert (settings.wallet_name, settings.wallet_hotkey, settings.network) == ("alice", "h1", "finney")
    assert not found.rest


def test_every_command_that_takes_a_wallet_takes_every_spelling() -> None:
    """Commands name their options; the spellings of each stand in one place."""
    import typer

    from neurons.cli.app import COMMANDS
    from neurons.settings import flags as wallet_flags

    groups = {"wallet_name": wallet_flags.NAME, "wallet_hotkey": wallet_flags.HOTKEY, "wallet_path": wallet_flags.PATH}
    groups |= {"network": wallet_flags.NETWORK, "netuid": wallet_flags.NETUID}
    met = set()
    waiting = [
        typer.main.get_command(importlib.import_module(f"neurons.cli.{module}").app)
        for module in {entry.module.partition(":")[0] for entry in COMMANDS}
    ]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        for option in command.params:
            spelled = {flag for flags in groups.values() for flag in flags}.intersection(option.opts)
            if spelled and option.name in groups:
                assert tuple(option.opts) == groups[option.name], (command.name, option.opts)
                met.add(option.name)
    assert met == set(groups)


@pytest.mark.parametrize(
    ("arguments", "is_shared", "left"),
    [
        (["--share"], True, []),
        (["--share", "--workers", "2"], True, []),
        (["--share", "false"], False, []),
        (["--share=true", "check"], True, ["check"]),
        (["--share", "check"], True, ["check"]),
    ],
)
def test_a_switch_may_stand_alone(arguments: list[str], is_shared: bool, left: list[str]) -> None:
    found = resolve_arguments(arguments)
    settings, rest = found.settings, list(found.rest)
    assert (settings.share, rest) == (is_shared, left)


@pytest.mark.parametrize("spelling", ["--subtensor.chain_endpoint", "--network", "--subtensor.network"])
def test_the_chain_may_be_named_by_address(spelling: str) -> None:
    assert resolve_arguments([spelling, "ws://127.0.0.1:9944"]).settings.network == "ws://127.0.0.1:9944"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--wallet.nam", "x"], "--wallet.name"),
        (["--netuid", "many"], "netuid from flag"),
        (["--netuid"], "has no value"),
        (["--netuid", "--workers", "2"], "has no value"),
        (["--workers", "0"], "workers from flag"),
        (["--sandbox", "none"], "sandbox from flag"),
        (["--config", "absent.toml"], "absent.toml"),
    ],
)
def test_a_wrong_flag_is_refused_with_the_reason(arguments: list[str], said: str) -> None:
    with pytest.raises(ArenaError, match="V2030") as refused:
        resolve_arguments(arguments)
    assert said in str(refused.value)


def test_an_unknown_key_in_the_file_names_its_nearest(tmp_path: Path) -> None:
    (tmp_path / "arena.toml").write_text('walet_name = "x"\n')
    with pytest.raises(ArenaError, match=r"arena\.toml: unknown setting `walet_name`; did you mean `wallet_name`\?"):
        resolve({})


def test_an_unknown_variable_names_its_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENA_NETUIDS", "1")
    with pytest.raises(ArenaError, match="did you mean `ARENA_NETUID`"):
        resolve({})


@pytest.mark.parametrize("content", [b"netuid = ", b"\xff\xfe"])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "arena.toml").write_bytes(content)
    with pytest.raises(ArenaError, match=r"V2030.*arena\.toml"):
        resolve({})


def test_plain_openai_variables_count_and_ours_beat_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://plain/v1")
    assert resolve({}).settings.openai_base_url == "http://plain/v1"
    monkeypatch.setenv("ARENA_OPENAI_BASE_URL", "http://ours/v1")
    assert resolve({}).settings.openai_base_url == "http://ours/v1"


def test_an_empty_value_means_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENA_POLICY", "")
    assert resolve({"catalogue_dir": "", "netuid": None}).settings == resolve({}).settings


def test_paths_may_start_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    settings = resolve({"state_dir": "~/state"}).settings
    assert (settings.state_dir, settings.wallet_path) == (
        Path("/home/alice/state"),
        Path("/home/alice/.bittensor/wallets"),
    )


@given(middle=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20))
def test_no_secret_is_ever_printed(middle: str) -> None:
    secret = f"S3CRET{middle}S3CRET"
    flags = {"openai_api_key": secret, "judge_api_key": secret, "database_dsn": f"postgresql://arena:{secret}@db/arena"}
    resolved = resolve(flags)
    shown = format_rows(resolved.rows) + repr(resolved.settings)
    assert "S3CRET" not in shown
    assert "(hidden)" in shown


def test_dry_run_lists_every_setting_with_its_source_and_meaning() -> None:
    rows = resolve({"netuid": 2}).rows
    assert [row.name for row in rows] == list(Settings.model_fields)
    assert all(row.about and row.source for row in rows)
    assert len(format_rows(rows).splitlines()) == len(rows)


def test_arguments_that_are_nothing_of_ours_are_refused_with_the_nearest() -> None:
    refuse_unknown_flags(["--dry-run"], known=["--dry-run"])
    with pytest.raises(ArenaError, match=r"did you mean `--wallet\.name`"):
        refuse_unknown_flags(["--walet.name"])


@given(rest=st.lists(st.sampled_from(["demo", "--json", "-v", "x=1", "--dry-run"])))
def test_what_is_no_setting_keeps_its_order(rest: list[str]) -> None:
    flags, config, left = split_flags(["--netuid", "1", *rest])
    assert (flags, config, left) == ({"netuid": "1"}, None, rest)
