"""Lines between the supervisor and its episode workers: JSON, one typed value each.

Keys travel in `WorkerSetup` over the pipe, never on a command line or in an environment; a line is decoded
to a known struct or refused. A child's environment holds no keys.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from arena.evaluate import Evaluation
from arena.policy import Policy
from foundation.errors import Failure
from harness.inference.gateway import ModelUsage
from harness.sandbox.port import SandboxLevel
from harness.trace import EvaluationBody
from judge.budget import Spending
from judge.client import DEFAULT_PATIENCE, RetryPolicy
from judge.verdict import UnscoredVerdict, Verdict
from neurons.settings.settings import Endpoint
from problems.model import Problem
from problems.titles import AcceptedTitles

_ROOT = Path(__file__).resolve().parents[2]
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "DSN")


def child_environment(*, kept_prefix: str = "") -> dict[str, str]:
    """This process's environment without what may be a secret by its name; names with `kept_prefix` stay. A child gets
    its endpoints and its DSN over a pipe."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if (kept_prefix and name.startswith(kept_prefix)) or not any(part in name.upper() for part in _SECRET)
    }
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**plain, "PYTHONPATH": path}


class WorkerSetup(msgspec.Struct, frozen=True, kw_only=True, tag="setup"):
    """First line to a worker: everything it needs to open its ports. `slot` separates workers' jails."""

    slot: int
    policy: Policy
    guest_dir: str
    catalogue_dir: str
    titles_file: str = ""  # the suite's accepted titles; empty: lexical/1
    sandbox: str
    upstreams: tuple[Endpoint, ...]
    judge: Endpoint | None = None
    judge_patience: RetryPolicy = DEFAULT_PATIENCE


class EvaluateJob(msgspec.Struct, frozen=True, kw_only=True, tag="evaluate"):
    """Run an agent on a problem, score it and judge it.

    `journal` is the file of what earlier attempts were answered; empty: none is kept. `is_last`: the policy allows no
    attempt after this one.
    """

    source: str
    problem: Problem
    titles: AcceptedTitles | None = None  # of this problem, as its batch carries them; None: the worker's own matcher
    journal: str = ""
    is_last: bool = False
    unjudged: Failure | None = None  # why nobody's trace of this problem is judged now; None: it is


class JudgeJob(msgspec.Struct, frozen=True, kw_only=True, tag="judge"):
    """Judge a stored body whose verdict is owed."""

    body: EvaluationBody


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The worker's ports are open, and this is the jail it reached."""

    sandbox: SandboxLevel


class Evaluated(msgspec.Struct, frozen=True, kw_only=True, tag="evaluated"):
    """An evaluation came to its end; the agent's own faults are inside it."""

    evaluation: Evaluation
    usage: tuple[ModelUsage, ...] = ()
    judging: Spending = Spending()  # what the verdict cost


class Judged(msgspec.Struct, frozen=True, kw_only=True, tag="judged"):
    """A verdict on a stored body, or why there is none."""

    verdict: Verdict | UnscoredVerdict
    judging: Spending = Spending()


class Faulted(msgspec.Struct, frozen=True, kw_only=True, tag="faulted"):
    """A fault of ours or of an upstream; nothing is scored."""

    failure: Failure
    usage: tuple[ModelUsage, ...] = ()


Job = EvaluateJob | JudgeJob
Request = WorkerSetup | Job
Reply = Ready | Evaluated | Judged | Faulted

LINE_BYTES_MAX = 256 << 20
REQUESTS: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
REPLIES: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


def encode_line(value: Request | Reply) -> bytes:
    """One value with its line break."""
    return msgspec.json.encode(value) + b"\n"
