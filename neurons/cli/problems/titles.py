"""`arena problems titles`: which products pass each reward title, built once for a bank's problems."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neurons.cli.problems.reading import (
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
    as_json: JsonOption = False,
) -> None:
    """Build a title release: per reward title, the products that pass it.

    Scoring is then membership in a list, the same on every validator. Make one for the suite, which is public as the
    suite is (`arena problems sign-suite --titles`), and another one for the problems that will be sealed: it names
    their answers, stays with you (mode 0600), and goes into the batches themselves (`arena problems seal --titles`; a
    stock of your own: STATE_DIR/bank/titles.json). Shows how pairs lie around the threshold of 0.70: the nearer, the
    less certain the verdict.
    """
    from foundation.durable_files import write_whole
    from problems.scoring.title_matching import encode_accepted

    refuse_existing(out)
    problems, products = read_files(paths), tuple(read_products(documents, catalogue))
    if embeddings:
        made = _embedded(problems, products, name, embeddings, model, api_key, vectors or out.parent / "vectors")
    else:
        from arena.bank.title_release import build_lexical
        from problems.scoring.title_index import TitleIndex

        made = build_lexical(problems, TitleIndex(products), name)
    write_whole(out, encode_accepted(made.titles), mode=0o600)
    typer.echo(json_line({"path": str(out), "report": made.report}) if as_json else _text(out, made.report))


def _embedded(
    problems: list[Problem],
    products: tuple[Product, ...],
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
    lines.append(f"written to {out}: next: arena problems seal --titles {out}, or sign-suite --titles for a suite")
    return "\n".join(lines)
