"""The watch over model endpoints and the judge's: do they answer.

Nothing is decided here, and nothing else waits for it. What does not answer is what the loop `models` or
`judge` waits for, from the node's start on, so that log and status name it with the reason; once it answers they say
nothing of it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine, Sequence

from foundation.codes.names import JUDGE_FAILED, MODEL_FAILED
from foundation.errors import ArenaError
from neurons.loops.run_loop import StopSignal, run_loop
from neurons.node.model_endpoints import silent_endpoints
from neurons.node.node import Node
from neurons.worker.protocol import Endpoint

TURN_S = 15.0


def endpoint_loops(node: Node, drain: StopSignal) -> list[Coroutine[None, None, None]]:
    """A loop for the model endpoints, one for the judge's where there is one."""
    if node.silent:
        drain.failed("models", ArenaError(MODEL_FAILED, "; ".join(node.silent)))

    async def require_answers(endpoints: Sequence[Endpoint], code: str) -> None:
        if silent := await asyncio.to_thread(silent_endpoints, endpoints):
            raise ArenaError(code, "; ".join(silent))

    watched = [("models", MODEL_FAILED, node.upstreams), ("judge", JUDGE_FAILED, (node.judge,) if node.judge else ())]
    return [
        run_loop(name, functools.partial(require_answers, them, code), drain, node.log, every_s=TURN_S)
        for name, code, them in watched
        if them
    ]
