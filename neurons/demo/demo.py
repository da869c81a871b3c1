"""The demo: the main job on real parts, watched from outside.

It starts `neurons/validator.py` as its own process, submits agents as miners do (commitment on the local
chain, then the source at the validator's door), and only reads: the store through the validator's own role, the weights
from the chain. Each run has a folder of its own that is left behind; `demo/latest` leads to the
newest. What was started is ended by its process id, whatever happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from arena.chain.keys import HttpAuth, keypair_signer, verify
from arena.chain.local import LocalRules, LocalSubtensor
from arena.chain.opening import OWNER_URI, local_chain_path
from arena.door.client import DoorAnswer, DoorClient, deliver, find_doors
from arena.records.port import StoredSubmission, WeightsResult
from arena.records.verification import VerifyReport, verify_store
from arena.store.embedded import embedded_server
from arena.store.location import read_location
from arena.submissions.submission import SignedSubmission, commit
from foundation.codes import STORE_AWAY
from foundation.durable_files import move_into_place
from foundation.errors import ArenaError
from harness.agents.registry import baseline_source, cheater_source, reference_agent
from harness.catalogue.native import open_catalogue
from neurons.race.log import QUALIFYING, RaceLog, open_reading
from neurons.settings.endpoints import check_endpoints, named_endpoints
from neurons.settings.inputs import chain_of, policy_of, prepare_catalogue, unix_ms
from neurons.settings.settings import Settings, environment_of

VALIDATOR = "//Validator"
RACE = "race-000001"
LATEST = "latest"  # beside the runs
BLOCK_MS = 250
STAKE_RAO = 5_000_000_000_000
WATCH_S = 0.2
END_WAIT_S = 60.0
_ROOT = Path(__file__).resolve().parents[2]


class DemoAgent(msgspec.Struct, frozen=True):
    """One miner of the demo: a development key and the file it submits."""

    name: str
    uri: str
    source: str


class DemoRun(msgspec.Struct, frozen=True, kw_only=True):
    """Where one run keeps its things, and the settings its validator gets."""

    folder: Path
    settings: Settings
    agents: tuple[DemoAgent, ...]
    submissions: tuple[SignedSubmission, ...] = ()  # of the agents, committed and not handed in yet


class DemoView(msgspec.Struct, frozen=True, kw_only=True):
    """What can be seen from outside at one moment."""

    submissions: tuple[StoredSubmission, ...]
    qualifying: RaceLog
    race: RaceLog
    weights: WeightsResult | None
    records: int

    @property
    def is_over(self) -> bool:
        """Settled, released and paid; or cancelled."""
        if self.race.settlement is not None and self.race.settlement.state == "cancelled":
            return True
        is_paid = self.weights is not None and self.weights.status == "ok"
        return bool(self.race.settlement and self.race.release and is_paid)


def demo_agents(product_ids: tuple[str, ...]) -> tuple[DemoAgent, ...]:
    """Seven miners: three skills of the same loop, one whose Python drives, an echoer, an idler and a cheater."""
    sources = {name: baseline_source(f"scripted-{name}") for name in ("expert", "careful", "hasty")}
    sources |= {name: reference_agent(name).source for name in ("subtask", "echoer", "nop")}
    sources["cheater"] = cheater_source(product_ids)
    keys = ("//Ada", "//Ben", "//Cleo", "//Dov", "//Eve", "//Fay", "//Gus")
    return tuple(DemoAgent(name, uri, source) for uri, (name, source) in zip(keys, sources.items(), strict=True))


async def prepare_run(settings: Settings, tell: Callable[[str], None]) -> DemoRun:
    """Catalogue (kept between runs), a fresh folder, a chain with registered miners, and their commitments.

    Raises OSError when the state folder can't be written, ArenaError U3001 or U3002 when no model endpoint answers.
    """
    if endpoints := named_endpoints(settings):
        check_endpoints(endpoints, policy_of(settings).inference.models, must_answer=True)
    base = settings.state_dir
    folder = base / "demo" / time.strftime("run-%Y%m%d-%H%M%S")
    folder.mkdir(parents=True, exist_ok=False)
    scratch = folder.with_name(f"{LATEST}.{os.getpid()}")
    scratch.symlink_to(folder.name)
    move_into_place(scratch, folder.with_name(LATEST))
    tell("catalogue: 20,000 synthetic products (made once)")
    catalogue_dir = await asyncio.to_thread(prepare_catalogue, settings)
    beside = folder.resolve() / "catalogues"
    beside.mkdir()
    (beside / catalogue_dir.name).symlink_to(os.path.relpath(catalogue_dir.resolve(), beside))  # both may be moved
    agents = demo_agents(tuple(itertools.islice(open_catalogue(catalogue_dir).product_ids(), 12)))
    of_run = {"state_dir": folder, "catalogue_dir": catalogue_dir, "guest_dir": base, "network": "local"}
    settings = replace(settings, **of_run, wallet_hotkey=VALIDATOR)
    tell("chain: local twin, one validator with stake, seven miners; agents committed")
    submissions = await prepare_chain(settings, agents)
    return DemoRun(folder=folder, settings=settings, agents=agents, submissions=submissions)


async def prepare_chain(settings: Settings, agents: tuple[DemoAgent, ...]) -> tuple[SignedSubmission, ...]:
    """Register validator (with stake) and miners on the local chain, and commit to every agent file."""
    rules = LocalRules(netuid=settings.netuid, block_ms=BLOCK_MS, weights_rate_limit_blocks=4)
    owner, validator = keypair_signer(OWNER_URI), keypair_signer(VALIDATOR)
    path = local_chain_path(settings.state_dir)
    chain = LocalSubtensor(path, now_ms=unix_ms, rules=rules, owner=owner.hotkey)
    await chain.register(validator)
    await chain.set_stake(validator.hotkey, STAKE_RAO)
    made = []
    for agent in agents:
        miner = keypair_signer(agent.uri)
        await chain.register(miner)
        submission, _ = await commit(miner, agent.name, agent.source, subtensor=chain, now_ms=unix_ms())
        made.append(submission)
    return tuple(made)


async def hand_in(run: DemoRun, process: subprocess.Popen[bytes]) -> None:
    """Hand every agent in at the validator's door, as soon as the chain says where that is.

    Raises ArenaError V2206 when the validator ends first, and what the door refuses with.
    """
    chain = chain_of(run.settings)
    async with DoorClient() as client:
        doors: list[DoorAnswer] = []
        while not any(door.state for door in doors):
            await _wait(run, process)
            doors = await find_doors(client, await chain.metagraph())
    for agent, submission in zip(run.agents, run.submissions, strict=True):
        async with DoorClient(HttpAuth(keypair_signer(agent.uri), time.time_ns)) as client:
            (said,) = await deliver(client, submission, doors, wanted=1)
        if said.failure is not None:
            raise ArenaError(said.failure.code, f"{agent.name}: {said.failure.detail}")


@contextlib.contextmanager
def running_validator(run: DemoRun) -> Iterator[subprocess.Popen[bytes]]:
    """The validator as a process of its own; its log goes to `validator.log`. Stopped on leaving, by its id."""
    with (run.folder / "validator.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(_ROOT / "neurons" / "validator.py"), "--parent-pid", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **environment_of(run.settings), "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        try:
            yield process
        finally:
            stop_process(process)


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then wait; SIGKILL when it does not end within its drain time."""
    process.terminate()
    try:
        process.wait(END_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def watch(run: DemoRun, process: subprocess.Popen[bytes]) -> AsyncIterator[DemoView]:
    """Views until the race is over. Raises ArenaError V2206, with the log's end, when the validator ends first."""
    async with contextlib.AsyncExitStack() as stack:
        store = None
        while store is None:
            await _wait(run, process)
            try:
                location = read_location(run.folder)
                store = await open_reading(location, stack) if location else None
            except ArenaError as error:  # it does not answer yet
                if error.failure.code != STORE_AWAY:
                    raise
        qualifying, race = RaceLog(store, QUALIFYING), RaceLog(store, RACE)
        while True:
            await qualifying.refresh()
            await race.refresh()
            view = DemoView(
                submissions=tuple(await store.submissions()),
                qualifying=qualifying,
                race=race,
                weights=next(iter(await store.weights_results(1)), None),
                records=(await store.head()).seq,
            )
            yield view
            if view.is_over:
                return
            await _wait(run, process)


async def _wait(run: DemoRun, process: subprocess.Popen[bytes]) -> None:
    """A moment. Raises ArenaError V2206, with the log's end, when the validator has ended."""
    if process.poll() is not None:
        log = run.folder / "validator.log"
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-6:]
        raise ArenaError("V2206", f"exit code {process.returncode}, log {log}:\n" + "\n".join(last))
    await asyncio.sleep(WATCH_S)


async def conclude(run: DemoRun) -> tuple[VerifyReport, dict[str, int]]:
    """Every record verified, and the weights as the chain holds them, by hotkey; after the validator has stopped."""
    chain, hotkey = chain_of(run.settings), keypair_signer(VALIDATOR).hotkey
    hotkeys = {neuron.uid: neuron.hotkey for neuron in (await chain.metagraph()).neurons}
    async with embedded_server(run.folder), contextlib.AsyncExitStack() as stack:
        location = read_location(run.folder)
        assert location is not None, "the validator wrote it"
        report = await verify_store(await open_reading(location, stack), verify)
    return report, {hotkeys[uid]: weight for uid, weight in await chain.weights(hotkey)}
