"""`arena submissions`: a person decides what the gate only asked about, on a real store."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from arena.records.model import Subject
from arena.records.port import StoredSubmission
from arena.store.embedded import EmbeddedServer
from arena.store.location import StoreLocation, write_location
from arena.store.postgres import PostgresStore
from neurons.cli.operator import submissions_app as app
from tests.keys import generate_signer

FIRST, SECOND, THIRD = ("aa" + "11" * 31, "aa" + "22" * 31, "cc" * 32)


@pytest.fixture
def desk(postgres: EmbeddedServer, tmp_path: Path) -> tuple[Path, str]:
    """A state folder whose validator holds three submissions, two of them for review; and its DSN."""
    hotkey = generate_signer().hotkey
    dsn = postgres.dsn_for(hotkey)
    write_location(tmp_path, StoreLocation(kind="external", validator=hotkey, dsn=dsn))

    async def fill() -> None:
        store = await PostgresStore.open(dsn, hotkey)
        for agent, state in ((FIRST, "review"), (SECOND, "review"), (THIRD, "accepted")):
            subject = Subject(agent_version_id=agent, miner_hotkey="5miner", agent_sha256="b2" * 32)
            submission = StoredSubmission(subject=subject, name=f"agent-{agent[2:4]}", state=state)
            await store.put_submission(submission, "def agent_main(problem): ...\n")
        await store.close()

    asyncio.run(fill())
    return tmp_path, dsn


def test_what_waits_is_listed_and_a_decision_moves_one_and_no_other(desk: tuple[Path, str]) -> None:
    folder, dsn = desk
    waiting = CliRunner().invoke(app, ["list", "--state-dir", str(folder)])
    assert waiting.exit_code == 0 and FIRST[:16] in waiting.output and THIRD[:16] not in waiting.output
    everything = CliRunner().invoke(app, ["list", "--state", "all", "--json", "--state-dir", str(folder)])
    assert {row["subject"]["agent_version_id"] for row in json.loads(everything.output)} == {FIRST, SECOND, THIRD}

    async def read() -> dict[str, str]:
        store = await PostgresStore.open(dsn)
        found = {s.subject.agent_version_id: s.state for s in await store.submissions()}
        await store.close()
        return found

    expected = {FIRST: "review", SECOND: "review", THIRD: "accepted"}
    for agent, command, state in ((FIRST, "accept", "accepted"), (SECOND, "reject", "rejected")):
        done = CliRunner().invoke(app, ["decide", agent[:6], command, "--state-dir", str(folder)])
        assert done.exit_code == 0 and state in done.output
        expected[agent] = state
        assert asyncio.run(read()) == expected
