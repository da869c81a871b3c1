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
    return _read_state(events[-1] if events else "")


async def put_pause(store: Store, state: PauseState) -> None:
    """Change the state. Raises ArenaError V2022 when somebody else changed it at the same moment."""
    events = await store.events(STREAM)
    await store.put_event(STREAM, len(events), msgspec.json.encode(state).decode())


def require_open(event: str) -> None:
    """Return where submissions are taken after this event, the stream's last. Raises ArenaError V2200 with the
    operator's reason."""
    state = _read_state(event)
    if state.is_paused:
        raise ArenaError("V2200", state.reason)


def _read_state(event: str) -> PauseState:
    return msgspec.json.decode(event, type=PauseState) if event else PauseState()
