"""Payment: which race the weights follow, as which vector, and when they are set (again).

Pure. Weights follow the latest settled race and no race waits for them. The vector is made anew from that
race's standings for the subnet as it is at the try: a uid that changed hands since the settlement pays nobody but the
burn. A settlement's own vector stays as evidence of its settling block. Every tempo the vector is set again, because
the chain forgets validators that are silent for too long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from arena.chain.port import Metagraph
from arena.race.settlement.weights import WeightVector, chain_vector
from arena.race.state.machine import RaceState, top_after
from arena.store.port import WeightsResult

WAIT_BLOCKS_MAX = 25


def paid_race(states: Iterable[RaceState]) -> RaceState | None:
    """The latest race that this validator settled, of races in their order. A cancelled one changes no weights, nor
    does a settlement that was adopted from others."""
    mine = (state for state in reversed(list(states)) if state.stage == "settled" and not state.is_adopted)
    return next(mine, None)


def vector_at(state: RaceState, metagraph: Metagraph) -> WeightVector:
    """The vector of a settled race for the subnet at `metagraph`. Raises ValueError for a race that is not settled."""
    if state.stage != "settled" or state.settlement is None or state.opened is None:
        raise ValueError(f"{state.race_id} is {state.stage}, not settled")
    top = top_after(state)
    hotkeys = [standing.miner_hotkey for standing in state.settlement.standings]
    return chain_vector(hotkeys, top.miner_hotkey if top else "", metagraph, state.opened.policy.weights)


def next_try_block(results: Sequence[WeightsResult], race_id: str, tempo: int) -> int:
    """The first block at which a race's weights may be tried; 0: at once. `results` come newest first.

    At once where this race was never tried; `tempo` blocks after the last success; after a refusal once a wait that
    doubles with every refusal in a row has passed, at most `WAIT_BLOCKS_MAX` blocks.
    """
    tries = [result for result in results if result.race_id == race_id]
    if not tries:
        return 0
    refused = next((count for count, result in enumerate(tries) if result.status == "ok"), len(tries))
    wait_blocks = min(1 << (refused - 1), WAIT_BLOCKS_MAX) if refused else tempo
    return tries[0].block + wait_blocks
