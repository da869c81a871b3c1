"""What is sent to a real chain: extrinsics that land once, what a runtime must have for them, the words of refusals.

A nonce may be used once, and is read from the node each time. What another process or machine of the hotkey sends
meanwhile can make one stale: it is then looked for in the blocks since, by its signature, and only if it didn't land,
sent once more with a new nonce, `TRIES` times in all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from arena.chain.port import ChainResult, Signer

if TYPE_CHECKING:
    import bittensor


TRIES = 3
_BLOCKS_SEARCHED_MAX = 64  # an extrinsic's own lifetime: it can't land after so many blocks
# "Invalid": the pool took it, and then another extrinsic of the same nonce went into the block
_TAKEN_NONCE = frozenset({"Stale", "PriorityTooLow", "Usurped", "AlreadyImported", "Invalid"})


class Prepared:
    """A composed call, and what the SDK has to say of it beside the chain's answer."""

    def __init__(self, call: Any, extras: dict[str, Any] | None = None) -> None:
        self.call = call
        self.extras = extras or {}


async def send_extrinsic(
    client: bittensor.Client, signer: Signer, prepare: Callable[[], Awaitable[Prepared]]
) -> bittensor.ExtrinsicResult:
    """Sign what `prepare` makes and follow it until it is final; at most `TRIES` times.

    Raises what `prepare` raises, and the SDK's errors while the chain is away.
    """
    first_block = int(await client.block())
    result = None
    for _ in range(TRIES):
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
                digest = blake2b(bytes.fromhex(raw.removeprefix("0x")), digest_size=32).hexdigest()
                found: bittensor.ExtrinsicResult | None = await substrate.find_extrinsic("0x" + digest, block_hash)
                return found
    return None


UNKNOWN_FORM = (ValueError, TypeError, KeyError, AttributeError)  # what the SDK and this room raise at an unknown form
_NOBODY = "5C4hrfjw9DjXZTzV3MwzrrAr9P1MJhSrvWGWqi1eSuyUpnhM"  # the account of 32 zeros
# Of the subnet: what the SDK reads to plan weights, beside what is read here, by the netuid.
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
        *((pallet, item, [netuid, 0]) for item in ("Keys", "Weights")),
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


async def missing_from(client: bittensor.Client, netuid: int) -> tuple[str, ...]:
    """The storages and calls of this release that the connected runtime doesn't have in a form it knows, by name.

    Raises the SDK's errors while the chain is away.
    """
    needs = _needs(client, netuid)
    answers = await asyncio.gather(*needs.values(), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, UNKNOWN_FORM):
            raise answer
    return tuple(name for name, answer in zip(needs, answers, strict=True) if isinstance(answer, UNKNOWN_FORM))


# Limits that the SDK files under other codes: bytes of commitments per tempo, and the endpoint's own pace.
_LIMITS = frozenset({"SpaceLimitExceeded", "ServingRateLimitExceeded", "RateLimitExceeded"})
_STRANGERS = frozenset(
    {
        "HotKeyNotRegisteredInSubNet",
        "HotKeyNotRegisteredInNetwork",
        "HotKeyAccountNotExists",
        "AccountNotAllowedCommit",  # the commitments' pallet asks the subnet, and refuses nobody else
    }
)
_WORDS = {
    "StakeAmountTooLow": "too little stake to set weights; the owner's StakeThreshold is not reached",
    "NotEnoughStakeToSetWeights": "too little stake to set weights; the owner's StakeThreshold is not reached",
    "NeuronNoValidatorPermit": "no validator permit; it follows the stake at the next epoch",
    "IncorrectWeightVersionKey": "the subnet asks for weights of a newer release",
    "InvalidRevealRound": "the sealed weights' reveal round lies in the past by now",
    "SubnetNotExists": "the chain has no such subnet",
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
