"""`arena catalogue`: make documents, build an index, look at it, serve it, with `harness/catalogue`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foundation.durable_files import replacing
from harness.catalogue.synthetic import generate
from neurons.cli.options import command
from neurons.cli.presenter import field_lines, is_json, say, show, show_progress

if TYPE_CHECKING:
    from harness.catalogue.layout import IndexManifest, LuceneManifest

app = typer.Typer(
    help="""Make, build and serve product catalogues.

    arena catalogue synth --out shop

    arena catalogue build shop/documents.jsonl --out shop/index

    arena catalogue info shop/index
    """,
    no_args_is_help=True,
)

_Index = Annotated[Path, typer.Argument(help="Folder made by `arena catalogue build`.", exists=True)]
_ENGINES = "auto, numpy, numba (one kind of index) or lucene (its own index and extra packages)"


@command(app)
def synth(
    out: Annotated[Path, typer.Option(help="Folder for documents.jsonl; made when missing.")],
    count: Annotated[int, typer.Option(min=1, help="How many products.")] = 20_000,
    seed: Annotated[int, typer.Option(help="The same seed and count make the same catalogue on every machine.")] = 7,
) -> None:
    """Make a synthetic catalogue that behaves like a real one, faults included.

    Writes OUT/documents.jsonl in ShoppingBench's index line format, with words of our own. Build the index next.
    """
    from harness.catalogue.build import write_documents

    out.mkdir(parents=True, exist_ok=True)
    path = out / "documents.jsonl"
    progress = show_progress()
    with replacing(path) as stream:
        write_documents(generate(count, seed), stream, lambda done: progress("generate", done, count))
    _show({"documents": count, "seed": seed, "path": str(path), "bytes": path.stat().st_size})
    say(f"next: arena catalogue build {path} --out {out / 'index'}")


@command(app)
def build(
    documents: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, help="documents.jsonl, or .jsonl.gz."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the index; an index that stands there is replaced.")],
    engine: Annotated[str, typer.Option(help=f"Which engine will open it: {_ENGINES}.")] = "auto",
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first malformed line.")] = False,
) -> None:
    """Build the search index of a documents file.

    The index appears whole or not at all. Malformed lines are left out, counted and named by line number; two documents
    of one id stop the build. The catalogue's identity does not depend on the order of lines or on compression.
    """
    from harness.catalogue.lucene import build_engine

    built = build_engine(engine, documents, out, is_strict=strict, progress=show_progress())
    findings = [f"line {finding.line}: {finding.detail}" for finding in built.findings]
    if (left := built.manifest.malformed - len(findings)) and not is_json():
        findings.append(f"... and {left:,} more lines")
    _show({**_index_facts(out, built.manifest), "findings": findings})


@command(app)
def info(
    index: _Index,
    verify: Annotated[bool, typer.Option("--verify", help="Read every file and compare its hash.")] = False,
) -> None:
    """Show what an index holds and check that it is whole.

    Sizes, the manifest's own hash and the hashes of small files are always checked; --verify reads everything.
    """
    from harness.catalogue import layout, lucene

    is_lucene = (index / layout.LUCENE_MANIFEST).is_file()
    manifest = lucene.read_lucene_manifest(index) if is_lucene else layout.read_manifest(index)
    layout.check_entries(index, manifest.files, is_full=verify)
    _show({**_index_facts(index, manifest), "fully_verified": verify})


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
    from harness.catalogue import server as application

    def announce(address: str) -> None:
        typer.echo(f"serving {index} at {address}")

    application.serve(index, engine=engine, host=host, port=port, workers=workers, announce=announce)


def _index_facts(folder: Path, manifest: IndexManifest | LuceneManifest) -> dict[str, Any]:
    own = {name: getattr(manifest.content, name, None) for name in ("format", "documents", "terms", "postings")}
    return {
        "path": str(folder),
        "content_sha256": manifest.content_sha256,
        **own,
        "bytes": sum(entry.size for entry in manifest.files),
        "blank_dropped": manifest.blank_dropped,
        "malformed": manifest.malformed,
        "source": manifest.source.name,
        "source_sha256": manifest.source.sha256,
    }


def _show(facts: dict[str, Any]) -> None:
    each = ((name, one) for name, value in facts.items() for one in (value if isinstance(value, list) else [value]))
    rows = ((name, f"{one:,}" if type(one) is int and name != "seed" else one) for name, one in each)
    show(facts, field_lines(rows, 15))
