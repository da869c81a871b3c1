"""The local twin of the chain: the same port, in one file, with an injected clock.

Blocks follow the clock and never step back; an accepted extrinsic is in the block under construction (`block()
+ 1`), so a read at a final block never changes; refusals are the chain's own (`not_registered`, `rate_limited`,
`failed` with a reason). Reads without a block see what is accepted so far. Deviations from the real chain: registration
is free, permits follow stake at once and not at the epoch, there are no emissions, and reorgs and late finality come
when a simulation asks for them.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from arena.chain import local_state as state
from arena.chain.extrinsic_form import hash_refusal, split_endpoint, weights_refusal
from arena.chain.keys import canonical_hotkey, verify
from arena.chain.local_state import LocalRules, LocalState
from arena.chain.port import ChainResult, Commitment, Metagraph, Signer
from foundation.canonical import canonical_bytes
from foundation.codes.names import BLOCK_AHEAD
from foundation.errors import ArenaError

EXTRINSIC_DOMAIN = b"agent-arena/local-chain/1\n"
DEFAULT_BLOCK_MS = 12_000

_Answer = TypeVar("_Answer")


class LocalSubtensor:
    """A `Subtensor` over one SQLite file, shared by every process that opens it."""

    def __init__(
        self,
        path: Path,
        *,
        now_ms: Callable[[], int],
        netuid: int = 15,
        block_ms: int | None = None,
        rules: LocalRules | None = None,
        owner: str = "",
    ) -> None:
        """Open the chain at `path`, or make it there.

        A new chain takes `rules` (or the defaults) with `netuid` and `block_ms`, and holds `owner`, where one is given,
        at uid 0 from its first block: nobody else can take the uid that burns. An existing one keeps what it was made
        with: raises ArenaError V2030 when `netuid`, `block_ms` or `rules` say otherwise, V2027 when its folder and
        U3030 when its file can't be used. `now_ms` gives unix milliseconds.
        """
        self._now_ms = now_ms
        self._state = LocalState(path)
        wanted = rules or LocalRules(netuid=netuid, block_ms=block_ms or DEFAULT_BLOCK_MS)
        self._state.create(wanted, now_ms(), canonical_hotkey(owner) or owner)
        self._rules, self._genesis_ms = self._state.genesis()
        is_other = self._rules.netuid != wanted.netuid
        is_other |= block_ms is not None and block_ms != self._rules.block_ms
        is_other |= rules is not None and rules != self._rules
        if is_other:
            raise ArenaError("V2030", f"the local chain at {path} was made with other rules: {self._rules}")

    @property
    def netuid(self) -> int:
        """The subnet this chain serves."""
        return self._rules.netuid

    @property
    def rules(self) -> LocalRules:
        """The rules this chain was made with."""
        return self._rules

    # -- reads
    async def check(self, hotkey: str | None = None) -> None:
        """Nothing can lack: the twin is of this release."""

    async def block(self) -> int:
        """The latest sealed block."""
        return await self._read(self._sealed)

    async def finalized_block(self) -> int:
        """The latest block that can't be taken back; 0 before there is one."""
        return await self._read(lambda db: state.finalized_at(db, self._sealed(db), self._rules.finality_blocks))

    async def block_at(self, unix_ms: int) -> int | None:
        """The last block not later than that moment, once a later one is final; 0: before the first block."""
        block = 1 + (unix_ms - self._genesis_ms) // self._rules.block_ms
        return max(0, block) if await self.finalized_block() > block else None

    async def block_hash(self, block: int) -> str:
        """The hash of a sealed block; a reorg changes it. Raises U3049 for a future block."""
        return await self._read(lambda db: state.hash_of_block(db, self._genesis_ms, self._at(db, block)))

    async def metagraph(self, block: int | None = None) -> Metagraph:
        """The subnet at a sealed block, or with everything accepted so far. Raises U3049 for a future block."""
        return await self._read(lambda db: state.read_metagraph(db, self._rules, self._at(db, block)))

    async def commitment(self, hotkey: str, block: int | None = None) -> Commitment | None:
        """The hotkey's latest commitment at a sealed block, or with everything accepted so far."""
        address = canonical_hotkey(hotkey) or hotkey
        return await self._read(lambda db: state.read_commitment(db, address, self._at(db, block)))

    async def commitments(self, hotkeys: Sequence[str], block: int) -> dict[str, Commitment]:
        """The commitments of several hotkeys at a sealed block, by hotkey as asked; without those that have none."""

        def read(db: sqlite3.Connection) -> dict[str, Commitment]:
            at = self._at(db, block)
            found = {hotkey: state.read_commitment(db, canonical_hotkey(hotkey) or hotkey, at) for hotkey in hotkeys}
            return {hotkey: commitment for hotkey, commitment in found.items() if commitment is not None}

        return await self._read(read)

    async def weights(self, hotkey: str) -> tuple[tuple[int, int], ...]:
        """(uid, u16) pairs last set by a validator, by uid; zeros are not kept."""
        address = canonical_hotkey(hotkey) or hotkey
        return await self._read(lambda db: state.read_weights(db, address))

    async def owner_hotkey(self) -> str | None:
        """The owner's hotkey; None for a chain that was made without one."""
        return await self._read(state.read_owner)

    # -- extrinsics
    async def register(self, signer: Signer) -> ChainResult:
        """Register the hotkey on the lowest free uid. A registered hotkey is `ok` again, without a change."""

        def apply(db: sqlite3.Connection, hotkey: str, block: int) -> ChainResult:
            if self._uid(db, hotkey, block) is not None:
                return ChainResult(status="ok", block=block, detail="already registered")
            uid = state.add_neuron(db, hotkey, hotkey, block, self._rules.max_uids)
            if uid is None:
                return ChainResult(status="failed", block=block, detail="the subnet is full")
            return ChainResult(status="ok", block=block, detail=f"uid {uid}")

        return await self._write("register", signer, {}, apply)

    async def commit(self, signer: Signer, sha256: str) -> ChainResult:
        """Commit a hash. `failed` for text that is no sha256."""

        def apply(db: sqlite3.Connection, hotkey: str, block: int) -> ChainResult:
            if refusal := hash_refusal(sha256):
                return ChainResult(status="failed", block=block, detail=refusal)
            if self._uid(db, hotkey, block) is None:
                return ChainResult(status="not_registered", block=block)
            if early := self._too_soon(db, "commitment", hotkey, block, self._rules.commitment_rate_limit_blocks):
                return early
            state.write_commitment(db, Commitment(hotkey=hotkey, sha256=sha256, block=block))
            return ChainResult(status="ok", block=block)

        return await self._write("commit", signer, {"sha256": sha256}, apply)

    async def publish(self, signer: Signer, endpoint: str) -> ChainResult:
        """Say where the hotkey answers. `failed` for what is not `http://<ip>:<port>`."""

        def apply(db: sqlite3.Connection, hotkey: str, block: int) -> ChainResult:
            try:
                split_endpoint(endpoint)
            except ArenaError as error:
                return ChainResult(status="failed", block=block, detail=error.failure.detail)
            if self._uid(db, hotkey, block) is None:
                return ChainResult(status="not_registered", block=block)
            if early := self._too_soon(db, "endpoint", hotkey, block, self._rules.serving_rate_limit_blocks):
                return early
            state.write_endpoint(db, hotkey, block, endpoint.rstrip("/"))
            return ChainResult(status="ok", block=block)

        return await self._write("publish", signer, {"endpoint": endpoint}, apply)

    async def set_weights(self, signer: Signer, uids: tuple[int, ...], weights_u16: tuple[int, ...]) -> ChainResult:
        """Set a vector whose maximum is 65535. Refused: unknown uid, no permit, rate limit, malformed vector."""

        def apply(db: sqlite3.Connection, hotkey: str, block: int) -> ChainResult:
            if refusal := weights_refusal(uids, weights_u16):
                return ChainResult(status="failed", block=block, detail=refusal)
            neurons = {neuron.uid: neuron for neuron in state.read_metagraph(db, self._rules, block).neurons}
            own = next((neuron for neuron in neurons.values() if neuron.hotkey == hotkey), None)
            if own is None:
                return ChainResult(status="not_registered", block=block)
            if not own.has_validator_permit:
                return ChainResult(status="failed", block=block, detail="no validator permit")
            if unknown := sorted(set(uids) - set(neurons)):
                return ChainResult(status="failed", block=block, detail=f"unknown uids {unknown[:5]}")
            last = state.last_weights_block(db, hotkey)
            wait = 0 if last is None else self._rules.weights_rate_limit_blocks - (block - last)
            if wait > 0:
                return ChainResult(status="rate_limited", block=block, detail=f"{wait} blocks left")
            pairs = tuple(sorted((uid, weight) for uid, weight in zip(uids, weights_u16, strict=True) if weight))
            state.write_weights(db, hotkey, block, pairs)
            return ChainResult(status="ok", block=block)

        arguments = {"uids": list(uids), "weights": list(weights_u16)}
        return await self._write("set_weights", signer, arguments, apply)

    # -- the twin's own control: what the demo decides in the network's place
    async def set_stake(self, hotkey: str, stake_rao: int) -> None:
        """Set the stake behind a hotkey; the validator permit follows it."""
        await self.control(
            lambda db, block: state.write_stake(db, canonical_hotkey(hotkey) or hotkey, block, stake_rao)
        )

    def _too_soon(
        self, db: sqlite3.Connection, table: Literal["commitment", "endpoint"], hotkey: str, block: int, limit: int
    ) -> ChainResult | None:
        last = state.last_block_of(db, table, hotkey)
        wait = 0 if last is None else limit - (block - last)
        return ChainResult(status="rate_limited", block=block, detail=f"{wait} blocks left") if wait > 0 else None

    def _uid(self, db: sqlite3.Connection, hotkey: str, block: int) -> int | None:
        return state.read_metagraph(db, self._rules, block).uid_of(hotkey)

    # -- blocks and transactions
    def _sealed(self, db: sqlite3.Connection) -> int:
        by_clock = 1 + max(0, self._now_ms() - self._genesis_ms) // self._rules.block_ms
        return max(by_clock, state.high_block(db))

    def _at(self, db: sqlite3.Connection, block: int | None) -> int:
        sealed = self._sealed(db)
        if block is None:
            return sealed + 1
        if not 0 <= block <= sealed:
            raise ArenaError(BLOCK_AHEAD, f"block {block} is not sealed; the chain is at {sealed}")
        return block

    async def _read(self, query: Callable[[sqlite3.Connection], _Answer]) -> _Answer:
        def run() -> _Answer:
            with self._state.transaction(is_write=False) as db:
                return query(db)

        return await asyncio.to_thread(run)

    async def control(self, change: Callable[[sqlite3.Connection, int], None]) -> None:
        """Change the chain's file in the network's place, in the block under construction."""

        def run() -> None:
            with self._state.transaction(is_write=True) as db:
                change(db, state.raise_high_block(db, self._sealed(db)) + 1)

        await asyncio.to_thread(run)

    async def _write(
        self,
        call: str,
        signer: Signer,
        arguments: Mapping[str, object],
        apply: Callable[[sqlite3.Connection, str, int], ChainResult],
    ) -> ChainResult:
        hotkey = canonical_hotkey(signer.hotkey) or signer.hotkey
        payload = extrinsic_payload(call, self.netuid, arguments)
        is_signed = verify(hotkey, payload, signer.sign(payload))

        def run() -> ChainResult:
            with self._state.transaction(is_write=True) as db:
                block = state.raise_high_block(db, self._sealed(db)) + 1
                if not is_signed:
                    return ChainResult(status="failed", block=block, detail="bad signature")
                return apply(db, hotkey, block)

        return await asyncio.to_thread(run)


def extrinsic_payload(call: str, netuid: int, arguments: Mapping[str, object]) -> bytes:
    """The bytes that a hotkey signs for an extrinsic of the local chain."""
    return EXTRINSIC_DOMAIN + canonical_bytes({"call": call, "netuid": netuid, "arguments": arguments})
