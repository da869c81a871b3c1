"""`arena judge`: judge a stored body again. The rubric is in `judge/`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neurons.cli.exit_codes import EXIT_FAILED, EXIT_USAGE
from neurons.cli.options import json_flag
from neurons.cli.presenter import echo_json

app = typer.Typer(help="Judge stored bodies again.", no_args_is_help=True)


@app.callback()
def judge() -> None:
    """Judge stored bodies again."""


@app.command()
def replay(
    body: Annotated[Path, typer.Option(help="An evaluation body as JSON.", exists=True, dir_okay=False)],
    policy: Annotated[str, typer.Option(help="The shipped policy whose rubric judges.")] = "demo",
    base_url: Annotated[str, typer.Option(help="An OpenAI-compatible endpoint for the rubric's models.")] = "",
    api_key: Annotated[str, typer.Option(envvar="OPENAI_API_KEY", help="Its key.")] = "",
    show_trace: Annotated[bool, typer.Option("--show-trace", help="Print the text a judge reads, and stop.")] = False,
    as_json: Annotated[bool, json_flag("Print the verdict as JSON.")] = False,
) -> None:
    """Judge one stored evaluation body and print the verdict with its citations.

    The scripted judge of the demo policy needs no endpoint. Exit code 1 when no verdict could be given.
    """
    import msgspec

    from arena.policies import policy_by_name
    from harness.trace import EvaluationBody
    from judge.client import OpenAIJudge
    from judge.panel import judge_body
    from judge.port import Judge
    from judge.render import render
    from judge.scripted import ScriptedJudge
    from judge.verdict import Verdict

    try:
        trace = msgspec.json.decode(body.read_bytes(), type=EvaluationBody)
        rubric = policy_by_name(policy).rubric
    except (msgspec.DecodeError, KeyError) as error:
        typer.echo(f"{body} is no evaluation body, or the policy is unknown: {error}", err=True)
        raise typer.Exit(EXIT_USAGE) from error
    if show_trace:
        typer.echo(render(trace).text)
        return
    judges: list[Judge] = [
        OpenAIJudge(model=model, base_url=base_url, api_key=api_key) if base_url else ScriptedJudge(model)
        for model in rubric.models
        if base_url or model.startswith("scripted-")
    ]
    verdict = judge_body(trace, rubric, judges)
    if as_json:
        echo_json(verdict)
    elif isinstance(verdict, Verdict):
        typer.echo(
            f"quality {verdict.quality_e4 / 10_000}  coefficient {verdict.coefficient_e4 / 10_000}  "
            f"spread {verdict.spread_e4 / 10_000}"
        )
        for opinion in verdict.opinions:
            typer.echo(f"{opinion.model}: {opinion.quality_e4 / 10_000}  {opinion.explanation}")
            for citation in opinion.citations:
                typer.echo(f"  span {citation.span} [{citation.gate}] {citation.quote}")
    else:
        typer.echo(f"no verdict: {verdict.failure.code} {verdict.failure.detail}")
    raise typer.Exit(0 if isinstance(verdict, Verdict) else EXIT_FAILED)
