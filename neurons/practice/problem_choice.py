"""Which problems an agent is run on on a miner's computer, over opened ports, with recorded or live completions."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import typer

from arena.evaluate import EvaluatePorts
from arena.policy import Policy
from foundation.codes.names import MODEL_FAILED
from foundation.errors import ArenaError
from harness.catalogue.port import Catalogue
from harness.inference.port import Upstream
from harness.inference.recorded import CompletionFile, RecordedUpstream
from neurons.node.model_endpoints import (
    SCRIPTED_PREFIX,
    check_endpoints,
    local_models,
    named_endpoints,
    open_endpoints,
)
from neurons.node.public_inputs import policy_of, prepare_suite, with_models
from neurons.node.settings import Settings
from neurons.node.wiring import open_local_ports, worker_setup
from neurons.practice.content_cache import ContentCache, cached_practice
from neurons.worker.capacity import usable_memory_bytes, worker_count
from neurons.worker.protocol import WorkerSetup
from problems.model import Problem
from problems.suites.formats import count_web, read_problems
from problems.suites.shipped import SUITES
from problems.suites.variants import VariantMaker

PRACTICE_SEED, PRACTICE_PER_BUCKET = 1, 20  # the same practice problems on every machine with the same catalogue
DEFAULT_COUNT = 6
_NOWHERE = "http://127.0.0.1:9/v1"  # stands for the endpoint where a recording answers alone; nothing is sent there

Asked = tuple[Problem, EvaluatePorts]


class RunFacts(NamedTuple):
    """What a run is told about its surroundings. `unreachable`: why the model endpoint does not answer, or "".
    `setups`: of the workers that run several problems at a time; none for one at a time, and for a recording, which is
    held in this process."""

    policy: str
    is_scripted: bool
    unreachable: str = ""
    setups: tuple[WorkerSetup, ...] = ()


class RunChoice(Protocol):
    """What was asked for on the command line."""

    @property
    def problem(self) -> Sequence[str]: ...
    @property
    def problems(self) -> Path | None: ...
    @property
    def suite(self) -> str | None: ...
    @property
    def count(self) -> int | None: ...
    @property
    def variant(self) -> str | None: ...
    @property
    def workers(self) -> int: ...
    @property
    def is_dealt(self) -> bool: ...
    @property
    def record(self) -> Path | None: ...
    @property
    def replay(self) -> Path | None: ...
    @property
    def is_web_skipped(self) -> bool: ...
    @property
    def is_missing_allowed(self) -> bool: ...


@contextlib.contextmanager
def opened_problems(
    settings: Settings, choice: RunChoice, cache: ContentCache
) -> Iterator[tuple[list[Asked], RunFacts]]:
    """The problems to run on, each with the ports that score it, and what there is to know.

    Raises typer.BadParameter for an id, a suite or a number that is not there, ArenaError P4001 to P4009 for a broken
    file, P4032 for a variant that can't be drawn, V2181 for a recording, U3001 or U3005 for an endpoint.
    """
    recording = _recording(settings, choice)
    is_alone = choice.replay is not None and choice.record is None
    if recording is not None:
        settings = settings.model_copy(update={"models": ",".join(recording.models)})
    if is_alone:
        settings = settings.model_copy(update={"openai_base_url": _NOWHERE, "upstreams": ()})
    policy = policy_of(settings)
    endpoints = named_endpoints(settings)
    is_scripted = not endpoints and all(model.startswith(SCRIPTED_PREFIX) for model in policy.inference.models)
    facts = RunFacts(policy=policy.name, is_scripted=is_scripted)
    if endpoints and not is_alone:
        try:
            silent = check_endpoints(endpoints, policy.inference.models, must_answer=True)
        except ArenaError as error:
            if error.failure.code != MODEL_FAILED:
                raise
            yield [], facts._replace(unreachable=error.failure.detail)
            return
        for line in silent:
            typer.echo(f"{line}; the others are asked", err=True)
    with contextlib.ExitStack() as stack:
        if choice.workers > 1 and recording is None:
            facts = facts._replace(
                setups=stack.enter_context(open_setups(settings, policy, choice.workers, choice.is_dealt))
            )
        ports = stack.enter_context(open_local_ports(settings, at_once=1 if facts.setups else choice.workers))
        if recording is not None:
            ports = dataclasses.replace(
                ports,
                upstreams=_recorded(ports.upstreams, recording, choice),
                dedicated={model: _recorded(own, recording, choice) for model, own in ports.dedicated.items()},
            )
        yield _asked(ports, settings, choice, cache), facts


@contextlib.contextmanager
def open_setups(settings: Settings, policy: Policy, workers: int, is_dealt: bool) -> Iterator[tuple[WorkerSetup, ...]]:
    """Of as many workers as memory holds with every jail at its limit, and the endpoints that they ask: in the order in
    which settings name them, or dealt, so that each worker begins with another one."""
    policy = with_models(policy, local_models(settings, policy))
    count = worker_count(workers, usable_memory_bytes(), policy.limits)
    if count < workers:
        typer.echo(f"memory holds {count} of {workers} workers", err=True)
    with open_endpoints(settings, policy) as (upstreams, judge):
        first = [slot % len(upstreams) if is_dealt else 0 for slot in range(count)]
        yield tuple(
            worker_setup(settings, policy, upstreams[place:] + upstreams[:place], judge, slot)
            for slot, place in enumerate(first, 1)
        )


def _recording(settings: Settings, choice: RunChoice) -> CompletionFile | None:
    if choice.record is None and choice.replay is None:
        return None
    if choice.record is not None and choice.replay not in (None, choice.record):
        raise typer.BadParameter("--record and --replay together name one file", param_hint="--record")
    path = choice.record or choice.replay
    assert path is not None
    return CompletionFile(path, policy_of(settings).inference.models, is_new=choice.record is not None)


def _recorded(upstreams: Sequence[Upstream], recording: CompletionFile, choice: RunChoice) -> tuple[Upstream, ...]:
    is_alone = choice.record is None
    return tuple(
        RecordedUpstream(recording, None if is_alone else live, is_replayed=choice.replay is not None)
        for live in upstreams
    )


def _asked(ports: EvaluatePorts, settings: Settings, choice: RunChoice, cache: ContentCache) -> list[Asked]:
    """The wanted problems, or the first `count`: of a suite, of a file, else with a seed for variants of the policy's
    suite, as a validator opens it, else practice problems, buckets in turn."""
    named = choice.suite or (str(choice.problems) if choice.problems and not choice.problems.exists() else "")
    if named and (choice.suite or named in SUITES):
        known: Sequence[Problem] = _shipped(named)
    elif choice.problems is not None:
        known = read_problem_file(choice.problems, is_web_skipped=choice.is_web_skipped)
    elif choice.variant is not None:
        known = prepare_suite(settings, policy_of(settings))
    else:
        known = cached_practice(cache, ports.catalogue, PRACTICE_SEED, PRACTICE_PER_BUCKET)
    by_id = {problem.problem_id: problem for problem in known}
    if missing := [name for name in choice.problem if name not in by_id]:
        raise typer.BadParameter(f"no problem {missing[0]}; there are {', '.join(list(by_id)[:3])} and others")
    count = choice.count or (len(known) if choice.suite else DEFAULT_COUNT)
    if choice.problems is None and count > len(known):
        raise typer.BadParameter(f"there are {len(known)} problems; give a file with --problems for more")
    chosen = [by_id[name] for name in choice.problem] if choice.problem else list(known[:count])
    refuse_missing(chosen, ports.catalogue, is_allowed=choice.is_missing_allowed)
    if choice.variant is None:
        return [(one, ports) for one in chosen]
    maker = VariantMaker(known, ports.catalogue.products())
    drawn = [maker.variant(problem.problem_id, choice.variant) for problem in chosen]
    return [(one.problem, dataclasses.replace(ports, titles=one.titles)) for one in drawn]


def read_problem_file(file: Path, *, is_web_skipped: bool) -> tuple[Problem, ...]:
    """The problems of a file. Says how many web rows were left out. Raises ArenaError P4001 to P4009."""
    try:
        lines = file.read_bytes().splitlines()
    except FileNotFoundError as error:
        known = ", ".join(SUITES)
        told = f"no suite and no file `{file}`; suites are {known}"
        raise ArenaError("P4001", told, fix="name one of them, or a problem file") from error
    except OSError as error:
        raise ArenaError("P4001", f"{file}: {error.strerror}", fix="check the file") from error
    problems = read_problems(lines, is_web_skipped=is_web_skipped)
    if is_web_skipped and (left_out := count_web(lines)):
        typer.echo(f"{left_out} web problems skipped, {len(problems)} left", err=True)
    return problems


def refuse_missing(problems: Sequence[Problem], catalogue: Catalogue, *, is_allowed: bool) -> None:
    """Say which problems ask for products that the catalogue lacks; no answer of theirs can be right.

    Raises ArenaError P4006 for any, unless `is_allowed`.
    """
    lacking = [
        (problem.problem_id, item.product_id)
        for problem in problems
        for item in problem.rewards
        if catalogue.product(item.product_id) is None
    ]
    if not lacking:
        return
    share = f"{len({name for name, _ in lacking})} of {len(problems)} problems"
    detail = f"{share}, such as {lacking[0][0]} with product {lacking[0][1]}"
    if not is_allowed:
        raise ArenaError("P4006", f"{detail}; name their catalogue with --catalogue, or run them with --allow-missing")
    typer.echo(f"note: the answers of {detail} are not in this catalogue: they can't be solved here", err=True)


def _shipped(name: str) -> Sequence[Problem]:
    from arena.bank.suite_signature import open_shipped
    from arena.chain.keys import verify

    if name not in SUITES:
        raise typer.BadParameter(f"no suite {name!r}; there are {', '.join(SUITES)}", param_hint="--suite")
    return open_shipped(name, verify).problems
