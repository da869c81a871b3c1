"""Which problems an agent is run on on a miner's computer, and what is kept of them in the user's cache folder.

A cached entry is found by everything that it follows from (recipe and code), so a stale one is never used; one that was
cut short or edited is made again. A folder that can't be written costs time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import typer

from arena.evaluate import EvaluatePorts
from arena.policy import Policy
from foundation.canonical import content_hash
from foundation.codes.names import MODEL_FAILED
from foundation.durable_files import write_whole
from foundation.errors import ArenaError
from harness.catalogue.port import Catalogue
from harness.inference.journal import CompletionFile, RecordedUpstream
from harness.inference.port import Upstream
from neurons.settings.endpoints import SCRIPTED_PREFIX, check_endpoints, local_models, named_endpoints, open_endpoints
from neurons.settings.inputs import policy_of, prepare_suite, with_models
from neurons.settings.settings import Settings
from neurons.worker.ports import open_local_ports, usable_memory_bytes, worker_count, worker_setup
from neurons.worker.protocol import WorkerSetup
from problems.formats import count_web, read_problems, write_problems
from problems.model import BUCKETS, Bucket, Problem
from problems.suites import SUITES, VariantMaker
from problems.synthesis import synthesize

_ROOT = Path(__file__).parents[2]
_CODE_ENDINGS = frozenset({".py", ".json", ".txt"})


def default_cache_dir() -> Path:
    """The user's cache folder: XDG_CACHE_HOME, else ~/.cache, and `agent-arena` in it. Makes nothing."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path("~/.cache").expanduser()) / "agent-arena"


class ContentCache:
    """Sealed texts by key in a folder. `say` gets a line for people when the folder can't be used."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say

    def text(self, kind: str, recipe: Sequence[object], make: Callable[[], str]) -> str:
        """The text that `make` gives for this recipe: from the folder, or made now and kept there."""
        path = self._folder / kind / content_hash([kind, code_sha256(), *recipe])[:32]
        if (found := unsealed(path)) is not None:
            return found
        text = make()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}".encode())
        except OSError as error:
            self._say(f"nothing is cached: {error.filename or path}: {error.strerror}")
        return text


def cached_practice(cache: ContentCache, catalogue: Catalogue, seed: int, per_bucket: int) -> tuple[Problem, ...]:
    """Practice problems over an open catalogue, `per_bucket` of each bucket, buckets in turn: never from a sealed
    batch, and the same for everybody with the same catalogue."""

    def make() -> str:
        counts: dict[Bucket, int] = dict.fromkeys(BUCKETS, per_bucket)
        made = synthesize(tuple(catalogue.products()), seed=seed, counts=counts)
        return "".join(f"{line}\n" for line in write_problems(made))

    recipe = (catalogue.content_sha256, seed, per_bucket)
    known = read_problems(cache.text("practice", recipe, make).encode().splitlines())
    return tuple(one for offset in range(per_bucket) for one in known[offset::per_bucket])


@functools.cache
def code_sha256() -> str:
    """sha256 hex over the files that problems are made by: every one of the room `problems`, and of the catalogues."""
    digest = hashlib.sha256()
    for folder in ("problems", "harness/catalogue"):
        for path in sorted((_ROOT / folder).rglob("*")):
            if path.suffix in _CODE_ENDINGS and "shipped" not in path.parts:
                content = path.read_bytes()
                digest.update(f"{path.relative_to(_ROOT)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def unsealed(path: Path) -> str | None:
    """The text of an entry; None where there is none, or it is not what its seal says."""
    try:
        seal, _, text = path.read_text("utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None  # it is made again
    return text if hashlib.sha256(text.encode()).hexdigest() == seal else None


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
    """What was asked for on the command line, by its options' names."""

    @property
    def problem(self) -> Sequence[str] | None: ...
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
    def record(self) -> Path | None: ...
    @property
    def replay(self) -> Path | None: ...
    @property
    def skip_web(self) -> bool: ...
    @property
    def allow_missing(self) -> bool: ...


@contextlib.contextmanager
def opened_problems(
    settings: Settings, choice: RunChoice, cache: ContentCache, *, is_dealt: bool
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
            facts = facts._replace(setups=stack.enter_context(open_setups(settings, policy, choice.workers, is_dealt)))
        ports = stack.enter_context(open_local_ports(settings))
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
        known = read_problem_file(choice.problems, is_web_skipped=choice.skip_web)
    elif choice.variant is not None:
        known = prepare_suite(settings, policy_of(settings))
    else:
        known = cached_practice(cache, ports.catalogue, PRACTICE_SEED, PRACTICE_PER_BUCKET)
    by_id = {problem.problem_id: problem for problem in known}
    if missing := [name for name in choice.problem or () if name not in by_id]:
        raise typer.BadParameter(f"no problem {missing[0]}; there are {', '.join(list(by_id)[:3])} and others")
    count = choice.count or (len(known) if choice.suite else DEFAULT_COUNT)
    if choice.problems is None and count > len(known):
        raise typer.BadParameter(f"there are {len(known)} problems; give a file with --problems for more")
    chosen = [by_id[name] for name in choice.problem] if choice.problem else list(known[:count])
    refuse_missing(chosen, ports.catalogue, is_allowed=choice.allow_missing)
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
