"""`arena explain`: what an error code means, whose fault it is, what it costs and what to do."""

from __future__ import annotations

import difflib
from typing import Annotated

import msgspec
import typer

from foundation.codes import CODES
from foundation.errors import ErrorCode

app = typer.Typer()


@app.command()
def explain(
    code: Annotated[str | None, typer.Argument(help="For example A1020. Without one, every code is listed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain an error code.

    The first letter says whose failure it is: A your agent's, V this validator's, U an upstream service's, P the
    problem's or catalogue's. Only an agent's own failures count against its score.
    """
    rows = list(CODES.values()) if code is None else [_find(code)]
    if as_json:
        typer.echo(msgspec.json.encode([_plain(row) for row in rows]).decode())
        return
    for row in rows:
        typer.echo(f"{row.code}  {row.title}" if code is None else _long_text(row))


def _find(code: str) -> ErrorCode:
    row = CODES.get(code.upper())
    if row is None:
        nearest = difflib.get_close_matches(code.upper(), CODES, n=1, cutoff=0)
        raise typer.BadParameter(f"no code {code}; the nearest is {nearest[0]}. `arena explain` lists all of them.")
    return row


def _plain(row: ErrorCode) -> dict[str, object]:
    return {**msgspec.to_builtins(row), "owner": row.owner.value}


def _long_text(row: ErrorCode) -> str:
    retried = "yes" if row.is_retryable else "no"
    return (
        f"{row.code}  {row.title}\n"
        f"  whose fault: {row.owner.value}\n  what it costs: {row.cost}\n  tried again by itself: {retried}\n"
        f"  fix: {row.remedy}"
    )
