"""`arena problems titles`: which products pass each reward title, built once for a bank's problems."""

from __future__ import annotations

import secrets
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated

import typer

from neurons.cli.problems_reading import (
    CatalogueOption,
    DocumentsOption,
    JsonOption,
    ProblemFiles,
    json_line,
    read_files,
    read_products,
    refuse_existing,
)
from neurons.cli.progress import show_progress

if TYPE_CHECKING:
    from arena.bank.title_release import ReleaseReport, TitleRelease
    from problems.model import Problem
    from problems.product import Product

_BAR_CHARS = 40


def titles(
    paths: ProblemFiles,
    out: Annotated[Path, typer.Option(help="The release to write; refused when it exists.")],
    name: Annotated[str, typer.Option(help="What outcomes carry beside the matcher's name, e.g. bank-2026-11.")],
    documents: DocumentsOption = None,
    catalogue: CatalogueOption = None,
    embeddings: Annotated[
        str, typer.Option(help="A /v1 endpoint that serves /embeddings. Empty: lexical/1, without any model.")
    ] = "",
    model: Annotated[str, typer.Option(help="With --embeddings: the model.")] = "Qwen/Qwen3-Embedding-0.6B",
    api_key: Annotated[
        str, typer.Option(envvar="OPENAI_API_KEY", show_envvar=True, show_default=False, help="Of the endpoint.")
    ] = "",
    vectors: Annotated[
        Path | None, typer.Option(help="With --embeddings: folder that keeps vectors, to go on after a break.")
    ] = None,
    decoys: Annotated[
        int, typer.Option(min=0, help="Titles nobody asks for, per reward title, so that the file names no answers.")
    ] = 20,
    as_json: JsonOption = False,
) -> None:
    """Build the title release of a bank: per reward title, the products that pass it.

    Scoring is then membership in a list, the same on every validator. Put the file as titles.json beside the index of
    the catalogue. It has to cover everything that is scored: give the suite and all problems that are sealed. It is
    written for its owner only, and goes to validators only, for it narrows down what the sealed problems ask for;
    --decoys makes that as many times harder. Shows how pairs lie around the threshold of 0.70: the nearer, the less
    certain the verdict.
    """
    from arena.bank.private_file import write_private
    from arena.bank.title_release import draw_decoys
    from problems.shipped_suites import encode_accepted

    refuse_existing(out)
    problems, products = read_files(paths), tuple(read_products(documents, catalogue))
    hidden = draw_decoys(problems, products, decoys, Random(secrets.randbits(256)))
    if embeddings:
        made = _embedded(
            problems, products, hidden, name, embeddings, model, api_key, vectors or out.parent / "vectors"
        )
    else:
        from arena.bank.title_release import build_lexical
        from problems.shelf import Shelf

        made = build_lexical(problems, Shelf(products), name, hidden)
    write_private(out, encode_accepted(made.titles))
    typer.echo(json_line({"path": str(out), "report": made.report}) if as_json else _text(out, made.report))


def _embedded(
    problems: list[Problem],
    products: tuple[Product, ...],
    decoys: tuple[Product, ...],
    name: str,
    base_url: str,
    model: str,
    api_key: str,
    folder: Path,
) -> TitleRelease:
    from arena.bank.embeddings import EmbeddingsEndpoint
    from arena.bank.title_release import VectorFolder, build_release

    endpoint = EmbeddingsEndpoint(base_url, model, api_key=api_key)
    try:
        with show_progress() as progress:
            return build_release(
                problems,
                products,
                endpoint,
                VectorFolder(folder),
                name=f"{model}@{name}",
                decoys=decoys,
                on_progress=lambda done, total: progress("embed", done, total),
            )
    finally:
        endpoint.close()


def _text(out: Path, report: ReleaseReport) -> str:
    """The figures, and a bar for each hundredth of similarity."""
    most = max((near.pairs for near in report.near), default=0)
    lines = [
        f"{report.name}: {report.reward_titles:,} titles over {report.products:,} products,"
        f" {report.pairs_accepted:,} pairs pass; {report.accepted_alone:,} titles take one product, the widest"
        f" {report.accepted_most:,}",
        f"pairs by similarity; {report.threshold_e4 / 10_000:.2f} passes",
    ]
    for near in report.near:
        bar = "#" * -(-_BAR_CHARS * near.pairs // most) if most else ""
        lines.append(f"  {near.from_e4 / 10_000:.2f}  {near.pairs:>9,}  {bar}".rstrip())
    lines.append(f"{report.within_a_hundredth:,} pairs lie within 0.01 of the threshold")
    lines.append(f"written to {out}: put it as titles.json into the index folder of each validator, and nowhere else")
    return "\n".join(lines)
