"""What the training commands open: settings, the context of a run, endpoints, and the teacher a recipe names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from foundation.progress import Progress, no_progress

if TYPE_CHECKING:
    from harness.inference.port import Upstream
    from neurons.node.settings import Settings
    from problems.model import Pool, Problem
    from training.corpus.leak_guard import Guard
    from training.corpus.model import CorpusPool, Rules
    from training.recipe import Recipe
    from training.run_context import RunContext
    from training.trac.model import Price, Usage

SCRIPTED = "scripted"
TIMEOUT_MS = 120_000
SEALS = "seals"  # folder of finished verifications
MICRO = 1_000_000  # of a dollar, or of a token's price


def open_settings(
    catalogue: Path | None,
    policy: str | None,
    state_dir: Path | None,
    models: str = "",
    model_urls: Sequence[str] = (),
) -> Settings:
    """The node's settings with these flags above them."""
    from neurons.cli.model_urls import endpoint_settings
    from neurons.node.settings import resolve

    named = {"catalogue_dir": catalogue, "policy": policy, "state_dir": state_dir, "models": models or None}
    return resolve(named | endpoint_settings(model_urls)).settings


def open_bench(
    settings: Settings,
    *,
    problems: Sequence[Problem] = (),
    dev: Sequence[Problem] = (),
    held_out: Sequence[Problem] = (),
    partition: Path | None = None,
    bank: str = "",
    tool_profile: str = "",
    prompt: str | None = None,
    progress: Progress = no_progress,
) -> RunContext:
    """The context over the settings' catalogue, titles and policy.

    `partition` is the bank's private file, or with `bank` (its hotkey) the public one, which tells no problem's pool.
    `tool_profile` and `prompt` take the place of the policy's profile and the agent's system prompt. Raises ArenaError
    V2010 or V2011 without an index, P4001, P4023 or P4028 for a partition that can't be used, typer.BadParameter for
    another profile or a prompt the agent can't hold.
    """
    import msgspec

    from arena.bank.partition_file import read_partition, read_public_manifest
    from arena.chain.keys import verify
    from arena.policy import Policy
    from harness.catalogue.engines.native import open_catalogue
    from neurons.node import public_inputs, wiring
    from training.agents import distilled_source
    from training.run_context import RunContext

    public_inputs.prepare_catalogue(settings)
    policy = public_inputs.policy_of(settings)
    try:
        if tool_profile:
            policy = msgspec.convert(msgspec.to_builtins(policy) | {"tool_profile": tool_profile}, Policy)
        source = distilled_source() if prompt is None else distilled_source(prompt)
    except (msgspec.ValidationError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    opened, partition_sha256 = None, ""
    if partition is not None and bank:
        partition_sha256 = read_public_manifest(partition, bank, verify).sha256
    elif partition is not None:
        opened = read_partition(partition, verify)
        partition_sha256 = opened.manifest.sha256
    return RunContext(
        policy=policy,
        catalogue=open_catalogue(public_inputs.catalogue_path(settings)),
        titles=wiring.open_released_titles(settings),
        problems=tuple(problems),
        dev=tuple(dev),
        held_out=tuple(held_out),
        partition=opened,
        partition_sha256=partition_sha256,
        code_commit=wiring.code_commit(),
        source=source,
        progress=progress,
    )


def say_device(work: str) -> None:
    """What `work` runs on, on stderr, with a warning where the machine has a GPU that torch can't use."""
    from training.models.device import find_device

    device = find_device()
    typer.echo(f"{work} on {device.describe()}", err=True)
    if device.warning:
        typer.echo(f"warning: {device.warning}", err=True)


@contextlib.contextmanager
def open_teacher(plan: Recipe) -> Iterator[Upstream]:
    """The recipe's teacher: an endpoint, or the scripted model on loopback. Raises ArenaError U3001 for none."""
    from foundation.errors import ArenaError

    if not plan.teacher:
        raise ArenaError("U3001", "the recipe names no teacher")
    with open_endpoint("teacher", plan.teacher) as upstream:
        yield upstream


@contextlib.contextmanager
def open_endpoint(name: str, url: str, state_dir: Path | None = None) -> Iterator[Upstream]:
    """The endpoint at `url`, with the key in OPENAI_API_KEY; `scripted` serves the scripted model on loopback. Of
    `URL=N` all processes over one state folder ask N requests at once."""
    import hashlib
    import os

    from harness.inference.client import OpenAIUpstream
    from harness.inference.scripted import start_scripted_server
    from harness.inference.slots import RequestSlots
    from neurons.cli.model_urls import parse_model_url

    if url != SCRIPTED:
        address, limit = parse_model_url(url)
        slots = None
        if limit:
            place = f"{name}-{hashlib.sha256(address.encode()).hexdigest()[:12]}"
            folder = open_settings(None, None, state_dir).state_dir / "upstreams" / place
            slots = RequestSlots(folder, limit, TIMEOUT_MS)
        yield OpenAIUpstream(name, address, os.environ.get("OPENAI_API_KEY", ""), TIMEOUT_MS, slots=slots)
        return
    with start_scripted_server() as server:
        yield OpenAIUpstream(name, server.base_url, "", TIMEOUT_MS)


def parse_price(text: str) -> tuple[str, Price]:
    """`MODEL=IN,OUT` in dollars. A model's name may hold "=" itself."""
    from training.trac.model import Price

    model, _, amounts = text.rpartition("=")
    parts = amounts.split(",")
    try:
        prompt, completion = (round(float(part) * MICRO) for part in parts)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not MODEL=IN,OUT, such as small=0.15,0.60") from None
    if not model or min(prompt, completion) < 0:
        raise typer.BadParameter(f"{text!r} is not MODEL=IN,OUT, such as small=0.15,0.60")
    return model, Price(prompt_micro_usd=prompt, completion_micro_usd=completion)


def read_plan(path: Path | None, flags: Mapping[str, object]) -> Rules:
    """The file's rules with the flags over them. Raises ArenaError V2146."""
    import msgspec

    from training.corpus.building import read_rules, rules_of

    given = msgspec.to_builtins(read_rules(path)) if path else {}
    return rules_of(given | {name: value for name, value in flags.items() if value is not None}, "flags")


def open_guard(
    held_out: list[Path], partition: Path | None, bank: str, catalogue: Path | None, admits: CorpusPool
) -> Guard:
    """The leak guard of the partition and the problems named, for a corpus of the pool `admits`.

    Raises ArenaError P4001, P4023, P4028.
    """
    from arena.bank.partition_file import read_partition, read_public_manifest
    from arena.chain.keys import verify
    from neurons.cli.problems.reading import read_classes, read_files
    from training.corpus.leak_guard import Guard

    problems: dict[Pool, list[Problem]] = {"eval": read_files(held_out)} if held_out else {}
    classes = read_classes(None, catalogue)
    if partition is None:
        return Guard(None, problems, classes=classes, admits=admits)
    if bank:
        return Guard(read_public_manifest(partition, bank, verify), problems, classes=classes, admits=admits)
    return Guard(None, problems, partition=read_partition(partition, verify), classes=classes, admits=admits)


def usage_lines(usage: Sequence[Usage]) -> Iterator[str]:
    """One line a model: what it was asked for and what that cost."""
    for one in usage:
        tokens = f"{one.prompt_tokens:,} + {one.completion_tokens:,} tokens"
        yield f"  {one.model:<28}{one.calls:,} calls, {one.kept:,} kept; {tokens}; ${one.micro_usd / MICRO:,.2f}"
