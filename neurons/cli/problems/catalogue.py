"""`arena catalogue`: make documents, build an index, look at it, serve it, time it, with `harness/catalogue`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foundation.durable_files import replacing
from foundation.progress import Progress
from neurons.cli.exit_codes import EXIT_FAILED
from neurons.cli.options import JsonOption
from neurons.cli.presenter import echo_json, field_lines, make_table, show
from neurons.cli.progress import show_progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.catalogue.engines.comparison import Search
    from harness.catalogue.engines.lucene import LuceneManifest
    from harness.catalogue.index.layout import FileEntry, IndexManifest
    from harness.catalogue.port import Catalogue
    from problems.product import Product

app = typer.Typer(
    help="""Make, build and serve product catalogues.

    arena operator catalogue synth --out shop

    arena operator catalogue build shop/documents.jsonl --out shop/index

    arena operator catalogue info shop/index
    """,
    no_args_is_help=True,
)

_Index = Annotated[Path, typer.Argument(help="Folder made by `arena catalogue build`.")]
_ENGINES = "auto, numpy, numba (one kind of index) or lucene (its own index and extra packages)"


@app.command()
def synth(
    out: Annotated[Path, typer.Option(help="Folder for documents.jsonl; made when missing.")],
    count: Annotated[int, typer.Option(min=1, help="How many products.")] = 20_000,
    seed: Annotated[int, typer.Option(help="The same seed and count make the same catalogue on every machine.")] = 7,
    as_json: JsonOption = False,
) -> None:
    """Make a synthetic catalogue that behaves like a real one, faults included.

    Writes OUT/documents.jsonl in ShoppingBench's index line format, with words of our own. Build the index next.
    """
    from harness.catalogue.index.documents import write_documents
    from harness.catalogue.synthetic.generator import generate

    out.mkdir(parents=True, exist_ok=True)
    path = out / "documents.jsonl"
    with show_progress() as progress, replacing(path) as stream:
        write_documents(_counted(generate(count, seed), count, progress), stream)
    _show({"documents": count, "seed": seed, "path": str(path), "bytes": path.stat().st_size}, as_json)
    if not as_json:
        typer.echo(f"next: arena catalogue build {path} --out {out / 'index'}")


@app.command()
def build(
    documents: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, help="documents.jsonl or documents.jsonl.gz, one document a line."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the index; an index that stands there is replaced.")],
    engine: Annotated[str, typer.Option(help=f"Which engine will open it: {_ENGINES}.")] = "auto",
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first malformed line.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Build the search index of a documents file.

    The index appears whole or not at all. Malformed lines are left out, counted and named by line number; two documents
    of one id stop the build. The catalogue's identity does not depend on the order of lines or on compression.
    """
    import msgspec

    from harness.catalogue.engines.registry import build_engine

    with show_progress() as progress:
        built = build_engine(engine, documents, out, is_strict=strict, progress=progress)
    findings = [f"line {finding.line}: {finding.detail}" for finding in built.findings]
    if built.malformed > len(findings) and not as_json:
        findings.append(f"... and {built.malformed - len(findings):,} more lines")
    _show({"path": str(out), **msgspec.structs.asdict(built), "findings": findings}, as_json)


@app.command()
def info(
    index: _Index,
    verify: Annotated[bool, typer.Option("--verify", help="Read every file and compare its hash.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what an index holds and check that it is whole.

    Sizes, the manifest's own hash and the hashes of small files are always checked; --verify reads everything.
    """
    from harness.catalogue.engines import lucene
    from harness.catalogue.index import layout

    if (index / lucene.MANIFEST).is_file():
        other = lucene.read_lucene_manifest(index)
        layout.check_entries(index, other.files, is_full=verify)
        facts = _index_facts(index, other, other.files)
    else:
        manifest = layout.read_manifest(index)
        layout.check_entries(index, manifest.content.files, is_full=verify)
        facts = _index_facts(index, manifest, manifest.content.files)
        facts |= {"terms": manifest.content.terms, "postings": manifest.content.postings}
    _show({**facts, "fully_verified": verify}, as_json)


@app.command()
def serve(
    index: _Index,
    host: Annotated[str, typer.Option(help="Address to listen on. The server knows no users: keep it private.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 picks a free port.")] = 5631,
    workers: Annotated[int, typer.Option(min=0, max=256, help="Processes; 0 means one for each core.")] = 0,
    engine: Annotated[str, typer.Option(help=f"What answers: {_ENGINES}.")] = "auto",
) -> None:
    """Serve the catalogue over HTTP with the reference search server's endpoints.

    /find_product, /view_product_information, /get_product_raw and /health take the same parameters and give the same
    JSON, so a client of the reference works unchanged. Workers share the index's memory. Ends on Ctrl-C or SIGTERM,
    after what is being answered. Prints the base URL when it accepts connections.
    """
    from harness.catalogue.server import application

    def announce(address: str) -> None:
        typer.echo(f"serving {index} at {address}")

    application.serve(index, engine=engine, host=host, port=port, workers=workers, announce=announce)


@app.command(hidden=True)  # `arena developer bench`
def bench(
    index: _Index,
    queries: Annotated[int, typer.Option(min=20, help="Mixed requests: filters, sorts, shops, pages 1 to 5.")] = 300,
    engine: Annotated[list[str] | None, typer.Option(help="Engine to time; repeat it. Default: numpy, numba.")] = None,
    lucene_index: Annotated[
        Path | None, typer.Option(help="Lucene index of the same documents; the baseline then is Lucene itself.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed asks the same requests.")] = 1,
    budget: Annotated[float, typer.Option(min=1, help="Seconds after which the baseline stops.")] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Time engines against the reference on the same catalogue and requests, and compare every page.

    The baseline is the reference's algorithm in plain Python, or Lucene with --lucene-index. Prints p50, p99 and mean
    in milliseconds, the ratios to the baseline and how many pages are equal. Exit code 1 when a page differs.
    """
    import time

    from rich.box import SIMPLE_HEAD
    from rich.console import Console

    from harness.catalogue.engines.comparison import compare, sample_requests
    from harness.catalogue.engines.reference import ReferenceSearch
    from harness.catalogue.engines.registry import open_engine

    searches: dict[str, Search] = {}
    if lucene_index is None:
        searches["reference"] = ReferenceSearch(index).page
    else:
        searches["lucene"] = _ids_of(open_engine("lucene", lucene_index))
    catalogues = {name: open_engine(name, index) for name in engine or ["numpy", "numba"]}
    searches |= {name: _ids_of(catalogue) for name, catalogue in catalogues.items()}
    own = next(iter(catalogues.values()))
    requests = sample_requests(own, queries, seed)
    with show_progress() as progress:
        figures = compare(searches, requests, clock=time.perf_counter, budget_s=budget, progress=progress)
    about = {"content_sha256": own.content_sha256, "documents": len(own), "seed": seed, "baseline": figures[0].engine}
    if as_json:
        echo_json({**about, "engines": figures})
    else:
        _show(about, as_json)
        names = ("p50", "p99", "mean")
        columns = [*(f"{name} ms" for name in names), *(f"{name} x" for name in names), "equal"]
        table = make_table("engine", *columns, right=columns, box=SIMPLE_HEAD)
        for one in figures:
            times = (_digits(value) for value in (one.p50_ms, one.p99_ms, one.mean_ms))
            ratios = (f"{_digits(value)}x" for value in (one.ratio_p50, one.ratio_p99, one.ratio_mean))
            table.add_row(one.engine, *times, *ratios, f"{one.pages_equal}/{one.queries}")
        Console().print(table)
    if any(figure.pages_equal < figure.queries for figure in figures):
        raise typer.Exit(EXIT_FAILED)


def _ids_of(catalogue: Catalogue) -> Search:
    return lambda request: [product.product_id for product in catalogue.search(request)]


def _digits(value: float) -> str:
    return f"{value:,.2f}" if value < 10 else f"{value:,.0f}"


def _index_facts(folder: Path, manifest: IndexManifest | LuceneManifest, files: Sequence[FileEntry]) -> dict[str, Any]:
    return {
        "path": str(folder),
        "content_sha256": manifest.content_sha256,
        "format": manifest.content.format,
        "documents": manifest.content.documents,
        "bytes": sum(entry.size for entry in files),
        "blank_dropped": manifest.blank_dropped,
        "malformed": manifest.malformed,
        "source": manifest.source.name,
        "source_sha256": manifest.source.sha256,
    }


def _show(facts: dict[str, Any], as_json: bool) -> None:
    rows: list[tuple[str, object]] = []
    for name, value in facts.items():
        if isinstance(value, list):
            rows += [(name, line) for line in value]
        else:
            rows.append((name, f"{value:,}" if type(value) is int and name != "seed" else value))
    show(facts, field_lines(rows, 15), as_json=as_json)


def _counted(items: Iterator[Product], total: int, progress: Progress) -> Iterator[Product]:
    for done, item in enumerate(items):
        if done % 500 == 0:
            progress("generate", done, total)
        yield item
    progress("generate", total, total)
