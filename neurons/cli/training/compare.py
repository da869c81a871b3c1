"""`arena corpus compare`: how far two corpora lie apart, with intervals and with what chance alone would give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neurons.cli.options import JsonOption, TrustUnsignedOption
from neurons.cli.presenter import show, show_progress

if TYPE_CHECKING:
    from training.corpus.distance.comparison import Comparison
    from training.corpus.model import Trace

_NAME_CHARS = 24


def compare(
    one: Annotated[Path, typer.Argument(metavar="A", help="An export, a corpus, or a file of rows.", exists=True)],
    other: Annotated[Path, typer.Argument(metavar="B", help="What it is compared with.", exists=True)],
    out: Annotated[Path | None, typer.Option("--out", help="Write the page here: one HTML file with pictures.")] = None,
    names: Annotated[
        str, typer.Option("--names", metavar="A,B", help="What the page calls them. Default: the names of the paths.")
    ] = "",
    problems: Annotated[
        list[Path] | None,
        typer.Option("--problems", help="Problem file or suite: which demands the calls cover. Repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the draws behind intervals and chance.")] = 0,
    draws: Annotated[int, typer.Option("--draws", min=100, help="How many draws.")] = 1_000,
    trust_unsigned: TrustUnsignedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare two corpora: does one hold behaviour that the other does not?

    A and B are exports, folders of `arena corpus build`, or files of rows in any format that it reads (OpenAI messages,
    Hermes, SN15): so a synthetic corpus, made by one scripted policy, can stand beside traces of many agents.

    Compared are the calls (single, in pairs, in threes, with their arguments), what follows what, length, the number of
    distinct behaviours at equal size, errors and recovery, and which demands of a request the calls ask for. Each
    figure has a 95 % interval over problems. A distance is never 0 between finite corpora, so beside each stands what
    two halves of the same corpus differ by, and what is left when the runs of both are dealt anew by chance.

    An export holds every run as it was, with the calls that a program made; a corpus only what the filter kept, with
    few errors, and the calls of the conversation. Compare like with like.

    arena corpus compare day1 scripted-day --out distance.html

    arena corpus compare mine theirs.jsonl --names arena,synthetic --problems problems.json --json
    """
    from neurons.cli.problems import read_files
    from training.corpus.distance.comparison import compare as compare_episodes
    from training.corpus.distance.episodes import episodes_of
    from training.corpus.distance.page import render_comparison

    called = [part.strip()[:_NAME_CHARS] for part in names.split(",")] if names else [one.stem, other.stem]
    if len(called) != 2 or not all(called) or called[0] == called[1]:
        raise typer.BadParameter(f"{', '.join(called)}: two different names, such as --names arena,synthetic")
    if out is not None and not out.parent.is_dir():
        raise typer.BadParameter(f"{out.parent} is no folder")
    known = {problem.problem_id: problem for problem in read_files(problems or [])}
    with show_progress(is_quiet=as_json) as progress:
        sides = [list(episodes_of(_traces(path, trust_unsigned), known)) for path in (one, other)]
        try:
            found = compare_episodes(
                sides[0],
                sides[1],
                (called[0], called[1]),
                seed=seed,
                draws=draws,
                progress=lambda done, total: progress("compare", done, total),
            )
        except ValueError as wrong:
            raise typer.BadParameter(str(wrong)) from None
    if out is not None:
        out.write_text(render_comparison(found), "utf-8")
    show(found, _lines(found, out), as_json=as_json)


def _traces(path: Path, trust_unsigned: bool) -> Iterator[Trace]:
    """The traces of an export, a corpus or a file of rows; rows that cannot be read are counted on stderr."""
    from arena.chain.keys import verify
    from arena.export.writing.manifest import MANIFEST
    from neurons.cli.store_reading import state_folder
    from neurons.cli.train import SEALS
    from training.corpus.corpus_files import read_rows
    from training.corpus.model import Quarantined
    from training.corpus.sources.foreign import read_foreign
    from training.corpus.sources.reader import export_shards
    from training.corpus.sources.verified import open_export
    from training.rewriting.results import with_calls

    if path.is_dir() and not (path / MANIFEST).is_file():
        yield from (row.trace for row in read_rows(path))
        return
    if path.is_dir():
        seals = state_folder(None) / "corpus" / SEALS
        export = open_export(path, verify, trust_unsigned=trust_unsigned, seals=seals)
        rows: Iterator[Trace | Quarantined] = (row for shard in export_shards(export) for row in with_calls(shard)())
    else:
        rows = read_foreign(path)
    unread = 0
    for row in rows:
        if isinstance(row, Quarantined):
            unread += 1
        else:
            yield row
    if unread:
        typer.echo(f"{path}: {unread:,} rows could not be read and are left out", err=True)


def _lines(found: Comparison, out: Path | None) -> Iterator[str]:
    from training.corpus.distance.page import interval_text, verdict

    for side in found.sides:
        yield f"{side.name}: {side.episodes:,} episodes on {side.problems:,} problems, {side.calls:,} calls"
    yield ""
    yield verdict(found)
    yield ""
    yield f"{'distance (0 to 1)':<24}{'':<20}  chance  p"
    for one in found.distances:
        yield f"  {one.name:<22}{interval_text(one.distance):<20}  {one.shuffled:.2f}    {one.p_value:.3f}"
    yield ""
    first, second = (side.name for side in found.sides)
    yield f"{'measure':<24}{first:<24}  {second}"
    for measure in (found.length, *found.outcomes, *found.coverage):
        texts = [interval_text(value, measure.is_share) for value in measure.values]
        yield f"  {measure.name:<22}{texts[0]:<24}  {texts[1]}"
    behaviours = found.behaviours
    texts = [interval_text(one) for one in behaviours.expected]
    yield f"  {'distinct behaviours':<22}{texts[0]:<24}  {texts[1]}  in {behaviours.at:,} episodes"
    if out is not None:
        yield ""
        yield f"page: {out}"
