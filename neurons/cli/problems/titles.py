"""`arena problems titles` and `sign-suite`: the products that pass each reward title, and the suite signed with them.

Titles are matched once, for a suite or for a bank's problems. The operator signs the suite that a network qualifies
agents on.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neurons.cli.exit_codes import EXIT_FAILED
from neurons.cli.options import (
    CatalogueOption,
    DocumentsOption,
    JsonLinesOption,
    NetworkOption,
    ProblemFile,
    ProblemFiles,
    WalletHotkeyOption,
    WalletNameOption,
    WalletPathOption,
    open_signing_key,
)
from neurons.cli.presenter import show
from neurons.cli.problems.reading import read_file, read_files, read_products, read_release, refuse_existing
from neurons.cli.progress import show_progress

if TYPE_CHECKING:
    from arena.bank.title_release import ReleaseReport

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
    as_json: JsonLinesOption = False,
) -> None:
    """Build a title release: per reward title, the products that pass it.

    Scoring is then membership in a list, the same on every validator. Make one for the suite, which is public as the
    suite is (`arena problems sign-suite --titles`), and another one for the problems that will be sealed: it names
    their answers, stays with you (mode 0600), and goes into the batches themselves (`arena problems seal --titles`; a
    stock of your own: STATE_DIR/bank/titles.json). Shows how pairs lie around the threshold of 0.70: the nearer, the
    less certain the verdict.
    """
    from arena.bank.embeddings import EmbeddingsEndpoint
    from arena.bank.title_release import VectorFolder, build_lexical, build_release
    from foundation.durable_files import write_whole
    from problems.scoring.title_index import TitleIndex
    from problems.scoring.title_matching import encode_accepted

    refuse_existing(out)
    problems, products = read_files(paths), tuple(read_products(documents, catalogue))
    if embeddings:
        endpoint = EmbeddingsEndpoint(embeddings, model, api_key=api_key)
        with contextlib.closing(endpoint), show_progress() as progress:
            made = build_release(
                problems,
                products,
                endpoint,
                VectorFolder(vectors or out.parent / "vectors"),
                name=f"{model}@{name}",
                on_progress=functools.partial(progress, "embed"),
            )
    else:
        made = build_lexical(problems, TitleIndex(products), name)
    write_whole(out, encode_accepted(made.titles), mode=0o600)
    show({"path": str(out), "report": made.report}, _report_lines(out, made.report), as_json=as_json)


def sign_suite(
    path: ProblemFile,
    titles: Annotated[Path, typer.Option(help="Title release that lists every reward title of the suite.")],
    out: Annotated[Path, typer.Option(help="Folder for the signed files, e.g. STATE_DIR/suites.")],
    name: Annotated[str, typer.Option(help="The suite's name, as policies name it.")] = "s1",
    documents: DocumentsOption = None,
    catalogue: CatalogueOption = None,
    wallet_name: WalletNameOption = "",
    wallet_hotkey: WalletHotkeyOption = "",
    wallet_path: WalletPathOption = "",
    network: NetworkOption = "",
    as_json: JsonLinesOption = False,
) -> None:
    """Sign a suite with the operator's key, so that validators qualify agents on it.

    Writes NAME.jsonl, NAME.titles.json, NAME.manifest.json and NAME.signature.json. On a real network a validator reads
    them from STATE_DIR/suites when it starts, and runs with no suite but the one that its setting bank_hotkey signed:
    `arena operator publish OUT` brings them there.
    Every problem must be solvable in the catalogue under these titles; one that is not is named, nothing is written,
    and the exit code is 1. The files are public. Make the titles with `arena problems titles`.
    """
    from arena.bank.suite_signature import write_suite
    from problems.scoring.self_check import check_solvable
    from problems.suites.shipped import CatalogueRecipe, products_sha256

    if out.exists():
        refuse_existing(out / f"{name}.manifest.json")
    problems, release = read_file(path), read_release(titles)
    products = {product.product_id: product for product in read_products(documents, catalogue)}
    checks = [check_solvable(problem, products.get, release) for problem in problems]
    if unusable := [check for check in checks if not check.is_usable]:
        for check in unusable:
            said = f"{check.failure.code} {check.failure.detail}" if check.failure else "not usable"
            typer.echo(f"{check.problem_id}: {said}", err=True)
        raise typer.Exit(EXIT_FAILED)
    signer = open_signing_key(wallet_name, wallet_hotkey, wallet_path, network)
    recipe = CatalogueRecipe(
        generator="given", documents=len(products), seed=0, products_sha256=products_sha256(products.values())
    )
    manifest = write_suite(out, name, problems, release, recipe, signer)
    counts = ", ".join(f"{count} {bucket}" for bucket, count in manifest.counts.items())
    lines = [
        f"{name}: {counts} over {len(products):,} products, titles {manifest.titles}; signed by {signer.hotkey}",
        f"written to {out}: next: arena operator publish {out}; validators set operator_hotkey = {signer.hotkey}",
    ]
    show({"path": str(out), "signer": signer.hotkey, "manifest": manifest}, lines, as_json=as_json)


def _report_lines(out: Path, report: ReleaseReport) -> Iterator[str]:
    """The figures, and a bar for each hundredth of similarity."""
    most = max((near.pairs for near in report.near), default=0)
    yield (
        f"{report.name}: {report.reward_titles:,} titles over {report.products:,} products,"
        f" {report.pairs_accepted:,} pairs pass; {report.accepted_alone:,} titles take one product, the widest"
        f" {report.accepted_most:,}"
    )
    yield f"pairs by similarity; {report.threshold_e4 / 10_000:.2f} passes"
    for near in report.near:
        bar = "#" * -(-_BAR_CHARS * near.pairs // most) if most else ""
        yield f"  {near.from_e4 / 10_000:.2f}  {near.pairs:>9,}  {bar}".rstrip()
    yield f"{report.within_a_hundredth:,} pairs lie within 0.01 of the threshold"
    yield f"written to {out}: next: arena problems seal --titles {out}, or sign-suite --titles for a suite"
