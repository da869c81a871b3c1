"""What people get wrong first: each is told in its own words, before anything costs time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from arena.chain.keys import keypair_signer
from arena.store.location import StoreLocation, write_location
from foundation.errors import ArenaError
from neurons.cli.app import main
from neurons.demo.demo import prepare_run
from neurons.node.opening import open_node, require_own_folder
from neurons.settings.settings import resolve

ALICE, BOB = (keypair_signer(uri).hotkey for uri in ("//Alice", "//Bob"))
AGENT = Path(__file__).parents[2] / "examples" / "model_loop.py"
NOWHERE = "http://127.0.0.1:9/v1"  # the discard port: nothing listens


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def told(capfd: pytest.CaptureFixture[str], code: int, *words: object) -> str:
    """What `arena` prints as it ends with this exit code."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    shown = capfd.readouterr()
    assert ended.value.code == code, shown
    return shown.out + shown.err


def test_a_second_hotkey_in_one_state_folder_is_refused_with_both_names(tmp_path: Path) -> None:
    require_own_folder(tmp_path, BOB)
    write_location(tmp_path, StoreLocation(kind="embedded", validator=ALICE, dsn="postgresql:///x"))
    require_own_folder(tmp_path, ALICE)
    with pytest.raises(ArenaError, match="V2030") as refused:
        require_own_folder(tmp_path, BOB)
    assert ALICE in str(refused.value) and BOB in str(refused.value) and "of its own" in str(refused.value)


def test_an_export_that_is_not_there_is_a_typing_mistake_and_no_changed_record(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shown = told(capfd, 2, "records", "verify", "--export", tmp_path / "TYPO")
    assert "there is no folder" in shown and "changed" not in shown


def test_a_suite_that_is_none_names_those_there_are(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shown = told(capfd, 2, "run", AGENT, "--problems", "s9", "--state-dir", tmp_path)
    assert "error[P4001]: no suite and no file `s9`; suites are s1, s2, s3" in shown


def test_a_state_folder_that_cannot_be_made_is_no_fault_of_the_chain(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    shown = told(
        capfd, 2, "status", "--wallet.hotkey", "//Bob", "--state-dir", tmp_path / "file" / "state", "--network", "local"
    )
    assert "error[V2027]" in shown and "--state-dir" in shown and "chain endpoint" not in shown


def test_a_database_that_is_away_is_not_promised_to_be_tried_again(capfd: pytest.CaptureFixture[str]) -> None:
    shown = told(capfd, 3, "records", "tail", "--dsn", "postgresql://u:p@127.0.0.1:9/x")
    assert "error[V2021]" in shown and "again" not in shown


def test_a_taken_metrics_port_is_told_before_the_database_is_made(tmp_path: Path, taken_port: int) -> None:
    flags = {"policy": "demo", "wallet_hotkey": "//Alice", "state_dir": tmp_path, "metrics_port": taken_port}

    async def opened() -> None:
        async with open_node(resolve(flags).settings):
            raise AssertionError("a node opened on a port that somebody else holds")

    with pytest.raises(ArenaError, match="V2014") as refused:
        asyncio.run(opened())
    assert f"--metrics-port {taken_port + 1}" in str(refused.value)
    assert not (tmp_path / "postgres").exists()


def test_a_demo_whose_model_endpoint_is_dead_ends_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", NOWHERE)
    settings = resolve({"policy": "demo", "state_dir": tmp_path / "state"}).settings
    with pytest.raises(ArenaError, match="U3002") as refused:
        asyncio.run(prepare_run(settings, print))
    assert NOWHERE in str(refused.value) and "OPENAI_BASE_URL" in str(refused.value)
    assert not (tmp_path / "state").exists()
