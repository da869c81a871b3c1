"""Clients: oro-sdk and its `oro` program in a virtual environment of their own, with a validator's door as base URL."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from arena.chain.keys import generate_signer, keypair_signer
from arena.chain.opening import local_chain_path
from tests.arena.conftest import running_server
from tests.arena.door_stand import AGENT, WIDE_RULES, Stand, serving
from tests.arena.sn15_stand import LegacyMiner, open_to_commitments
from tests.compat.installed import Outcome, environment_of, last_words, release_of, run_command
from tests.compat.rows import Finding, Kind

MINER = "//CompatMiner"
NEW_WALLET = f"""
from bittensor_wallet import Wallet
Wallet(name="default", hotkey="default").create_hotkey_from_uri({MINER!r}, use_password=False, suppress=True)
"""
WATCH = """
import json, sys, uuid
from bittensor_wallet import Wallet
import oro_sdk
from oro_sdk.api.miner import get_owned_agent_version_status, list_miner_agents
from oro_sdk.api.public import get_agent_version_status, get_artifact_download_url, get_leaderboard
from oro_sdk.models import ArtifactDownloadRequest, ArtifactType
version = uuid.UUID(sys.argv[2])
client = oro_sdk.BittensorAuthClient(base_url=sys.argv[1], wallet=Wallet(name="default", hotkey="default"))
body = ArtifactDownloadRequest(artifact_type=ArtifactType.AGENT_CODE, agent_version_id=version)
told = {
    "public status": get_agent_version_status.sync(version, client=client).state,
    "own status": get_owned_agent_version_status.sync(version, client=client).state,
    "own agents": str(len(list_miner_agents.sync(client=client).agents)),
    "leaderboard": str(get_leaderboard.sync(client=client).total),
    "artifacts download-url": get_artifact_download_url.sync(client=client, body=body).error_code,
}
told = {name: getattr(value, "value", value) for name, value in told.items()}
print("TOLD " + json.dumps(told))
"""
# A version that waits for the gate: on no leaderboard, and its source is not released.
EXPECTED = {
    "public status": "RECEIVED",
    "own status": "RECEIVED",
    "own agents": "1",
    "leaderboard": "0",
    "artifacts download-url": "ARTIFACT_NOT_RELEASED",
}


def examine(record: Path) -> Sequence[Finding]:
    """A row per use, in the order in which a miner comes by them."""
    with tempfile.TemporaryDirectory(prefix="compat-clients-") as folder, running_server() as server:
        home = Path(folder)
        stand = Stand(home, "", f"//CompatValidator{generate_signer().hotkey[-8:]}", local_chain_path(home / "state"))
        stand.dsn = server.dsn_for(stand.validator)
        with serving(open_to_commitments(stand), WIDE_RULES):
            asyncio.run(LegacyMiner(stand, keypair_signer(MINER)).register())
            return tuple(_uses(record, home, stand.address))


def _uses(record: Path, home: Path, address: str) -> Iterator[Finding]:
    release, programs = release_of(record), environment_of(record) / "bin"
    agent = home / "agent.py"
    agent.write_text(AGENT)
    made = run_command([programs / "python", "-c", NEW_WALLET], home)
    yield _finding(f"{release}: a wallet of its own", "bittensor_wallet's create_hotkey_from_uri", made, "made")
    submit = [programs / "oro", "submit", "--agent-name", "guest", "--agent-file", agent, "--base-url", address]
    refused = run_command(submit, home)
    shown = "oro submit --agent-name guest --agent-file agent.py --base-url NODE"
    says = "refused with 409, and told to run `arena commit AGENT.py`"
    is_refused = refused.status == 1 and "HTTP 409" in refused.text and "arena commit AGENT.py" in refused.text
    result = says if is_refused else last_words(refused)
    yield Finding(name=f"{release}: oro submit, nothing committed", ran=shown, result=result, is_red=not is_refused)
    wallet = ["--wallet-name", "default", "--wallet-hotkey", "default", "--wallet-path", home / ".bittensor/wallets"]
    chain = ["--network", "local", "--state-dir", home / "state"]
    committed = run_command([Path(sys.executable).parent / "arena", "commit", agent, *wallet, *chain], home)
    yield _finding(f"{release}: its wallet with arena commit", "arena commit agent.py", committed, "committed")
    taken = run_command(submit, home)
    is_taken = taken.status == 0 and "ACCEPTED" in taken.text
    result = "ACCEPTED, with a version's UUID" if is_taken else last_words(taken)
    yield Finding(name=f"{release}: oro submit, committed", ran=shown, result=result, is_red=not is_taken)
    words = [line.split()[-1] for line in taken.text.splitlines() if line.startswith("Version:")]
    watched = run_command([programs / "python", "-c", WATCH, address, words[-1] if words else "none"], home)
    lines = [line.removeprefix("TOLD ") for line in watched.text.splitlines() if line.startswith("TOLD ")]
    told = json.loads(lines[-1]) if lines else {}
    for name, expected in EXPECTED.items():
        result = f"answered: {told[name]}" if name in told else last_words(watched)
        ran = f"the generated client's call for {name}"
        yield Finding(name=f"{release}: {name}", ran=ran, result=result, is_red=told.get(name) != expected)


def _finding(name: str, ran: str, outcome: Outcome, result: str) -> Finding:
    is_red = outcome.status != 0
    return Finding(name=name, ran=ran, result=last_words(outcome) if is_red else result, is_red=is_red)


KIND = Kind(
    folder="clients",
    title="Clients",
    about=(
        "The published clients of SN15's API, unmodified, with a validator's door (real HTTP, Postgres and the local "
        "chain, a policy with `admission.is_commitment_enough`) as their base URL. Rows stand in the order in which a "
        "miner comes by them; a row is red where the client gets another answer than the one that is named."
    ),
    patterns=("*/lib/python3*/site-packages/oro_sdk-*.dist-info/RECORD",),
    examine=examine,
)
