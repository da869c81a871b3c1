"""The composition root of an evaluation: settings in, open ports out; and how many may run on this host.

Miner, validator and demo get their ports from the same functions, so a local score comes from the validator's code. A
node never starts more workers than its memory holds with every jail at its limit, so that no agent is ended for memory
that another one took.

Between the supervisor and its workers go lines of JSON, one typed value each. Keys travel in `WorkerSetup` over the
pipe, never on a command line or in an environment; a line is decoded to a known struct or refused.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from arena.evaluate import EvaluatePorts, Evaluation
from arena.policy import Policy
from foundation.codes import NO_ENDPOINT
from foundation.errors import ArenaError, Failure
from harness.agents.registry import reference_sha256s
from harness.catalogue.native import open_catalogue
from harness.inference.client import OpenAIUpstream
from harness.inference.gateway import ModelUsage
from harness.inference.scripted.model import ScriptedUpstream
from harness.limits import EpisodeLimits
from harness.sandbox.port import SandboxLevel
from harness.sandbox.probe import open_sandbox
from harness.sandbox.processes import own_groups
from harness.trace import EvaluationBody
from judge.client import DEFAULT_PATIENCE, OpenAIJudge, RetryPolicy
from judge.render import Judge
from judge.rubric import Rubric
from judge.scripted import ScriptedJudge
from judge.verdict import UnscoredVerdict, Verdict
from neurons.settings.endpoints import SCRIPTED_PREFIX, chosen_endpoints, endpoints_of, local_models
from neurons.settings.inputs import catalogue_path, open_titles, policy_of, prepare_catalogue, titles_file, with_models
from neurons.settings.settings import Endpoint, Settings
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
    slots_dir: str  # where all workers keep to an endpoint's requests at once
    judges: tuple[Endpoint, ...] = ()
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


class JudgeJob(msgspec.Struct, frozen=True, kw_only=True, tag="judge"):
    """Judge a stored body whose verdict is owed."""

    body: EvaluationBody


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The worker's ports are open, and this is the jail it reached."""

    sandbox: SandboxLevel


class EvaluationReply(msgspec.Struct, frozen=True, kw_only=True, tag="evaluated"):
    """An evaluation came to its end; the agent's own faults are inside it."""

    evaluation: Evaluation


class VerdictReply(msgspec.Struct, frozen=True, kw_only=True, tag="judged"):
    """A verdict on a stored body, or why there is none."""

    verdict: Verdict | UnscoredVerdict


class FaultReply(msgspec.Struct, frozen=True, kw_only=True, tag="faulted"):
    """A fault of ours or of an upstream; nothing is scored."""

    failure: Failure


class UsageNote(msgspec.Struct, frozen=True, kw_only=True, tag="spent"):
    """After each request to a model, before the answer: what the job's requests came to so far."""

    usage: tuple[ModelUsage, ...]


Job = EvaluateJob | JudgeJob
Request = WorkerSetup | Job
Reply = Ready | EvaluationReply | VerdictReply | FaultReply

LINE_BYTES_MAX = 256 << 20
REQUESTS: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
REPLIES: msgspec.json.Decoder[Reply | UsageNote] = msgspec.json.Decoder(Reply | UsageNote)


def encode_line(value: Request | Reply | UsageNote) -> bytes:
    """One value with its line break."""
    return msgspec.json.encode(value) + b"\n"


WORKER_BYTES = 400 << 20  # a worker's own memory: interpreter, index pages it touches, one episode's record
RESERVED_BYTES = 1 << 30  # supervisor, store and the rest of the host


def worker_count(wanted: int, memory_bytes: int, limits: EpisodeLimits) -> int:
    """Workers to start where `wanted` (the cores, or the operator's number) are asked for: as many as fit, or one."""
    return max(1, min(wanted, (memory_bytes - RESERVED_BYTES) // episode_bytes(limits)))


def episode_bytes(limits: EpisodeLimits) -> int:
    """What one episode takes at most: a worker, and a jail at its limits."""
    return WORKER_BYTES + limits.memory_bytes + limits.disk_bytes


def episode_deadline_s(policy: Policy) -> float:
    """How long one evaluation may take before its worker counts as stuck: the agent's own time, every completion and
    every judge's opinion, each at all its attempts and pauses."""
    limits, inference, patience = policy.limits, policy.inference, DEFAULT_PATIENCE
    completion_ms = inference.attempts * (inference.attempt_timeout_ms + inference.retry_after_max_ms)
    opinion_ms = patience.attempts * (patience.timeout_ms + patience.retry_after_max_ms)
    models_ms = limits.completions_max * completion_ms + len(policy.rubric.models) * opinion_ms
    return (limits.agent_time_ms + models_ms) / 1_000


def usable_memory_bytes() -> int:
    """Memory of the host, or of the control group that this process lives in when that has less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    groups = own_groups()
    return min(total, (groups and groups.memory_limit_bytes()) or total)


def open_evaluate_ports(setup: WorkerSetup, *, at_once: int = 1) -> EvaluatePorts:
    """The ports of `arena.evaluate`; `at_once` threads may use them at a time, each with a jail of its own.

    Raises ArenaError V2001 (no jail), V2010 (index), U3001 (no model endpoint).
    """
    timeout_ms = setup.policy.inference.attempt_timeout_ms
    opened = {
        one.name: OpenAIUpstream(
            one.name,
            one.base_url,
            one.api_key,
            timeout_ms,
            at_once=one.requests_at_once,
            slots=Path(setup.slots_dir, one.name),
        )
        for one in setup.upstreams
    }
    scripted = () if setup.upstreams else (ScriptedUpstream(),)
    sandbox = open_sandbox(
        Path(setup.guest_dir),
        reference_sha256s=reference_sha256s(),
        slots=at_once,
        wanted=setup.sandbox,
        ahead=at_once,
    )
    return EvaluatePorts(
        policy=setup.policy,
        catalogue=open_catalogue(Path(setup.catalogue_dir)),
        titles=open_titles(setup.titles_file),
        sandbox=sandbox,
        upstreams=tuple(opened[one.name] for one in setup.upstreams if not one.models) or scripted,
        dedicated={
            model: tuple(opened[one.name] for one in endpoints_of(model, setup.upstreams))
            for model in dict.fromkeys(model for one in setup.upstreams for model in one.models)
        },
        judges=open_judges(setup.policy.rubric, setup.judges, setup.judge_patience),
    )


def open_local_ports(settings: Settings, *, at_once: int = 1) -> EvaluatePorts:
    """The ports of a miner: the validator's own, in this process, for `at_once` threads."""
    prepare_catalogue(settings)
    policy = policy_of(settings)
    policy = with_models(policy, local_models(settings, policy))
    setup = worker_setup(settings, policy, *chosen_endpoints(settings, policy), slot=0)
    return dataclasses.replace(open_evaluate_ports(setup, at_once=at_once), is_last=True)  # a miner makes one attempt


def worker_setup(
    settings: Settings, policy: Policy, upstreams: tuple[Endpoint, ...], judges: tuple[Endpoint, ...], slot: int
) -> WorkerSetup:
    """What one episode worker needs."""
    return WorkerSetup(
        slot=slot,
        policy=policy,
        guest_dir=str(settings.guest_dir or settings.state_dir),
        catalogue_dir=str(catalogue_path(settings)),
        titles_file=titles_file(settings),
        sandbox=settings.sandbox,
        upstreams=upstreams,
        slots_dir=str(settings.state_dir / "upstreams"),
        judges=judges,
        judge_patience=RetryPolicy(
            reasoning_tokens=settings.judge_reasoning_tokens, reasoning_effort=settings.judge_reasoning_effort
        ),
    )


def open_judges(
    rubric: Rubric, endpoints: Sequence[Endpoint] = (), patience: RetryPolicy = DEFAULT_PATIENCE
) -> tuple[Judge, ...]:
    """One judge per model of the rubric; scripted ones need no endpoint. Raises ArenaError U3001 without one."""
    judges: list[Judge] = []
    for model in rubric.models:
        endpoint = next(iter(endpoints_of(model, endpoints)), None)
        if endpoint is None:
            if not model.startswith(SCRIPTED_PREFIX):
                fix = "set judge_base_url (`arena judge`: --base-url), or give an entry of [[upstreams]] the role judge"
                raise ArenaError(NO_ENDPOINT, f"the rubric names {model} and no judge endpoint is set", fix=fix)
            judges.append(ScriptedJudge(model=model))
        else:
            judges.append(
                OpenAIJudge(model=model, base_url=endpoint.base_url, api_key=endpoint.api_key, patience=patience)
            )
    return tuple(judges)
