"""The real chain: the `Subtensor` port on bittensor 11.3's async client.

Reads are pinned to one block, refusals are typed, and whatever keeps the chain from answering is ArenaError
U3030, after which the next call connects anew; state that the node has pruned is U3033, where no archive node of the
network could be asked, and a block that isn't sealed yet U3049. A metagraph whose block was replaced while it was read
is read again. The SDK is imported when the first connection opens (about a second). What is set is what was asked: a
vector that the SDK or the subnet's limits would change is refused. A storage or call of this release that the chain's
runtime lacks, or has in another form, is U3037, and costs the call and not the process. Extrinsics of one hotkey go one
after the other (`arena.chain.sender`). Stake is the alpha staked on this subnet; the root network's isn't counted.
Registration spends a coldkey's TAO and is left to btcli.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arena.chain.keys import SdkSigner, canonical_hotkey, public_key
from arena.chain.port import (
    U16_MAX,
    ChainResult,
    Commitment,
    Metagraph,
    Neuron,
    Renew,
    Signer,
    StatePrunedError,
    endpoint_refusal,
    format_endpoint,
    hash_refusal,
    split_endpoint,
    weights_refusal,
)
from arena.chain.sender import (
    UNKNOWN_FORM,
    Prepared,
    TurnTakenError,
    by_proxy,
    default_lock_folder,
    first_weights_wait,
    missing_from,
    proxy_refusal,
    refused,
    send_extrinsic,
    turn_of,
    version_refusal,
)
from foundation.errors import ArenaError

if TYPE_CHECKING:
    import bittensor
    from bittensor import Client


CALL_TIMEOUT_S = 120.0  # of an extrinsic, which waits until its block is final
READ_TIMEOUT_S = 60.0
UPGRADE_S = 12.0  # a block: from when a runtime is enacted until extrinsics are checked against it
_BAD_PROOF = "badproof"  # the SDK's name and the pool's own, in lower case
WEIGHTS_VERSION_KEY = 10_001  # of this release, sent with weights; it grows when other weights are meant by the rules
_PRUNED = ("state discarded", "state already discarded")  # the SDK's words, and the node's own
_FUTURE = "no block at height"  # the SDK's words; the connection is as good as before
_METAGRAPH_TRIES = 3
_UNKNOWN = "this release does not know this runtime:"
_SUBNETS_MAX = 4_096  # the chain keeps mechanism m's weights and updates of a subnet under m * 4096 + netuid


class BittensorSubtensor:
    """The port over one endpoint (a network name such as `finney`, or a `ws://` or `wss://` URL)."""

    def __init__(
        self,
        network: str,
        *,
        netuid: int,
        make_client: Callable[[str], bittensor.Client] | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
        mechanism: int = 0,
        lock_folder: Path | None = None,
        proxy: Signer | None = None,
    ) -> None:
        """`make_client` replaces the client of `arena.chain.sdk_client` (endpoints, backends); `timeout_s` bounds every
        call, the wait for another sender of the same hotkey apart. `mechanism` is the incentive mechanism whose weights
        are set and read. `lock_folder` holds the senders' locks. `proxy` signs every extrinsic in the hotkey's place,
        as an account that the chain knows as the hotkey's proxy."""
        self._network = network
        self._mechanism = mechanism
        self._lock_folder = lock_folder or default_lock_folder()
        self._proxy = proxy
        self._known_spec: int | None = None  # the runtime that was found to have all that is asked of it
        self.netuid = netuid
        self._storage_index = mechanism * _SUBNETS_MAX + netuid
        self._timeout_s = timeout_s
        self._make_client = make_client
        self._client: bittensor.Client | None = None  # which all reads share
        self._opening = asyncio.Lock()
        self._weighing = 0  # calls that set weights: everything else of the hotkey gives way to them
        self._times = BlockTimes(self._time_of)

    async def close(self) -> None:
        """Close the connection that reads share; the next one opens another."""
        client, self._client = self._client, None
        if client is not None:
            await _close(client)

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

    async def head_ms(self) -> int:
        """The timestamp of the latest block."""
        async with self._connected() as client:
            return int(await client.query(("Timestamp", "Now")))

    async def check(self, hotkey: str | None = None) -> None:
        """Compare runtime and subnet with what this release asks of them; what is sent and read is not awaited.

        Raises ArenaError U3037 for a runtime that lacks something, U3039 for a subnet or mechanism that isn't
        there, V2032 where the chain would refuse the proxy of `hotkey`, U3037 also for weights of a newer
        release, U3030. A runtime that was found whole isn't compared again.
        """
        async with self._connected() as client:
            spec = int(await client.spec_version())
            if spec != self._known_spec:
                if missing := await missing_from(client, self.netuid, is_proxied=self._proxy is not None):
                    raise ArenaError("U3037", f"{_UNKNOWN} spec {spec}, missing {', '.join(missing)}")
                self._known_spec = spec
            await self._demand_subnet(client)
            count = int(await client.query(("SubtensorModule", "MechanismCountCurrent"), [self.netuid]) or 1)
            if self._mechanism >= count:
                detail = f"subnet {self.netuid} has {count} mechanisms, counted from 0: none is {self._mechanism}"
                raise ArenaError("U3039", detail, fix="check `mechanism`")
            if self._proxy is not None and hotkey is not None:
                proxies, _ = await client.query(("Proxy", "Proxies"), [hotkey])
                if refusal := proxy_refusal(self._proxy.hotkey, hotkey, proxies):
                    raise ArenaError("V2032", refusal)
            wanted = int(await client.query(("SubtensorModule", "WeightsVersionKey"), [self.netuid]) or 0)
        if refusal := version_refusal(self.netuid, wanted, WEIGHTS_VERSION_KEY):
            raise ArenaError("U3037", refusal)

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
        return (await self.commitments([hotkey], block)).get(hotkey)

    async def commitments(self, hotkeys: Sequence[str], block: int | None) -> dict[str, Commitment]:
        """The hashes that several hotkeys had committed at `block`, or have now, by hotkey as asked, in one request."""
        known = [hotkey for hotkey in hotkeys if public_key(hotkey) is not None]
        if not known:
            return {}
        async with self._connected() as client:
            keys = [[self.netuid, hotkey] for hotkey in known]
            records = await client.query_batch(("Commitments", "CommitmentOf"), keys, block=block)
        return {
            hotkey: Commitment(hotkey=hotkey, sha256=sha256, block=int(record["block"]))
            for hotkey, record in zip(known, records, strict=True)
            if (sha256 := _committed_sha256(record)) is not None
        }

    async def commitment_place(self, hotkey: str, sha256: str, block: int) -> int:
        """The index of the extrinsic that commits it for the hotkey, also within another call; else their number."""
        async with self._connected() as client:
            found = await client.block_info(block)
        texts = [str(extrinsic) for extrinsic in (found.extrinsics if found else ())]
        wanted = ("set_commitment", sha256, hotkey)
        return next((place for place, text in enumerate(texts) if all(each in text for each in wanted)), len(texts))

    async def weights(self, hotkey: str) -> tuple[tuple[int, int], ...]:
        """(uid, u16) pairs the chain holds for a validator, by uid. Sealed weights appear once they are revealed."""
        if public_key(hotkey) is None:
            return ()
        async with self._connected() as client:
            uid = await client.query(("SubtensorModule", "Uids"), [self.netuid, hotkey])
            at = [self._storage_index, int(uid or 0)]
            pairs = [] if uid is None else await client.query(("SubtensorModule", "Weights"), at)
        return tuple(sorted((int(target), int(weight)) for target, weight in pairs or ()))

    async def owner_hotkey(self) -> str | None:
        """The hotkey of the subnet's owner; None for a subnet whose owner named none."""
        async with self._connected() as client:
            found = await client.query(("SubtensorModule", "SubnetOwnerHotkey"), [self.netuid])
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

        async def prepare(client: bittensor.Client) -> Prepared:
            from bittensor import calls

            await self._demand_registered(client, signer)  # the chain would only say "not allowed"
            info = {"fields": [[{"Raw32": "0x" + sha256}]]}
            call = calls.Commitments.set_commitment(netuid=self.netuid, info=info)
            return Prepared(await client.compose(call))  # type: ignore[no-untyped-call]

        return await self._send(signer, prepare)

    async def publish(self, signer: Signer, endpoint: str) -> ChainResult:
        """Say where the hotkey answers, signed by it. The chain takes a new endpoint only after its serving limit."""
        if refusal := endpoint_refusal(endpoint):
            return ChainResult(status="failed", block=await self.block(), detail=refusal)
        address, port = split_endpoint(endpoint)

        async def prepare(client: bittensor.Client) -> Prepared:
            from bittensor import ServeAxon

            await self._demand_registered(client, signer)
            plan = await client.plan(ServeAxon(netuid=self.netuid, ip=str(address), port=port), SdkSigner(signer))
            return Prepared(plan.call, plan.extras)

        return await self._send(signer, prepare)

    async def set_weights(
        self, signer: Signer, uids: tuple[int, ...], weights_u16: tuple[int, ...], *, renew: Renew | None = None
    ) -> ChainResult:
        """Set weights, in the clear or sealed, as the subnet demands; `detail` names the reveal round when sealed."""
        if refusal := weights_refusal(uids, weights_u16):
            return ChainResult(status="failed", block=await self.block(), detail=refusal)

        async def prepare(client: bittensor.Client) -> Prepared:
            from bittensor import ChainError, ErrorCode, SetWeights

            uids, weights_u16 = await renew() if renew else vector
            uid = await self._demand_registered(client, signer)
            limit, wanted = await asyncio.gather(
                client.query(("SubtensorModule", "MaxWeightsLimit"), [self.netuid]),
                client.query(("SubtensorModule", "WeightsVersionKey"), [self.netuid]),
            )
            if limit is not None and len(uids) > 1 and int(limit) * sum(weights_u16) < U16_MAX * U16_MAX:
                raise ChainError("the subnet's weight limit would change the vector", code=ErrorCode.INVALID_ARGUMENT)
            if old := version_refusal(self.netuid, int(wanted or 0), WEIGHTS_VERSION_KEY):
                raise ChainError(old, code=ErrorCode.INVALID_ARGUMENT)
            if waits := await first_weights_wait(client, self.netuid, uid, self._storage_index):
                raise ChainError(waits, code=ErrorCode.RATE_LIMITED)
            intent = SetWeights(
                netuid=self.netuid,
                uids=list(uids),
                weights=[float(weight) for weight in weights_u16],
                mechid=self._mechanism,
                version_key=WEIGHTS_VERSION_KEY,
            )
            plan = await client.plan(intent, SdkSigner(signer))
            return Prepared(plan.call, plan.extras)

        vector = uids, weights_u16
        self._weighing += 1
        try:
            return await self._send(signer, prepare, is_first=True)
        finally:
            self._weighing -= 1

    # -- connection
    async def _open(self) -> bittensor.Client:
        """A connected client. Raises ArenaError V2030 where the network can't be one, else the SDK's errors."""
        from arena.chain.sdk_client import make_client  # brings the whole SDK

        try:
            client = (self._make_client or make_client)(self._network)
        except ValueError as error:
            raise ArenaError("V2030", f"network {self._network!r}: {error}") from error
        try:
            await client.connect()
        except BaseException:
            await _close(client)
            raise
        return client

    @asynccontextmanager
    async def _connected(self, *, timeout_s: float = READ_TIMEOUT_S, is_own: bool = False) -> AsyncIterator[Client]:
        """The client that reads share, or one of this call's own, within the time limit. Turns every failure to reach
        the chain into U3030, and a storage or call that its runtime doesn't have into U3037."""
        from bittensor.result import BittensorError

        client: Client | None = None
        try:
            async with asyncio.timeout(min(timeout_s, self._timeout_s)):
                if is_own:
                    client = await self._open()
                else:
                    async with self._opening:
                        client = self._client = self._client or await self._open()
                yield client
        except (BittensorError, OSError, TimeoutError) as error:
            if any(words in str(error).lower() for words in _PRUNED):
                raise StatePrunedError("U3033", f"{self._network}: {error}") from error
            if str(error).startswith(_FUTURE):
                raise ArenaError("U3049", f"{self._network}: {error}") from error
            if client is self._client:
                await self.close()
            raise ArenaError("U3030", f"{self._network}: {str(error) or type(error).__name__}") from error
        except UNKNOWN_FORM as error:
            self._known_spec = None
            spec = "unknown" if client is None else await _spec_of(client)
            said = str(error) or type(error).__name__
            raise ArenaError("U3037", f"{_UNKNOWN} spec {spec}, {said}") from error
        finally:
            if is_own and client is not None:
                await _close(client)

    async def _demand_subnet(self, client: bittensor.Client) -> None:
        """Raises ArenaError U3039 where the chain has no such subnet."""
        if not await client.query(("SubtensorModule", "NetworksAdded"), [self.netuid]):
            raise ArenaError("U3039", f"{self._network} has no subnet {self.netuid}")

    async def _demand_registered(self, client: bittensor.Client, signer: Signer) -> int:
        """The hotkey's uid. Raises the SDK's error where it has none, and U3039 where there is no such subnet."""
        from bittensor import ChainError, ErrorCode

        uid = await client.query(("SubtensorModule", "Uids"), [self.netuid, signer.hotkey])
        if uid is None:
            await self._demand_subnet(client)
            detail = f"{signer.hotkey} is not registered on netuid {self.netuid}"
            raise ChainError(detail, code=ErrorCode.NOT_REGISTERED)
        return int(uid)

    async def _time_of(self, block: int) -> int:
        async with self._connected() as client:
            return int(await client.query(("Timestamp", "Now"), block=block))

    async def _send(
        self, signer: Signer, prepare: Callable[[bittensor.Client], Awaitable[Prepared]], *, is_first: bool = False
    ) -> ChainResult:
        """The outcome of an extrinsic. One that was signed for the runtime before an upgrade is signed anew, over
        another connection and after the upgrade's block."""
        result = await self._send_once(signer, prepare, is_first)
        if _BAD_PROOF not in result.detail.lower():
            return result
        await asyncio.sleep(UPGRADE_S)
        return await self._send_once(signer, prepare, is_first)

    async def _send_once(
        self, signer: Signer, prepare: Callable[[bittensor.Client], Awaitable[Prepared]], is_first: bool
    ) -> ChainResult:
        from bittensor.result import ChainError

        async def made() -> Prepared:
            prepared = await prepare(client)
            return prepared if self._proxy is None else await by_proxy(client, signer.hotkey, prepared)

        async with self._connected() as client:
            genesis = await _hash_of(client, 0)
        sender, wait_s = self._proxy or signer, 2 * self._timeout_s
        gives_way = (lambda: False) if is_first else (lambda: self._weighing > 0)
        try:
            async with (
                turn_of(genesis, sender.hotkey, folder=self._lock_folder, wait_s=wait_s, gives_way=gives_way),
                self._connected(timeout_s=self._timeout_s, is_own=True) as client,  # no failed read may close it
            ):
                try:
                    result = await send_extrinsic(client, sender, made)
                except ChainError as error:
                    return refused(error, int(await client.block()))
                included = result.extrinsic_id  # "block-index"
                block = int(included.partition("-")[0]) if included else int(await client.block())
        except TurnTakenError as error:
            return ChainResult(status="failed", block=await self.block(), detail=str(error))
        if result.success:
            sealed = result.data.get("reveal_round")
            return ChainResult(status="ok", block=block, detail=f"sealed until round {sealed}" if sealed else "")
        return refused(result.error or ChainError(result.message), block)

    async def _metagraph(self, client: bittensor.Client, block: int) -> Metagraph:
        pallet = "SubtensorModule"
        rows = await client.query_map((pallet, "Keys"), [self.netuid], block=block)
        hotkeys = {int(uid): str(hotkey) for uid, hotkey in rows}
        if not hotkeys:
            await self._demand_subnet(client)
        tempo, permits = await asyncio.gather(
            client.query((pallet, "Tempo"), [self.netuid], block=block),
            client.query((pallet, "ValidatorPermit"), [self.netuid], block=block),
        )
        uids, permitted = sorted(hotkeys), dict(enumerate(permits or ()))
        coldkeys, stakes, axons = await asyncio.gather(
            client.query_batch((pallet, "Owner"), [[hotkeys[uid]] for uid in uids], block=block),
            client.query_batch(
                (pallet, "TotalHotkeyAlpha"), [[hotkeys[uid], self.netuid] for uid in uids], block=block
            ),
            client.query_batch((pallet, "Axons"), [[self.netuid, hotkeys[uid]] for uid in uids], block=block),
        )
        neurons = tuple(
            Neuron(
                uid=uid,
                hotkey=hotkeys[uid],
                coldkey=str(coldkey or ""),
                has_validator_permit=bool(permitted.get(uid)),
                stake_rao=int(stake or 0),
                endpoint=_endpoint(axon),
            )
            for uid, coldkey, stake, axon in zip(uids, coldkeys, stakes, axons, strict=True)
        )
        return Metagraph(netuid=self.netuid, block=block, tempo=int(tempo or 0), neurons=neurons)


async def _hash_of(client: bittensor.Client, block: int) -> str:
    # The SDK has no public way to a hash that does not decode the whole block.
    return str(await client._block_hash(block))


async def _spec_of(client: bittensor.Client) -> str:
    from bittensor.result import BittensorError

    with suppress(BittensorError, OSError, TimeoutError, *UNKNOWN_FORM):
        async with asyncio.timeout(READ_TIMEOUT_S):
            return str(await client.spec_version())
    return "unknown"


def _endpoint(axon: Any) -> str:
    """Where a hotkey says it answers, of its record on chain; "" where it says nothing that can be an address."""
    if not isinstance(axon, dict):
        return ""
    return format_endpoint(int(axon.get("ip") or 0), int(axon.get("port") or 0), int(axon.get("ip_type") or 0))


def _committed_sha256(record: Any) -> str | None:
    """The one 32-byte value of a commitment record, as hex."""
    fields = (record or {}).get("info", {}).get("fields", [])
    for entry in fields:
        for variant in entry if isinstance(entry, list | tuple) else [entry]:
            value = variant.get("Raw32") or variant.get("Sha256") if isinstance(variant, dict) else None
            if isinstance(value, str) and hash_refusal(value.removeprefix("0x")) is None:
                return value.removeprefix("0x")
    return None


async def _close(client: bittensor.Client) -> None:
    from bittensor.result import BittensorError

    # The state it is in is unknown. Where the node hung up politely, the SDK's reader dies of an assertion of
    # websockets, and closing raises it again.
    with suppress(BittensorError, OSError, TimeoutError, AssertionError):
        await client.close()


BLOCK_MS = 12_000  # where to look first; the chain's own pace
REMEMBERED = 4_096

TimeOf = Callable[[int], Awaitable[int]]


class BlockTimes:
    """Timestamps of finalized blocks of one chain, as far as they were read."""

    def __init__(self, time_of: TimeOf) -> None:
        """`time_of` reads the unix milliseconds of a finalized block; blocks count from 0, times never fall."""
        self._time_of = time_of
        self._known: dict[int, int] = {}

    async def last_block(self, unix_ms: int, finalized: int) -> int | None:
        """The last block not later than `unix_ms`; None while no finalized block is later. 0: before the first block.

        Raises what `time_of` raises.
        """
        later, latest_ms = finalized, await self._time(finalized)
        if latest_ms <= unix_ms:
            return None
        later = min((block for block, time in self._known.items() if time > unix_ms), default=later)
        known = max((block for block, time in self._known.items() if time <= unix_ms), default=-1)
        earlier = known if known >= 0 else await self._before(unix_ms, later)
        while later - earlier > 1:
            middle = (later + earlier) // 2
            if await self._time(middle) <= unix_ms:
                earlier = middle
            else:
                later = middle
        return earlier

    async def _before(self, unix_ms: int, later: int) -> int:
        """Some block that is not later than the moment, found in growing steps back from one that is."""
        step = max(1, -(-(await self._time(later) - unix_ms) // BLOCK_MS))
        while later > 0:
            candidate = max(0, later - step)
            if candidate == 0 or await self._time(candidate) <= unix_ms:
                return candidate
            later, step = candidate, step * 2
        return 0

    async def _time(self, block: int) -> int:
        if block not in self._known:
            self._known[block] = await self._time_of(block)
            while len(self._known) > REMEMBERED:
                del self._known[next(iter(self._known))]
        return self._known[block]
