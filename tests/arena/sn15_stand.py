"""A door that takes submissions by their commitment, and a miner whose client speaks the published SN15 API alone."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import httpx2
from msgspec.structs import replace

from arena.chain.port import Signer
from tests.arena.door_stand import AGENT, Miner, Stand

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
