"""`arena records export` on a real store: files, summary, continuation, and clear answers to bad input."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from arena.chain.keys import verify
from arena.export.verification import verify_export
from arena.records.model import StoredCheckpoint
from arena.records.sequencer import Sequencer
from arena.store.embedded import EmbeddedServer
from arena.store.postgres import PostgresStore
from foundation.errors import ArenaError
from neurons.cli.presenter import exit_code
from neurons.cli.records import app
from neurons.cli.view import app as view_app
from tests.arena.log_stand import HOST, Clock, episode, release, signed_note
from tests.keys import generate_signer


@pytest.fixture
async def dsn(postgres: EmbeddedServer) -> str:
    """The login of a validator whose log holds a released race, one that waits, and a signed checkpoint."""
    signer = generate_signer()
    store = await PostgresStore.open(postgres.dsn_for(signer.hotkey), signer.hotkey)
    sequencer = Sequencer(store, signer, Clock(), HOST)
    for problem in (1, 2):
        payloads, body = episode(problem, result_bytes=2_000)
        await sequencer.append(payloads, [body])
    await sequencer.append([release("r1", [1, 2])])
    payloads, body = episode(3, race_id="r2")
    await sequencer.append(payloads, [body])
    leaves = [leaf async for leaf in store.leaves(signer.hotkey)]
    note = signed_note(signer, leaves)
    await store.put_checkpoint(
        StoredCheckpoint(validator=signer.hotkey, size=len(leaves), note=note, signed_ms=Clock()())
    )
    await store.close()
    return postgres.dsn_for(signer.hotkey)


def records(*arguments: object):
    """As `arena records` ends: a coded failure is its text and its exit code."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, ArenaError):
        told = str(result.exception)
        return SimpleNamespace(exit_code=exit_code(result.exception), output=told, stdout="", stderr=told)
    return result


def test_a_store_is_exported_and_the_folder_verifies(dsn, tmp_path: Path):
    shown = records("export", "--dsn", dsn, "--out", tmp_path / "out")
    assert shown.exit_code == 0, shown.output
    assert "2 trajectories" in shown.output
    assert "3 records skipped: their race is not released yet" in shown.output
    assert verify_export(tmp_path / "out", verify).wrong == ()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "csv"], "V2030"),
        (["--pool", "test"], "V2030"),
        (["--bucket", "shoes"], "V2030"),
        (["--from-day", "yesterday"], "V2030"),
        (["--since-cursor", "nowhere"], "does not exist"),
    ],
)
def test_bad_input_is_told_and_writes_nothing(dsn, tmp_path: Path, arguments, said):
    shown = records("export", "--dsn", dsn, "--out", tmp_path / "out", *arguments)
    assert shown.exit_code == 2
    assert said in shown.output
    assert not (tmp_path / "out").exists()


def view(*arguments: object):
    return CliRunner().invoke(view_app, [str(argument) for argument in arguments])


def test_a_race_in_a_store_and_its_export_are_looked_at_alike(dsn, tmp_path: Path):
    assert records("export", "--dsn", dsn, "--out", tmp_path / "out").exit_code == 0
    of_race = view("r1", "--dsn", dsn)
    assert of_race.exit_code == 0, of_race.output
    assert "r1: 2 traces" in of_race.output and of_race.output.count("solved, rule 1.0000, coefficient") == 2
    stored = json.loads(view("r1", "--dsn", dsn, "--json").stdout)
    exported = json.loads(view(tmp_path / "out", "--json").stdout)
    assert len(stored) == 2
    assert [one["steps"] for one in stored] == [one["steps"] for one in exported]
    assert [one["judges"] for one in stored] == [one["judges"] for one in exported]
    assert all("holds: signed by" in dict(one["proof"])["signature"] for one in (*stored, *exported))
    one_line = view(tmp_path / "out", "--trace", stored[1]["name"]).output
    assert "What happened" in one_line and "find_product [llm]" in one_line
