"""`arena judge replay` on a real store, beside the log, as an operator runs it."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from arena.chain.keys import keypair_signer
from arena.records.body import encode_body
from arena.records.model import Payload, StoredBody, VerdictRecord
from arena.records.sequencer import Sequencer
from arena.store.location import StoreLocation, write_location
from arena.store.postgres import PostgresStore
from neurons.cli.judge import app
from tests.arena import log_stand
from tests.judge import bodies
from tests.postgres_stand import start_new

ALICE = keypair_signer("//Alice")
WORDS = (bodies.VAGUE, bodies.CITED, bodies.COMPARED)


def evaluated(problem: int) -> tuple[list[Payload], StoredBody]:
    """What an episode of the log stand appends, with a trace whose quality the words decide; 0.7 is counted for it."""
    stored = encode_body(bodies.episode(WORDS[problem]))
    payloads, _ = log_stand.episode(problem, agent=f"a{problem % 2}")
    changed = []
    for one in payloads:
        if isinstance(one, VerdictRecord):
            verdict = msgspec.structs.replace(one.verdict, body_sha256=stored.body_sha256)
            changed.append(msgspec.structs.replace(one, verdict=verdict))
        else:
            changed.append(msgspec.structs.replace(one, body_sha256=stored.body_sha256))
    return changed, stored


@pytest.fixture(scope="module")
def node() -> Iterator[Path]:
    state_dir = Path(tempfile.mkdtemp(prefix="arena-"))
    server = start_new(state_dir)
    dsn = server.dsn_for(ALICE.hotkey)
    write_location(state_dir, StoreLocation(kind="embedded", validator=ALICE.hotkey, dsn=dsn))

    async def fill() -> None:
        store = await PostgresStore.open(dsn, ALICE.hotkey)
        sequencer = Sequencer(store, ALICE, log_stand.Clock(), log_stand.HOST)
        for problem in range(len(WORDS)):
            payloads, body = evaluated(problem)
            await sequencer.append(payloads, [body])
            (judging,) = (one for one in payloads if isinstance(one, VerdictRecord))
            later = msgspec.structs.replace(judging.verdict, quality_e4=1_000, coefficient_e4=3_875)
            await sequencer.append([msgspec.structs.replace(judging, verdict=later)])  # no settlement counts it
        await store.close()

    asyncio.run(fill())
    yield state_dir
    server.stop()
    shutil.rmtree(state_dir)


def run(node: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--state-dir", str(node)], catch_exceptions=False)


def test_replay_goes_on_where_it_stopped_and_leaves_the_log_alone(node: Path, tmp_path: Path) -> None:
    command = ("replay", "--out", str(tmp_path), "--json")
    found = json.loads(run(node, *command).output)
    del found["spent"]["ms"]  # what was judged again took another time
    assert (found["rows"], found["owed"], found["unlike"]) == (3, 0, 2)
    assert {one["agent_version_id"][:2]: (one["score_e4"], one["replayed_e4"]) for one in found["agents"]} == {
        "a0": (9_125, 7_812),
        "a1": (9_125, 9_125),
    }
    lines = (tmp_path / "replay.jsonl").read_bytes().splitlines()
    assert {json.loads(line)["kind"] for line in lines} == {"replay"}
    (tmp_path / "replay.jsonl").write_bytes(lines[0] + b"\n" + lines[1][:50])  # a kill in the middle of a line
    again = json.loads(run(node, *command).output)
    del again["spent"]["ms"]
    assert again == found
    assert len((tmp_path / "replay.jsonl").read_bytes().splitlines()) == 3
    anew = json.loads(run(node, "replay", "--out", str(tmp_path / "anew"), "--json").output)
    del anew["spent"]["ms"]
    assert anew == found  # what is counted is what it was
