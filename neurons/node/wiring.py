"""The composition root: settings in, open ports out. The only place that chooses adapters.

Miner, validator and demo get their ports from the same functions, so a local score comes from the
validator's code. Everything opened here is closed by leaving the context manager.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from arena.chain.port import is_local
from arena.evaluate import EvaluatePorts
from arena.policy import Policy
from foundation.errors import ArenaError
from harness.inference.scripted.upstream import ScriptedUpstream
from harness.sandbox.port import GuestChoice
from judge.client import DEFAULT_PATIENCE, OpenAIJudge, RetryPolicy
from judge.port import Judge
from judge.rubric import Rubric
from neurons.node.model_endpoints import SCRIPTED_PREFIX, endpoints_of, local_models, open_endpoints
from neurons.node.public_inputs import catalogue_path, policy_of, prepare_catalogue, suite_folder, with_models
from neurons.node.settings import Settings
from neurons.worker.protocol import Endpoint, WorkerSetup

if TYPE_CHECKING:
    from arena.chain.port import Signer, Subtensor
    from problems.scoring.title_matching import TitleMatcher


@contextlib.contextmanager
def open_evaluate_ports(setup: WorkerSetup, *, at_once: int = 1) -> Iterator[EvaluatePorts]:
    """The ports of `arena.evaluate`; `at_once` threads may use them at a time, each with a jail of its own.

    Raises ArenaError V2001 (no jail), V2010 or V2011 (index), U3001 (no model endpoint).
    """
    from harness.agents.registry import reference_sha256s
    from harness.catalogue.engines.native import open_catalogue
    from harness.inference.client import OpenAIUpstream
    from harness.inference.slots import RequestSlots
    from harness.sandbox.probing.probe import open_sandbox

    timeout_ms = setup.policy.inference.attempt_timeout_ms
    opened = {
        one.name: OpenAIUpstream(
            name=one.name,
            base_url=one.base_url,
            api_key=one.api_key,
            timeout_ms=timeout_ms,
            slots=RequestSlots(Path(one.slots_dir), one.requests_at_once, timeout_ms) if one.requests_at_once else None,
        )
        for one in setup.upstreams
    }
    sandbox = open_sandbox(
        Path(setup.guest_dir),
        reference_sha256s=reference_sha256s(),
        slots=at_once,
        wanted=setup.sandbox,
        choice=setup.guest,
        ahead=at_once,
    )
    yield EvaluatePorts(
        policy=setup.policy,
        catalogue=open_catalogue(Path(setup.catalogue_dir)),
        titles=open_titles(setup.titles_file),
        sandbox=sandbox,
        upstreams=tuple(opened[one.name] for one in setup.upstreams if not one.models),
        dedicated={
            model: tuple(opened[one.name] for one in endpoints_of(model, setup.upstreams))
            for model in dict.fromkeys(model for one in setup.upstreams for model in one.models)
        },
        judges=open_judges(setup.policy.rubric, setup.judge, setup.judge_patience),
    )


@contextlib.contextmanager
def open_local_ports(settings: Settings, *, at_once: int = 1) -> Iterator[EvaluatePorts]:
    """The ports of a miner: the validator's own, in this process, for `at_once` threads."""
    prepare_catalogue(settings)
    policy = policy_of(settings)
    policy = with_models(policy, local_models(settings, policy))
    with open_endpoints(settings, policy, is_served=False) as (upstreams, judge):
        setup = worker_setup(settings, policy, upstreams, judge, slot=0)
        with open_evaluate_ports(setup, at_once=at_once) as ports:
            if not upstreams:
                ports = dataclasses.replace(ports, upstreams=(ScriptedUpstream(),))
            yield dataclasses.replace(ports, is_last=True)  # a miner makes one attempt


def worker_setup(
    settings: Settings, policy: Policy, upstreams: tuple[Endpoint, ...], judge: Endpoint | None, slot: int
) -> WorkerSetup:
    """What one episode worker needs."""
    return WorkerSetup(
        slot=slot,
        policy=policy,
        guest_dir=str(settings.guest_dir or settings.state_dir),
        catalogue_dir=str(catalogue_path(settings)),
        titles_file=titles_file(settings),
        sandbox=settings.sandbox,
        guest=guest_choice(settings, policy),
        upstreams=upstreams,
        judge=judge,
        judge_patience=RetryPolicy(
            reasoning_tokens=settings.judge_reasoning_tokens, reasoning_effort=settings.judge_reasoning_effort
        ),
    )


def guest_choice(settings: Settings, policy: Policy) -> GuestChoice:
    """What the policy allows a guest, and the container this node may run it in."""
    return GuestChoice(
        packages=policy.guest.packages,
        docker_image=settings.docker_image,
        docker_runtime=settings.docker_runtime,
    )


def held_path(state_dir: Path) -> Path:
    """Where a node keeps the logs it pulled from other validators."""
    return state_dir / "held"


def shared_titles_folder(settings: Settings) -> Path:
    """Where title releases of the operator stand."""
    return settings.state_dir / "titles"


def titles_file(settings: Settings) -> str:
    """The accepted titles of the suite, or "" for `lexical/1` on the local network. A race's batch brings its own.

    On a real network they stand beside the suite and are signed with it. The local network takes a release beside the
    index, else the operator's, which also serve batches that were sealed without titles. Raises ArenaError V2040 on a
    real network without them: its scores would not be other validators' scores.
    """
    if is_local(settings.network):
        places = (catalogue_path(settings), shared_titles_folder(settings))
        return next((str(folder / "titles.json") for folder in places if (folder / "titles.json").exists()), "")
    release = suite_folder(settings) / f"{policy_of(settings).qualifying.suite}.titles.json"
    if not release.exists():
        raise ArenaError("V2040", f"no accepted titles at {release}")
    return str(release)


def open_titles(path: str) -> TitleMatcher:
    """The matcher of a release file, or `lexical/1` for "". Raises ArenaError P4012 for a malformed release."""
    from problems.scoring.title_matching import LexicalTitles, decode_accepted

    return decode_accepted(Path(path).read_bytes()) if path else LexicalTitles()


def open_released_titles(settings: Settings) -> TitleMatcher:
    """The accepted titles of everything public: `titles*.json` beside the index (a suite's, and those of released
    batches) and of the operator's release, or `lexical/1` where there are none. Raises ArenaError P4012 for a malformed
    release."""
    from problems.scoring.title_matching import JoinedTitles, LexicalTitles, decode_accepted

    folders = (catalogue_path(settings), shared_titles_folder(settings))
    paths = [path for folder in folders for path in sorted(folder.glob("titles*.json"))]
    releases = tuple(decode_accepted(path.read_bytes()) for path in paths)
    return JoinedTitles(releases) if releases else LexicalTitles()


def open_judges(
    rubric: Rubric, endpoint: Endpoint | None, patience: RetryPolicy = DEFAULT_PATIENCE
) -> tuple[Judge, ...]:
    """One judge per model of the rubric; scripted ones need no endpoint. Raises ArenaError U3020 without one."""
    from judge.scripted import ScriptedJudge

    judges: list[Judge] = []
    for model in rubric.models:
        if endpoint is None:
            if not model.startswith(SCRIPTED_PREFIX):
                raise ArenaError("U3020", f"the rubric names {model} and no judge endpoint is set")
            judges.append(ScriptedJudge(model=model))
        else:
            judges.append(
                OpenAIJudge(model=model, base_url=endpoint.base_url, api_key=endpoint.api_key, patience=patience)
            )
    return tuple(judges)


def signer_of(settings: Settings) -> Signer:
    """The hotkey that the settings name. Raises ArenaError V2031 when it can't be read."""
    from arena.chain.opening import open_signer

    return open_signer(
        settings.network,
        name=settings.wallet_name,
        hotkey=settings.wallet_hotkey,
        path=settings.wallet_path,
        password_file=settings.wallet_password_file,
    )


def chain_of(settings: Settings) -> Subtensor:
    """The chain that the settings name. Raises ArenaError as `open_subtensor` does, and V2031 for a proxy's key."""
    from arena.chain.opening import open_subtensor

    of_proxy = settings.model_copy(update={"wallet_hotkey": settings.wallet_proxy})
    return open_subtensor(
        settings.network,
        netuid=settings.netuid,
        state_dir=settings.state_dir,
        now_ms=unix_ms,
        mechanism=settings.mechanism,
        proxy=signer_of(of_proxy) if settings.wallet_proxy else None,
    )


def code_commit() -> str:
    """The commit of this checkout, or the installed distribution's version where there is none."""
    root = Path(__file__).resolve().parents[2]
    if (root / ".git").exists() and shutil.which("git"):
        answer = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=False
        )
        if answer.returncode == 0:
            return answer.stdout.strip()
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"agent-arena {version('agent-arena')}"
    except PackageNotFoundError:
        return "unknown"


def unix_ms() -> int:
    """The wall clock, passed in wherever a decision needs one."""
    return time.time_ns() // 1_000_000
