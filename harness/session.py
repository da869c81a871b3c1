"""One episode: the host-side recorder between a jailed agent, the tools and the model.

`run_episode` returns the body of an evaluation record: what happened as this side saw it, whatever the agent
says of itself. The body holds no clock, host or random value, so equal inputs and equal completions give equal bytes. A
fault of ours is raised as an ArenaError and never becomes part of a body. It scores and judges nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from foundation.canonical import canonical_bytes, text_hash
from foundation.errors import ArenaError, Failure
from harness.emission.attribution import EMISSION, is_agentic
from harness.emission.call_reader import CallReader
from harness.errors import classify_guest
from harness.inference.gateway import ledger_sha256
from harness.inference.journal import MemoryJournal
from harness.inference.port import ModelGateway
from harness.limits import EpisodeLimits
from harness.recorder import Recorder
from harness.sandbox.port import GuestExit, GuestJob, Sandbox
from harness.tools.port import Toolbox
from harness.tools.registry import ENVIRONMENT, environment_problem
from harness.trace import EvaluationBody, Event, StopReason
from problems.model import Problem


def _unmeasured(_: Event) -> int:
    return 0


class EpisodePorts(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode works with. `clock` gives seconds, monotonic; it never reaches the body. `journal` is the
    gateway's, where the episode may be a restart."""

    toolbox: Toolbox
    gateway: ModelGateway
    sandbox: Sandbox
    shown_bytes: Callable[[Event], int] = _unmeasured  # of an event, at most, in the trace that a judge is shown
    clock: Callable[[], float] = time.monotonic
    journal: MemoryJournal | None = None


class EpisodeRules(msgspec.Struct, frozen=True, kw_only=True):
    """The policy's slice for an episode. `models` is what the agent is told it may ask for, preferred first."""

    policy_sha256: str
    catalogue_sha256: str
    limits: EpisodeLimits = EpisodeLimits()
    models: tuple[str, ...] = ()
    is_surfaced_rule_on: bool = True
    agentic_min_e4: int = 9_500


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """The body, and the host's facts beside it."""

    body: EvaluationBody
    exit: GuestExit
    model_ms: int
    tool_ms: int
    episode_ms: int


def run_episode(source: str, problem: Problem, ports: EpisodePorts, rules: EpisodeRules) -> Episode:
    """Run the agent `source` on `problem` in a fresh guest.

    Raises ArenaError: A1001 or A1004 for a source that no guest takes, V2002..V2004 and U3xxx for faults of ours, after
    which nothing of the episode counts.
    """
    try:
        size = len(source.encode())
    except UnicodeEncodeError as error:
        raise ArenaError("A1001", "the source holds lone surrogates") from error
    if size > rules.limits.source_bytes:
        raise ArenaError("A1004", f"{size} bytes; the limit is {rules.limits.source_bytes}")
    started_s = ports.clock()
    reader = CallReader(ports.toolbox.schemas)
    recorder = Recorder(
        ports.toolbox, ports.gateway, rules.limits, reader, ports.shown_bytes, problem.query, ports.clock
    )
    has_environment = ports.toolbox.profile == ENVIRONMENT
    view = environment_problem(problem, rules.limits) if has_environment else problem.view()
    job = GuestJob(
        source=source,
        problem=canonical_bytes(view).decode(),
        limits=rules.limits,
        tools=ports.toolbox.schemas,
        models=rules.models,
    )
    ended = ports.sandbox.run(job, recorder)
    stop, failure = _explain(ended, recorder, rules.limits)
    if failure is None and ports.journal is not None and ports.journal.owed():
        stop, failure = "diverged", Failure(code="A1044", detail="a restart leaves out what was answered before")
    calls = recorder.tool_calls()
    body = EvaluationBody(
        policy_sha256=rules.policy_sha256,
        problem_id=problem.problem_id,
        bucket=problem.bucket,
        query=problem.query,
        agent_sha256=text_hash(source),
        tool_profile=ports.toolbox.profile,
        tools_sha256=ports.toolbox.schemas_sha256,
        catalogue_sha256=rules.catalogue_sha256,
        messages=recorder.messages(),
        events=recorder.events(),
        stop=stop,
        failure=failure,
        claim=ended.claim.encode()[: rules.limits.claim_bytes].decode(errors="ignore"),
        recommended=recorder.recommended,
        unsurfaced=recorder.unsurfaced if rules.is_surfaced_rule_on else (),
        is_agentic=is_agentic(calls, recorder.recommended, recorder.recommending, minimum_e4=rules.agentic_min_e4),
        totals=recorder.totals(),
        emission=EMISSION,
        ledger_sha256=ledger_sha256(recorder.events()),
    )
    episode_ms = int((ports.clock() - started_s) * 1000)
    tool_ms = int(recorder.tool_s * 1000)
    return Episode(body=body, exit=ended, model_ms=recorder.model_ms, tool_ms=tool_ms, episode_ms=episode_ms)


def _explain(ended: GuestExit, recorder: Recorder, limits: EpisodeLimits) -> tuple[StopReason, Failure | None]:
    """Why the episode ended and whose failure that is. After terminate nothing the guest does changes it."""
    if recorder.is_terminated:
        return "terminated", _without_answer(recorder)
    if recorder.breach is not None:
        return recorder.breach
    stop, failure = classify_guest(ended, limits)
    if stop != "returned":
        return stop, failure
    return ("returned" if recorder.recommended is None else "terminated"), _without_answer(recorder)


def _without_answer(recorder: Recorder) -> Failure | None:
    return Failure(code="A1060") if recorder.recommended is None else None
