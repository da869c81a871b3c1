"""One episode worker: a process that runs evaluations for the supervisor, one at a time.

It holds no hotkey and no database connection, so a worker that dies loses one attempt and nothing else. It
ends at once when the supervisor's pipe closes, and its jail ends with it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import sys
import threading
import traceback
from pathlib import Path
from typing import BinaryIO

from arena.evaluate import EvaluatePorts, evaluate
from foundation.errors import ArenaError, Failure
from harness.inference.gateway import Ledger
from harness.inference.journal import FileJournal, MemoryJournal
from judge.client import MeteredJudge
from judge.panel import judge_body
from neurons.settings.endpoints import endpoints_of, prices_of
from neurons.worker.ports import (
    REQUESTS,
    EvaluationReply,
    FaultReply,
    Job,
    JudgeJob,
    Ready,
    Reply,
    Request,
    UsageNote,
    VerdictReply,
    WorkerSetup,
    encode_line,
    open_evaluate_ports,
)

_ORPHANED = 3  # exit status when the supervisor is gone


def main() -> None:
    """Serve requests from stdin until it closes."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # descriptor 1 is for replies; anything printed goes to stderr
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(sys.stdin.buffer, requests), daemon=True).start()
    setup = requests.get()
    assert isinstance(setup, WorkerSetup), "the first line is the set-up"
    try:
        ports = open_evaluate_ports(setup)
    except ArenaError as error:
        _send(replies, FaultReply(failure=error.failure))
        return
    _send(replies, Ready(sandbox=ports.sandbox.level))
    prices = prices_of(setup.upstreams, setup.judges)
    ledger = Ledger(lambda: _send(replies, UsageNote(usage=ledger.usage(prices))))
    places = [next((one.name for one in endpoints_of(judge.model, setup.judges)), "scripted") for judge in ports.judges]
    judges = (MeteredJudge(judge, ledger, at) for judge, at in zip(ports.judges, places, strict=True))
    ports = dataclasses.replace(ports, judges=tuple(judges), ledger=ledger)
    while True:
        job = requests.get()
        assert not isinstance(job, WorkerSetup), "a second set-up"
        ledger.clear()
        _send(replies, _answer(job, ports))


def _answer(job: Job, ports: EvaluatePorts) -> EvaluationReply | VerdictReply | FaultReply:
    try:
        if isinstance(job, JudgeJob):
            return VerdictReply(verdict=judge_body(job.body, ports.policy.rubric, ports.judges))
        with contextlib.closing(FileJournal(Path(job.journal)) if job.journal else MemoryJournal()) as journal:
            own = dataclasses.replace(
                ports,
                titles=job.titles or ports.titles,
                journal=journal,
                is_last=job.is_last,
            )
            return EvaluationReply(evaluation=evaluate(job.source, job.problem, own))
    except ArenaError as error:
        failure = error.failure
    except Exception as error:  # noqa: BLE001 - a bug of ours is a recorded V2004, never a score and never a silence
        traceback.print_exc()
        failure = Failure(code="V2004", detail=f"{type(error).__name__}: {error}"[:300])
    return FaultReply(failure=failure)


def _read_requests(stream: BinaryIO, requests: queue.SimpleQueue[Request]) -> None:
    for line in stream:
        requests.put(REQUESTS.decode(line))
    os._exit(_ORPHANED)


def _send(stream: BinaryIO, reply: Reply | UsageNote) -> None:
    stream.write(encode_line(reply))
    stream.flush()


if __name__ == "__main__":
    main()
