"""`arena developer`: what only those need who work on this software, gathered from the rooms it belongs to."""

from __future__ import annotations

import typer

from neurons.cli.problems.catalogue import bench
from neurons.cli.validator.race import weights
from neurons.cli.validator.store import check_objects

app = typer.Typer(
    help="""Tools for work on this software: reference weights, timings, object stores.

    arena developer weights --cases cases.jsonl

    arena developer bench index documents.jsonl
    """,
    no_args_is_help=True,
)
app.command("weights")(weights)
app.command("bench")(bench)
app.command("objects")(check_objects)
