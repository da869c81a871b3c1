"""Opens what a person's runs stand on: the context of a run, endpoints by address."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from harness.inference.port import Upstream
    from neurons.settings.settings import Settings
    from training.run_context import RunContext

from foundation.long_work import Progress, no_progress

SCRIPTED = "scripted"
TIMEOUT_MS = 120_000


@dataclass(frozen=True)
class Choice:
    """Which problems an agent is run on, and what answers them: options of `arena run`."""

    problem: Annotated[list[str] | None, typer.Option(help="Only this problem id.")] = None
    problems: Annotated[
        Path | None, typer.Option(help="Problem file, or s1, s2, s3 as in qualifying; else the policy's suite.")
    ] = None
    count: Annotated[
        int | None, typer.Option(min=1, help="How many problems. Default: 6, of a suite all.", show_default=False)
    ] = None
    variant: Annotated[
        str | None,
        typer.Option(
            metavar="SEED",
            help="Run on variants drawn by SEED, as qualifying does: of the policy's suite, or of the problem file. "
            "Any text will do; a qualifying record names the seed it ran under.",
        ),
    ] = None
    failed: Annotated[bool, typer.Option("--failed", help="Of these, only what the last run lost.")] = False
    record: Annotated[Path | None, typer.Option(help="Keep every completion in this file.", dir_okay=False)] = None
    replay: Annotated[
        Path | None, typer.Option(help="Answer from this recording; no endpoint is asked.", dir_okay=False)
    ] = None
    model_url: Annotated[str, typer.Option(help="OpenAI-compatible endpoint; else OPENAI_BASE_URL.")] = ""
    model: Annotated[str, typer.Option(help="Model id there, instead of the policy's list.")] = ""


def open_bench(settings: Settings, *, progress: Progress = no_progress) -> RunContext:
    """The context over the settings' catalogue, titles and policy, without problems. Raises ArenaError V2010 without an
    index."""
    from harness.catalogue.native import open_catalogue
    from neurons.settings import inputs
    from training.run_context import RunContext

    inputs.prepare_catalogue(settings)
    return RunContext(
        policy=inputs.policy_of(settings),
        catalogue=open_catalogue(inputs.catalogue_path(settings)),
        titles=inputs.open_released_titles(settings),
        code_commit=inputs.code_commit(),
        progress=progress,
    )


def open_endpoint(name: str, url: str, *, by_sdk: bool = False) -> Upstream:
    """The endpoint at `url`, with the key in OPENAI_API_KEY; `scripted` is the scripted model.

    With `by_sdk` it is asked through the `openai` package, which a Ray worker should not import.
    """
    from harness.inference.client import OpenAIUpstream, SdkUpstream
    from harness.inference.scripted.model import ScriptedUpstream

    kind = SdkUpstream if by_sdk else OpenAIUpstream
    if url == SCRIPTED:
        return ScriptedUpstream()
    return kind(name, url, os.environ.get("OPENAI_API_KEY", ""), TIMEOUT_MS)
