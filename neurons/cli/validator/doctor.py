"""`arena doctor`: the rows of `neurons.health.doctor`, for people and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neurons.cli.exit_codes import EXIT_NOT_READY
from neurons.cli.options import JsonOption
from neurons.cli.presenter import echo_json
from neurons.cli.validator.setting_options import SettingsCommand

app = typer.Typer()

_MARK = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
_COLOUR = {"ok": "green", "warn": "yellow", "fail": "red"}


@app.command(cls=SettingsCommand, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def doctor(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option(help="TOML file with settings instead of arena.toml here.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check this host and print the fix for whatever is missing.

    Looks at Python, C library, cores, memory, disk, the jail for agents, worker hosts, Postgres, the model endpoint,
    the search engine, the chain's keys, and on a real network this hotkey's place there, for a node with these
    settings: give the flags that `arena validator` is started with. Changes no setting. `warn` means it runs with
    less; exit code 3 that something failed.
    """
    from neurons.health.checks import CHECKS
    from neurons.health.doctor import examine, is_ready
    from neurons.node.released_settings import with_held_release
    from neurons.node.settings import refuse_unknown_flags, resolve_arguments

    rows = []
    resolved = resolve_arguments([*context.args, *(["--config", str(config)] if config else [])])
    refuse_unknown_flags(resolved.rest)
    settings = with_held_release(resolved.settings)
    for row in examine(settings, CHECKS):
        rows.append(row)
        if not as_json:
            typer.echo(f"{typer.style(_MARK[row.status], fg=_COLOUR[row.status])}  {row.name:<14}  {row.found}")
            if row.fix and row.status != "ok":
                typer.echo(f"      fix: {row.fix}")
    is_all_well = is_ready(rows)
    if as_json:
        echo_json({"is_ready": is_all_well, "rows": rows})
    elif is_all_well:
        typer.echo("\nThis host is ready. Next: arena demo")
    if not is_all_well:
        raise typer.Exit(EXIT_NOT_READY)
