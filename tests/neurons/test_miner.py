"""A miner's commands and `python neurons/miner.py`: the way from a file through a validator's door to a status."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.chain.keys import keypair_signer
from arena.chain.opening import local_chain_path
from arena.records.port import SubmissionState
from arena.store.embedded import EmbeddedServer
from arena.store.location import StoreLocation, write_location
from arena.store.postgres import PostgresStore
from foundation.errors import Failure
from neurons.cli.app import main
from tests.arena.door_stand import WIDE_RULES, Stand, serving
from tests.keys import generate_signer

SOURCE = "def agent_main(problem):\n    return None\n"


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    path = tmp_path / "my-agent.py"
    path.write_text(SOURCE)
    return path


def _arena(capsys: pytest.CaptureFixture[str], *arguments: object, is_meant: bool = True) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments), *(["--yes"] if is_meant and arguments[0] == "submit" else [])])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def _flags(tmp_path: Path, hotkey: str = "//Alice") -> tuple[str, ...]:
    return ("--wallet.hotkey", hotkey, "--state-dir", str(tmp_path / "state"), "--subtensor.network", "local")


@pytest.fixture
def door(tmp_path: Path, server: EmbeddedServer) -> Iterator[Stand]:
    """A validator's door, found on the local chain of the state folder."""
    stand = Stand(tmp_path / "state", "", f"//{generate_signer().hotkey}", local_chain_path(tmp_path / "state"))
    stand.dsn = server.dsn_for(stand.validator)
    with serving(stand, WIDE_RULES):
        asyncio.run(_enrol(stand))
        yield stand


async def _enrol(stand: Stand) -> None:
    signer = keypair_signer(stand.uri)
    await stand.chain.register(keypair_signer("//Owner"))  # uid 0 burns
    await stand.chain.register(signer)
    await stand.chain.set_stake(signer.hotkey, 5_000_000_000_000)
    await stand.chain.publish(signer, stand.address)


def test_a_submission_goes_to_the_validator_that_the_chain_names_and_has_a_status(
    tmp_path: Path, agent: Path, door: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = _arena(capsys, "submit", agent, *_flags(tmp_path))
    assert (code, "register it: --register" in err) == (1, True)
    code, _, err = _arena(capsys, "submit", agent, "--register", *_flags(tmp_path), is_meant=False)  # no terminal
    assert (code, "cost: one commitment" in err, "give --yes" in err) == (2, True, True)
    code, out, err = _arena(capsys, "submit", agent, "--register", "--json", *_flags(tmp_path))
    assert code == 0, err
    submitted = json.loads(out)
    assert submitted["name"] == "my-agent"
    assert submitted["taken_by"] == [{"validator": door.validator, "url": door.address}]

    code, out, _ = _arena(capsys, "submit", agent, "--url", door.address, *_flags(tmp_path))  # again: the same answer
    assert (code, "taken by" in out) == (0, True)
    assert f"in block {submitted['commitment_block']}" in out

    code, out, _ = _arena(capsys, "status", "--json", *_flags(tmp_path))
    told = json.loads(out)
    assert (code, told["uid"]) == (0, 2)
    assert told["commitment"]["sha256"] == submitted["commitment_sha256"]
    ((waiting,),) = (row["submissions"] for row in told["validators"])
    assert (waiting["agent_version_id"], waiting["state"]) == (submitted["agent_version_id"], "waiting")

    failure = Failure(code="A1006", detail="allowed from block 3602")
    asyncio.run(_decide(door, "refused", failure))
    code, out, _ = _arena(capsys, "status", "--watch", *_flags(tmp_path))  # ends, since nothing can change any more
    assert code == 0
    assert "refused" in out and "A1006 allowed from block 3602" in out


async def _decide(door: Stand, state: SubmissionState, failure: Failure | None = None) -> None:
    store = await PostgresStore.open(door.dsn)
    (row,) = await store.submissions(("waiting",))
    assert await store.set_submission_state(row.subject.agent_version_id, state, was="waiting", failure=failure)
    await store.close()


def test_the_door_is_asked_before_anything_is_committed(
    tmp_path: Path, agent: Path, door: Stand, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = replace(door.policy, cooldown=replace(door.policy.cooldown, accepted_blocks=10_000))
    monkeypatch.setattr(door.door.desk, "policy", slow)
    assert _arena(capsys, "submit", agent, "--register", *_flags(tmp_path))[0] == 0
    before = asyncio.run(door.chain.commitment(keypair_signer("//Alice").hotkey))
    first = agent.read_text()
    agent.write_text(first + "# second\n")
    code, _, err = _arena(capsys, "submit", agent, *_flags(tmp_path))  # the first one waits
    assert (code, "A1012" in err) == (1, True)
    assert asyncio.run(door.chain.commitment(keypair_signer("//Alice").hotkey)) == before
    asyncio.run(_decide(door, "accepted"))
    code, _, err = _arena(capsys, "submit", agent, *_flags(tmp_path))  # it is in its cooldown
    assert (code, "A1006" in err) == (1, True)
    assert asyncio.run(door.chain.commitment(keypair_signer("//Alice").hotkey)) == before
    agent.write_text(first)
    assert _arena(capsys, "submit", agent, *_flags(tmp_path))[0] == 0  # the same file: the same answer


def test_a_commitment_alone_hands_nothing_in_and_is_what_submit_finds(
    tmp_path: Path, agent: Path, door: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = _arena(capsys, "commit", agent, "--register", "--json", *_flags(tmp_path))
    assert code == 0, err
    first = json.loads(out)
    assert f"in block {first['commitment_block']}" in _arena(capsys, "commit", agent, *_flags(tmp_path))[1]
    anew = json.loads(_arena(capsys, "commit", agent, "--again", "--json", *_flags(tmp_path))[1])
    assert anew["commitment_block"] > first["commitment_block"]
    submitted = json.loads(_arena(capsys, "submit", agent, "--json", *_flags(tmp_path))[1])
    assert {name: submitted[name] for name in anew if name != "review"} == {
        name: anew[name] for name in anew if name != "review"
    }
    agent.write_text("def agent_main(problem):\n    return eval('1')\n")
    assert _arena(capsys, "commit", agent, *_flags(tmp_path))[0] == 1


def test_one_that_waits_is_withdrawn(
    tmp_path: Path, agent: Path, door: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted = json.loads(_arena(capsys, "submit", agent, "--register", "--json", *_flags(tmp_path))[1])
    code, out, _ = _arena(capsys, "withdraw", submitted["agent_version_id"][:8], *_flags(tmp_path))
    assert (code, f"withdrawn from {door.validator}" in out) == (0, True)
    assert "withdrawn" in _arena(capsys, "status", *_flags(tmp_path))[1]
    assert _arena(capsys, "withdraw", "nothing", *_flags(tmp_path))[0] == 2


def test_a_source_goes_to_no_stranger_and_to_no_closed_door(
    tmp_path: Path, agent: Path, door: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = _flags(tmp_path)
    write_location(
        tmp_path / "state", StoreLocation(kind="external", validator=door.validator, dsn=door.dsn, objects="")
    )
    state_dir = ("--state-dir", str(tmp_path / "state"))
    assert _arena(capsys, "validator", "pause", "--reason", "we move house", *state_dir)[0] == 0
    code, _, err = _arena(capsys, "submit", agent, "--register", *flags)
    assert (code, "V2200" in err, "we move house" in err) == (3, True, True)
    assert asyncio.run(door.chain.commitment(keypair_signer("//Alice").hotkey)) is None
    assert _arena(capsys, "validator", "pause", "--end", *state_dir)[0] == 0

    asyncio.run(door.chain.set_stake(door.validator, 0))  # no permit any more
    code, _, err = _arena(capsys, "submit", agent, "--register", "--url", door.address, *flags)
    assert (code, "U3052" in err, "U3042" in err) == (3, True, True)
    asyncio.run(door.chain.set_stake(door.validator, 5_000_000_000_000))
    door.door.netuid = 16  # of another subnet, by its own word
    code, _, err = _arena(capsys, "submit", agent, "--register", "--url", door.address, *flags)
    assert (code, "U3042" in err, "netuid 16" in err) == (3, True, True)
    code, _, err = _arena(capsys, "status", "--url", "http://127.0.0.1:9", *flags)
    assert (code, "U3040" in err) == (3, True)


def test_a_file_the_gate_would_reject_costs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "agent.py"
    path.write_bytes(b"\nimport os\nx = os.system\n\ndef agent_main(problem): pass\n")
    exit_code, out, _ = _arena(capsys, "submit", path, "--register", *_flags(tmp_path))
    assert exit_code == 1 and "A1005" in out and f"{path}:3  " in out and "fix: " in out
    code, _, err = _arena(capsys, "status", *_flags(tmp_path))
    assert code == 3 and "no local chain in" in err and not (tmp_path / "state" / "chain").exists()
