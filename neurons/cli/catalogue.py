"""`arena catalogue`: make documents, build an index from them, look at an index. The work stands in the harness."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from harness.catalogue.layout import Manifest
    from problems.product import Product

app = typer.Typer(help="Make and build product catalogues.", no_args_is_help=True)

Progress = Callable[[str, int, int], None]  # phase, done, total

_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def synth(
    out: Annotated[Path, typer.Option(help="Folder for documents.jsonl; made when missing.")],
    count: Annotated[int, typer.Option(min=1, help="How many products.")] = 20_000,
    seed: Annotated[int, typer.Option(help="The same seed and count make the same catalogue on every machine.")] = 7,
    as_json: _Json = False,
) -> None:
    """Make a synthetic catalogue that behaves like a real one, faults included.

    Writes OUT/documents.jsonl in ShoppingBench's index line format, with words of our own. Build the index next.
    """
    from harness.catalogue.documents import write_documents
    from harness.catalogue.synthetic import generate

    out.mkdir(parents=True, exist_ok=True)
    path, part = out / "documents.jsonl", out / "documents.jsonl.part"
    with _progress() as progress, part.open("wb") as stream:
        products = generate(count, seed)
        write_documents(_counted(products, count, progress), stream)
    part.replace(path)
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
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first malformed line.")] = False,
    as_json: _Json = False,
) -> None:
    """Build the search index of a documents file.

    The index appears whole or not at all. Malformed lines are left out, counted and named by line number; two documents
    of one id stop the build. The catalogue's identity does not depend on the order of lines or on compression.
    """
    from harness.catalogue.index import build_index

    with _progress() as progress:
        report = build_index(documents, out, is_strict=strict, progress=progress)
    findings = [f"line {finding.line}: {finding.detail}" for finding in report.findings]
    _show({**_facts(out, report.manifest), "findings": findings}, as_json)


@app.command()
def info(
    index: Annotated[Path, typer.Argument(help="Folder made by `arena catalogue build`.")],
    verify: Annotated[bool, typer.Option("--verify", help="Read every file and compare its hash.")] = False,
    as_json: _Json = False,
) -> None:
    """Show what an index holds and check that it is whole.

    Sizes, the manifest's own hash and the hashes of small files are always checked; --verify reads everything.
    """
    from harness.catalogue.layout import check_files, read_manifest

    manifest = read_manifest(index)
    check_files(index, manifest, is_full=verify)
    _show({**_facts(index, manifest), "fully_verified": verify}, as_json)


def _facts(folder: Path, manifest: Manifest) -> dict[str, object]:
    content = manifest.content
    return {
        "path": str(folder),
        "content_sha256": manifest.content_sha256,
        "format": content.format,
        "documents": content.documents,
        "terms": content.terms,
        "postings": content.postings,
        "bytes": sum(entry.size for entry in content.files),
        "blank_dropped": manifest.blank_dropped,
        "malformed": manifest.malformed,
        "source": manifest.source.name,
        "source_sha256": manifest.source.sha256,
    }


def _show(facts: dict[str, object], as_json: bool) -> None:
    if as_json:
        import msgspec

        typer.echo(msgspec.json.encode(facts).decode())
        return
    for name, value in facts.items():
        if isinstance(value, list):
            for line in value:
                typer.echo(f"{name:<15} {line}")
        else:
            typer.echo(f"{name:<15} {f'{value:,}' if isinstance(value, int) and name != 'seed' else value}")


def _counted(items: Iterator[Product], total: int, progress: Progress) -> Iterator[Product]:
    for done, item in enumerate(items):
        if done % 500 == 0:
            progress("generate", done, total)
        yield item
    progress("generate", total, total)


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar per phase on a terminal, one line per finished phase elsewhere; both on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda phase, done, total: console.print(f"{phase}: done") if done == total else None
        return
    percent = TextColumn("{task.percentage:>3.0f} %")
    with Bars(
        TextColumn("{task.description:<9}"), BarColumn(), percent, TimeRemainingColumn(), console=console
    ) as bars:
        tasks: dict[str, TaskID] = {}

        def advance(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=total)
            bars.update(tasks[phase], completed=done, total=total)

        yield advance
