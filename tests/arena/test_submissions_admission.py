"""Submissions: identities, signatures, admission and cooldown, decided from public values alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from arena.chain.keys import keypair_signer, verify
from arena.chain.port import Commitment, Metagraph, Neuron
from arena.gate.rules import finding, make_report
from arena.policy import CooldownRules
from arena.records.model import Subject
from arena.records.port import StoredSubmission
from arena.store.embedded import EmbeddedServer
from arena.store.location import StoreLocation, write_location
from arena.store.postgres import PostgresStore
from arena.submissions.submission import (
    CooldownError,
    SignedSubmission,
    admit,
    is_authentic,
    make_submission,
    next_allowed_block,
)
from foundation.errors import ArenaError
from neurons.cli.operator import submissions_app as app
from tests.keys import generate_signer

ALICE, BOB = keypair_signer("//Alice"), keypair_signer("//Bob")
SOURCE = "def agent_main(problem):\n    return 'é'\n"
METAGRAPH = Metagraph(
    netuid=15, block=5_000, tempo=360, neurons=tuple(Neuron(uid=i, hotkey=s.hotkey) for i, s in enumerate((ALICE, BOB)))
)
SUBMISSION = make_submission(ALICE, "agent", SOURCE, 1_700_000_000_000)


def _committed(submission: SignedSubmission = SUBMISSION, block: int = 4_990) -> Commitment:
    return Commitment(hotkey=submission.hotkey, sha256=submission.commitment_sha256, block=block)


def _code(submission: SignedSubmission = SUBMISSION, **changes: object) -> str:
    """The code of the refusal; "": it is admitted, by the block of its commitment."""
    given = {"commitment": _committed(), "allowed_block": 0, "metagraph": METAGRAPH, "verify": verify} | changes
    try:
        assert admit(submission, **given) == given["commitment"].block
    except ArenaError as error:
        return error.failure.code
    return ""


@pytest.mark.parametrize(
    "change",
    [
        *({"source": SOURCE + " "}, {"source": "\ud800"}, {"name": "other"}, {"hotkey": BOB.hotkey}),
        *({"hotkey": "nobody"}, {"agent_sha256": "00" * 32}, {"submitted_ms": 1 << 60}),
        *({"signature": ""}, {"signature": "zz"}, {"signature": "00" * 64}),
    ],
)
def test_any_change_breaks_the_signature(change: dict[str, object]) -> None:
    changed = msgspec.structs.replace(SUBMISSION, **change)
    assert not is_authentic(changed, verify)
    assert _code(changed) == "A1007"


def test_a_commitment_stands_for_a_missing_signature_only_where_the_policy_says_so() -> None:
    unsigned = msgspec.structs.replace(SUBMISSION, signature="", name="other")
    assert _code(unsigned) == "A1007"
    assert _code(unsigned, is_commitment_enough=True) == ""
    assert _code(unsigned, is_commitment_enough=True, commitment=None) == "A1007"
    for change in ({"signature": "00" * 64}, {"signature": "zz"}, {"agent_sha256": "00" * 32}, {"hotkey": BOB.hotkey}):
        assert _code(msgspec.structs.replace(unsigned, **change), is_commitment_enough=True) == "A1007"


def test_only_a_registered_hotkey_with_its_own_commitment_after_its_cooldown_is_admitted() -> None:
    others = msgspec.structs.replace(METAGRAPH, neurons=METAGRAPH.neurons[1:])
    assert _code() == "" and _code(metagraph=others) == "A1008"
    wrong = Commitment(hotkey=ALICE.hotkey, sha256="00" * 32, block=4_990)
    of_bob = Commitment(hotkey=BOB.hotkey, sha256=SUBMISSION.commitment_sha256, block=4_990)
    assert [_code(commitment=each) for each in (None, wrong, of_bob)] == ["A1007"] * 3
    assert _code(allowed_block=4_990) == ""
    with pytest.raises(CooldownError, match="allowed from block 5009") as early:
        admit(SUBMISSION, commitment=_committed(), allowed_block=5_009, metagraph=METAGRAPH, verify=verify)
    assert early.value.blocks_left == 9


def _stored(*rules: str, **changes: object) -> StoredSubmission:
    found = [finding(rule, 1) for rule in rules]
    made = make_report(found, rules_version="gate/1", source_sha256="", inputs_sha256="")
    subject = Subject(agent_version_id="a", miner_hotkey="5m", agent_sha256="b", commitment_block=1_000)
    text = msgspec.json.encode(made).decode()
    stored = StoredSubmission(subject=subject, name="n", state="accepted", report=text)
    return msgspec.structs.replace(stored, **changes)


@pytest.mark.parametrize(
    ("stored", "allowed"),
    [
        (_stored(report=""), 4_600),
        (_stored(), 4_600),
        (_stored("benchmark-text"), 4_600),
        (_stored("parse", state="rejected"), 1_000),
        (_stored("parse", "import", state="rejected"), 1_300),
        (_stored("import", "id-table", state="rejected"), 4_600),
        (_stored(state="waiting"), 0),
    ],
)
def test_each_class_costs_what_is_published_from_its_commitment_on(stored: StoredSubmission, allowed: int) -> None:
    assert next_allowed_block([stored], "5m", CooldownRules()) == allowed
    assert next_allowed_block([stored], "another", CooldownRules()) == 0


# -- `arena submissions`: a person decides what the gate only asked about, on a real store


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
