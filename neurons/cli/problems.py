"""`arena problems`: list, check, score and make problems; an operator's bank, from problems to sealed batches.

Rules: `problems`, `arena/bank`. Files, suites and catalogues that the commands read are opened here.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from arena.bank.batch import read_batch
from arena.bank.partition_file import assign, read_partition, unpartitioned, write_partition
from arena.bank.released_problems import released_pool
from arena.bank.sealing import deal, lock_all, notice_bytes, opening_time, write_sealed
from arena.bank.stock import SUFFIX, Bank
from arena.chain.keys import verify
from arena.chain.opening import open_beacon, open_timelock
from arena.chain.port import is_local
from arena.export.assembly import read_releases
from arena.race.schedule import shared_closes_ms
from arena.records.model import ReleaseRecord
from foundation.durable_files import write_whole
from foundation.errors import counted
from neurons.cli import options
from neurons.cli.presenter import EXIT_FAILED, echo_json, refuse, say, show, show_progress
from problems.formats import Documents, score_cases, write_problems
from problems.model import BUCKETS, Problem
from problems.partition import KEY_BYTES, freeze
from problems.self_check import CROWD_MIN, RANDOM_DRAWS, check_chance, check_solvable
from problems.titles import TitleMatcher, cut_titles, decode_accepted, encode_accepted, matcher_named

BANK_SIZE = 75  # as the paper's test set
Counts = tuple[int, int, int]
_WHY = {
    "held_out": "held out by name",
    "cluster": "shares a leak cluster with another pool's problem",
    "partition": "the partition gives it, or an answer of it, another pool",
}

app = typer.Typer(
    help="""List, check, score, make, sort and seal problems.

    arena problems list s1

    arena problems check problems.jsonl
    """,
    no_args_is_help=True,
)


@options.command(app, "list")
def list_problems(
    path: Annotated[Path | None, typer.Argument(help="Problem file, or s1, s2, s3. Without: the suites.")] = None,
) -> None:
    """List the shipped suites, or the problems of one file or suite: id, bucket, items, query.

    Answers are not shown. With a file, `--json` prints what an agent would be given. A malformed file names the line
    and the field; web problems are refused, since no rule can score them.
    """
    from arena.bank.suite_signature import DEVELOPMENT_HOTKEY, open_shipped
    from problems.suites import SUITES

    if path is not None:
        found = options.read_file(path)
        rows = ((one, next(iter(one.query.strip().splitlines()), "")[:80]) for one in found)
        lines = (f"{one.problem_id:<20} {one.bucket:<8} {len(one.rewards)}  {first}" for one, first in rows)
        show([one.view() for one in found], lines)
        return
    suites, said = [], []
    for name in SUITES:
        suite = open_shipped(name, verify)
        manifest, documents, counts = suite.manifest, suite.manifest.catalogue.documents, suite.manifest.counts
        row: dict[str, object] = {
            "suite": name,
            "problems": len(suite.problems),
            "counts": counts,
            "documents": documents,
            "titles": manifest.titles,
            "problems_sha256": manifest.problems_sha256,
            "signer": DEVELOPMENT_HOTKEY,
        }
        suites.append(row)
        asked = ", ".join(f"{value} {key}" for key, value in counts.items())
        said.append(f"{name}  {asked}  over {documents:,} documents  sha256 {manifest.problems_sha256[:16]}")
    show(suites, said)


@options.command(app)
def check(
    path: options.ProblemFile,
    catalogue: options.GoodsOption = None,
    titles: options.TitlesOption = "lexical/1",
) -> None:
    """Check that every problem of a file is well formed, solvable, not free, and not ambiguous.

    Reading the file checks its form. With --catalogue each problem's own answer must score 1 and no
    answer 0, random products must not satisfy it (20 a slot, of a catalogue with at least 200), and no item may be
    satisfied by more than 3 products. The problems that fail are named with a code, and the exit code is
    1. Next: `arena problems partition` and `seal`.
    """
    from problems.synthesis import ACCEPTED_MAX, measure_ambiguity
    from problems.title_index import TitleIndex

    problems = options.read_file(path)
    shown: dict[str, object] = {"problems": len(problems)}
    if catalogue is None:
        show(shown, [f"well formed: {counted(len(problems), 'problem')}"])
        return

    matcher, index = read_matcher(titles), TitleIndex(options.products_in(catalogue))
    bad, luck, tried, checks, progress = 0, 0, 0, list[dict[str, object]](), show_progress()
    for done, problem in enumerate(problems, start=1):
        solvable = check_solvable(problem, index.product, matcher)
        if solvable.is_usable and len(index.products) >= CROWD_MIN:
            solvable = check_chance(solvable, problem, index.products, matcher, seed=1)
            luck, tried = luck + (solvable.random_reward_e4 or 0), tried + 1
        # what merely fits the words of a query is shown, not judged: only the wordings of our own synthesis can be
        # read back
        accepted, fitting = measure_ambiguity(problem, index, matcher) if solvable.is_usable else ((), ())
        crowded = "; ".join(
            f"reward[{slot}]: {count} products satisfy it"
            for slot, count in enumerate(accepted)
            if count > ACCEPTED_MAX
        )
        bad += bool(crowded) or not solvable.is_usable
        found = [f"{solvable.failure.code} {solvable.failure.detail}"] if solvable.failure else []
        found += [f"P4013 {crowded}"] if crowded else []
        found += [f"warning: {'; '.join(solvable.warnings)}"] if solvable.warnings else []
        facts = {"accepted": accepted, "fitting": fitting, "crowded": crowded}
        say(*(f"{solvable.problem_id}: {what}" for what in found))
        checks.append(msgspec.structs.asdict(solvable) | facts)
        progress("check", done, len(problems))
    said = f"{len(problems) - bad} of {len(problems)} problems are solvable, not free and not ambiguous"
    show(shown | {"checks": checks}, [said])
    if tried:
        say(f"the best of {RANDOM_DRAWS} random products a slot earns {luck / tried / 10_000:.4f} on average")
    elif len(index.products) < CROWD_MIN:
        say(f"what random products earn was not measured: that takes a catalogue of at least {CROWD_MIN}")
    raise typer.Exit(EXIT_FAILED if bad else 0)


@app.command()
def score(
    cases: Annotated[Path, typer.Option(help="Cases, one JSON object a line: case_id, reward, voucher, product_ids.")],
    documents: Annotated[Path, typer.Option(help="The documents the recommended ids are looked up in.")],
    titles: options.TitlesOption = "lexical/1",
) -> None:
    """Score recommendations kept in a file, with the validator's own code.

    Prints one JSON line per case: its case_id and the reference scorer's keys (gt, rule, product, title, price,
    service, sku & attrs, shop or budget, success), rounded to 12 digits. A malformed case or document gives that case
    `unscored` with a code instead, and exit code 1.
    """
    matcher = read_matcher(titles)
    with documents.open("rb") as stream:
        held = Documents(stream)
    unscored = 0
    with cases.open("rb") as stream:
        for result in score_cases(stream, held, matcher):
            unscored += "unscored" in result
            echo_json(result)
    raise typer.Exit(EXIT_FAILED if unscored else 0)


@options.command(app)
def synthesize(
    out: Annotated[Path, typer.Option(help="File to write; refused when it exists.")],
    catalogue: options.GoodsOption = None,
    count: Annotated[int, typer.Option(min=1, help="How many in all, spread evenly over the buckets.")] = BANK_SIZE,
    exclude: Annotated[list[Path] | None, typer.Option(help="Problems whose answers must not answer here.")] = None,
    seed: Annotated[int | None, typer.Option(help="Reproducible, and guessable: for tests. Default: random.")] = None,
) -> None:
    """Make new problems over a catalogue, each solvable by construction.

    They are written in our own format, one a line, into a file that only you can read (mode 0600). Who knows seed
    and catalogue knows the answers, so leave the seed out for problems that will be raced. The suites' answers are
    always left alone. A catalogue that is too small for what is asked is named as P4011. Next: `arena problems check
    OUT --catalogue ...`.
    """
    from neurons.settings.inputs import spread_evenly
    from problems.suites import shipped_answers
    from problems.synthesis import ProblemMaker
    from problems.title_index import TitleIndex

    options.refuse_existing(out)
    maker = ProblemMaker(TitleIndex(options.products_in(catalogue)))
    maker.exclude(shipped_answers())
    maker.exclude(reward.product_id for problem in options.read_files(exclude or []) for reward in problem.rewards)
    chosen = secrets.randbits(256) if seed is None else seed
    made, progress = list[Problem](), show_progress()
    for problem in maker.make_apart(seed=chosen, counts=spread_evenly(count)):
        made.append(problem)
        progress("synthesize", len(made), count)
    write_whole(out, "".join(f"{line}\n" for line in write_problems(made)).encode(), mode=0o600)
    show({"problems": len(made), "path": str(out)}, [f"{counted(len(made), 'problem')} written to {out}"])


@options.command(app)
def partition(
    paths: options.ProblemFiles,
    wallet: options.WalletFlags,
    out: Annotated[Path, typer.Option(help="The private file, mode 0600; its key never leaves it.")],
    suite: Annotated[list[Path] | None, typer.Option(help="Never raced or trained on. Default: s1, s2, s3.")] = None,
    catalogue: options.GoodsOption = None,
    eval_counts: Annotated[Counts, typer.Option("--eval", help="Of `eval`: product, shop, voucher.")] = (28, 24, 23),
    dev_counts: Annotated[Counts, typer.Option("--dev", help="Of `dev`: product, shop, voucher.")] = (20, 20, 20),
) -> None:
    """Deal the clusters of a bank to its pools, once, and sign the result.

    Suites are never_touch; eval (75 problems by default) and dev are drawn by the key over whole clusters; the
    rest is train. What is frozen never moves: new problems, which `arena problems seal --partition OUT` enters, go
    where their answers already are, and those that would join two pools are left out and named. OUT holds the key that
    finds every answer: it stays with the bank. Beside it, partitions/SHA256.json is the public form, with keyed tokens
    only; each entry adds another. It names no problem, but two of them side by side show which clusters grew: publish
    each when the problems that entered with it are released.
    """
    options.refuse_existing(out, "a partition is frozen once; `arena problems seal` enters problems into it")
    key, signer = secrets.token_bytes(KEY_BYTES), wallet.open()
    manifest = freeze(
        options.read_files(paths),
        options.read_files(suite or [Path(name) for name in ("s1", "s2", "s3")]),
        seed=1,
        key=key,
        classes=options.classes_in(catalogue),
        eval_counts=dict(zip(BUCKETS, eval_counts, strict=True)),
        dev_counts=dict(zip(BUCKETS, dev_counts, strict=True)),
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
    show(row, lines)


@options.command(app)
def pool(
    exports: Annotated[
        list[Path], typer.Argument(metavar="EXPORT...", help="Signed exports: they say what is public.")
    ],
    out: Annotated[Path, typer.Option(help="File to write; it must not exist.")],
    chosen: Annotated[Literal["train", "dev"], typer.Option("--pool", help="No other pool comes out.")] = "train",
    held_out: Annotated[list[Path] | None, typer.Option(help="Problems kept out, and their leak clusters.")] = None,
    partition: Annotated[Path | None, typer.Option(help="The bank's private file: it knows what is sealed.")] = None,
    state_dir: options.StateDirOption = None,
) -> None:
    """Write the released problems of a pool, to sample on and learn from.

    An export says which problems its races released, of which pools; what they ask and what answers them stands in no
    record, only in the batches that a validator keeps once a race has opened them. So the validator's operator runs
    this, and hands the file on with the export. A batch counts when it is the one that was released, byte for byte
    (exit code 4 otherwise). A held-out problem never comes out, nor does one that shares a leak cluster with a problem
    of another pool: those are named on stderr. Exit code 1 when nothing is left.

    arena problems pool export --pool train --out problems/train.jsonl
    """
    from training.corpus.exports import open_export

    options.refuse_existing(out)
    state = options.state_folder(state_dir)
    folder = state / "bank"
    held = [read_batch(path) for path in sorted(folder.glob("*.batch.json"))]
    if not held:
        raise typer.BadParameter(f"{folder} holds no *.batch.json", param_hint="--state-dir")
    releases: list[ReleaseRecord] = []
    for export in exports:  # each is verified whole before its releases count
        tell = functools.partial(show_progress(), "verify")
        open_export(export, verify, progress=tell)
        releases += read_releases(export)
    entered = None if partition is None else read_partition(partition, verify)
    taken = released_pool(chosen, releases, held, held_out=options.read_files(held_out or []), partition=entered)
    if taken.problems:
        out.write_text("".join(f"{line}\n" for line in write_problems(taken.problems)), encoding="utf-8")
    for one in taken.left_out:
        typer.echo(f"left out: {one.problem_id}: {_WHY[one.reason]}", err=True)
    if taken.batches_missing:
        typer.echo(f"released, and not in {folder}: {', '.join(taken.batches_missing)}", err=True)
    for race in taken.titles:
        typer.echo(f"{race} brought accepted titles: arena race show {race} --titles titles-{race}.json", err=True)
    row = {name: getattr(taken, name) for name in ("races", "left_out", "titles", "batches_missing")}
    path, count = str(out) if taken.problems else None, len(taken.problems)
    detail = f"{out}: {counted(count, 'problem')} of {chosen}, of {counted(len(taken.races), 'race')}"
    none = f"no released problem of {chosen}: nothing was written"
    shown = {"pool": chosen, "path": path, "problems": count, **row}
    show(shown, [detail if count else none], 0 if count else EXIT_FAILED)


@options.command(app)
def seal(
    paths: options.ProblemFiles,
    wallet: options.WalletFlags,
    out: Annotated[Path, typer.Option(help="Folder for the sealed files; those that stand there are continued.")],
    races: Annotated[int, typer.Option(min=1, max=400, help="For how many races.")] = 30,
    size: Annotated[int, typer.Option(min=0, help="Problems a batch; 0: as many as the policy says.")] = 0,
    policy: Annotated[str, typer.Option(help="Policy by name or JSON file: it says when races close.")] = "",
    partition: Annotated[
        Path | None, typer.Option(help="The bank's private file; problems are entered into it.")
    ] = None,
    catalogue: options.GoodsOption = None,
    titles: Annotated[Path | None, typer.Option(help="Title release of the problems; a batch takes its part.")] = None,
) -> None:
    """Seal batches for the coming races: signed, and encrypted to the beacon's round after each race's close.

    Writes one NAME.sealed.json (for validators: a holder can read it once the round is out) and one
    NAME.notice.json (public: commitments, random ids, round, signature) a race. Nobody can read a sealed file before
    its round, you included; keep the problem files apart, or delete them. On the network `local` the beacon is the
    twin, and there is no secret; elsewhere --partition and --titles have to be given. Run it again to continue where
    the folder ends. Next: `arena operator publish OUT`, which brings them to every validator.
    """
    from neurons.settings.inputs import policy_of, unix_ms

    settings = options.settings_of({"policy": policy, "network": wallet.network})
    rules = policy_of(settings)
    if rules.race.closes_after_ms is not None:
        raise typer.BadParameter(
            f"races of policy {rules.name} close some time after they open: no round can be known ahead",
            param_hint="--policy",
        )
    is_real = not is_local(settings.network)  # whose validators will ask both of every batch
    if is_real and partition is None:
        raise typer.BadParameter("a real network's batches name their pools", param_hint="--partition")
    if is_real and titles is None:
        raise typer.BadParameter("a real network's batches hold their accepted titles", param_hint="--titles")
    problems = options.read_files(paths)
    accepted = cut_titles(decode_accepted(titles.read_bytes()), problems) if titles else None
    signer = wallet.open()
    timelock, beacon = open_timelock(settings.network), open_beacon(settings.network, unix_ms)
    before = Bank(out, signer.hotkey, verify, timelock, beacon).notices()
    start_ms = max([unix_ms(), *(timelock.opens_ms(notice.round) for notice in before)])
    closes_ms = tuple(islice(shared_closes_ms(start_ms, rules.race), races))
    assigned = unpartitioned(problems)
    if partition is not None:
        if catalogue is None:
            typer.echo("new problems enter by titles alone; --catalogue finds near-identical products", err=True)
        assigned = assign(partition, problems, signer, verify, lambda: options.classes_in(catalogue))
    used = frozenset(problem.problem_id for notice in before for problem in notice.problems)
    dealt = deal(assigned, races, size or rules.race.batch_problems, used)
    locked = lock_all(
        dealt,
        closes_ms,
        timelock=timelock,
        beacon=beacon,
        signer=signer,
        random_bytes=secrets.token_bytes,
        now_ms=unix_ms,
        titles=accepted,
    )
    out.mkdir(parents=True, exist_ok=True)
    rows, progress = [], show_progress()
    for made, sealed in enumerate(locked, 1):
        notice = sealed.notice
        write_sealed(out / f"{notice.race_id}{SUFFIX}", sealed)
        (out / f"{notice.race_id}.notice.json").write_bytes(notice_bytes(sealed))
        progress("seal", made, races)
        opens, count = opening_time(notice, timelock), len(notice.problems)
        row = {"race_id": notice.race_id, "round": notice.round, "opens": opens, "problems": count}
        rows.append(row | {"batch_sha256": notice.batch_sha256})
        say(f"{notice.race_id}  round {notice.round}  opens {opens}  {counted(count, 'problem')}")
    for problem_id in assigned.refused:
        typer.echo(f"left out: {problem_id} would join two pools, or shares a cluster with a suite", err=True)
    said = f"{counted(races, 'batch')} in {out}: *.sealed.json for validators, *.notice.json for everybody"
    show(rows, [said, f"next: arena operator publish {out}; validators set operator_hotkey = {signer.hotkey}"])


@options.command(app)
def titles(
    paths: options.ProblemFiles,
    out: Annotated[Path, typer.Option(help="The release to write; refused when it exists.")],
    name: Annotated[str, typer.Option(help="What outcomes carry beside the matcher's name, e.g. bank-2026-11.")],
    catalogue: options.GoodsOption = None,
    embeddings: Annotated[
        str, typer.Option(help="A /v1 endpoint of /embeddings; key: OPENAI_API_KEY. Else lexical/1.")
    ] = "",
    model: Annotated[str, typer.Option(help="With --embeddings: the model.")] = "Qwen/Qwen3-Embedding-0.6B",
    vectors: Annotated[Path | None, typer.Option(help="With --embeddings: folder that keeps vectors.")] = None,
) -> None:
    """Build a title release: per reward title, the products that pass it.

    Scoring is then membership in a list, the same on every validator. Make one for the suite, which is public as the
    suite is (`arena problems sign-suite --titles`), and another one for the problems that will be sealed: it names
    their answers, stays with you (mode 0600), and goes into the batches themselves (`arena problems seal --titles`).
    Says how many pairs lie within 0.01 of the threshold of 0.70: the verdicts that are least certain.
    """
    from arena.bank.titles import EmbeddingsEndpoint, build_lexical, build_release
    from problems.title_index import TitleIndex

    options.refuse_existing(out)
    problems, products = options.read_files(paths), tuple(options.products_in(catalogue))
    if embeddings:
        endpoint = EmbeddingsEndpoint(embeddings, model, api_key=os.environ.get("OPENAI_API_KEY", ""))
        with contextlib.closing(endpoint):
            release, report = build_release(
                problems,
                products,
                endpoint,
                vectors or out.parent / "vectors",
                name=f"{model}@{name}",
                on_progress=functools.partial(show_progress(), "embed"),
            )
    else:
        release, report = build_lexical(problems, TitleIndex(products), name)
    write_whole(out, encode_accepted(release), mode=0o600)
    lines = [
        f"{report.name}: {report.reward_titles:,} titles over {report.products:,} products, "
        f"{report.pairs_accepted:,} pairs pass, {report.uncertain:,} lie within 0.01 of the threshold",
        f"{report.accepted_alone:,} titles take one product, the widest {report.accepted_most:,}",
        f"written to {out}: next: arena problems seal --titles {out}, or sign-suite --titles for a suite",
    ]
    show({"path": str(out), "report": report}, lines)


@options.command(app)
def sign_suite(
    path: options.ProblemFile,
    wallet: options.WalletFlags,
    titles: Annotated[Path, typer.Option(help="Title release that lists every reward title of the suite.")],
    out: Annotated[Path, typer.Option(help="Folder for the signed files, e.g. STATE_DIR/suites.")],
    name: Annotated[str, typer.Option(help="The suite's name, as policies name it.")] = "s1",
    catalogue: options.GoodsOption = None,
) -> None:
    """Sign a suite with the operator's key, so that validators qualify agents on it.

    Writes NAME.jsonl, NAME.titles.json, NAME.manifest.json and NAME.signature.json. On a real network a validator reads
    them from STATE_DIR/suites when it starts, and runs with no suite but the one that its setting bank_hotkey signed:
    `arena operator publish OUT` brings them there.
    Every problem must be solvable in the catalogue under these titles; one that is not is named, nothing is written,
    and the exit code is 1. The files are public. Make the titles with `arena problems titles`.
    """
    from arena.bank.suite_signature import write_suite
    from problems.suites import CatalogueRecipe, products_sha256

    if out.exists():
        options.refuse_existing(out / f"{name}.manifest.json")
    problems, release = options.read_file(path), decode_accepted(titles.read_bytes())
    products = {product.product_id: product for product in options.products_in(catalogue)}
    checks = [check_solvable(problem, products.get, release) for problem in problems]
    if bad := [f"{one.problem_id}: {one.failure.code} {one.failure.detail}" for one in checks if one.failure]:
        raise refuse("\n".join(bad), EXIT_FAILED)
    signer = wallet.open()
    recipe = CatalogueRecipe(
        generator="given", documents=len(products), seed=0, products_sha256=products_sha256(products.values())
    )
    manifest = write_suite(out, name, problems, release, recipe, signer)
    counts = ", ".join(f"{count} {bucket}" for bucket, count in manifest.counts.items())
    lines = [
        f"{name}: {counts} over {len(products):,} products, titles {manifest.titles}; signed by {signer.hotkey}",
        f"written to {out}: next: arena operator publish {out}; validators set operator_hotkey = {signer.hotkey}",
    ]
    show({"path": str(out), "signer": signer.hotkey, "manifest": manifest}, lines)


def read_matcher(name: str) -> TitleMatcher:
    """A built-in matcher, or the release in the file of that name."""
    path = Path(name)
    return decode_accepted(path.read_bytes()) if path.is_file() else matcher_named(name)
