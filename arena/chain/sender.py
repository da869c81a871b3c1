"""One sender per hotkey: extrinsics of one hotkey leave this machine one after the other, from any sender.

A nonce may be used once. The SDK keeps the next one per client, so two processes of one hotkey (a validator and
`arena submit`) spend the same one, and the chain refuses the second as stale. A file lock, keyed by the
chain's genesis and the hotkey, is held from the reading of the nonce until the chain has answered; the nonce is read
from the node each time. What another machine sends meanwhile can still make one stale: it is then looked for in the
blocks since, by its signature, and only if it didn't land, sent once more with a new nonce. The lock is the operating
system's and ends with its process.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from arena.chain.keys import public_key
from arena.chain.port import ChainResult, Signer
from foundation.codes import HOTKEY_IN_USE
from foundation.durable_files import try_lock
from foundation.errors import ArenaError
from foundation.logs import get_logger

if TYPE_CHECKING:
    import bittensor


_POLL_S = 0.05
_LONG_S = 10.0  # about a block
_BLOCKS_SEARCHED_MAX = 64  # an extrinsic's own lifetime: it can't land after so many blocks
# "Invalid": the pool took it, and then another extrinsic of the same nonce went into the block
_TAKEN_NONCE = frozenset({"Stale", "PriorityTooLow", "Usurped", "AlreadyImported", "Invalid"})


class Prepared(NamedTuple):
    """A composed call, and what the SDK has to say of it beside the chain's answer."""

    call: Any
    extras: dict[str, Any] | None = None


class TurnTakenError(Exception):
    """Another sender of this hotkey did not finish in time, or no lock can be held here."""


def default_lock_folder() -> Path:
    """Where every process of this user keeps its senders' locks: beside the wallets."""
    try:
        return Path("~/.bittensor/senders").expanduser()
    except RuntimeError:  # no home folder
        return _spare_folder()


def _spare_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"arena-senders-{os.getuid()}"


async def by_proxy(client: bittensor.Client, hotkey: str, prepared: Prepared) -> Prepared:
    """The call as a proxy of the hotkey sends it: the chain runs it as the hotkey's own. Raises as the SDK composes."""
    from bittensor import calls

    call = calls.Proxy.proxy(real=hotkey, force_proxy_type=None, call=prepared.call)
    return Prepared(await client.compose(call), prepared.extras)  # type: ignore[no-untyped-call]


@asynccontextmanager
async def turn_of(
    genesis: str, hotkey: str, *, folder: Path, wait_s: float, gives_way: Callable[[], bool] = lambda: False
) -> AsyncIterator[None]:
    """Hold the one place that a hotkey has as a sender on a chain, among all processes, threads and tasks of this user.
    `gives_way`: whether somebody else goes first now.

    Raises TurnTakenError after `wait_s` seconds, and where no lock file can be made.
    """
    handle = _open_lock(folder, f"{genesis.removeprefix('0x')[:16]}-{hotkey}.lock")
    try:
        now_s = asyncio.get_running_loop().time
        since_s = now_s()
        while gives_way() or not try_lock(handle):
            if now_s() >= since_s + wait_s:
                raise TurnTakenError(f"another extrinsic of {hotkey} has been on its way for {wait_s:.0f} s")
            await asyncio.sleep(_POLL_S)
        if (waited_s := now_s() - since_s) > _LONG_S:
            text = f"an extrinsic waited {waited_s:.0f} s for an earlier one of this hotkey"
            get_logger().warning("sender waited", hotkey=hotkey, seconds=round(waited_s), text=text)
        yield
    finally:
        os.close(handle)


@contextmanager
def held_as_validator(hotkey: str, network: str, netuid: int, folder: Path | None = None) -> Iterator[None]:
    """Be the one validator of a hotkey on a subnet among this user's processes, whatever state folder each has: two of
    them would overwrite each other's anchors. `folder` None: that of the senders' locks.

    Raises ArenaError V2024 where another one is, V2027 where no lock file can be made.
    """
    of_subnet = hashlib.sha256(f"{network} {netuid}".encode()).hexdigest()[:16]
    try:
        handle = _open_lock(folder or default_lock_folder(), f"validator-{of_subnet}-{hotkey}.lock")
    except TurnTakenError as error:
        raise ArenaError("V2027", str(error)) from error
    try:
        if not try_lock(handle):
            detail = f"another process of this user validates with {hotkey} on netuid {netuid}"
            raise ArenaError(HOTKEY_IN_USE, detail)
        yield
    finally:
        os.close(handle)


def _open_lock(folder: Path, name: str) -> int:
    """A handle on the lock file, in the spare folder where this user may not write beside the wallets."""
    refusals = []
    for place in (folder, _spare_folder()):
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(place / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            refusals.append(str(error))
    raise TurnTakenError(f"no lock file can be made: {'; '.join(refusals)}")


async def send_extrinsic(
    client: bittensor.Client, signer: Signer, prepare: Callable[[], Awaitable[Prepared]]
) -> bittensor.ExtrinsicResult:
    """Sign what `prepare` makes and follow it until it is final; at most twice. Call it in the hotkey's turn.

    Raises what `prepare` raises, and the SDK's errors while the chain is away.
    """
    first_block = int(await client.block())
    result = None
    for _ in range(2):
        prepared = await prepare()
        unsigned = await client.prepare_call(prepared.call, address=signer.hotkey)  # reads the nonce from the node
        signature = signer.sign(unsigned.payload)
        result = await client.submit_signature(unsigned, signature)
        if not result.success and is_taken_nonce(result):
            result = await _landed(client, signature, first_block) or result
        if prepared.extras and result.success:
            result = replace(result, data={**result.data, **prepared.extras})
        if not is_taken_nonce(result):
            break
    assert result is not None
    return result


def is_taken_nonce(result: bittensor.ExtrinsicResult) -> bool:
    """Whether an extrinsic was refused because its nonce is another's."""
    if result.success or result.error is None or result.extrinsic_id:
        return False
    return result.error.name in _TAKEN_NONCE or "stale" in (result.message or "").lower()


async def _landed(client: bittensor.Client, signature: bytes, first_block: int) -> bittensor.ExtrinsicResult | None:
    """The outcome of the extrinsic that carries this signature, or None where no block since holds it.

    A node that answers late, or a connection that came back, hands an extrinsic in twice: the second is stale because
    the first landed.
    """
    # Of the SDK, only its substrate reads the raw extrinsics of a block.
    substrate: Any = client._substrate
    head = int(await client.block())
    for number in range(max(first_block, head - _BLOCKS_SEARCHED_MAX), head + 1):
        block_hash = await substrate.block_hash(number)
        block = await substrate.raw.rpc_request("chain_getBlock", [block_hash])
        for raw in block["block"]["extrinsics"]:
            if signature.hex() in raw:
                digest = hashlib.blake2b(bytes.fromhex(raw.removeprefix("0x")), digest_size=32).hexdigest()
                found: bittensor.ExtrinsicResult | None = await substrate.find_extrinsic("0x" + digest, block_hash)
                return found
    return None


UNKNOWN_FORM = (ValueError, TypeError, KeyError, AttributeError)  # what the SDK and this room raise at an unknown form
_NOBODY = "5C4hrfjw9DjXZTzV3MwzrrAr9P1MJhSrvWGWqi1eSuyUpnhM"  # the account of 32 zeros
# Of the subnet, by its netuid: what is read here, and what the SDK reads to plan weights.
_BY_NETUID = (
    "Tempo LastUpdate SubnetOwnerHotkey MaxWeightsLimit MinAllowedWeights WeightsVersionKey WeightsSetRateLimit"
    " CommitRevealWeightsEnabled RevealPeriodEpochs BlocksSinceLastStep LastEpochBlock PendingEpochAt SubnetEpochIndex"
    " NetworksAdded ValidatorPermit MechanismCountCurrent"
)


def _needs(client: bittensor.Client, netuid: int) -> dict[str, Awaitable[Any]]:
    """Every storage item that is read and every call that is sent, asked of the runtime, by name."""
    from bittensor import calls

    module, pallet = calls.SubtensorModule, "SubtensorModule"
    items: list[tuple[str, str, list[Any]]] = [
        *((pallet, item, [netuid]) for item in _BY_NETUID.split()),
        *((pallet, item, [netuid, 0]) for item in ("Keys", "Weights", "BlockAtRegistration")),
        *((pallet, item, [netuid, _NOBODY]) for item in ("Uids", "Axons")),
        (pallet, "Owner", [_NOBODY]),
        (pallet, "TotalHotkeyAlpha", [_NOBODY, netuid]),
        ("Commitments", "CommitmentOf", [netuid, _NOBODY]),
        ("Timestamp", "Now", []),
    ]
    weights = module.set_mechanism_weights(netuid=netuid, mecid=0, dests=[0], weights=[1], version_key=0)
    sealed = module.commit_timelocked_mechanism_weights(
        netuid=netuid, mecid=0, commit=b"\0", reveal_round=1, commit_reveal_version=4
    )
    axon = module.serve_axon(
        netuid=netuid, version=1, ip=1, port=1, ip_type=4, protocol=4, placeholder1=0, placeholder2=0
    )
    commitment = calls.Commitments.set_commitment(netuid=netuid, info={"fields": [[{"Raw32": "0x" + "00" * 32}]]})
    asked = {f"{room}.{item}": client.query((room, item), key) for room, item, key in items}
    sent = {f"{call[0]}.{call[1]}": call for call in (weights, sealed, axon, commitment)}
    return {**asked, **{name: client.compose(call) for name, call in sent.items()}}  # type: ignore[no-untyped-call]


async def missing_from(client: bittensor.Client, netuid: int, *, is_proxied: bool = False) -> tuple[str, ...]:
    """The storages and calls of this release that the connected runtime doesn't have in a form it knows, by name.
    `is_proxied`: a proxy sends them.

    Raises the SDK's errors while the chain is away.
    """
    needs = _needs(client, netuid)
    if is_proxied:
        needs["Proxy.proxy"], needs["Proxy.Proxies"] = _proxied(client), client.query(("Proxy", "Proxies"), [_NOBODY])
    answers = await asyncio.gather(*needs.values(), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, UNKNOWN_FORM):
            raise answer
    return tuple(name for name, answer in zip(needs, answers, strict=True) if isinstance(answer, UNKNOWN_FORM))


async def _proxied(client: bittensor.Client) -> Prepared:
    from bittensor import calls

    remark = await client.compose(calls.System.remark(remark="0x"))  # type: ignore[no-untyped-call]
    return await by_proxy(client, _NOBODY, Prepared(remark))


# Limits that the SDK files under other codes: bytes of commitments per tempo, and the endpoint's own pace.
_LIMITS = frozenset({"SpaceLimitExceeded", "ServingRateLimitExceeded", "RateLimitExceeded", "TooManyUnrevealedCommits"})
_STRANGERS = frozenset(
    {
        "HotKeyNotRegisteredInSubNet",
        "HotKeyNotRegisteredInNetwork",
        "HotKeyAccountNotExists",
        "AccountNotAllowedCommit",  # the commitments' pallet asks the subnet, and refuses nobody else
    }
)
_PROXY_TYPES = frozenset({"Any", "NonCritical", "NonTransfer", "NonFungible"})  # allow every call that is sent here
_WORDS = {
    "StakeAmountTooLow": "too little stake to set weights; the owner's StakeThreshold is not reached",
    "NotEnoughStakeToSetWeights": "too little stake to set weights; the owner's StakeThreshold is not reached",
    "NeuronNoValidatorPermit": "no validator permit; it follows the stake at the next epoch",
    "IncorrectWeightVersionKey": "the subnet asks for weights of a newer release",
    "InvalidRevealRound": "the sealed weights' reveal round lies in the past by now",
    "SubnetNotExists": "the chain has no such subnet",
    "NotProxy": "the key that signs is not a proxy of this hotkey; the hotkey's account adds it (`btcli proxy add`)",
    "CallFiltered": "the runtime filters this call; of a proxy its type has to allow it, as NonCritical does",
    "Unannounced": "the proxy was added with a delay; add it with none",
    "Payment": "the hotkey's account can't pay the chain's fee; send it some TAO",
    "BadRequest": "the runtime's checks refused the call and give no reason (custom error 255)",
}


def refused(error: bittensor.ChainError, block: int) -> ChainResult:
    """The port's result for a refusal, whatever form it came in. Each says its own name after the words for it."""
    from bittensor import ErrorCode

    detail = str(error)
    if words := _WORDS.get(error.name or ""):
        detail = f"{words} ({error.name})"
    elif error.name and error.name not in detail:
        detail = f"{detail} ({error.name})"
    if error.code is ErrorCode.RATE_LIMITED or error.name in _LIMITS:
        return ChainResult(status="rate_limited", block=block, detail=detail)
    if error.code is ErrorCode.NOT_REGISTERED or error.name in _STRANGERS:
        return ChainResult(status="not_registered", block=block, detail=detail)
    return ChainResult(status="failed", block=block, detail=detail)


def version_refusal(netuid: int, wanted: int, sent: int) -> str | None:
    """Why a subnet would refuse every vector of this release, or None: the chain takes keys not below its own."""
    if wanted <= sent:
        return None
    return f"subnet {netuid} asks for weights version key {wanted}, this release sends {sent}: install a newer one"


async def first_weights_wait(client: bittensor.Client, netuid: int, uid: int, storage_index: int) -> str | None:
    """How long a hotkey that has set no weights yet must still wait, or None: registering counts as an update of the
    first mechanism. Where weights were set before, the SDK says it. Updates stand under `storage_index`."""
    pallet, head = "SubtensorModule", int(await client.block())
    asked = ("BlockAtRegistration", [netuid, uid]), ("LastUpdate", [storage_index]), ("WeightsSetRateLimit", [netuid])
    registered, updates, limit = [await client.query((pallet, item), key, block=head) for item, key in asked]
    last = int(updates[uid]) if updates and uid < len(updates) else 0
    left = last + int(limit or 0) - head
    if not last or last != int(registered or 0) or left <= 0:
        return None
    waits = f"first weights wait WeightsSetRateLimit ({limit} blocks) after the registration in block {last}"
    return f"{waits}: {left} blocks left"


def proxy_refusal(proxy: str, hotkey: str, proxies: Sequence[Mapping[str, Any]]) -> str | None:
    """Why the chain would refuse what `proxy` signs for a hotkey, or None. `proxies` are the hotkey's, as the chain
    lists them: of several entries of one key it takes the first."""
    own = public_key(proxy)
    found = next((each for each in proxies if public_key(str(each["delegate"])) == own), None)
    if found is None:
        return f"{proxy} is not a proxy of {hotkey}"
    kind, delay = found["proxy_type"], int(found["delay"])
    kind = next(iter(kind)) if isinstance(kind, Mapping) else str(kind)
    if kind not in _PROXY_TYPES:
        return f"{proxy} is a proxy of {hotkey} of type {kind}, which may not set weights; NonCritical may"
    return f"{proxy} is a proxy of {hotkey} with a delay of {delay} blocks; add it without" if delay else None
