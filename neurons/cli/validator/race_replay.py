"""`arena race list`, `show` and `replay`: settled races from records, and settled again.

It presents what `neurons.race.reading` finds; a race that is not settled yet shows nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neurons.cli.store_reading import DsnOption, JsonOption, StateDirOption, ValidatorOption, logs_of, run_on_store

if TYPE_CHECKING:
    from arena.exchange.port import HeldLogs
    from arena.policy import Policy
    from arena.race.consensus.reducer import RaceRecords
    from arena.records.model import SettlementRecord
    from arena.store.postgres.store import PostgresStore
    from neurons.race.reading import Settled

EXIT_USAGE, EXIT_INTEGRITY = 2, 4

_Race = Annotated[str, typer.Argument(metavar="RACE", help="Id of a settled race, as `arena race list` shows it.")]


def list_races(
    dsn: DsnOption = "", state_dir: StateDirOption = None, validator: ValidatorOption = "", as_json: JsonOption = False
) -> None:
    """List settled races, oldest first: who raced, who is at the top, what was void, and whose settlement is in force.

    Validators that share races need a quorum: `own` means that this one settled as the quorum did, `adopted` that it
    took over what others settled, `none` that there was no quorum, or none for what this one settled.
    """
    import msgspec

    settled = run_on_store(dsn, state_dir, lambda store: _settled(store, validator))
    if as_json:
        rows = [msgspec.to_builtins(each.settlement) | {"force": each.force} for each in settled]
        typer.echo(msgspec.json.encode(rows).decode())
        return
    if not settled:
        typer.echo("no race is settled yet; `arena validator status` shows the one that runs")
        return
    typer.echo(f"{'race':<14} {'state':<10} {'force':<8} {'agents':>6} {'void':>5}  {'top':<14} why")
    for each in settled:
        row = each.settlement
        top = row.top_agent_version_id[:12] + ("*" if row.is_promotion else "")
        typer.echo(
            f"{row.race_id:<14} {row.state:<10} {each.force:<8} {len(row.standings):>6} {len(row.void):>5}  {top:<14}"
            f" {row.reason}"
        )
    typer.echo("* promoted by this race")


def show_race(
    race: _Race,
    dsn: DsnOption = "",
    state_dir: StateDirOption = None,
    validator: ValidatorOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show one settled race: standings with their intervals, what counted, and its weights."""
    import msgspec

    settled = run_on_store(dsn, state_dir, lambda store: _settled(store, validator))
    found = _of_race([each.settlement for each in settled], race)
    if as_json:
        typer.echo(msgspec.json.encode(found).decode())
        return
    typer.echo(f"{found.race_id}  {found.state}  {found.reason}".rstrip())
    typer.echo(f"policy {found.policy_sha256[:16]}  blocks {found.closing_block} to {found.settling_block}")
    typer.echo(f"{len(found.drawn)} problems drawn with round {found.beacon_round}, {len(found.void)} void")
    for log in found.inputs.logs if found.inputs else ():
        typer.echo(f"counted: {log.validator} up to record {log.size}, root {log.root[:16]}")
    _echo_standings(found)


def replay(
    race: _Race,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="Also settle under this policy; a name or a JSON file.")
    ] = None,
    lambdas: Annotated[
        str, typer.Option("--lambda-e4", help="Also settle with these weights on the agentic share: 0,1000,3000.")
    ] = "",
    dsn: DsnOption = "",
    state_dir: StateDirOption = None,
    validator: ValidatorOption = "",
    as_json: JsonOption = False,
) -> None:
    """Settle a race again from records alone: draw, scores, ranking and weights.

    Ends with 0 when every byte is the same, with 4 when something is not, and names it. Under another policy nothing
    is compared: the table shows how the race would have ended.
    """
    import msgspec

    from neurons.race.reading import replay_race

    grid = _grid(lambdas)
    settlements, records = run_on_store(dsn, state_dir, lambda store: _read(store, state_dir, validator, race))
    found = _of_race(settlements, race)
    again = replay_race(found, records, settlements)
    others = [
        (other.name, replay_race(found, records, settlements, other).made)
        for other in [*(_policy(name) for name in policy or ()), *_with_lambdas(found, grid)]
    ]
    if as_json:
        typer.echo(
            msgspec.json.encode(
                {"race": race, "differing": again.differing, "made": again.made, "others": dict(others)}
            ).decode()
        )
    else:
        _echo_replay(race, again.differing, again.evaluations, again.verdicts)
        for name, made in others:
            typer.echo(f"\nunder {name}:")
            _echo_standings(made)
    if again.differing:
        raise typer.Exit(EXIT_INTEGRITY)


async def _settled(store: PostgresStore, validator: str) -> list[Settled]:
    from neurons.race.reading import read_settled

    return [row for name in await logs_of(store, validator) for row in await read_settled(store, name)]


async def _read(
    store: PostgresStore, state_dir: Path | None, validator: str, race: str
) -> tuple[list[SettlementRecord], RaceRecords]:
    from neurons.race.reading import read_race

    settled = await _settled(store, validator)
    given = _of_race([each.settlement for each in settled], race)
    history = [each.settlement for each in settled if each.force != "none" or each.settlement == given]
    return history, await read_race(store, _held(state_dir), given)


def _held(state_dir: Path | None) -> HeldLogs | None:
    """The logs a node pulled from others, where it has any."""
    from arena.exchange.peer_logs import PeerLogStore
    from arena.store.location import default_state_dir
    from neurons.node.wiring import held_path

    folder = held_path(state_dir or default_state_dir())
    return PeerLogStore(folder, is_reader=True) if folder.exists() else None


def _of_race(settlements: list[SettlementRecord], race: str) -> SettlementRecord:
    for settlement in settlements:
        if settlement.race_id == race:
            return settlement
    known = ", ".join(settlement.race_id for settlement in settlements[-5:]) or "none yet"
    raise typer.BadParameter(f"{race} is not settled; the latest settled: {known}")


def _policy(name: str) -> Policy:
    from neurons.node.settings import resolve
    from neurons.node.wiring import policy_of

    return policy_of(resolve({"policy": name}).settings)


def _grid(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part]
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: ten-thousandths, joined by commas") from error


def _with_lambdas(found: SettlementRecord, grid: list[int]) -> list[Policy]:
    from neurons.race.reading import with_lambda

    return [with_lambda(found, lambda_e4) for lambda_e4 in grid]


def _echo_replay(race: str, differing: tuple[str, ...], evaluations: int, verdicts: int) -> None:
    typer.echo(f"{race}: settled again from {evaluations} evaluations and {verdicts} verdicts")
    if differing:
        typer.echo(f"DIFFERENT: {', '.join(differing)}")
    else:
        typer.echo("equal, byte for byte")


def _echo_standings(settlement: SettlementRecord) -> None:
    if not settlement.standings:
        typer.echo(f"no standings: {settlement.reason or 'nobody raced'}")
        return
    weights = dict(zip(settlement.uids, settlement.weights_u16, strict=True))
    head = (
        f"{'#':>3} {'agent':<14} {'score':>7} {'95 %':>17} {'solved':>7} {'quality':>8} {'agentic':>8} missing faulted"
    )
    typer.echo(head)
    for row in settlement.standings:
        mark = "*" if row.agent_version_id == settlement.top_agent_version_id else " "
        typer.echo(
            f"{row.rank:>3} {row.agent_version_id[:12]}{mark:<2} {row.race_score_e4 / 1e4:>7.4f} "
            f"{row.low_e4 / 1e4:>8.4f}-{row.high_e4 / 1e4:.4f} {row.success_e4 / 1e4:>7.4f} "
            f"{row.mean_quality_e4 / 1e4:>8.4f} {row.agentic_share_e4 / 1e4:>8.4f} "
            f"{row.missing:>7} {row.faulted or 0:>7}"
        )
    typer.echo(f"* top. weights: {', '.join(f'{uid}: {weight}' for uid, weight in sorted(weights.items()))}")
