"""Opens what a person's runs stand on: settings with flags above them, the context of a run, endpoints by address."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from foundation.progress import Progress, no_progress

if TYPE_CHECKING:
    from harness.inference.port import Upstream
    from neurons.settings.settings import ResolvedSettings, Settings
    from problems.model import Problem
    from training.run_context import RunContext


def miner_settings(
    policy: str | None,
    catalogue: Path | None,
    state_dir: Path | None,
    model_urls: Sequence[str] = (),
    model: str | None = None,
) -> ResolvedSettings:
    """A miner's settings: where nobody chose a policy or a judge, the demo policy holds, which needs no key.

    `model_urls` as `endpoint_settings` takes them.
    """
    from neurons.settings.settings import resolve

    flags = {"policy": policy, "catalogue_dir": catalogue, "state_dir": state_dir, "models": model}
    flags |= endpoint_settings(model_urls)
    resolved = resolve(flags)
    is_chosen = any(row.name == "policy" and row.source != "default" for row in resolved.rows)
    if is_chosen or resolved.settings.judge_base_url:
        return resolved
    return resolve({**flags, "policy": "demo"})


SCRIPTED = "scripted"


TIMEOUT_MS = 120_000


def open_settings(
    catalogue: Path | None,
    policy: str | None,
    state_dir: Path | None,
    models: str = "",
    model_urls: Sequence[str] = (),
) -> Settings:
    """The node's settings with these flags above them."""
    from neurons.settings.settings import resolve

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
    from harness.catalogue.native import open_catalogue
    from neurons.settings import inputs
    from training.agents import distilled_source
    from training.run_context import RunContext

    inputs.prepare_catalogue(settings)
    policy = inputs.policy_of(settings)
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
        catalogue=open_catalogue(inputs.catalogue_path(settings)),
        titles=inputs.open_released_titles(settings),
        problems=tuple(problems),
        dev=tuple(dev),
        held_out=tuple(held_out),
        partition=opened,
        partition_sha256=partition_sha256,
        code_commit=inputs.code_commit(),
        source=source,
        progress=progress,
    )


@contextlib.contextmanager
def open_endpoint(name: str, url: str, state_dir: Path | None = None) -> Iterator[Upstream]:
    """The endpoint at `url`, with the key in OPENAI_API_KEY; `scripted` serves the scripted model on loopback. Of
    `URL=N` all processes over one state folder ask N requests at once."""
    import hashlib
    import os

    from harness.inference.client import OpenAIUpstream, RequestSlots
    from harness.inference.scripted import start_scripted_server

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


_LIMITED = re.compile(r"(?P<url>.+)=(?P<limit>[1-9]\d{0,4})")


def parse_model_url(text: str) -> tuple[str, int]:
    """The address, and how many requests it takes at once; 0: that is not bounded."""
    found = _LIMITED.fullmatch(text)
    return (found["url"], int(found["limit"])) if found else (text, 0)


def endpoint_settings(model_urls: Sequence[str]) -> dict[str, Any]:
    """The settings that name endpoints of one model in place of those of a file; nothing is replaced where none is
    given. Their key is the one in OPENAI_API_KEY."""
    if not model_urls:
        return {"openai_base_url": None, "upstreams": None}
    parts = [parse_model_url(text) for text in model_urls]
    if len(parts) == 1 and not parts[0][1]:
        return {"openai_base_url": parts[0][0], "upstreams": ()}
    key = "OPENAI_API_KEY" if os.environ.get("OPENAI_API_KEY") else ""
    endpoints = tuple(
        {"name": f"model-{number}", "base_url": url, "requests_at_once": limit, "api_key_env": key}
        for number, (url, limit) in enumerate(parts, 1)
    )
    return {"openai_base_url": "", "upstreams": endpoints}
