"""A door over real HTTP on loopback, real Postgres and the local chain; and miners that knock at it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
from msgspec.structs import replace

from arena.api.board import Board
from arena.chain.keys import HttpAuth, keypair_signer
from arena.chain.local import LocalRules, LocalSubtensor
from arena.chain.port import Signer
from arena.door.service import Desk, Door, DoorRules, Registration
from arena.exchange.peer_service import ShareRules
from arena.policies import POLICIES
from arena.store.postgres import PostgresStore
from arena.submissions.submission import SignedSubmission, make_submission
from arena.web.server import DoorServer
from harness.catalogue.server import listen
from tests.arena.tail_stand import in_thread
from tests.keys import generate_signer

AGENT = "def agent_main(problem):\n    return None\n"
BLOCK_MS = 50
WIDE = ShareRules(requests_per_s=1e6, requests_burst=10**6)
WIDE_RULES = DoorRules(address=WIDE, hotkey=WIDE, bodies=10_000, bodies_per_network=10_000, nonces_per_hotkey=10_000)


def unix_ms() -> int:
    return time.time_ns() // 1_000_000


class Stand:
    """One validator's door. `door` belongs to the loop of its thread."""

    def __init__(self, folder: Path, dsn: str, uri: str, chain_path: Path | None = None) -> None:
        self.folder, self.dsn, self.uri = folder, dsn, uri
        self.validator = keypair_signer(uri).hotkey
        path = chain_path or folder / "chain.sqlite"
        self.chain = LocalSubtensor(path, now_ms=unix_ms, rules=LocalRules(block_ms=BLOCK_MS))
        self.policy = POLICIES["demo"]
        self.now_ms = unix_ms  # by which embargoes end
        self.refresh_s = 0.0  # how old what the public reads tell may be
        self.address = ""
        self.door: Door
        self.board: Board

    async def open_door(self, rules: DoorRules | None = None, **stale: float) -> tuple[Door, PostgresStore]:
        store = await PostgresStore.open(self.dsn, self.validator)
        registration = Registration(self.chain, **{"refresh_s": 0.05, **stale})
        self.board = Board(store, now_ms=self.now_ms, refresh_s=self.refresh_s)
        desk = Desk(store, self.chain, self.policy, self.board, registration)
        auth = HttpAuth(keypair_signer(self.uri), time.time_ns)
        auth.sign("GET", "/", auth.hotkey)  # as a node does: the SDK is imported before anybody waits
        return Door(desk, auth, rules=rules), store

    async def serve(self, stop: asyncio.Event, is_up: Any, rules: DoorRules | None, **stale: float) -> None:
        self.door, store = await self.open_door(rules, **stale)
        try:
            with listen("127.0.0.1", 0) as listener:
                server = DoorServer(self.door, listener, self.board, per_address=2_000)
                self.address = server.address
                is_up()
                await server.run(stop)
        finally:
            await store.close()


class Miner:
    """A registered hotkey with an agent."""

    def __init__(self, stand: Stand, signer: Signer | None = None) -> None:
        self.stand, self.signer = stand, signer or generate_signer()
        self.auth = HttpAuth(self.signer, time.time_ns)

    async def register(self) -> Miner:
        assert (await self.stand.chain.register(self.signer)).status == "ok"
        block = await self.stand.chain.block()
        while await self.stand.chain.finalized_block() <= block:
            await asyncio.sleep(BLOCK_MS / 1_000)
        return self

    async def commit(self, source: str = AGENT, name: str = "agent") -> SignedSubmission:
        made = make_submission(self.signer, name, source, unix_ms())
        assert (await self.stand.chain.commit(self.signer, made.commitment_sha256)).status == "ok"
        return made

    def request(self, made: SignedSubmission, **changed: Any) -> httpx2.Request:
        """A signed POST. `changed` replaces parts: `file` (bytes), `filename`, `agent_name`, ..."""
        form = {"agent_name": made.name, "submitted_ms": str(made.submitted_ms), "signature": made.signature}
        content = changed.pop("file", made.source.encode())
        file = {"file": (changed.pop("filename", "agent.py"), content, "text/x-python")}
        request = httpx2.Request("POST", f"{self.stand.address}/v1/submissions", data=form | changed, files=file)
        return self.signed("POST", "/v1/submissions", request.read(), {"content-type": request.headers["content-type"]})

    def signed(self, method: str, target: str, body: bytes = b"", headers: dict | None = None) -> httpx2.Request:
        signed = self.auth.sign(method, target, self.stand.validator, body)
        return httpx2.Request(method, self.stand.address + target, content=body, headers=signed | (headers or {}))


async def send(request: httpx2.Request) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=30) as http:
        return await http.send(request)


class SigningAuth(httpx2.Auth):
    """Signs each request as a miner's client does."""

    requires_request_body = True

    def __init__(self, miner: Miner) -> None:
        self.miner = miner

    def auth_flow(self, request: httpx2.Request) -> Iterator[httpx2.Request]:
        target = request.url.raw_path.decode("ascii")
        signed = self.miner.auth.sign(request.method, target, self.miner.stand.validator, request.content)
        request.headers.update({name: each for name, each in signed.items() if name not in request.headers})
        yield request


@contextlib.contextmanager
def serving(stand: Stand, rules: DoorRules | None = None, **stale: float) -> Iterator[Stand]:
    """Serve the stand's door in a thread until the block ends."""
    with in_thread(lambda stop, is_up: stand.serve(stop, is_up, rules, **stale)):
        yield stand


# -- a door that takes submissions by their commitment, and a miner whose client speaks the published SN15 API alone


_nonces = itertools.count(10**12)


class LegacyAuth(httpx2.Auth):
    """Signs each request as the SDK does: `{hotkey}:{timestamp}:{nonce}`."""

    def __init__(self, signer: Signer, **fixed: str) -> None:
        self.signer, self.fixed = signer, fixed

    def headers(self, off_s: int = 0) -> dict[str, str]:
        stamp, nonce = str(int(time.time()) + off_s), str(next(_nonces))
        signature = self.signer.sign(f"{self.signer.hotkey}:{stamp}:{nonce}".encode()).hex()
        made = {"X-Hotkey": self.signer.hotkey, "X-Timestamp": stamp, "X-Nonce": nonce, "X-Signature": f"0x{signature}"}
        return made | self.fixed

    def auth_flow(self, request: httpx2.Request) -> Iterator[httpx2.Request]:
        if not request.url.path.startswith("/v1/public/"):
            request.headers.update(self.headers())
        yield request


class LegacyMiner(Miner):
    """A registered hotkey whose client speaks that API alone."""

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.stand.address, auth=LegacyAuth(self.signer), timeout=30)

    async def submit(self, source: bytes = AGENT.encode(), name: str = "agent") -> httpx2.Response:
        async with self.client() as http:
            form = {"agent_name": (None, name.encode(), "text/plain"), "file": ("a.py", source, "text/x-python")}
            return await http.post("/v1/miner/submit", files=form)

    async def get(self, path: str) -> Any:
        async with self.client() as http:
            return (await http.get(path)).raise_for_status().json()


def open_to_commitments(stand: Stand, *, is_open: bool = True) -> Stand:
    admission = replace(stand.policy.admission, is_commitment_enough=is_open)
    stand.policy = replace(stand.policy, admission=admission)
    return stand


def told(answer: httpx2.Response) -> tuple[int, str]:
    value = answer.json()
    detail = value["detail"]
    return answer.status_code, value.get("error_code") or (detail["code"] if isinstance(detail, dict) else "")
