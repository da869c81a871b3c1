"""`arena problems cluster` and `partition`: which problems share an answer, and which pool each serves."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neurons.cli.problems.reading import (
    CatalogueOption,
    DocumentsOption,
    JsonOption,
    ProblemFiles,
    json_line,
    read_classes,
    read_files,
    refuse_existing,
)
from neurons.cli.signing import NetworkOption, WalletHotkeyOption, WalletNameOption, WalletPathOption, open_signing_key

if TYPE_CHECKING:
    from problems.model import Pool


def cluster(
    paths: ProblemFiles,
    documents: DocumentsOption = None,
    catalogue: CatalogueOption = None,
    similarity_e4: Annotated[
        int, typer.Option(min=1, max=10_000, help="Share of content words in common from which a pair is listed.")
    ] = 6_000,
    as_json: JsonOption = False,
) -> None:
    """Show which problems share a leak cluster, and which look alike without sharing one.

    Problems whose answers are the same thing (near-identical products of several shops are one thing, as far as a
    catalogue is given) share a cluster, whatever their words. The review net then lists pairs of different clusters
    whose words resemble each other in any order: a person reads those; they change no pool. Only clusters of two or
    more are shown. Exit code 0, also when there are some.
    """
    from problems.pools.clusters import find_clusters
    from problems.pools.review_net import similar_pairs

    problems = read_files(paths)
    clusters = find_clusters(problems, read_classes(documents, catalogue))
    shared = {name: ids for name, ids in sorted(clusters.problems_of.items()) if len(ids) > 1}
    name_of = clusters.name_of
    suspects = [pair for pair in similar_pairs(problems, similarity_e4) if name_of[pair.left] != name_of[pair.right]]
    if as_json:
        for name, ids in shared.items():
            typer.echo(json_line({"cluster": name, "problems": ids}))
        for pair in suspects:
            typer.echo(json_line({"left": pair.left, "right": pair.right, "similarity_e4": pair.similarity_e4}))
        totals = {"problems": len(problems), "clusters": len(clusters.problems_of), "review": len(suspects)}
        typer.echo(json_line(totals))
        return
    for name, ids in shared.items():
        typer.echo(f"{name[:12]}  {len(ids):>3}  {' '.join(ids)}")
    for pair in suspects:
        typer.echo(f"review {pair.similarity_e4 / 100:>5.1f} %  {pair.left} {pair.right}")
    typer.echo(
        f"{len(problems)} problems in {len(clusters.problems_of)} clusters, {len(shared)} of more than one;"
        f" {len(suspects)} pairs to read"
    )


def partition(
    paths: ProblemFiles,
    out: Annotated[Path, typer.Option(help="The private file, mode 0600; its key never leaves it.")],
    suite: Annotated[
        list[Path] | None, typer.Option(help="Problems that are never raced or trained on. Default: s1, s2 and s3.")
    ] = None,
    documents: DocumentsOption = None,
    catalogue: CatalogueOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw; it is published with the manifest.")] = 1,
    eval_counts: Annotated[
        str, typer.Option("--eval", help="Evaluation problems: product, shop, voucher.")
    ] = "28,24,23",
    dev_counts: Annotated[
        str, typer.Option("--dev", help="Development problems: product, shop, voucher.")
    ] = "20,20,20",
    is_extending: Annotated[
        bool, typer.Option("--extend", help="Enter the problems into the manifest that stands at --out.")
    ] = False,
    wallet_name: WalletNameOption = "",
    wallet_hotkey: WalletHotkeyOption = "",
    wallet_path: WalletPathOption = "",
    network: NetworkOption = "",
    as_json: JsonOption = False,
) -> None:
    """Deal the clusters of a bank to its pools, once, and sign the result.

    Suites are never_touch; eval (75 problems by default) and dev are drawn by seed and key over whole clusters; the
    rest is train. What is frozen never moves: with --extend new problems go where their answers already are, and those
    that would join two pools are refused, named, and give exit code 1. OUT holds the key that finds every answer: it
    stays with the bank. Beside it, partitions/SHA256.json is the public form, with keyed tokens only; --extend adds
    SHA256.change.json, which is read with the files before it. It names no problem, but two of them side by side show
    which clusters grew: publish each when the problems that entered with it are released. Next: `arena problems seal
    --partition OUT`.
    """
    from problems.model import BUCKETS

    classes = read_classes(documents, catalogue)
    signer = open_signing_key(wallet_name, wallet_hotkey, wallet_path, network)
    problems = read_files(paths)
    if is_extending:
        from arena.bank.partition_file import PartitionFile
        from arena.chain.keys import verify

        assigned = PartitionFile(out, signer, verify, lambda: classes).assign(problems)
        counts = {pool: assigned.pools.count(pool) for pool in dict.fromkeys(assigned.pools)}
        sha256, refused = assigned.partition_sha256, assigned.refused
        row = {"path": str(out), "sha256": sha256, "entered": counts, "refused": refused}
        typer.echo(json_line(row) if as_json else _extended_text(sha256, counts, refused))
        raise typer.Exit(1 if assigned.refused else 0)
    out.parent.mkdir(parents=True, exist_ok=True)
    refuse_existing(out, "add --extend to enter problems into it; a partition is frozen once")
    from arena.bank.partition_file import write_partition
    from problems.pools.manifest import KEY_BYTES
    from problems.pools.partition import freeze

    key = secrets.token_bytes(KEY_BYTES)
    manifest = freeze(
        problems,
        read_files(suite or [Path(name) for name in ("s1", "s2", "s3")]),
        seed=seed,
        key=key,
        classes=classes,
        eval_counts=dict(zip(BUCKETS, _three(eval_counts, "--eval"), strict=True)),
        dev_counts=dict(zip(BUCKETS, _three(dev_counts, "--dev"), strict=True)),
    )
    public = write_partition(out, manifest, key, signer)
    counts = dict(manifest.problem_counts)
    row = {"path": str(out), "public": str(public), "sha256": manifest.sha256, "signer": signer.hotkey, "pools": counts}
    if as_json:
        typer.echo(json_line(row))
        return
    typer.echo(f"{', '.join(f'{number} {pool}' for pool, number in counts.items())}; signed by {signer.hotkey}")
    typer.echo(f"manifest {manifest.sha256}")
    typer.echo(f"private: {out} (keep it)\npublic:  {public} (publish it when its problems are released)")
    typer.echo(f"next: arena problems seal PROBLEMS --partition {out} --out FOLDER")


def _three(text: str, flag: str) -> list[int]:
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdecimal() for part in parts):
        raise typer.BadParameter(f"{text!r} is not three numbers: product,shop,voucher", param_hint=flag)
    return [int(part) for part in parts]


def _extended_text(sha256: str, counts: Mapping[Pool, int], refused: Sequence[str]) -> str:
    lines = [f"refused: {problem_id} would join two pools, or is a suite's" for problem_id in refused]
    entered = ", ".join(f"{number} {pool}" for pool, number in counts.items()) or "nothing"
    return "\n".join([*lines, f"entered {entered}; manifest {sha256}"])
