"""What is said over HTTP between the local chain and a machine that has no file of it: one question, one answer.

An extrinsic is signed by the hotkey over the very bytes that the chain itself has signed at home, so the chain checks
it alike wherever it comes from.
"""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from arena.chain.local import extrinsic_payload
from arena.chain.port import ChainResult, Commitment, Metagraph, Signer
from foundation.canonical import UNREADABLE_JSON
from foundation.errors import ArenaError, Failure

ROUTE = "/v1/local-chain"
QUESTION_BYTES_MAX, ANSWER_BYTES_MAX = 1 << 20, 16 << 20

# What each call of the port takes, in its own order, by the fields of a question.
READS: dict[str, tuple[str, ...]] = {
    "block": (),
    "finalized_block": (),
    "block_at": ("unix_ms",),
    "block_hash": ("block",),
    "metagraph": ("block",),
    "commitment": ("hotkey", "block"),
    "commitments": ("hotkeys", "block"),
    "weights": ("hotkey",),
    "owner_hotkey": (),
}
EXTRINSICS: dict[str, tuple[str, ...]] = {
    "register": (),
    "commit": ("sha256",),
    "publish": ("endpoint",),
    "set_weights": ("uids", "weights_u16"),
}
Call = Annotated[str, msgspec.Meta(pattern=f"^({'|'.join((*READS, *EXTRINSICS))})$")]
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]


class ChainQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One call of the port with its arguments; what a call does not take is left out. `signature` is hex."""

    call: Call
    netuid: _Number
    block: _Number | None = None
    unix_ms: _Number = 0
    hotkey: str = ""
    hotkeys: tuple[str, ...] = ()
    sha256: str = ""
    endpoint: str = ""
    uids: tuple[int, ...] = ()
    weights_u16: tuple[int, ...] = ()
    signature: str = ""


class ChainAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the port returned, or why it failed."""

    value: Any = None
    failure: Failure | None = None


TIMEOUT_S = 20.0
_AWAY = "U3030"

_Value = TypeVar("_Value")


class RemoteSubtensor:
    """A `Subtensor` that asks a `ChainServer`."""

    def __init__(self, url: str, *, netuid: int) -> None:
        """`url` is `http://host:port`. Raises ArenaError V2030 for another form."""
        parts = urlsplit(url)
        try:
            host, port = parts.hostname, parts.port or 80
        except ValueError as error:
            raise ArenaError("V2030", f"network {url}: {error}") from error
        if parts.scheme != "http" or host is None or parts.path.strip("/"):
            raise ArenaError("V2030", f"network {url} is not http://host:port")
        self._url, self._host, self._port, self._netuid = url, host, port, netuid

    @property
    def netuid(self) -> int:
        """The subnet."""
        return self._netuid

    async def check(self, hotkey: str | None = None) -> None:
        """Ask whether it answers: the twin is of the release that serves it. Raises ArenaError U3030."""
        await self.block()

    async def block(self) -> int:
        """The latest sealed block."""
        return await self._ask(int, "block")

    async def finalized_block(self) -> int:
        """The latest final block."""
        return await self._ask(int, "finalized_block")

    async def block_at(self, unix_ms: int) -> int | None:
        """The last block not later than that moment, once that is known."""
        return await self._ask(int | None, "block_at", unix_ms=unix_ms)  # type: ignore[arg-type]

    async def block_hash(self, block: int) -> str:
        """The hash of a sealed block."""
        return await self._ask(str, "block_hash", block=block)

    async def metagraph(self, block: int | None = None) -> Metagraph:
        """The subnet at a block, or now."""
        return await self._ask(Metagraph, "metagraph", block=block)

    async def commitment(self, hotkey: str, block: int | None = None) -> Commitment | None:
        """A hotkey's latest commitment at a block, or now."""
        return await self._ask(Commitment | None, "commitment", hotkey=hotkey, block=block)  # type: ignore[arg-type]

    async def commitments(self, hotkeys: Sequence[str], block: int) -> dict[str, Commitment]:
        """The commitments of several hotkeys at one block; those without one are left out."""
        return await self._ask(dict[str, Commitment], "commitments", hotkeys=tuple(hotkeys), block=block)

    async def weights(self, hotkey: str) -> tuple[tuple[int, int], ...]:
        """(uid, u16) pairs last set by a validator."""
        return await self._ask(tuple[tuple[int, int], ...], "weights", hotkey=hotkey)

    async def owner_hotkey(self) -> str | None:
        """The owner's hotkey; None for a chain that was made without one."""
        return await self._ask(str | None, "owner_hotkey")  # type: ignore[arg-type]

    async def register(self, signer: Signer) -> ChainResult:
        """Register the hotkey."""
        return await self._send("register", signer, {})

    async def commit(self, signer: Signer, sha256: str) -> ChainResult:
        """Commit a hash."""
        return await self._send("commit", signer, {"sha256": sha256}, sha256=sha256)

    async def publish(self, signer: Signer, endpoint: str) -> ChainResult:
        """Say where the hotkey answers."""
        return await self._send("publish", signer, {"endpoint": endpoint}, endpoint=endpoint)

    async def set_weights(self, signer: Signer, uids: tuple[int, ...], weights_u16: tuple[int, ...]) -> ChainResult:
        """Set a vector of weights."""
        arguments = {"uids": list(uids), "weights": list(weights_u16)}
        return await self._send("set_weights", signer, arguments, uids=uids, weights_u16=weights_u16)

    async def _send(self, call: Call, signer: Signer, arguments: Mapping[str, object], **asked: object) -> ChainResult:
        signature = signer.sign(extrinsic_payload(call, self._netuid, arguments)).hex()
        return await self._ask(ChainResult, call, hotkey=signer.hotkey, signature=signature, **asked)

    async def _ask(self, kind: type[_Value], call: Call, **asked: object) -> _Value:
        question = msgspec.convert({"call": call, "netuid": self._netuid, **asked}, ChainQuestion)
        content = await asyncio.to_thread(self._post, msgspec.json.encode(question))
        try:
            answer = msgspec.json.decode(content, type=ChainAnswer)
            if answer.failure is None:
                return msgspec.convert(answer.value, kind)
        except UNREADABLE_JSON as error:
            raise ArenaError(_AWAY, f"{self._url}: no answer of a local chain") from error
        raise ArenaError(answer.failure.code, answer.failure.detail)

    def _post(self, body: bytes) -> bytes:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            connection.request("POST", ROUTE, body, {"content-type": "application/json"})
            return connection.getresponse().read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise ArenaError(_AWAY, f"{self._url}: {str(error) or type(error).__name__}") from error
        finally:
            connection.close()
