"""One episode worker: a process that runs evaluations for the supervisor, one at a time.

It holds no hotkey and no database connection, so a worker that dies loses one attempt and nothing else. It
ends at once when the supervisor's pipe closes, and its jail ends with it.
"""

from __future__ import annotations

import dataclasses
import os
import queue
import sys
import threading
from collections.abc import Mapping
from typing import BinaryIO

from foundation.errors import ArenaError, Failure
from harness.inference.gateway import UpstreamPrice
from judge.budget import JudgeMeter, MeteredJudge
from judge.verdict import Verdict
from neurons.worker.protocol import (
    LENGTH_BYTES,
    REQUESTS,
    Evaluated,
    Faulted,
    Judged,
    JudgeJob,
    Ready,
    Reply,
    Request,
    WorkerSetup,
    encode_frame,
    frame_length,
)

ORPHANED = 3  # exit status when the supervisor is gone


def main() -> None:
    """Serve requests from stdin until it closes."""
    replies: BinaryIO = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # descriptor 1 is for frames; anything printed goes to stderr
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(sys.stdin.buffer, requests), daemon=True).start()
    setup = requests.get()
    if not isinstance(setup, WorkerSetup):
        raise SystemExit("the first frame must be the set-up")
    from neurons.worker.ports import open_evaluate_ports

    try:
        ports = open_evaluate_ports(setup)
    except ArenaError as error:
        _send(replies, Faulted(failure=error.failure))
        return
    _send(replies, Ready(sandbox=ports.sandbox.level))
    prices = {one.name: one.price for one in setup.upstreams if one.price is not None}
    meter = JudgeMeter()
    ports = dataclasses.replace(ports, judges=tuple(MeteredJudge(judge, meter) for judge in ports.judges))
    while True:
        _send(replies, _answer(requests.get(), ports, prices, meter))


def _answer(request: Request, ports: object, prices: Mapping[str, UpstreamPrice], meter: JudgeMeter) -> Reply:
    from arena.evaluate import EvaluatePorts, evaluate
    from harness.inference.gateway import Ledger
    from harness.inference.journal import open_journal
    from judge.panel import judge_body

    assert isinstance(ports, EvaluatePorts)
    if isinstance(request, WorkerSetup):
        raise SystemExit("a second set-up")
    ledger = Ledger()
    try:
        if isinstance(request, JudgeJob):
            verdict = judge_body(request.body, ports.policy.rubric, ports.judges)
            return Judged(verdict=verdict, judging=meter.take(int(isinstance(verdict, Verdict))))
        with open_journal(request.journal) as journal:
            own = dataclasses.replace(
                ports,
                titles=request.titles or ports.titles,
                journal=journal,
                ledger=ledger,
                is_last=request.is_last,
                unjudged=request.unjudged,
            )
            evaluation = evaluate(request.source, request.problem, own)
        judged = int(isinstance(evaluation.verdict, Verdict))
        return Evaluated(evaluation=evaluation, usage=ledger.usage(prices), judging=meter.take(judged))
    except ArenaError as error:
        return Faulted(failure=error.failure, usage=ledger.usage(prices))
    except Exception as error:  # noqa: BLE001 - a bug of ours is a recorded V2004, never a score and never a silence
        import traceback

        traceback.print_exc()
        failure = Failure(code="V2004", detail=f"{type(error).__name__}: {error}"[:300])
        return Faulted(failure=failure, usage=ledger.usage(prices))


def _read_requests(stream: BinaryIO, requests: queue.SimpleQueue[Request]) -> None:
    while True:
        prefix = stream.read(LENGTH_BYTES)
        if len(prefix) < LENGTH_BYTES:
            os._exit(ORPHANED)
        body = stream.read(frame_length(prefix))
        requests.put(REQUESTS.decode(body))


def _send(stream: BinaryIO, reply: Reply) -> None:
    view = memoryview(encode_frame(reply))
    while view:
        view = view[stream.write(view) :]


if __name__ == "__main__":
    main()
