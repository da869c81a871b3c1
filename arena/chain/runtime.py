"""What this release asks of a chain's runtime, and what a runtime that it doesn't know lacks of it.

Every storage item and call that the adapter and the SDK's intents use stands here, with arguments of the right form. It
is compared by reading and composing them through the client, not by reading its metadata: so a client that stands in
for a missing one is believed, and an item whose keys or a call whose arguments changed is found too. Nothing is signed
or sent.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from arena.chain.sender import Prepared, by_proxy

if TYPE_CHECKING:
    import bittensor

UNKNOWN_FORM = (ValueError, TypeError, KeyError, AttributeError)  # what the SDK and this room raise at an unknown form
_NOBODY = "5C4hrfjw9DjXZTzV3MwzrrAr9P1MJhSrvWGWqi1eSuyUpnhM"  # the account of 32 zeros
_BY_NETUID = (
    "NetworksAdded",
    "Tempo",
    "ValidatorPermit",
    "LastUpdate",
    "SubnetOwnerHotkey",
    "MaxWeightsLimit",
    "MinAllowedWeights",
    "WeightsVersionKey",
    "WeightsSetRateLimit",
    "CommitRevealWeightsEnabled",
    "RevealPeriodEpochs",
    "MechanismCountCurrent",
    "BlocksSinceLastStep",
    "LastEpochBlock",
    "PendingEpochAt",
    "SubnetEpochIndex",
)


def storages(netuid: int) -> tuple[tuple[str, str, list[Any]], ...]:
    """(pallet, item, key) of every storage item that is read."""
    pallet = "SubtensorModule"
    return (
        *((pallet, item, [netuid]) for item in _BY_NETUID),
        (pallet, "Keys", [netuid, 0]),
        (pallet, "Uids", [netuid, _NOBODY]),
        (pallet, "Weights", [netuid, 0]),
        (pallet, "BlockAtRegistration", [netuid, 0]),
        (pallet, "Owner", [_NOBODY]),
        (pallet, "TotalHotkeyAlpha", [_NOBODY, netuid]),
        (pallet, "Axons", [netuid, _NOBODY]),
        ("Commitments", "CommitmentOf", [netuid, _NOBODY]),
        ("Timestamp", "Now", []),
    )


def sample_calls(netuid: int) -> tuple[tuple[str, Any], ...]:
    """(name, call) of every call that is sent."""
    from bittensor import calls

    module = calls.SubtensorModule
    weights = module.set_mechanism_weights(netuid=netuid, mecid=0, dests=[0], weights=[1], version_key=0)
    sealed = module.commit_timelocked_mechanism_weights(
        netuid=netuid, mecid=0, commit=b"\0", reveal_round=1, commit_reveal_version=4
    )
    axon = module.serve_axon(
        netuid=netuid, version=1, ip=1, port=1, ip_type=4, protocol=4, placeholder1=0, placeholder2=0
    )
    commitment = calls.Commitments.set_commitment(netuid=netuid, info={"fields": [[{"Raw32": "0x" + "00" * 32}]]})
    return (
        ("SubtensorModule.set_mechanism_weights", weights),
        ("SubtensorModule.commit_timelocked_mechanism_weights", sealed),
        ("SubtensorModule.serve_axon", axon),
        ("Commitments.set_commitment", commitment),
    )


async def missing_from(client: bittensor.Client, netuid: int, *, is_proxied: bool = False) -> tuple[str, ...]:
    """The storages and calls of this release that the connected runtime doesn't have in a form it knows, by name.
    `is_proxied`: a proxy sends them.

    Raises the SDK's errors while the chain is away.
    """
    asked = [(f"{pallet}.{item}", client.query((pallet, item), key)) for pallet, item, key in storages(netuid)]
    asked += [(name, client.compose(call)) for name, call in sample_calls(netuid)]  # type: ignore[no-untyped-call]
    if is_proxied:
        asked.append(("Proxy.proxy", _proxied(client)))
        asked.append(("Proxy.Proxies", client.query(("Proxy", "Proxies"), [_NOBODY])))
    answers = await asyncio.gather(*(answer for _, answer in asked), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, UNKNOWN_FORM):
            raise answer
    return tuple(name for (name, _), answer in zip(asked, answers, strict=True) if isinstance(answer, UNKNOWN_FORM))


async def _proxied(client: bittensor.Client) -> Prepared:
    from bittensor import calls

    remark = await client.compose(calls.System.remark(remark="0x"))  # type: ignore[no-untyped-call]
    return await by_proxy(client, _NOBODY, Prepared(remark))
