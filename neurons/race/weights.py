"""The weights loop: keeps the weights of the latest settled race set on chain, whatever races do meanwhile.

Every try is kept as a result row, and the time of the next one follows from these rows alone, so a restart
neither skips nor repeats one. The vector is computed for the subnet as it is at the try, and again once the hotkey's
turn as a sender has come. While the chain does not grow none is set, because the state of the subnet is unknown.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from arena.chain.port import Metagraph, Vector
from arena.race.machine import paid_race, vector_at
from arena.race.weights import next_try_block
from arena.records.port import WeightsResult
from foundation.errors import ArenaError
from neurons.loops.node import Node
from neurons.race.clock import RaceClock
from neurons.race.sentences import weights_sentence

_RESULTS = 50  # the latest rows: more refusals in a row than the longest wait needs to be known


class WeightsLoop:
    """Sets the weights of the clock's latest settled race, now and again every tempo."""

    name, every_s = "weights", 1.0

    def __init__(self, node: Node, clock: RaceClock, *, is_stale: Callable[[], bool] = lambda: False) -> None:
        """`is_stale`: whether the newest block stands still (`neurons.loops.watches`)."""
        self._node, self._clock, self._is_stale = node, clock, is_stale
        self._tempo: int | None = None
        self._paid: tuple[str, Metagraph, Vector]  # the race whose vector was made last, and for which subnet

    async def turn(self) -> WeightsResult | None:
        """Set the weights if a try is due; its result, or None.

        Raises ArenaError U3034 when one is due and the chain stands still: the loop waits, and says so in the status.
        """
        node = self._node
        state = paid_race(await self._clock.states())
        if state is None:
            return None
        results = await node.store.weights_results(_RESULTS)
        block = await node.chain.block()
        if self._tempo is None:
            self._tempo = (await node.chain.metagraph()).tempo
        if block < next_try_block(results, state.race_id, self._tempo):
            return None
        if self._is_stale():
            raise ArenaError("U3034", f"weights of {state.race_id} wait for a block after {block}")
        vector = await self._renew()
        answer = await node.chain.set_weights(node.signer, *vector, renew=self._renew)
        race_id, metagraph, (uids, weights_u16) = self._paid
        result = WeightsResult(race_id=race_id, uids=uids, weights_u16=weights_u16, **msgspec.structs.asdict(answer))
        await node.store.put_weights_result(result)
        log = node.log.info if result.status in ("ok", "rate_limited") else node.log.error  # a limit passes
        hotkeys = {neuron.uid: neuron.hotkey for neuron in metagraph.neurons}
        names = {each.subject.miner_hotkey: each.name for each in await node.store.submissions()}
        log("weights", race=race_id, **msgspec.structs.asdict(answer), text=weights_sentence(result, hotkeys, names))
        return result

    async def _renew(self) -> Vector:
        """The vector of the race that is paid now, for the subnet as it is now."""
        state, metagraph = paid_race(await self._clock.states()), await self._node.chain.metagraph()
        assert state is not None, "a settled race stays"
        made = vector_at(state, metagraph)
        self._tempo, self._paid = metagraph.tempo, (state.race_id, metagraph, (made.uids, made.weights))
        return self._paid[2]
