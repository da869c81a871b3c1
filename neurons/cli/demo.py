"""`arena demo`: run the whole arena once on this machine and show what came out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from neurons.cli.exit_codes import EXIT_INTEGRITY
from neurons.cli.options import JsonOption

app = typer.Typer()


@app.command()
def demo(
    state_dir: Annotated[Path | None, typer.Option(help="Keep runs here instead of the default state folder.")] = None,
    sandbox: Annotated[str, typer.Option(help="auto, bubblewrap, landlock, docker or reference-agents-only.")] = "",
    workers: Annotated[int, typer.Option(help="Episodes at once; 0: one per core.")] = 0,
    models: Annotated[str, typer.Option(help="Model ids for a model endpoint of yours, comma-separated.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Run the whole arena once on this machine.

    Seven agents are gated, qualified and raced in jails over a synthetic catalogue of 20,000 products, judged, signed
    into a real Postgres, verified and paid in weights on a local chain. The models are scripted; set OPENAI_BASE_URL
    (and --models) to use an OpenAI-compatible endpoint instead. Exit code 4 when a record fails verification.
    """
    from neurons.node.settings import resolve

    flags = {"policy": "demo", "state_dir": state_dir, "sandbox": sandbox, "models": models, "workers": workers or None}
    settings = resolve(flags).settings
    if not asyncio.run(_run(settings, as_json)):
        raise typer.Exit(EXIT_INTEGRITY)


async def _run(settings: object, as_json: bool) -> bool:
    import time

    from neurons.demo.demo import conclude, hand_in, prepare_run, running_validator
    from neurons.demo.view import DemoScreen
    from neurons.node.public_inputs import policy_of
    from neurons.node.settings import Settings

    assert isinstance(settings, Settings)
    started_s = time.monotonic()
    screen = DemoScreen(is_quiet=as_json)
    run = await prepare_run(settings, screen.tell)
    policy = policy_of(settings)
    with running_validator(run) as process:
        screen.tell("validator: python neurons/validator.py (its log is validator.log in the run's folder)")
        await hand_in(run, process)
        screen.tell("submissions: handed in at the validator's door over HTTP")
        view = await screen.follow(run, process, (policy.qualifying.problems, policy.race.problems))
    result = await conclude(run, view, time.monotonic() - started_s)
    screen.show(run, result, as_json=as_json)
    return result.report.is_ok
