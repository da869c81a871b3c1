"""Validators as real processes on one host: a state folder, an embedded Postgres and a port each, one chain for all.

The chain is one file: each state folder's `chain` is a link to the same directory. Policy and sealed batches are an
operator's, published into one node's state, and agents are handed in at the door of one node: the others get them by
themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from msgspec.structs import replace
from typer.testing import CliRunner

from arena.bank.partition_file import unpartitioned
from arena.bank.sealing import deal, lock_all, write_sealed
from arena.chain.beacon import LocalBeacon, LocalTimelock
from arena.chain.keys import HttpAuth, keypair_signer
from arena.chain.local import LocalRules, LocalSubtensor
from arena.chain.opening import OWNER_URI, local_chain_path
from arena.chain.port import Signer
from arena.door.client import DoorAnswer, DoorClient, deliver, find_doors
from arena.policies import DEMO, PAPER
from arena.policy import Policy
from arena.race.schedule import shared_closes_ms
from arena.submissions.submission import SignedSubmission, commit
from harness.catalogue.native import open_catalogue
from neurons.cli.operator import app as operator_app
from neurons.demo.demo import BLOCK_MS, DemoAgent, stop_process
from neurons.settings.inputs import unix_ms
from problems.synthesis import synthesize
from tests.postgres_stand import lay_server

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = (sys.executable, str(ROOT / "neurons" / "validator.py"))
OPERATOR = keypair_signer("//Operator")
TAO_RAO = 1_000_000_000
DOOR_S = 240.0  # until a node that starts has published its address


def shared_policy(pace: float = 1.0) -> Policy:
    """A policy whose shared races take less than a minute, and close every 40 seconds or so; all by `pace`."""
    windows_ms = {
        "closes_after_ms": 9_500,
        "qualifying_grace_ms": 4_000,
        "reveal_ms": 4_500,
        "run_ms": 17_000,
        "agree_ms": 3_000,
        "beacon_grace_ms": 20_000,
        "stand_in_ms": 3_000,
        "lease_ms": 6_000,
    }
    race = replace(
        DEMO.race,
        problems=3,
        batch_problems=4,
        validators_per_problem=2,
        results_required=1,
        cancel_void_e4=10_000,
        **{name: round(pace * window_ms) for name, window_ms in windows_ms.items()},
    )
    # everybody qualifies: how an agent does on the variants drawn at the moment is luck
    qualifying = replace(DEMO.qualifying, problems=2, score_min_e4=0)
    return replace(DEMO, name="shared", qualifying=qualifying, admission=PAPER.admission, race=race)


class Network:
    """The chain, the operator's batches and the policy that the nodes of one test have in common."""

    def __init__(self, base: Path, catalogue_dir: Path, *, races: int = 4, pace: float = 1.0) -> None:
        self.base, self.catalogue_dir = base, catalogue_dir
        self.policy = shared_policy(pace)
        (base / "files").mkdir()
        (base / "files" / "policy.json").write_bytes(msgspec.json.encode(self.policy))
        rules = LocalRules(block_ms=BLOCK_MS, weights_rate_limit_blocks=4, commitment_rate_limit_blocks=4)
        owner = keypair_signer(OWNER_URI).hotkey
        local_chain_path(base).parent.mkdir(parents=True, exist_ok=True)
        self.chain = LocalSubtensor(local_chain_path(base), now_ms=unix_ms, rules=rules, owner=owner)
        self._seal(races)

    def commit(self, agent: DemoAgent) -> SignedSubmission:
        """A registered miner's agent, committed on chain and handed in to nobody."""

        async def commit_it() -> SignedSubmission:
            miner = keypair_signer(agent.uri)
            await self.chain.register(miner)
            done, _ = await commit(miner, agent.name, agent.source, subtensor=self.chain, now_ms=unix_ms())
            return done

        return asyncio.run(commit_it())

    def _seal(self, races: int) -> None:
        closes = shared_closes_ms(unix_ms(), self.policy.race)
        problems = synthesize(
            tuple(open_catalogue(self.catalogue_dir).products()), seed=11, counts={"product": 4 * races}
        )
        dealt = deal(unpartitioned(problems), races, 4)
        beacon, timelock = LocalBeacon(unix_ms), LocalTimelock()
        locked = lock_all(
            dealt,
            [next(closes) for _ in range(races)],
            timelock=timelock,
            beacon=beacon,
            signer=OPERATOR,
            random_bytes=random.Random(11).randbytes,
            now_ms=unix_ms,
        )
        for sealed in locked:
            write_sealed(self.base / "files" / f"{sealed.notice.race_id}.sealed.json", sealed)


class SharedNode:
    """One validator process."""

    def __init__(
        self, network: Network, uri: str, stake_tao: int, *, is_shadow: bool = False, program: Sequence[str] = PROGRAM
    ) -> None:
        self.network, self.signer, self.is_shadow, self.program = network, keypair_signer(uri), is_shadow, program
        self.folder = network.base / uri.strip("/").lower()
        self.folder.mkdir()
        lay_server(self.folder)
        (self.folder / "chain").symlink_to(local_chain_path(network.base).parent)
        self.port = free_port()
        self.flags: dict[str, object] = {
            "--wallet.hotkey": uri,
            "--state-dir": self.folder,
            "--catalogue-dir": network.catalogue_dir,
            "--guest-dir": network.base,
            "--operator-hotkey": OPERATOR.hotkey,
            "--workers": 1,
            "--parent-pid": os.getpid(),
            "--public-endpoint": f"http://127.0.0.1:{self.port}",
        }
        asyncio.run(self._enrol(stake_tao))

    async def _enrol(self, stake_tao: int) -> None:
        await self.network.chain.register(self.signer)
        await self.network.chain.set_stake(self.signer.hotkey, stake_tao * TAO_RAO)

    def publish(self) -> None:
        """The operator's files, into this node's state alone."""
        asked = ["publish", str(self.network.base / "files"), "--state-dir", str(self.folder)]
        done = CliRunner().invoke(operator_app, [*asked, "--wallet.hotkey", "//Operator"])
        assert done.exit_code == 0, (done.output, done.exception)

    def hand_in(self, agent: DemoAgent, submission: SignedSubmission) -> None:
        """Hand an agent in at this node's door alone, found as a miner finds it: by the address on chain."""
        asyncio.run(asyncio.wait_for(self._hand_in(keypair_signer(agent.uri), submission), DOOR_S))

    async def _hand_in(self, miner: Signer, submission: SignedSubmission) -> None:
        async with DoorClient(HttpAuth(miner, time.time_ns)) as client:
            doors: list[DoorAnswer] = []
            while not doors:
                named = await find_doors(client, await self.network.chain.metagraph())
                doors = [door for door in named if door.validator == self.signer.hotkey]
                await asyncio.sleep(0 if doors else 0.2)
            (said,) = await deliver(client, submission, doors, wanted=1)
            assert said.taken is not None, said

    @contextlib.contextmanager
    def running(self, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        """The process, its log in `validator.log`; stopped on leaving, by its id."""
        arguments = [str(part) for flag, value in self.flags.items() for part in (flag, value)]
        arguments += ["--share", *(["--shadow"] if self.is_shadow else [])]
        with (self.folder / "validator.log").open("ab") as log:
            process = subprocess.Popen(
                [*self.program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | environment,
            )
            try:
                yield process
            finally:
                stop_process(process)

    def log(self) -> str:
        """What the process has said so far."""
        return (self.folder / "validator.log").read_text(encoding="utf-8", errors="replace")


def stop_all(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Stop them side by side: each takes its time to drain."""
    with ThreadPoolExecutor(len(processes)) as threads:
        list(threads.map(stop_process, processes))


def free_port() -> int:
    """A port nobody listens on now, below those that the system gives to connections, so that none of them takes it."""
    for port in random.sample(range(20_000, 30_000), 100):
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a hundred ports are taken")


def wait_for(
    what: str, is_so: Callable[[], bool], node: SharedNode, process: subprocess.Popen[bytes], timeout_s: float
) -> None:
    """Wait until it is so. Fails with the end of the node's log when its process ends first, or time runs out."""
    end_s = time.monotonic() + timeout_s
    while not is_so():
        assert process.poll() is None, f"{what}: ended\n{node.log()[-3_000:]}"
        assert time.monotonic() < end_s, f"{what}: not within {timeout_s} s\n{node.log()[-6_000:]}"
        time.sleep(0.2)
