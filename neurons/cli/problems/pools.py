"""`arena problems cluster`, `partition` and `pool`: problems that share an answer, and the pool that each serves.

`pool` writes what races have released of a pool to a file that a recipe can name.
"""

from __future__ import annotations

import functools
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neurons.cli.exit_codes import EXIT_FAILED
from neurons.cli.options import (
    CatalogueOption,
    DocumentsOption,
    JsonLinesOption,
    NetworkOption,
    ProblemFiles,
    WalletHotkeyOption,
    WalletNameOption,
    WalletPathOption,
    open_signing_key,
)
from neurons.cli.presenter import echo_json, show
from neurons.cli.problems.reading import read_classes, read_files, refuse_existing
from neurons.cli.progress import show_progress
from neurons.cli.store_reading import state_folder

if TYPE_CHECKING:
    from arena.bank.batches.released_problems import LearntPool, ReleasedPool
    from arena.records.model import ReleaseRecord

_POOLS: tuple[LearntPool, ...] = ("train", "dev")
_WHY = {
    "held_out": "held out by name",
    "cluster": "shares a leak cluster with another pool's problem",
    "partition": "the partition gives it, or an answer of it, another pool",
}


def cluster(
    paths: ProblemFiles,
    documents: DocumentsOption = None,
    catalogue: CatalogueOption = None,
    similarity_e4: Annotated[
        int, typer.Option(min=1, max=10_000, help="Share of content words in common from which a pair is listed.")
    ] = 6_000,
    as_json: JsonLinesOption = False,
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
            echo_json({"cluster": name, "problems": ids})
        for pair in suspects:
            echo_json({"left": pair.left, "right": pair.right, "similarity_e4": pair.similarity_e4})
        echo_json({"problems": len(problems), "clusters": len(clusters.problems_of), "review": len(suspects)})
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
    as_json: JsonLinesOption = False,
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
        counts = {name: assigned.pools.count(name) for name in dict.fromkeys(assigned.pools)}
        sha256, refused = assigned.partition_sha256, assigned.refused
        row = {"path": str(out), "sha256": sha256, "entered": counts, "refused": refused}
        lines = [f"refused: {problem_id} would join two pools, or is a suite's" for problem_id in refused]
        entered = ", ".join(f"{number} {name}" for name, number in counts.items()) or "nothing"
        show(row, [*lines, f"entered {entered}; manifest {sha256}"], as_json=as_json)
        raise typer.Exit(EXIT_FAILED if refused else 0)
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
    lines = [
        f"{', '.join(f'{number} {name}' for name, number in counts.items())}; signed by {signer.hotkey}",
        f"manifest {manifest.sha256}",
        f"private: {out} (keep it)\npublic:  {public} (publish it when its problems are released)",
        f"next: arena problems seal PROBLEMS --partition {out} --out FOLDER",
    ]
    show(row, lines, as_json=as_json)


def pool(
    exports: Annotated[
        list[Path], typer.Argument(metavar="EXPORT...", help="Signed exports: their releases say what is public.")
    ],
    out: Annotated[Path, typer.Option("--out", help="File to write; it must not exist.")],
    wanted: Annotated[str, typer.Option("--pool", help="train or dev; no other pool comes out.")] = "train",
    batches: Annotated[
        Path | None, typer.Option("--batches", help="Folder of RACE.batch.json files. Default: STATE_DIR/bank.")
    ] = None,
    held_out: Annotated[
        list[Path] | None, typer.Option("--held-out", help="Problems kept out, and their leak clusters. Repeatable.")
    ] = None,
    partition: Annotated[
        Path | None, typer.Option("--partition", help="The bank's private file: it knows what is sealed, too.")
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="State folder of the validator. Default: ARENA_STATE_DIR.")
    ] = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Write the released problems of a pool, to sample on and learn from.

    An export says which problems its races released, of which pools; what they ask and what answers them stands in no
    record, only in the batches that a validator keeps once a race has opened them. So whoever runs the validator runs
    this, and hands the file on with the export. A batch counts when it is the one that was released, byte for byte
    (exit code 4 otherwise). A held-out problem never comes out, nor does one that shares a leak cluster with a problem
    of another pool: those are named on stderr. Exit code 1 when nothing is left.

    arena problems pool export --pool train --out problems/train.jsonl
    """
    from arena.bank.batches.batch import read_batch
    from arena.bank.batches.released_problems import released_pool
    from arena.bank.partition_file import read_partition
    from arena.chain.keys import verify
    from arena.export.releases import read_releases
    from problems.suites.formats import write_problems
    from training.corpus.exports import open_export

    chosen = next((one for one in _POOLS if one == wanted), None)
    if chosen is None:
        raise typer.BadParameter(f"{wanted!r} is none of {', '.join(_POOLS)}", param_hint="--pool")
    out.parent.mkdir(parents=True, exist_ok=True)
    refuse_existing(out)
    state = state_folder(state_dir)
    folder = batches or state / "bank"
    held = [read_batch(path) for path in sorted(folder.glob("*.batch.json"))]
    if not held:
        raise typer.BadParameter(f"{folder} holds no *.batch.json", param_hint="--batches")
    releases: list[ReleaseRecord] = []
    with show_progress() as progress:
        for export in exports:  # each is verified whole before its releases count
            tell = functools.partial(progress, "verify")
            open_export(export, verify, seals=state / "corpus" / "seals", progress=tell)
            releases += read_releases(export)
    entered = None if partition is None else read_partition(partition, verify)
    taken = released_pool(chosen, releases, held, held_out=read_files(held_out or []), partition=entered)
    if taken.problems:
        out.write_text("".join(f"{line}\n" for line in write_problems(taken.problems)), encoding="utf-8")
    _show(taken, chosen, out, folder, as_json=as_json)
    raise typer.Exit(0 if taken.problems else EXIT_FAILED)


def _three(text: str, flag: str) -> list[int]:
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdecimal() for part in parts):
        raise typer.BadParameter(f"{text!r} is not three numbers: product,shop,voucher", param_hint=flag)
    return [int(part) for part in parts]


def _show(taken: ReleasedPool, chosen: LearntPool, out: Path, folder: Path, *, as_json: bool) -> None:
    if as_json:
        row = {"pool": chosen, "path": str(out) if taken.problems else None, "problems": len(taken.problems)}
        rest = {"races": taken.races, "left_out": taken.left_out, "titles": taken.titles}
        echo_json(row | rest | {"batches_missing": taken.batches_missing})
        return
    for one in taken.left_out:
        typer.echo(f"left out: {one.problem_id}: {_WHY[one.reason]}", err=True)
    if taken.batches_missing:
        typer.echo(f"released, and not in {folder}: {', '.join(taken.batches_missing)}", err=True)
    for race in taken.titles:
        typer.echo(
            f"{race} brought accepted titles: arena problems release {race} --titles titles-{race}.json", err=True
        )
    if not taken.problems:
        typer.echo(f"no released problem of {chosen}: nothing was written", err=True)
        return
    typer.echo(f"{out}: {len(taken.problems)} problems of {chosen}, of {len(taken.races)} races")
