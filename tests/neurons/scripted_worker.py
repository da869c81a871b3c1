"""A worker process that runs no agent, over the lines of a real one.

`python -m tests.neurons.scripted_worker`; SCRIPTED_WORKER names a folder. A problem, or a body to judge, that a file
of it is named after ends the process in the middle of the job, or never gets an answer where that file says `hang`.
While there is a file `sick`, or `sick-SLOT`, no worker starts, as where its jail's self-test fails. Each start leaves a
line in `starts`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from msgspec.structs import replace

from arena.evaluate import EpisodeCost, Evaluation
from foundation.errors import Failure
from judge.verdict import Verdict
from neurons.worker import ports
from problems.model import UnscoredOutcome
from tests.arena import log_stand


def main() -> None:
    """Serve until the pipe closes."""
    setup, folder = _next(), Path(os.environ["SCRIPTED_WORKER"])
    assert isinstance(setup, ports.WorkerSetup)
    with (folder / "starts").open("a") as starts:
        starts.write(f"{setup.slot}\n")
    if (folder / "sick").exists() or (folder / f"sick-{setup.slot}").exists():
        _send(ports.FaultReply(failure=Failure(code="V2002", detail="the self-test failed")))
        return
    level = log_stand.LEVEL
    _send(ports.Ready(sandbox=level))
    while True:
        job = _next()
        assert isinstance(job, ports.Job)
        name = job.body.body_hash() if isinstance(job, ports.JudgeJob) else job.problem.problem_id
        if (fatal := folder / name).exists():
            while fatal.read_text() == "hang":
                time.sleep(1)
            os._exit(9)
        if isinstance(job, ports.JudgeJob):
            verdict = Verdict(
                body_sha256=name,
                rubric_id=setup.policy.rubric.rubric_id,
                prompt_sha256=setup.policy.rubric.prompt_sha256,
                quality_e4=9_000,
                coefficient_e4=10_000,
                spread_e4=0,
                opinions=(),
            )
            _send(ports.VerdictReply(verdict=verdict))
            continue
        body, broken = replace(log_stand.body(1), problem_id=name), Failure(code="P4006")
        evaluation = Evaluation(
            body=body,
            outcome=UnscoredOutcome(failure=broken),
            verdict=None,
            status="unscored",
            failure=broken,
            sandbox=level,
            cost=EpisodeCost(),
        )
        _send(ports.EvaluationReply(evaluation=evaluation))


def _next() -> ports.Request:
    line = sys.stdin.buffer.readline()
    if not line:
        raise SystemExit
    return ports.REQUESTS.decode(line)


def _send(reply: ports.Reply) -> None:
    sys.stdout.buffer.write(ports.encode_line(reply))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
