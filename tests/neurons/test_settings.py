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
    flags, config, rest = split_flags(
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
    settings = resolve(flags, config).settings
    assert (settings.wallet_name, settings.wallet_hotkey, settings.network) == ("alice", "h1", "finney")
    assert settings.log_level == "debug"
    assert rest == ["--dry-run"]


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


@given(middle=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20))
def test_no_secret_is_ever_printed(middle: str) -> None:
    secret = f"S3CRET{middle}S3CRET"
    flags = {"openai_api_key": secret, "judge_api_key": secret, "database_dsn": f"postgresql://arena:{secret}@db/arena"}
    resolved = resolve(flags)
    shown = "\n".join(format_rows(resolved.rows)) + repr(resolved.settings)
    assert "S3CRET" not in shown
    assert "(hidden)" in shown


def test_dry_run_lists_every_setting_with_its_source_and_meaning() -> None:
    rows = resolve({"netuid": 2}).rows
    assert [row.name for row in rows] == list(Settings.model_fields)
    assert all(row.about and row.source for row in rows)
    assert len(format_rows(rows)) == len(rows)
