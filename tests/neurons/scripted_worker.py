"""A worker process that runs no agent, over the frames of a real one.

`python -m tests.neurons.scripted_worker`; SCRIPTED_WORKER names a folder. A problem, or a body to judge, that a file
of it is named after ends the process in the middle of the job, or never gets an answer where that file says `hang`;
where it says `settle`, only what follows the episode does, and where it says `away`, only the episode on another
machine. While there is a file `sick`, or `sick-SLOT`, no worker starts, as where its jail's self-test fails; while
there is `cut`, other machines reach no model endpoint. Each start leaves a line in `starts`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from msgspec.structs import replace

from arena.evaluate import EpisodeCost, Evaluation, RanEpisode
from foundation.errors import Failure
from judge.verdict import Verdict
from neurons.worker.protocol import (
    LENGTH_BYTES,
    EpisodeJob,
    Evaluated,
    Faulted,
    Job,
    Judged,
    JudgeJob,
    Ran,
    Ready,
    Reply,
    Request,
    WorkerSetup,
    decode_request,
    encode_frame,
    frame_length,
)
from problems.scoring.outcome import UnscoredOutcome
from tests.arena import log_stand


def main() -> None:
    """Serve until the pipe closes."""
    setup, folder = _next(), Path(os.environ["SCRIPTED_WORKER"])
    assert isinstance(setup, WorkerSetup)
    with (folder / "starts").open("a") as starts:
        starts.write(f"{setup.slot}\n")
    if (folder / "sick").exists() or (folder / f"sick-{setup.slot}").exists():
        _send(Faulted(job_id="", failure=Failure(code="V2002", detail="the self-test failed")))
        return
    if setup.is_away and (folder / "cut").exists():
        _send(Faulted(job_id="", failure=Failure(code="U3002", detail="connection refused")))
        return
    level = log_stand.LEVEL
    _send(Ready(process_id=os.getpid(), sandbox=level, catalogue_sha256="0" * 64, release="this"))
    while True:
        job = _next()
        assert isinstance(job, Job)
        name = job.job_id if isinstance(job, JudgeJob) else job.problem.problem_id
        if isinstance(job, EpisodeJob) and (folder / "cut").exists():
            _send(Faulted(job_id=job.job_id, failure=Failure(code="U3002", detail="connection refused")))
            continue
        spares = "settle" if isinstance(job, EpisodeJob) else "away"
        if (fatal := folder / name).exists() and fatal.read_text() != spares:
            while fatal.read_text() == "hang":
                time.sleep(1)
            os._exit(9)
        if isinstance(job, JudgeJob):
            verdict = Verdict(
                body_sha256=job.job_id,
                rubric_id=setup.policy.rubric.rubric_id,
                prompt_sha256=setup.policy.rubric.prompt_sha256,
                quality_e4=9_000,
                coefficient_e4=10_000,
                spread_e4=0,
                opinions=(),
            )
            _send(Judged(job_id=job.job_id, verdict=verdict))
            continue
        body, broken = replace(log_stand.body(1), problem_id=name), Failure(code="P4006")
        if isinstance(job, EpisodeJob):
            _send(Ran(job_id=job.job_id, ran=RanEpisode(body=body, sandbox=level, cost=EpisodeCost())))
            continue
        evaluation = Evaluation(
            body=body,
            outcome=UnscoredOutcome(failure=broken),
            verdict=None,
            status="unscored",
            failure=broken,
            sandbox=level,
            cost=EpisodeCost(),
        )
        _send(Evaluated(job_id=job.job_id, evaluation=evaluation))


def _next() -> Request:
    prefix = sys.stdin.buffer.read(LENGTH_BYTES)
    if len(prefix) < LENGTH_BYTES:
        raise SystemExit
    return decode_request(sys.stdin.buffer.read(frame_length(prefix)))


def _send(reply: Reply) -> None:
    sys.stdout.buffer.write(encode_frame(reply))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
