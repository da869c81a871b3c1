"""`arena problems`: list, check, score and make problems, and make what an operator seals of them.

Rules: `problems`, `arena/bank`. Files, suites and catalogues that the commands read are opened here.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from arena.chain.keys import verify
from foundation.durable_files import write_whole
from neurons.cli.options import ProblemFile, TitlesOption, command
from neurons.cli.presenter import EXIT_FAILED, echo_json, say, show, show_progress
from problems.clusters import NO_CATALOGUE, ProductClasses, find_classes, find_clusters
from problems.formats import Documents, read_problems, score_cases, write_problems
from problems.model import BUCKETS, Bucket, Problem, Product
from problems.self_check import CROWD_MIN, RANDOM_DRAWS, check_chance, check_solvable
from problems.titles import TitleMatcher, decode_accepted, matcher_named

BANK_SIZE = 75  # as the paper's test set

app = typer.Typer(
    help="""List, check, score, make, sort and seal problems.

    arena problems list s1

    arena problems check problems.jsonl
    """,
    no_args_is_help=True,
)


GoodsOption = Annotated[
    Path | None, typer.Option("--catalogue", help="Index folder of `arena catalogue build`, or its documents.jsonl.")
]


def products_in(catalogue: Path | None) -> Iterator[Product]:
    """Every product of an index, or of a file of documents. Raises typer.BadParameter for None."""
    from harness.catalogue.build import read_products
    from harness.catalogue.native import open_catalogue

    if catalogue is None:
        raise typer.BadParameter("name the products", param_hint="--catalogue")
    return read_products(catalogue) if catalogue.is_file() else open_catalogue(catalogue).products()


def classes_in(catalogue: Path | None) -> ProductClasses:
    """Which products are near-identical; by their titles alone where no catalogue is given."""
    return find_classes(products_in(catalogue)) if catalogue else NO_CATALOGUE


@command(app, "list")
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
        found = read_file(path)
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


@command(app)
def check(
    path: ProblemFile,
    catalogue: GoodsOption = None,
    clusters: Annotated[bool, typer.Option("--clusters", help="Also show which problems share an answer.")] = False,
    titles: TitlesOption = "lexical/1",
) -> None:
    """Check that every problem of a file is well formed, solvable, not free, and not ambiguous.

    Reading the file checks its form. With --catalogue each problem's own answer must score 1 and no
    answer 0, random products must not satisfy it (20 a slot, of a catalogue with at least 200), and no item may be
    satisfied by more than 3 products. The problems that fail are named with a code, and the exit code is
    1. With --clusters: problems whose answers are the same thing (near-identical products of several shops are one)
    share a leak cluster, whatever their words. Next: `arena problems partition` and `seal`.
    """
    from problems.synthesis import ACCEPTED_MAX, measure_ambiguity
    from problems.title_index import TitleIndex

    problems = read_file(path)
    shown: dict[str, object] = {"problems": len(problems)}
    if clusters:
        found_in = find_clusters(problems, classes_in(catalogue))
        shared = {name: ids for name, ids in sorted(found_in.items()) if len(ids) > 1}
        say(*(f"{name[:12]}  {len(ids):>3}  {' '.join(ids)}" for name, ids in shared.items()))
        say(f"{len(problems)} problems in {len(found_in)} clusters, {len(shared)} of more than one")
        shown |= {"clusters": len(found_in), "shared": shared}
    if catalogue is None:
        show(shown, [f"{len(problems)} problems are well formed"])
        return

    matcher, index = read_matcher(titles), TitleIndex(products_in(catalogue))
    bad, luck, tried, checks = 0, 0, 0, list[dict[str, object]]()
    with show_progress() as progress:
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
    titles: TitlesOption = "lexical/1",
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


@command(app)
def synthesize(
    out: Annotated[Path, typer.Option(help="File to write; refused when it exists.")],
    catalogue: GoodsOption = None,
    count: Annotated[int, typer.Option(min=1, help="How many in all, spread evenly over the buckets.")] = BANK_SIZE,
    bucket: Annotated[list[str] | None, typer.Option(help="product, shop or voucher. Default: all.")] = None,
    exclude: Annotated[list[Path] | None, typer.Option(help="Problems whose answers must not answer here.")] = None,
    seed: Annotated[int | None, typer.Option(help="Reproducible, and guessable: for tests. Default: random.")] = None,
) -> None:
    """Make new problems over a catalogue, each solvable by construction.

    They are written in our own format, one a line, into a file that only you can read (mode 0600). Who knows seed
    and catalogue knows the answers, so leave the seed out for problems that will be raced. The suites' answers are
    always left alone. A catalogue that is too small for what is asked is named as P4011. Next: `arena problems check
    OUT --catalogue ...`.
    """
    from problems.suites import shipped_answers
    from problems.synthesis import ProblemMaker
    from problems.title_index import TitleIndex

    refuse_existing(out)
    if unknown := sorted(set(bucket or ()) - set(BUCKETS)):
        raise typer.BadParameter(f"{unknown[0]} is none of {', '.join(BUCKETS)}", param_hint="--bucket")
    wanted = [name for name in BUCKETS if not bucket or name in bucket]
    share, rest = divmod(count, len(wanted))
    counts: dict[Bucket, int] = {name: share + (place < rest) for place, name in enumerate(wanted)}
    maker = ProblemMaker(TitleIndex(products_in(catalogue)))
    maker.exclude(shipped_answers())
    maker.exclude(reward.product_id for problem in read_files(exclude or []) for reward in problem.rewards)
    chosen = secrets.randbits(256) if seed is None else seed
    made: list[Problem] = []
    with show_progress() as progress:
        for problem in maker.make_apart(seed=chosen, counts=counts):
            made.append(problem)
            progress("synthesize", len(made), count)
    write_whole(out, "".join(f"{line}\n" for line in write_problems(made)).encode(), mode=0o600)
    show({"problems": len(made), "path": str(out)}, [f"{len(made)} problems written to {out}"])


def read_file(path: Path) -> Sequence[Problem]:
    """The problems of a file, or of the shipped suite of that name where no such file exists.

    Raises ArenaError P4001 to P4009 naming line and field, typer.BadParameter when it holds no problem, OSError.
    """
    if not path.exists() and (suite := shipped_named(str(path))):
        return suite
    with path.open("rb") as stream:
        problems = read_problems(stream)
    if not problems:
        raise typer.BadParameter(f"{path} holds no problem")
    return problems


def read_files(paths: Sequence[Path]) -> list[Problem]:
    """The problems of several files, in order."""
    return [problem for path in paths for problem in read_file(path)]


def shipped_named(name: str) -> Sequence[Problem]:
    """The problems of a shipped suite; none when no suite has that name. Raises ArenaError P4010 for damaged files."""
    from arena.bank.suite_signature import open_shipped
    from problems.suites import SUITES

    return open_shipped(name, verify).problems if name in SUITES else ()


def read_matcher(name: str) -> TitleMatcher:
    """A built-in matcher, or the release in the file of that name."""
    path = Path(name)
    return decode_accepted(path.read_bytes()) if path.is_file() else matcher_named(name)


def refuse_existing(path: Path, instead: str = "choose another path, or move it away") -> None:
    """Raise typer.BadParameter when something stands at `--out` already; make the folder that it is to be in."""
    if path.exists():
        raise typer.BadParameter(f"{path} exists: {instead}", param_hint="--out")
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
