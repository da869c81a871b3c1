"""The one release rule: nothing about a problem leaves the validators before its batch is released.

Promise: everything that publishes (API, export, records on request, web) asks `may_leave`, and nothing else decides.
Trace, ids, outcome, reward and cluster of a problem all follow the state of its batch; counts alone are always public.
"""

from __future__ import annotations

from typing import Literal

BatchState = Literal["sealed", "drawn", "released"]
Audience = Literal["validators", "public"]


def batch_state(*, is_drawn: bool, is_race_over: bool) -> BatchState:
    """The state of a batch from its race. A race that ends, settled or cancelled, burns and releases its batch whole.

    A batch that was never drawn from stays sealed, whatever became of its race.
    """
    if not is_drawn:
        return "sealed"
    return "released" if is_race_over else "drawn"


def may_leave(state: BatchState, audience: Audience) -> bool:
    """Whether anything about a problem of a batch in `state` may reach `audience`.

    Validators need the problems of a drawn batch to race them; before the draw not even they pass them on.
    """
    if state == "released":
        return True
    return audience == "validators" and state == "drawn"
