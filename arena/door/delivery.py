"""From a miner to enough validators: which doors there are, and what each says to a submission.

A source goes to validators alone, and to those of this subnet. A door that the chain names has to be that
hotkey's; one that its URL names has to be of a hotkey that holds a permit. As many are asked as the policy has qualify
an agent at once, in the agent's own order, so that those that are to qualify it have it first; the others fetch it from
them by its commitment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from arena.chain.port import Metagraph
from arena.door.app import DoorState
from arena.door.client import DoorClient
from arena.door.submission_service import TakenSubmission
from arena.race.consensus.assignment import permitted_validators, qualifying_order
from arena.submissions.model import SignedSubmission
from foundation.errors import ArenaError, Failure


class FoundDoor(msgspec.Struct, frozen=True, kw_only=True):
    """A validator's door, or why it cannot be asked."""

    url: str
    state: DoorState | None = None
    failure: Failure | None = None

    @property
    def validator(self) -> str:
        """Whose it is, "" while that is not known."""
        return self.state.validator if self.state is not None else ""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What one validator said: it took the submission, or why not."""

    url: str
    validator: str
    taken: TakenSubmission | None = None
    failure: Failure | None = None


async def find_doors(client: DoorClient, metagraph: Metagraph, urls: Sequence[str] = ()) -> list[FoundDoor]:
    """The doors at these URLs, or where the chain says that validators are. One that fails has its reason."""
    permitted = frozenset(permitted_validators(metagraph))
    wanted = dict.fromkeys(urls, permitted)
    if not urls:
        named = [each for each in metagraph.neurons if each.endpoint and each.hotkey in permitted]
        wanted = {each.endpoint: frozenset({each.hotkey}) for each in named}
    return list(await asyncio.gather(*(_look(client, url, whose, metagraph.netuid) for url, whose in wanted.items())))


async def ask_doors(
    client: DoorClient, doors: Sequence[FoundDoor], agent_version_id: str, block: int, *, is_registered: bool = True
) -> list[FoundDoor]:
    """The same doors; one that would not take this version now, with its reason. To be asked before anything is
    committed, since a commitment in vain costs its miner time. `block`: in which it would be committed at the earliest.
    Doors answer a registered hotkey alone; any other is asked for nothing but whether they are open."""
    asked = (_ask(client, door, agent_version_id, block, is_registered=is_registered) for door in doors)
    return list(await asyncio.gather(*asked))


async def deliver(
    client: DoorClient, submission: SignedSubmission, doors: Sequence[FoundDoor], wanted: int
) -> list[Delivery]:
    """Hand a submission in until `wanted` validators took it, or no door is left. In the order they were asked."""
    by_validator = {door.validator: door for door in doors if door.state is not None}
    said: list[Delivery] = []
    for validator in qualifying_order(submission.agent_version_id, by_validator):
        if sum(each.taken is not None for each in said) >= wanted:
            break
        url = by_validator[validator].url
        try:
            said.append(Delivery(url=url, validator=validator, taken=await client.submit(url, validator, submission)))
        except ArenaError as error:
            said.append(Delivery(url=url, validator=validator, failure=error.failure))
    return said


async def _ask(
    client: DoorClient, door: FoundDoor, agent_version_id: str, block: int, *, is_registered: bool
) -> FoundDoor:
    if door.state is None:
        return door
    try:
        if door.state.pause.is_paused:
            raise ArenaError("V2200", f"{door.validator}: {door.state.pause.reason}")
        own = await client.statuses(door.url, door.validator) if is_registered else []
        if not any(each.agent_version_id == agent_version_id for each in own):
            for each in own:
                if each.state == "waiting":
                    raise ArenaError("A1012", f"{each.name}, version {each.agent_version_id[:16]}")
            allowed = max((each.next_allowed_block for each in own), default=0)
            if block < allowed:
                raise ArenaError("A1006", f"allowed from block {allowed}, and the chain is at {block - 1}")
    except ArenaError as error:
        return FoundDoor(url=door.url, failure=error.failure)
    return door


async def _look(client: DoorClient, url: str, whose: frozenset[str], netuid: int) -> FoundDoor:
    try:
        place = await client.place(url)
        if not isinstance(place, DoorState):  # an exchange: the door is at the same address
            parts = urlsplit(url)
            host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
            url = f"{parts.scheme}://{host}:{place.port}"
            place = await client.place(url)
        if not isinstance(place, DoorState) or place.validator not in whose:
            raise ArenaError("U3042", f"{url} is not the door of a validator with a permit on this subnet")
        if place.netuid != netuid:  # whose registrations and commitments are others
            raise ArenaError("U3042", f"{url} is a door of netuid {place.netuid}, and this is netuid {netuid}")
    except ArenaError as error:
        return FoundDoor(url=url, failure=error.failure)
    return FoundDoor(url=url, state=place)
