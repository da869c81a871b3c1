"""`arena problems sign-suite`: the operator's key under the suite that a network qualifies agents on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neurons.cli.problems.reading import (
    CatalogueOption,
    DocumentsOption,
    JsonOption,
    ProblemFile,
    json_line,
    read_file,
    read_products,
    read_release,
    refuse_existing,
)
from neurons.cli.signing import NetworkOption, WalletHotkeyOption, WalletNameOption, WalletPathOption, open_signing_key


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
    as_json: JsonOption = False,
) -> None:
    """Sign a suite with the operator's key, so that validators qualify agents on it.

    Writes NAME.jsonl, NAME.titles.json, NAME.manifest.json and NAME.signature.json. On a real network a validator reads
    them from STATE_DIR/suites when it starts, and runs with no suite but the one that its setting bank_hotkey signed.
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
        raise typer.Exit(1)
    signer = open_signing_key(wallet_name, wallet_hotkey, wallet_path, network)
    recipe = CatalogueRecipe(
        generator="given", documents=len(products), seed=0, products_sha256=products_sha256(products.values())
    )
    manifest = write_suite(out, name, problems, release, recipe, signer)
    if as_json:
        typer.echo(json_line({"path": str(out), "signer": signer.hotkey, "manifest": manifest}))
        return
    counts = ", ".join(f"{count} {bucket}" for bucket, count in manifest.counts.items())
    typer.echo(f"{name}: {counts} over {len(products):,} products, titles {manifest.titles}; signed by {signer.hotkey}")
    typer.echo(f"written to {out}: validators put the four files into STATE_DIR/suites and set bank_hotkey")
