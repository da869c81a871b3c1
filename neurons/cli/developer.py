"""`arena developer`: what only those need who work on this software, gathered from the rooms it belongs to."""

from __future__ import annotations

import typer

from neurons.cli.training.rollouts import rollouts
from neurons.cli.validator.race import weights
from neurons.cli.validator.store import check_objects

app = typer.Typer(
    help="""Tools for work on this software: reference weights, object stores, rollouts.

    arena developer weights --cases cases.jsonl
    """,
    no_args_is_help=True,
)
app.command("weights")(weights)
app.command("objects")(check_objects)
app.command("rollouts")(rollouts)
