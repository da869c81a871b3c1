"""`arena race`: races, policies and weight vectors at the terminal. The rules are in `arena/race`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from neurons.cli.validator.race_replay import list_races, replay, show_race

app = typer.Typer(help="Look at races.", no_args_is_help=True)
app.command("list")(list_races)
app.command("show")(show_race)
app.command("replay")(replay)

_EXIT_USAGE = 2


@app.command()
def weights(
    cases: Annotated[
        Path,
        typer.Option(
            help="Cases, one JSON object a line: case_id, metagraph_hotkeys, finishers, t_top, t_burn.",
            exists=True,
            dir_okay=False,
        ),
    ],
) -> None:
    """Compute SN15's reference weight vector for cases kept in a file.

    Prints one JSON line per case: its case_id with uids and weights, or with the name of the error that impossible
    shares raise. Exit code 2 for a line that is no case.
    """
    import orjson

    with cases.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                typer.echo(orjson.dumps(_weights_of_case(line, number)).decode())


@app.command()
def policy(
    name: Annotated[str, typer.Argument(help="A shipped policy; leave out to list them.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a shipped policy and its hash, or list them all.

    The hash names the policy in every record: two validators race under the same rules when it is equal.
    """
    import orjson
    from msgspec import to_builtins

    from arena.policies import POLICIES, policy_by_name

    if not name:
        listed = {known.name: known.policy_sha256 for known in POLICIES.values()}
        if as_json:
            typer.echo(orjson.dumps(listed).decode())
        else:
            for known, digest in listed.items():
                typer.echo(f"{known:<14} {digest}")
        return
    try:
        chosen = policy_by_name(name)
    except KeyError as error:
        typer.echo(error.args[0], err=True)
        raise typer.Exit(_EXIT_USAGE) from error
    fields = to_builtins(chosen)
    if as_json:
        typer.echo(orjson.dumps({"policy_sha256": chosen.policy_sha256, "policy": fields}).decode())
        return
    typer.echo(f"policy_sha256  {chosen.policy_sha256}")
    for path, value in _leaves(fields):
        typer.echo(f"{path:<38} {value}")


def _weights_of_case(line: bytes, number: int) -> dict[str, Any]:
    import msgspec

    from arena.race.settlement.weights import WeightCase, reference_vector

    try:
        case = msgspec.json.decode(line, type=WeightCase)
    except msgspec.DecodeError as error:
        typer.echo(f"line {number} is no case: {error}", err=True)
        raise typer.Exit(_EXIT_USAGE) from error
    try:
        vector = reference_vector(case.metagraph_hotkeys, case.finishers, case.t_top, case.t_burn)
    except ValueError as error:
        return {"case_id": case.case_id, "error": type(error).__name__}
    return {"case_id": case.case_id, "uids": vector.uids, "weights": vector.weights}


def _leaves(fields: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Dotted paths and values of a nested mapping, in its own order."""
    rows: list[tuple[str, str]] = []
    for key, value in fields.items():
        if isinstance(value, dict):
            rows += _leaves(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", ", ".join(map(str, value)) if isinstance(value, list) else str(value)))
    return rows
