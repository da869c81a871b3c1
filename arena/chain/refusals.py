"""What the chain's refusals mean, and the words for those that nobody should have to look up.

A refusal comes in three forms, and means the same in each: raised by the SDK before anything is signed, as the error
of a dispatched call, and, where the runtime's dispatch extensions refuse, as the transaction pool's `Custom error: N`:
a number and no name. The SDK knows the numbers; the statuses of the port come from what they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arena.chain.keys import public_key
from arena.chain.port import ChainResult

if TYPE_CHECKING:
    import bittensor

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
_PROXY_TYPES = frozenset({"Any", "NonCritical", "NonTransfer", "NonFungible"})  # allow every call that is sent here
_WORDS = {
    "StakeAmountTooLow": "too little stake to set weights; the owner's StakeThreshold is not reached",
    "NotEnoughStakeToSetWeights": "too little stake to set weights; the owner's StakeThreshold is not reached",
    "NeuronNoValidatorPermit": "no validator permit; it follows the stake at the next epoch",
    "IncorrectWeightVersionKey": "the subnet asks for weights of a newer release",
    "InvalidRevealRound": "the sealed weights' reveal round lies in the past by now",
    "SubnetNotExists": "the chain has no such subnet",
    "NotProxy": "the key that signs is no proxy of this hotkey; the hotkey's account adds it (`btcli proxy add`)",
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


def proxy_refusal(proxy: str, hotkey: str, proxies: Sequence[Mapping[str, Any]]) -> str | None:
    """Why the chain would refuse what `proxy` signs for a hotkey, or None. `proxies` are the hotkey's, as the chain
    lists them: of several entries of one key it takes the first."""
    own = public_key(proxy)
    found = next((each for each in proxies if public_key(str(each["delegate"])) == own), None)
    if found is None:
        return f"{proxy} is no proxy of {hotkey}"
    kind, delay = found["proxy_type"], int(found["delay"])
    kind = next(iter(kind)) if isinstance(kind, Mapping) else str(kind)
    if kind not in _PROXY_TYPES:
        return f"{proxy} is a proxy of {hotkey} of type {kind}, which may not set weights; NonCritical may"
    return f"{proxy} is a proxy of {hotkey} with a delay of {delay} blocks; add it without" if delay else None


async def first_weights_wait(client: bittensor.Client, netuid: int, uid: int, *, storage_index: int) -> str | None:
    """Why a hotkey that has set no weights yet must still wait, or None: registering counts as an update, so the first
    weights wait out WeightsSetRateLimit. Where weights were set before, the SDK says how long to wait. Updates stand
    under `storage_index`, as weights do: registering is an update of the first mechanism alone."""
    pallet = "SubtensorModule"
    head = int(await client.block())
    registered = await client.query((pallet, "BlockAtRegistration"), [netuid, uid], block=head)
    updates = await client.query((pallet, "LastUpdate"), [storage_index], block=head)
    limit = int(await client.query((pallet, "WeightsSetRateLimit"), [netuid], block=head) or 0)
    last = int(updates[uid]) if updates and uid < len(updates) else 0
    left = last + limit - head
    if not last or last != int(registered or 0) or left <= 0:
        return None
    return (
        f"first weights wait WeightsSetRateLimit ({limit} blocks) after the registration in block {last}: "
        f"{left} blocks left"
    )
