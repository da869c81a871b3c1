"""`arena race sweep`: which way a weight on the agentic share pushes a field whose miners copy winners."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from neurons.cli.options import StateDirOption, json_flag
from neurons.cli.presenter import show, show_progress
from neurons.cli.store_reading import state_folder

if TYPE_CHECKING:
    from arena.race.reweighting import FieldCourse, RecordedOutcome

_WINNERS_SHOWN = 3


def sweep_lambda(
    export: Annotated[
        Path, typer.Argument(help="Export whose episodes are raced.", exists=True, file_okay=False, metavar="EXPORT")
    ],
    lambdas: Annotated[
        str, typer.Option("--lambda-e4", help="Weights on the agentic share to try, in ten-thousandths.")
    ] = "0,1000,2000,3000,5000,7500,10000",
    race: Annotated[str, typer.Option("--race", help="Take the episodes of this race alone.")] = "",
    without: Annotated[
        list[str] | None, typer.Option("--without", help="Leave this agent out: id or name, its start. Repeatable.")
    ] = None,
    miners: Annotated[int, typer.Option(min=2, max=256, help="Miners in the field.")] = 16,
    problems: Annotated[int, typer.Option(min=1, help="Problems of a race.")] = 30,
    races: Annotated[int, typer.Option(min=1, max=1_000, help="Races, one after the other.")] = 40,
    seeds: Annotated[int, typer.Option(min=1, max=1_000, help="Fields, each with draws of its own.")] = 20,
    copy_e4: Annotated[
        int, typer.Option("--copy-e4", min=0, max=10_000, help="Chance that a miner takes over the winner's agent.")
    ] = 3_000,
    try_e4: Annotated[
        int, typer.Option("--try-e4", min=0, max=10_000, help="Chance that it tries any agent instead.")
    ] = 500,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Write the share by race as SVG, scored by success alone.")
    ] = None,
    trust_unsigned: Annotated[bool, typer.Option("--trust-unsigned", help="Read an export nobody signed.")] = False,
    state_dir: StateDirOption = None,
    as_json: Annotated[bool, json_flag("Print the courses as JSON on stdout.")] = False,
) -> None:
    """See which way a weight on the agentic share would push miners who copy winners.

    $ arena race sweep export

    $ arena race sweep export --lambda-e4 0,3000 --without 93776649 --picture share.svg

    Nothing is run: races are drawn from the problems that every agent of the export ran, and scored as they were
    recorded, by the settlement's own code; with the judge's coefficient, and again by success alone. After a race
    miners take over the winner's agent, or try another. `arena race replay --lambda-e4` settles one real race again
    instead, with the field as it was.
    """
    from arena.race.reweighting import FieldRules, sweep
    from training.charts import ChartLine, line_chart

    try:
        grid = [int(part) for part in lambdas.split(",") if part]
    except ValueError as error:
        raise typer.BadParameter(f"{lambdas!r}: ten-thousandths, joined by commas") from error
    if not grid or not all(0 <= one <= 10_000 for one in grid) or copy_e4 + try_e4 > 10_000:
        raise typer.BadParameter("weights lie between 0 and 10000, and so does the sum of the two chances")
    rules = FieldRules(miners=miners, problems=problems, races=races, seeds=seeds, copy_e4=copy_e4, try_e4=try_e4)
    read = _read(export, trust_unsigned, state_folder(state_dir), is_quiet=as_json)
    episodes = [
        one
        for race_id, one in read.episodes
        if race in ("", race_id)
        and not any(read.called(one.agent).startswith(left) or one.agent.startswith(left) for left in without or ())
    ]
    try:
        courses = sweep(episodes, grid, rules)
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong)) from None
    if picture is not None:
        lines = [
            ChartLine(
                label=f"lambda {one.lambda_e4 / 10_000:g}",
                points=tuple((float(race), share / 10_000) for race, share in enumerate(one.agentic_e4, start=1)),
            )
            for one in courses
            if one.scoring == "outcome"
        ]
        drawn = line_chart(lines, x_name="race", y_name="agentic share", y_range=(0.0, 1.0))
        picture.write_text(drawn, "utf-8")
    show(courses, _lines(courses, read.called), as_json=as_json)


class _Read(NamedTuple):
    episodes: list[tuple[str, RecordedOutcome]]  # each with its race
    names: Mapping[str, str]

    def called(self, agent: str) -> str:
        """An agent's name, where the export has one, or how its id begins."""
        return self.names.get(agent, agent[:8])


def _read(export: Path, trust_unsigned: bool, state: Path, *, is_quiet: bool) -> _Read:
    """The export's scored episodes, and its agents' names by id."""
    from arena.chain.keys import verify
    from arena.race.reweighting import RecordedOutcome
    from neurons.cli.train import SEALS
    from training.corpus.exports import export_shards, open_export
    from training.corpus.model import Quarantined

    episodes = []
    with show_progress(is_quiet=is_quiet) as progress:
        verified = open_export(
            export,
            verify,
            trust_unsigned=trust_unsigned,
            seals=state / "corpus" / SEALS,
            progress=lambda done, total: progress("verify", done, total),
        )
        shards = export_shards(verified)
        for number, shard in enumerate(shards, start=1):
            for row in shard():
                if isinstance(row, Quarantined) or row.facts.agent is None or row.facts.is_success is None:
                    continue  # unread, or unscored: it counts for nobody
                one = RecordedOutcome(
                    agent=row.facts.agent,
                    problem_id=row.facts.problem_id or "",
                    is_success=row.facts.is_success,
                    is_agentic=bool(row.facts.is_agentic),
                    coefficient_e4=row.facts.coefficient_e4,
                )
                episodes.append((row.facts.race_id or "", one))
            progress("episodes", number, len(shards))
    return _Read(episodes, verified.names)


def _lines(courses: Sequence[FieldCourse], called: Callable[[str], str]) -> Iterator[str]:
    titles = {"judged": "success times the judge's coefficient", "outcome": "success alone"}
    told = ""
    for one in courses:
        if one.scoring != told:
            told = one.scoring
            yield f"scored by {titles[told]}"
            yield f"  {'lambda':>6}  {'agentic, first race':>19}  {'last race':>22}  {'solved':>7}  races won"
        low, high = one.agentic_last_e4
        last = f"{_percent(one.agentic_e4[-1])} ({_percent(low)} to {_percent(high)})"
        races = sum(one.winners.values())
        winners = [
            f"{called(agent)} {_percent(10_000 * won // races)}"
            for agent, won in list(one.winners.items())[:_WINNERS_SHOWN]
        ]
        yield (
            f"  {one.lambda_e4:>6}  {_percent(one.agentic_e4[0]):>19}  {last:>22}  {_percent(one.success_e4):>7}  "
            + ", ".join(winners)
        )


def _percent(value_e4: int) -> str:
    return f"{value_e4 / 100:.1f}"
