"""The real chain: the `Subtensor` port on bittensor 11.3's async client.

Promise: reads are pinned to one block, refusals are typed, and whatever keeps the chain from answering is ArenaError
U3030, after which the next call connects anew; state that the node has pruned is U3033, where no archive node of the
network could be asked. A metagraph whose block was replaced while it was read is read again. The SDK is imported when
the first connection opens (about a second). What is set is what was asked: a vector that the SDK or the subnet's limits
would change is refused. Stake is the alpha staked on this subnet; the root network's isn't counted. Registration spends
a coldkey's TAO and is left to btcli.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

from arena.chain.block_times import BlockTimes
from arena.chain.extrinsic_form import U16_MAX, format_endpoint, hash_refusal, split_endpoint, weights_refusal
from arena.chain.keys import SdkSigner, canonical_hotkey, public_key
from arena.chain.port import ChainResult, Commitment, Metagraph, Neuron, Signer
from foundation.errors import ArenaError

if TYPE_CHECKING:
    import bittensor

CALL_TIMEOUT_S = 120.0  # of an extrinsic, which waits until its block is final
READ_TIMEOUT_S = 60.0
_BY_SUBNET = ("Tempo", "ValidatorPermit", "LastUpdate")
_PRUNED = ("state discarded", "state already discarded")  # the SDK's words, and the node's own
_METAGRAPH_TRIES = 3


class BittensorSubtensor:
    """The port over one endpoint (a network name such as `finney`, or a `ws://` or `wss://` URL)."""

    def __init__(
        self,
        network: str,
        *,
        netuid: int,
        make_client: Callable[[str], bittensor.Client] | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        """`make_client` replaces the SDK's default client (endpoints, backends); `timeout_s` bounds every call."""
        self._network = network
        self._netuid = netuid
        self._make_client = make_client
        self._timeout_s = timeout_s
        self._client: bittensor.Client | None = None
        self._connecting = asyncio.Lock()
        self._times = BlockTimes(self._time_of)

    @property
    def netuid(self) -> int:
        """The subnet."""
        return self._netuid

    async def close(self) -> None:
        """Close the connection; the next call opens another."""
        client, self._client = self._client, None
        if client is None:
            return
        from bittensor.result import BittensorError

        # The state it is in is unknown. Where the node hung up politely, the SDK's reader dies of an assertion of
        # websockets, and closing raises it again.
        with suppress(BittensorError, OSError, TimeoutError, AssertionError):
            await client.close()

    # -- reads
    async def block(self) -> int:
        """The latest block."""
        async with self._connected() as client:
            return int(await client.block())

    async def finalized_block(self) -> int:
        """The latest finalized block."""
        async with self._connected() as client:
            return int(await client.finalized_block())

    async def block_at(self, unix_ms: int) -> int | None:
        """The last block not later than that moment, once a later one is final; 0: before the first block."""
        return await self._times.last_block(unix_ms, await self.finalized_block())

    async def block_hash(self, block: int) -> str:
        """The hash of a sealed block."""
        async with self._connected() as client:
            return await _hash_of(client, block)

    async def metagraph(self, block: int | None = None) -> Metagraph:
        """The subnet at `block`, or at the head. Needs an archive node for blocks older than its state."""
        async with self._connected() as client:
            for _ in range(_METAGRAPH_TRIES):
                at = int(await client.block()) if block is None else block
                before = await _hash_of(client, at)
                found = await self._metagraph(client, at)
                if await _hash_of(client, at) == before:
                    return found
        raise ArenaError("U3030", f"{self._network}: block {at} was replaced while it was read")

    async def commitment(self, hotkey: str, block: int | None = None) -> Commitment | None:
        """The hash a hotkey committed last; None when there is none, or none that is a plain 32-byte value."""
        async with self._connected() as client:
            record = await client.query(("Commitments", "CommitmentOf"), [self._netuid, hotkey], block=block)
        sha256 = _committed_sha256(record)
        return None if sha256 is None else Commitment(hotkey=hotkey, sha256=sha256, block=int(record["block"]))

    async def commitments(self, hotkeys: Sequence[str], block: int) -> dict[str, Commitment]:
        """The hashes that several hotkeys had committed at `block`, by hotkey as asked, in one request."""
        if not hotkeys:
            return {}
        async with self._connected() as client:
            keys = [[self._netuid, hotkey] for hotkey in hotkeys]
            records = await client.query_batch(("Commitments", "CommitmentOf"), keys, block=block)
        found = ((hotkey, record, _committed_sha256(record)) for hotkey, record in zip(hotkeys, records, strict=True))
        return {
            hotkey: Commitment(hotkey=hotkey, sha256=sha256, block=int(record["block"]))
            for hotkey, record, sha256 in found
            if sha256 is not None
        }

    async def weights(self, hotkey: str) -> tuple[tuple[int, int], ...]:
        """(uid, u16) pairs the chain holds for a validator, by uid. Sealed weights appear once they are revealed."""
        async with self._connected() as client:
            uid = await client.query(("SubtensorModule", "Uids"), [self._netuid, hotkey])
            pairs = [] if uid is None else await client.query(("SubtensorModule", "Weights"), [self._netuid, int(uid)])
        return tuple(sorted((int(target), int(weight)) for target, weight in pairs or ()))

    async def owner_hotkey(self) -> str | None:
        """The hotkey of the subnet's owner; None for a subnet whose owner named none."""
        async with self._connected() as client:
            found = await client.query(("SubtensorModule", "SubnetOwnerHotkey"), [self._netuid])
        key = public_key(str(found or ""))
        return None if key is None or not any(key) else canonical_hotkey(str(found))  # zeros: the chain's default

    # -- extrinsics
    async def register(self, signer: Signer) -> ChainResult:
        """Always `failed`: registration is signed by a coldkey, which this software never holds."""
        block = await self.block()
        return ChainResult(status="failed", block=block, detail="register with `btcli subnets register`")

    async def commit(self, signer: Signer, sha256: str) -> ChainResult:
        """Commit a hash, signed by the hotkey."""
        if refusal := hash_refusal(sha256):
            return ChainResult(status="failed", block=await self.block(), detail=refusal)

        async def send(client: bittensor.Client) -> bittensor.ExtrinsicResult:
            from bittensor import ChainError, ErrorCode, calls

            # The chain would only say "not allowed", and not that the key isn't registered.
            if await client.query(("SubtensorModule", "Uids"), [self._netuid, signer.hotkey]) is None:
                raise ChainError(f"{signer.hotkey} is not registered", code=ErrorCode.NOT_REGISTERED)
            info = {"fields": [[{"Raw32": "0x" + sha256}]]}
            call = calls.Commitments.set_commitment(netuid=self._netuid, info=info)
            return await client.submit_call(call, SdkSigner(signer), signer="hotkey")

        return await self._send(send)

    async def publish(self, signer: Signer, endpoint: str) -> ChainResult:
        """Say where the hotkey answers, signed by it. The chain takes a new endpoint only after its serving limit."""
        try:
            address, port = split_endpoint(endpoint)
        except ArenaError as error:
            return ChainResult(status="failed", block=await self.block(), detail=error.failure.detail)

        async def send(client: bittensor.Client) -> bittensor.ExtrinsicResult:
            from bittensor import ServeAxon

            intent = ServeAxon(netuid=self._netuid, ip=str(address), port=port)
            return await client.execute(intent, SdkSigner(signer))

        return await self._send(send)

    async def set_weights(self, signer: Signer, uids: tuple[int, ...], weights_u16: tuple[int, ...]) -> ChainResult:
        """Set weights, in the clear or sealed, as the subnet demands; `detail` names the reveal round when sealed."""
        if refusal := weights_refusal(uids, weights_u16):
            return ChainResult(status="failed", block=await self.block(), detail=refusal)

        async def send(client: bittensor.Client) -> bittensor.ExtrinsicResult:
            from bittensor import ChainError, ErrorCode, SetWeights

            limit = await client.query(("SubtensorModule", "MaxWeightsLimit"), [self._netuid])
            if limit is not None and len(uids) > 1 and int(limit) * sum(weights_u16) < U16_MAX * U16_MAX:
                raise ChainError("the subnet's weight limit would change the vector", code=ErrorCode.INVALID_ARGUMENT)
            intent = SetWeights(netuid=self._netuid, uids=list(uids), weights=[float(weight) for weight in weights_u16])
            return await client.execute(intent, SdkSigner(signer))

        return await self._send(send)

    # -- connection
    @asynccontextmanager
    async def _connected(self, *, timeout_s: float = READ_TIMEOUT_S) -> AsyncIterator[bittensor.Client]:
        """The open client, within the time limit. Turns every failure to reach the chain into U3030."""
        from bittensor import Client
        from bittensor.result import BittensorError

        try:
            async with asyncio.timeout(min(timeout_s, self._timeout_s)):
                async with self._connecting:
                    if self._client is None:
                        client = self._make_client(self._network) if self._make_client else Client(self._network)
                        await client.connect()
                        self._client = client
                    client = self._client
                yield client
        except (BittensorError, OSError, TimeoutError) as error:
            if any(words in str(error).lower() for words in _PRUNED):
                raise ArenaError("U3033", f"{self._network}: {error}") from error
            await self.close()
            raise ArenaError("U3030", f"{self._network}: {str(error) or type(error).__name__}") from error

    async def _time_of(self, block: int) -> int:
        async with self._connected() as client:
            return int(await client.query(("Timestamp", "Now"), block=block))

    async def _send(self, send: Callable[[bittensor.Client], Awaitable[bittensor.ExtrinsicResult]]) -> ChainResult:
        from bittensor.result import ChainError

        async with self._connected(timeout_s=self._timeout_s) as client:
            try:
                result = await send(client)
            except ChainError as error:
                return ChainResult(status=_status(error), block=int(await client.block()), detail=str(error))
            included = result.extrinsic_id  # "block-index"
            block = int(included.partition("-")[0]) if included else int(await client.block())
        if result.success:
            sealed = result.data.get("reveal_round")
            return ChainResult(status="ok", block=block, detail=f"sealed until round {sealed}" if sealed else "")
        status = "failed" if result.error is None else _status(result.error)
        return ChainResult(status=status, block=block, detail=str(result.error or result.message))

    async def _metagraph(self, client: bittensor.Client, block: int) -> Metagraph:
        pallet = "SubtensorModule"
        rows = await client.query_map((pallet, "Keys"), [self._netuid], block=block)
        hotkeys = {int(uid): str(hotkey) for uid, hotkey in rows}
        tempo, permits, updates = await asyncio.gather(
            *(client.query((pallet, item), [self._netuid], block=block) for item in _BY_SUBNET)
        )
        uids = sorted(hotkeys)
        coldkeys, stakes, axons = await asyncio.gather(
            client.query_batch((pallet, "Owner"), [[hotkeys[uid]] for uid in uids], block=block),
            client.query_batch(
                (pallet, "TotalHotkeyAlpha"), [[hotkeys[uid], self._netuid] for uid in uids], block=block
            ),
            client.query_batch((pallet, "Axons"), [[self._netuid, hotkeys[uid]] for uid in uids], block=block),
        )
        neurons = tuple(
            Neuron(
                uid=uid,
                hotkey=hotkeys[uid],
                coldkey=str(coldkey or ""),
                has_validator_permit=bool(_at(permits, uid)),
                stake_rao=int(stake or 0),
                last_update_block=int(_at(updates, uid)),
                endpoint=_endpoint(axon),
            )
            for uid, coldkey, stake, axon in zip(uids, coldkeys, stakes, axons, strict=True)
        )
        return Metagraph(netuid=self._netuid, block=block, tempo=int(tempo or 0), neurons=neurons)


async def _hash_of(client: bittensor.Client, block: int) -> str:
    # The SDK has no public way to a hash that does not decode the whole block.
    return str(await client._block_hash(block))


def _endpoint(axon: Any) -> str:
    """Where a hotkey says it answers, of its record on chain; "" where it says nothing that can be an address."""
    if not isinstance(axon, dict):
        return ""
    return format_endpoint(int(axon.get("ip") or 0), int(axon.get("port") or 0), int(axon.get("ip_type") or 0))


def _status(error: bittensor.ChainError) -> Literal["rate_limited", "not_registered", "failed"]:
    from bittensor import ErrorCode

    if error.code is ErrorCode.RATE_LIMITED or error.name == "SpaceLimitExceeded":  # commitments: bytes per tempo
        return "rate_limited"
    return "not_registered" if error.code is ErrorCode.NOT_REGISTERED else "failed"


def _at(values: Sequence[Any] | None, uid: int) -> Any:
    return values[uid] if values is not None and uid < len(values) else 0


def _committed_sha256(record: Any) -> str | None:
    """The one 32-byte value of a commitment record, as hex."""
    fields = (record or {}).get("info", {}).get("fields", [])
    for entry in fields:
        for variant in entry if isinstance(entry, list | tuple) else [entry]:
            value = variant.get("Raw32") or variant.get("Sha256") if isinstance(variant, dict) else None
            if isinstance(value, str) and hash_refusal(value.removeprefix("0x")) is None:
                return value.removeprefix("0x")
    return None
