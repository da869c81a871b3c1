"""`arena explain`: what an error code means, whose fault it is, what it costs and what to do."""

from __future__ import annotations

import difflib
from typing import Annotated

import msgspec
import typer

from foundation.codes import CODES
from neurons.cli.options import JsonOption
from neurons.cli.presenter import show

app = typer.Typer()


@app.command()
def explain(
    code: Annotated[str | None, typer.Argument(help="For example A1020. Without one, every code is listed.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Explain an error code.

    The first letter says whose failure it is: A your agent's, V this validator's, U an upstream service's, P the
    problem's or catalogue's. Only an agent's own failures count against its score.
    """
    if code is None:
        rows = list(CODES.values())
        lines = [f"{row.code}  {row.title}" for row in rows]
    elif row := CODES.get(code.upper()):
        rows = [row]
        lines = [
            f"{row.code}  {row.title}",
            f"  whose fault: {row.owner.value}",
            f"  what it costs: {row.cost}",
            f"  tried again by itself: {'yes' if row.is_retryable else 'no'}",
            f"  fix: {row.remedy}",
        ]
    else:
        (nearest,) = difflib.get_close_matches(code.upper(), CODES, n=1, cutoff=0)
        raise typer.BadParameter(f"no code {code}; the nearest is {nearest}. `arena explain` lists all of them.")
    show([{**msgspec.to_builtins(row), "owner": row.owner.value} for row in rows], lines, as_json=as_json)
