"""`arena problems stats`: what sets of problems look like, side by side in one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neurons.cli.options import CatalogueOption, DocumentsOption, JsonLinesOption, ProblemFile
from neurons.cli.presenter import echo_json, make_table
from neurons.cli.problems.reading import has_catalogue, read_file, read_title_index
from neurons.cli.progress import show_progress

if TYPE_CHECKING:
    from problems.model import Problem
    from problems.scoring.title_index import TitleIndex
    from problems.suites.distributions import BucketShape, SetShape
    from problems.synthesis.difficulty import Difficulty

_BUCKET_FIGURES: tuple[tuple[str, Callable[[BucketShape], str]], ...] = (
    ("constraints an item, mean", lambda one: f"{one.constraints_mean_e4 / 10_000:.2f}"),
    ("items with sku", lambda one: _share(one.with_sku_e4)),
    ("items with attributes", lambda one: _share(one.with_attributes_e4)),
    ("items with service", lambda one: _share(one.with_service_e4)),
    ("items with price", lambda one: _share(one.with_price_e4)),
    ("items with title only", lambda one: _share(one.title_only_e4)),
    ("query characters, median", lambda one: f"{one.query_chars:,}"),
)
_WIDTH_MOST = 400  # characters: a row is one line, also where the output's width is unknown

Row = tuple[str, list[str]]


def stats(
    path: ProblemFile,
    compare: Annotated[
        list[Path] | None, typer.Option(help="Problem files or suites to show beside it. Repeatable.")
    ] = None,
    documents: DocumentsOption = None,
    catalogue: CatalogueOption = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Show what a set of problems looks like: difficulty, constraint mix, vouchers, query lengths.

    Figures are shares of items. With --compare other sets stand beside it, column by column. Difficulty is measured
    over a catalogue, given with --documents or --catalogue; problems whose answers it does not hold are left out.
    """
    from rich.console import Console

    from problems.suites.distributions import describe

    sets = {str(one): read_file(one) for one in (path, *(compare or []))}
    index = read_title_index(documents, catalogue) if has_catalogue(documents, catalogue) else None
    names, shapes = short_names(list(sets)), [describe(problems) for problems in sets.values()]
    difficulties = [_measure(problems, index) if index else [] for problems in sets.values()]
    if as_json:
        for name, shape, measured in zip(sets, shapes, difficulties, strict=True):
            echo_json({"set": name, "shape": shape, "difficulty": _levels(measured)})
    else:
        table = make_table("", *names, right=names, box=None, pad_edge=False, header_style="bold")
        for column in table.columns:
            column.no_wrap = True
        for label, values in table_rows(shapes, difficulties):
            table.add_row(label, *values)
        Console(soft_wrap=True, width=_WIDTH_MOST).print(table)
        for name, measured in zip(names, difficulties, strict=True):
            if index and not measured:
                typer.echo(f"{name}: no difficulty, since this catalogue does not hold its answers")


def table_rows(shapes: Sequence[SetShape], difficulties: Sequence[Sequence[Difficulty]]) -> list[Row]:
    """The table: a label and one text per set."""
    from problems.model import BUCKETS
    from problems.synthesis.difficulty import LEVELS

    rows: list[Row] = [("problems", [f"{shape.problems:,}" for shape in shapes])]
    if any(difficulties):
        rows.append(("  measured for difficulty", [f"{len(measured):,}" for measured in difficulties]))
        for level in LEVELS:
            shares = [
                f"{100 * _levels(measured).get(level, 0) / len(measured):.0f} %" if measured else "-"
                for measured in difficulties
            ]
            rows.append((f"  {level}", shares))
    for bucket in BUCKETS:
        held = [shape.buckets.get(bucket) for shape in shapes]
        if any(held):
            rows.append((f"{bucket} problems", [f"{one.problems:,}" if one else "-" for one in held]))
            for label, figure in _BUCKET_FIGURES:
                rows.append((f"  {label}", [figure(one) if one else "-" for one in held]))
    for kind in sorted({kind for shape in shapes for kind in shape.vouchers}):
        rows.append((f"  {kind}", [f"{shape.vouchers.get(kind, 0):,}" for shape in shapes]))
    return rows


def short_names(names: Sequence[str]) -> list[str]:
    """What to call the sets: their file names, or whole paths where two share one."""
    short = [Path(name).name for name in names]
    return short if len(set(short)) == len(short) else list(names)


def _measure(problems: Sequence[Problem], index: TitleIndex) -> list[Difficulty]:
    """The difficulty of the problems whose answers are in the catalogue; of others it would say nothing."""
    from problems.synthesis.difficulty import measure_difficulty

    measured = []
    with show_progress() as progress:
        for done, problem in enumerate(problems, start=1):
            if all(index.place(item.product_id) is not None for item in problem.rewards):
                measured.append(measure_difficulty(problem, index))
            progress("measure", done, len(problems))
    return measured


def _levels(measured: Sequence[Difficulty]) -> dict[str, int]:
    from problems.synthesis.difficulty import count_levels

    return {str(level): count for level, count in count_levels(measured).items()} if measured else {}


def _share(share_e4: int) -> str:
    return f"{share_e4 / 100:.0f} %"
