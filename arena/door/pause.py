"""The operator's switch: whether this validator takes submissions, and why not. Events in the store, so that every
process of the node and the next start see it."""

from __future__ import annotations

import msgspec

from arena.store.port import Store
from foundation.errors import ArenaError

STREAM = "door"
REASON_CHARS_MAX = 500


class PauseState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether submissions are taken. `reason` is shown to every miner that is turned away."""

    is_paused: bool = False
    reason: str = ""
    since_ms: int = 0  # unix milliseconds


async def read_pause(store: Store) -> PauseState:
    """The state now."""
    events = await store.events(STREAM)
    return msgspec.json.decode(events[-1], type=PauseState) if events else PauseState()


async def put_pause(store: Store, state: PauseState) -> None:
    """Change the state. Raises ArenaError V2022 when somebody else changed it at the same moment."""
    events = await store.events(STREAM)
    await store.put_event(STREAM, len(events), msgspec.json.encode(state).decode())


async def require_open(store: Store) -> None:
    """Return while submissions are taken. Raises ArenaError V2200 with the operator's reason."""
    state = await read_pause(store)
    if state.is_paused:
        raise ArenaError("V2200", state.reason)
