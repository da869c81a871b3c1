"""Clients: oro-sdk and its `oro` program in a virtual environment of their own, a running validator as base URL."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2

from arena.chain.keys import keypair_signer
from arena.chain.local import LocalSubtensor
from arena.chain.opening import local_chain_path
from tests.arena.door_stand import unix_ms
from tests.compat.rows import Finding, Kind, Outcome, environment_of, last_words, release_of, run_command
from tests.neurons.arena_stand import short_folder

MINER = "//CompatMiner"
AGENT = Path(__file__).parents[3] / "examples" / "model_loop.py"
START_S, RACE_S, POLL_S = 300, 900, 10  # seconds a slow machine may take to start, to qualify and race; between reads
NEW_WALLET = f"""
from bittensor_wallet import Wallet
Wallet(name="default", hotkey="default").create_hotkey_from_uri({MINER!r}, use_password=False, suppress=True)
"""
READ = """
import hashlib, importlib, json, sys, uuid
import httpx2
from bittensor_wallet import Wallet
import oro_sdk
from oro_sdk.models import ArtifactDownloadRequest, ArtifactType
version, wallet = uuid.UUID(sys.argv[2]), Wallet(name="default", hotkey="default")
client = oro_sdk.BittensorAuthClient(base_url=sys.argv[1], wallet=wallet)
body = ArtifactDownloadRequest(artifact_type=ArtifactType.AGENT_CODE, agent_version_id=version)
def one(name, *given, **named):
    return importlib.import_module(f"oro_sdk.api.{name}").sync(*given, client=client, **named)
def download():
    answer = one("public.get_artifact_download_url", body=body)
    return hashlib.sha256(httpx2.get(answer.download_url).content).hexdigest()
def whose(hotkey):
    return "the miner" if hotkey == wallet.hotkey.ss58_address else hotkey
def race():
    found = (one("public.get_race_detail", each.race_id) for each in one("public.get_race_history").races)
    return next(each for each in found if each.qualifiers)
def suite():
    return one("public.get_current_suite").suite_id
def run():
    return one("public.get_agent_version_runs", version)[0].eval_run_id
def unanswered():
    given = {
        "get_agent_version_problems": version,
        "get_episode_feedback": version,
        "get_inference_models": None,
        "get_race_seed_commitment": race().race.race_id,
        "get_race_validator_variance": race().race.race_id,
        "get_top_miner_payout": None,
        "get_trajectory_history": None,
        "deep_health_check": None,
    }
    found = []
    for name, value in given.items():
        module = importlib.import_module(f"oro_sdk.api.public.{name}")
        answer = module.sync_detailed(*([] if value is None else [value]), client=client)
        if answer.status_code.value >= 400:
            found.append(f"{name} {answer.status_code.value}")
    return ", ".join(found)
told = {}
for name, call in {
    "public status": lambda: one("public.get_agent_version_status", version).state.value,
    "own status": lambda: one("miner.get_owned_agent_version_status", version).state.value,
    "own agents": lambda: len(one("miner.list_miner_agents").agents),
    "own versions": lambda: len(one("miner.list_agent_versions", one("miner.list_miner_agents").agents[0].agent_id)),
    "version": lambda: one("public.get_agent_version", version).agent_name,
    "leaderboard": lambda: [whose(each.miner_hotkey) for each in one("public.get_leaderboard").entries],
    "top": lambda: whose(one("public.get_top_agent").top_miner_hotkey),
    "top history": lambda: len(one("public.get_top_history").entries),
    "races/current": lambda: one("public.get_current_race").race.status,
    "races/history": lambda: race().race.status,
    "races/{id}": lambda: [whose(each.miner_hotkey) for each in race().qualifiers],
    "suites": lambda: [each.is_active for each in one("public.list_suites")],
    "suites/current": lambda: one("public.get_current_suite").is_active,
    "suites/{id}/problems": lambda: len(one("public.get_suite_problems", suite()).problems),
    "runs": lambda: one("public.get_agent_version_runs", version)[0].status.value,
    "evaluation-runs/{id}": lambda: one("public.get_evaluation_run", run()).status.value,
    "evaluations/running": lambda: len(one("public.get_running_evaluations")),
    "evaluations/pending": lambda: len(one("public.get_pending_evaluations").items),
    "validators": lambda: len(one("public.get_validators")),
    "artifacts/download-url": lambda: one("public.get_artifact_download_url", body=body).error_code,
    "download": download,
    "health": lambda: one("public.health_check").to_dict()["status"],
    "its other reads": unanswered,
}.items():
    try:
        told[name] = call()
    except Exception as error:
        told[name] = f"{type(error).__name__}: {error}"[:200]
print("TOLD " + json.dumps(told, default=str))
"""
# A version that waits, is held, or is asked the suite: its source is not released.
AT_ONCE: dict[str, tuple[object, ...]] = {
    "public status": ("RECEIVED", "QUEUED", "RUNNING"),
    "own status": ("RECEIVED", "QUEUED", "RUNNING"),
    "own agents": (1,),
    "artifacts/download-url": ("ARTIFACT_NOT_RELEASED",),
}
# After a race of its own.
AFTER_A_RACE: dict[str, tuple[object, ...]] = {
    "public status": ("ELIGIBLE",),
    "own status": ("ELIGIBLE",),
    "own versions": (1,),
    "version": ("guest",),
    "leaderboard": (["the miner"],),
    "top": ("the miner",),
    "top history": (1,),
    "races/current": ("QUALIFYING_OPEN", "RACE_RUNNING", "RACE_COMPLETE"),
    "races/history": ("RACE_COMPLETE",),
    "races/{id}": (["the miner"],),
    "suites": ([True],),
    "suites/current": (True,),
    "suites/{id}/problems": (12,),
    "runs": ("SUCCESS",),
    "evaluation-runs/{id}": ("SUCCESS",),
    "evaluations/running": (0, 1),
    "evaluations/pending": (0,),
    "validators": (1,),
    "download": (hashlib.sha256(AGENT.read_bytes()).hexdigest(),),
    "health": ("ok",),
    "its other reads": ("",),
}


def examine(record: Path) -> Sequence[Finding]:
    """A row per use, in the order in which a miner comes by them."""
    with short_folder() as home, _running(home) as address:
        asyncio.run(_register(home))
        return tuple(_uses(record, home, address))


@contextmanager
def _running(home: Path) -> Iterator[str]:
    """A validator of policy `demo` in a process of its own, as `arena validator` starts it; its door's address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [_arena(), "validator", "--policy", "demo", "--wallet.hotkey", "//CompatValidator"]
    command += ["--state-dir", str(home / "state"), "--door-port", str(port)]
    address = f"http://127.0.0.1:{port}"
    with (home / "node.log").open("wb") as log:
        node = subprocess.Popen(command, cwd=home, stdout=log, stderr=log)
        try:
            _await(lambda: _answers(f"{address}/v1/door"), START_S)
            yield address
        finally:
            node.send_signal(signal.SIGINT)
            node.wait(START_S)


async def _register(home: Path) -> None:
    """Register the miner, and wait until a door sees it: in a final block."""
    chain, signer = LocalSubtensor(local_chain_path(home / "state"), now_ms=unix_ms), keypair_signer(MINER)
    await chain.register(signer)
    while (await chain.metagraph(await chain.finalized_block())).uid_of(signer.hotkey) is None:
        await asyncio.sleep(1.0)
    await asyncio.sleep(POLL_S)


def _uses(record: Path, home: Path, address: str) -> Iterator[Finding]:
    release, programs = release_of(record), environment_of(record) / "bin"
    agent = home / "agent.py"
    agent.write_bytes(AGENT.read_bytes())
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
    chain = ["--network", "local", "--state-dir", home / "state", "--policy", "demo"]
    committed = run_command([_arena(), "commit", agent, *wallet, *chain], home)
    yield _finding(f"{release}: its wallet with arena commit", "arena commit agent.py", committed, "committed")
    taken = run_command(submit, home)
    is_taken = taken.status == 0 and "ACCEPTED" in taken.text
    result = "ACCEPTED, with a version's UUID" if is_taken else last_words(taken)
    yield Finding(name=f"{release}: oro submit, committed", ran=shown, result=result, is_red=not is_taken)
    words = [line.split()[-1] for line in taken.text.splitlines() if line.startswith("Version:")]
    read = [programs / "python", "-c", READ, address, words[-1] if words else "none"]
    yield from _rows(f"{release}, at once", _told(run_command(read, home)), AT_ONCE)
    _await(lambda: _told(run_command(read, home)).get("races/history") == "RACE_COMPLETE", RACE_S)
    yield from _rows(f"{release}, after a race", _told(run_command(read, home)), AFTER_A_RACE)


def _rows(head: str, told: dict[str, object], expected: dict[str, tuple[object, ...]]) -> Iterator[Finding]:
    for name, wanted in expected.items():
        answer = told.get(name, "nothing: the program did not come to an end")
        ran = "generated client"
        shown = "the file, byte for byte" if name == "download" and answer in wanted else f"answered: {answer}"
        yield Finding(name=f"{head}: {name}", ran=ran, result=shown, is_red=answer not in wanted)


def _told(outcome: Outcome) -> dict[str, object]:
    lines = [line.removeprefix("TOLD ") for line in outcome.text.splitlines() if line.startswith("TOLD ")]
    found: dict[str, object] = json.loads(lines[-1]) if lines else {}
    return found


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url).is_success
    except httpx2.TransportError:
        return False


def _await(is_so: Callable[[], bool], seconds: float) -> None:
    """Return once it is so, or when its time is over: the rows say what was missing."""
    end_s = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end_s:
        time.sleep(POLL_S)


def _arena() -> str:
    return str(Path(sys.executable).parent / "arena")


def _finding(name: str, ran: str, outcome: Outcome, result: str) -> Finding:
    is_red = outcome.status != 0
    return Finding(name=name, ran=ran, result=last_words(outcome) if is_red else result, is_red=is_red)


KIND = Kind(folder="clients", patterns=("*/lib/python3*/site-packages/oro_sdk-*.dist-info/RECORD",), examine=examine)
