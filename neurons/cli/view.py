"""`arena view`: traces in the terminal, or as static pages; and any record of the log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from foundation.durable_files import write_whole
from neurons.cli.exit_codes import EXIT_FAILED
from neurons.cli.options import CatalogueOption, JsonOption, StoreFlags, ValidatorOption, command
from neurons.cli.presenter import echo_json, echo_styled, text_width

if TYPE_CHECKING:
    from neurons.cli.traces import FoundTraces
    from problems.model import Pool

app = typer.Typer()

TRACES_MAX = 500  # read at most


@command(app)
def view(
    store: StoreFlags,
    target: Annotated[
        str,
        typer.Argument(
            metavar="[RECORD|BODY|RUN|RACE|EXPORT]",
            help="Record number or id, race id, body or run file, folder of bodies, or export. Default: the last run.",
            show_default=False,
        ),
    ] = "",
    trace: Annotated[str, typer.Option("--trace", help="Of several, the one with this problem id or number.")] = "",
    html: Annotated[
        Path | None, typer.Option("--html", help="Write static pages into this folder.", file_okay=False)
    ] = None,
    is_whole: Annotated[bool, typer.Option("--whole", help="Fold no result and cut no text.")] = False,
    is_as_judged: Annotated[
        bool, typer.Option("--as-judged", help="Print the text that a judge is shown, and nothing else.")
    ] = False,
    viewer: Annotated[
        str, typer.Option("--viewer", help="operator or public. Default: operator; with --html public.")
    ] = "",
    pool: Annotated[
        list[str] | None, typer.Option("--pool", help="Pools that the public asks for by name. Repeatable.")
    ] = None,
    validator: ValidatorOption = "",
    catalogue: CatalogueOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look at traces: what happened, what was asked, what failed.

    arena view
    arena view --trace p_95f5e151185751fe
    arena view race-000014 --html build/race-14
    arena view body.json --whole

    Shows each constraint with what was found, scores by product and axis, the judge's sentences with their quotes, each
    turn with who wrote its calls, and, for a record, its signature and chain state. A record without a trace is shown
    field by field. Requests and products are read from the state folder; --catalogue names another catalogue. Pages
    load nothing and run nothing; open index.html. Of a node's store, pages hold only what is public by now (--viewer
    operator: everything; such pages are not for passing on). Exit code 1 when nothing is there or nothing may be shown.
    """
    if viewer not in ("", "operator", "public"):
        raise typer.BadParameter("operator or public", param_hint="--viewer")
    shown_to = viewer or ("public" if html else "operator")
    try:
        found = _found(target, shown_to, pool or ["train"], validator, catalogue, store)
    except msgspec.MsgspecError as error:
        raise typer.BadParameter(f"{target} is neither a run nor a body: {error}", param_hint="TARGET") from error
    if found is None:
        _show_record(store, target, validator, is_whole=is_whole, as_json=as_json)
        return
    kept = [one for one in found.traces if trace == one[0].name or one[1].problem_id.startswith(trace)]
    found = found._replace(traces=tuple(kept))
    for line in found.withheld:
        typer.echo(line, err=True)
    if not found.traces:
        typer.echo(
            f"nothing to show of {target or 'the last run'}{f' with --trace {trace}' if trace else ''}", err=True
        )
        raise typer.Exit(EXIT_FAILED)
    if html is not None:
        _write_pages(found, html)
    elif as_json:
        echo_json([view for view, _ in found.traces])
    elif is_as_judged:
        from judge.render import render

        typer.echo("\n\n".join(render(body).text for _, body in found.traces))
    else:
        _print(found, is_whole=is_whole)


def _found(
    target: str, viewer: str, pools: list[str], validator: str, catalogue: Path | None, store: StoreFlags
) -> FoundTraces | None:
    """The traces that a target names: a file or folder here, else a record or race of a store; None for a record
    without one."""
    from neurons.cli.traces import ReadRules, traces_of_path, traces_of_store
    from neurons.practice.run import default_cache_dir
    from neurons.race.explaining import open_explainer
    from problems.model import POOLS

    path = Path(target) if target else default_cache_dir() / "last-run.json"
    if not target and not path.exists():
        typer.echo("there is no run yet; next: arena run AGENT.py", err=True)
        raise typer.Exit(EXIT_FAILED)
    if path.exists():
        return traces_of_path(path, TRACES_MAX)
    if unknown := set(pools) - set(POOLS):
        raise typer.BadParameter(f"no pool {unknown.pop()!r}; there are {', '.join(POOLS)}", param_hint="--pool")
    asked: tuple[Pool, ...] = tuple(pool for pool in POOLS if pool in pools)
    now_ms = time.time_ns() // 1_000_000
    explain = open_explainer(store.folder, catalogue).explain
    rules = ReadRules("public" if viewer == "public" else "operator", asked, now_ms, TRACES_MAX, validator, explain)
    return store.run(lambda logs: traces_of_store(logs, target, rules))


def _show_record(store: StoreFlags, which: str, validator: str, *, is_whole: bool, as_json: bool) -> None:
    """A record that is no evaluation, field by field."""
    from neurons.cli.options import MESSAGE_NOT_FOUND, find_record
    from neurons.cli.records import envelope, plain_content, record_lines

    found = store.run(lambda logs: find_record(logs, which, validator))
    if found is None:
        typer.echo(MESSAGE_NOT_FOUND.format(which=which), err=True)
        raise typer.Exit(EXIT_FAILED)
    record, content = found
    if as_json:
        echo_json({**envelope(record), "content": plain_content(record, content)})
    else:
        echo_styled(record_lines(record, content, is_whole=is_whole))


def _print(found: FoundTraces, *, is_whole: bool) -> None:
    """One trace whole; of several a line each, and how to see one."""
    from arena.view.lines import trace_lines

    width = text_width()
    if len(found.traces) == 1:
        echo_styled(trace_lines(found.traces[0][0], width, is_whole=is_whole))
        return
    typer.echo(f"{found.title}: {len(found.traces)} traces")
    longest = max(len(view.name) for view, _ in found.traces)
    for view, body in found.traces:
        version = dict(view.facts).get("version", "")  # of a record: name and hash; a run is of one agent
        whose = f"{body.problem_id[:6]} {version[:10]:<10} " if version else ""
        typer.echo(f"{view.name:<{longest}} {whose}{view.result}"[:width])
    typer.echo(f"\none of them: add --trace {found.traces[0][0].name}; as pages: --html DIR")


def _write_pages(found: FoundTraces, folder: Path) -> None:
    from arena.view.page import trace_pages

    pages = trace_pages(found.title, [view for view, _ in found.traces])
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in pages.items():
        write_whole(folder / name, content.encode("utf-8", "replace"))
    typer.echo(f"{len(found.traces)} traces: {folder / 'index.html'}")
