"""A small arena for tests: 2,000 products, short policy, three miners, and a validator in a process of its own."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg
import msgspec
from msgspec.structs import replace

from arena.chain.keys import keypair_signer, verify
from arena.policies import DEMO
from arena.policy import Policy
from arena.records.verification import VerifyReport, verify_store
from arena.store.embedded import EmbeddedServer, embedded_server
from arena.store.postgres import PostgresStore
from arena.submissions.submission import waiting_row
from harness.catalogue.build import build_index, write_documents
from harness.catalogue.native import open_catalogue
from harness.catalogue.synthetic import generate
from neurons.demo.demo import VALIDATOR, DemoAgent, DemoRun, demo_agents, prepare_chain
from neurons.node.opening import open_bodies
from neurons.race.log import RaceLog
from neurons.settings.inputs import chain_of
from neurons.settings.settings import Settings, resolve
from tests.postgres_stand import lay_server

SMALL = replace(
    DEMO,
    name="small",
    qualifying=replace(DEMO.qualifying, problems=3, score_min_e4=1, worker_ms=0),  # which variants are drawn is luck
    race=replace(DEMO.race, closes_after_ms=3_000, problems=6, batch_problems=9, lease_ms=4_000),
    promotion=replace(DEMO.promotion, evidence_alone=1),  # six problems hold little evidence
)


def forgo_durability(server: EmbeddedServer) -> None:
    """Nobody cuts this server's power: it need not wait for the disk."""

    async def change() -> None:
        connection = await asyncpg.connect(server.owner_dsn)
        try:
            for name in ("fsync", "synchronous_commit", "full_page_writes"):
                await connection.execute(f"alter system set {name} = off")
            await connection.execute("select pg_reload_conf()")
        finally:
            await connection.close()

    asyncio.run(change())


@contextmanager
def short_folder() -> Iterator[Path]:
    """A fresh folder with a short path (unix sockets) that any uid can enter."""
    with tempfile.TemporaryDirectory(prefix="arena-", dir="/tmp", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


def build_small_catalogue(folder: Path) -> Path:
    """An index of 2,000 synthetic products under `folder`."""
    documents = folder / "documents.jsonl"
    with documents.open("wb") as stream:
        write_documents(generate(2_000, 11), stream)
    build_index(documents, folder / "index")
    return folder / "index"


def lay_run(
    base: Path, catalogue_dir: Path, *, policy: Policy = SMALL, names: tuple[str, ...] = (), **flags
) -> DemoRun:
    """A run's folder with its server laid, settings and agents; `names` picks agents of the demo."""
    folder = base / f"run{len(list(base.glob('run*')))}"
    folder.mkdir()
    lay_server(folder)
    (base / "policy.json").write_bytes(msgspec.json.encode(policy))
    places = {"state_dir": folder, "catalogue_dir": catalogue_dir, "guest_dir": base}
    own = {"policy": str(base / "policy.json"), "wallet_hotkey": VALIDATOR, "workers": 2}
    ids = tuple(open_catalogue(catalogue_dir).product_ids())[:12]
    agents = tuple(agent for agent in demo_agents(ids) if not names or agent.name in names)
    return DemoRun(folder=folder, settings=resolve({**places, **own, **flags}).settings, agents=agents)


def make_run(base: Path, catalogue_dir: Path, **chosen) -> DemoRun:
    """As `lay_run`, with a chain, registered miners, and submissions that wait."""
    run = lay_run(base, catalogue_dir, **chosen)
    asyncio.run(register_and_submit(run.settings, run.agents))
    return run


async def register_and_submit(settings: Settings, agents: tuple[DemoAgent, ...]) -> None:
    """Agents that wait before their validator runs."""
    submissions = await prepare_chain(settings, agents)
    chain = chain_of(settings)
    async with opened_store(settings) as store:
        for submission in submissions:
            slot = await chain.commitment(submission.hotkey)
            assert slot is not None
            await store.put_submission(waiting_row(submission, slot.block), submission.source)


@asynccontextmanager
async def opened_store(settings: Settings) -> AsyncIterator[PostgresStore]:
    """The demo validator's store; its server runs while the block does."""
    hotkey = keypair_signer(VALIDATOR).hotkey
    async with embedded_server(settings.state_dir) as server:
        store = await PostgresStore.open(server.dsn_for(hotkey), hotkey, objects=open_bodies(settings))
        try:
            yield store
        finally:
            await store.close()


def read_back(run: DemoRun, race_ids: tuple[str, ...]) -> tuple[VerifyReport, list[RaceLog]]:
    """Start the run's store again, verify everything in it, and read the logs of some races."""

    async def read() -> tuple[VerifyReport, list[RaceLog]]:
        async with opened_store(run.settings) as store:
            logs = [RaceLog(store, race_id) for race_id in race_ids]
            for log in logs:
                await log.refresh()
            return await verify_store(store, verify), logs

    return asyncio.run(read())


def is_alive(process_id: int) -> bool:
    """True while the process exists and is no zombie."""
    try:
        os.kill(process_id, 0)
        return Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
