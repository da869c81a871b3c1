"""`arena problems`: list, check, score, make, sort and seal problems. Rules: `problems`, `arena/bank`."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neurons.cli.exit_codes import EXIT_FAILED
from neurons.cli.options import CatalogueOption, DocumentsOption, JsonLinesOption, ProblemFile, TitlesOption
from neurons.cli.presenter import echo_json, show
from neurons.cli.problems.bank import release, seal, stock
from neurons.cli.problems.pools import cluster, partition, pool
from neurons.cli.problems.reading import (
    has_catalogue,
    opened,
    read_file,
    read_files,
    read_matcher,
    read_title_index,
    refuse_existing,
)
from neurons.cli.problems.rewording import reword
from neurons.cli.problems.stats import stats
from neurons.cli.problems.titles import sign_suite, titles
from neurons.cli.progress import show_progress

if TYPE_CHECKING:
    from problems.model import Bucket, Problem
    from problems.synthesis.difficulty import Mix

CHUNK = 50  # problems made between two reports of progress

app = typer.Typer(
    help="""List, check, score, make, sort and seal problems.

    arena operator problems list s1

    arena operator problems check problems.jsonl
    """,
    no_args_is_help=True,
)


@app.command("list")
def list_problems(
    path: Annotated[
        Path | None, typer.Argument(help="Problem file, or s1, s2, s3. Leave out to see the shipped suites.")
    ] = None,
    as_json: JsonLinesOption = False,
) -> None:
    """List the shipped suites, or the problems of one file or suite: id, bucket, items, query.

    Answers are not shown. With a file, `--json` prints what an agent would be given. A malformed file names the line
    and the field; web problems are refused, since no rule can score them.
    """
    if path is not None:
        for problem in read_file(path):
            first = problem.query.strip().splitlines()[0] if problem.query.strip() else ""
            line = f"{problem.problem_id:<20} {problem.bucket:<8} {len(problem.rewards)}  {first[:80]}"
            show(problem.view(), [line], as_json=as_json)
        return
    from arena.bank.suite_signature import DEVELOPMENT_HOTKEY, open_shipped
    from arena.chain.keys import verify
    from problems.suites.shipped import SUITES

    for name in SUITES:
        suite = open_shipped(name, verify)
        manifest, documents, counts = suite.manifest, suite.manifest.catalogue.documents, suite.manifest.counts
        row = {
            "suite": name,
            "problems": len(suite.problems),
            "counts": counts,
            "documents": documents,
            "titles": manifest.titles,
            "problems_sha256": manifest.problems_sha256,
            "signer": DEVELOPMENT_HOTKEY,
        }
        said = ", ".join(f"{value} {key}" for key, value in counts.items())
        line = f"{name}  {said}  over {documents:,} documents  sha256 {manifest.problems_sha256[:16]}"
        show(row, [line], as_json=as_json)


@app.command()
def check(
    path: ProblemFile,
    documents: DocumentsOption = None,
    catalogue: CatalogueOption = None,
    titles: TitlesOption = "lexical/1",
    accepted_max: Annotated[
        int, typer.Option(min=1, help="Most products that may satisfy one item, the answer included.")
    ] = 3,
    seed: Annotated[int, typer.Option(help="Draws the random answers.")] = 1,
    as_json: JsonLinesOption = False,
) -> None:
    """Check that every problem of a file is well formed, solvable, not free, and not ambiguous.

    Reading the file checks its form. With --documents or --catalogue each problem's own answer must score 1 and no
    answer 0, random products must not satisfy it (20 a slot, of a catalogue with at least 200), and no item may be
    satisfied by more than --accepted-max products. The problems that fail are named with a code, and the exit code is
    1. Next: `arena problems cluster`, then `partition` and `seal`.
    """
    problems = read_file(path)
    if not has_catalogue(documents, catalogue):
        show({"problems": len(problems)}, [f"{len(problems)} problems are well formed"], as_json=as_json)
        return
    import msgspec

    from problems.scoring.self_check import CROWD_MIN, RANDOM_DRAWS, check_chance, check_solvable
    from problems.synthesis.ambiguity import measure_ambiguity

    matcher, index = read_matcher(titles), read_title_index(documents, catalogue)
    bad = luck = tried = 0
    with show_progress() as progress:
        for done, problem in enumerate(problems, start=1):
            solvable = check_solvable(problem, index.product, matcher)
            if solvable.is_usable and len(index.products) >= CROWD_MIN:
                solvable = check_chance(solvable, problem, index.products, matcher, seed)
                luck, tried = luck + (solvable.random_reward_e4 or 0), tried + 1
            ambiguity = measure_ambiguity(problem, index, matcher, accepted_max) if solvable.is_usable else None
            # what merely fits the words of a query is shown, not judged: only the wordings of our own synthesis can be
            # read back
            accepted = enumerate(ambiguity.accepted if ambiguity else ())
            too_many = [
                f"reward[{slot}]: {count} products satisfy it" for slot, count in accepted if count > accepted_max
            ]
            crowded = "; ".join(too_many)
            bad += bool(crowded) or not solvable.is_usable
            counts = {"accepted": ambiguity.accepted, "fitting": ambiguity.fitting} if ambiguity else {}
            lines = []
            if solvable.failure is not None:
                lines.append(f"{solvable.problem_id}: {solvable.failure.code} {solvable.failure.detail}")
            if crowded:
                lines.append(f"{solvable.problem_id}: P4019 {crowded}")
            if solvable.warnings:
                lines.append(f"{solvable.problem_id}: warning: {'; '.join(solvable.warnings)}")
            show(msgspec.structs.asdict(solvable) | counts | {"crowded": crowded}, lines, as_json=as_json)
            progress("check", done, len(problems))
    if not as_json:
        typer.echo(f"{len(problems) - bad} of {len(problems)} problems are solvable, not free and not ambiguous")
        if tried:
            earned = luck / tried / 10_000
            typer.echo(f"the best of {RANDOM_DRAWS} random products a slot earns {earned:.4f} on average")
        elif len(index.products) < CROWD_MIN:
            typer.echo(f"what random products earn was not measured: that takes a catalogue of at least {CROWD_MIN}")
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
    from problems.scoring.cases import Documents, score_cases

    matcher = read_matcher(titles)
    with opened(documents) as stream:
        held = Documents(stream)
    unscored = 0
    with opened(cases) as stream:
        for result in score_cases(stream, held, matcher):
            unscored += result.failure is not None
            echo_json(result.plain())
    raise typer.Exit(EXIT_FAILED if unscored else 0)


@app.command()
def synthesize(
    out: Annotated[Path, typer.Option(help="File to write; refused when it exists.")],
    documents: DocumentsOption = None,
    catalogue: CatalogueOption = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="How many problems in all, spread evenly over the buckets asked for.")
    ] = None,
    bucket: Annotated[
        list[str] | None, typer.Option(help="With --count: product, shop or voucher. Repeatable. Default: all three.")
    ] = None,
    product: Annotated[int, typer.Option(min=0, help="Without --count: how many product problems.")] = 28,
    shop: Annotated[int, typer.Option(min=0, help="Without --count: how many shop problems.")] = 24,
    voucher: Annotated[int, typer.Option(min=0, help="Without --count: how many voucher problems.")] = 23,
    difficulty: Annotated[
        str, typer.Option(help="easy, medium or hard, or weights: easy=1,hard=2. Default: as the public set falls.")
    ] = "",
    exclude: Annotated[
        list[Path] | None,
        typer.Option(help="Problem files or suites whose answers must not answer here. Repeatable."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Makes the set reproducible, and guessable: for tests. Default: 256 random bits.")
    ] = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Make new problems over a catalogue, each solvable by construction.

    They are written in our own format, one a line, into a file that only you can read (mode 0600). Whoever knows seed
    and catalogue knows the answers, so leave the seed out for problems that will be raced. The suites' answers are
    always left alone. A catalogue that is too small for what is asked is named as P4011. Next: `arena problems check
    OUT --catalogue ...`.
    """
    from foundation.durable_files import write_whole
    from problems.model import BUCKETS
    from problems.suites.formats import write_problems
    from problems.suites.shipped import shipped_answers
    from problems.synthesis.generator import ProblemMaker

    refuse_existing(out)
    if unknown := sorted(set(bucket or ()) - set(BUCKETS)):
        raise typer.BadParameter(f"{unknown[0]} is none of {', '.join(BUCKETS)}", param_hint="--bucket")
    wanted = [name for name in BUCKETS if not bucket or name in bucket]
    share, rest = divmod(count or 0, len(wanted))
    spread = {name: share + (place < rest) for place, name in enumerate(wanted)}
    each: dict[Bucket, int] = {"product": product, "shop": shop, "voucher": voucher}
    counts = spread if count else {name: each[name] for name in wanted}
    mix = _mix(difficulty)
    maker = ProblemMaker(read_title_index(documents, catalogue))
    maker.exclude(shipped_answers())
    maker.exclude(reward.product_id for problem in read_files(exclude or []) for reward in problem.rewards)
    chosen, total = secrets.randbits(256) if seed is None else seed, sum(counts.values())
    made: list[Problem] = []
    with show_progress() as progress:
        for problem in maker.make_apart(seed=chosen, counts=counts, mix=mix):
            made.append(problem)
            if len(made) % CHUNK == 0 or len(made) == total:
                progress("synthesize", len(made), total)
    write_whole(out, "".join(f"{line}\n" for line in write_problems(made)).encode(), mode=0o600)
    show({"problems": len(made), "path": str(out)}, [f"{len(made)} problems written to {out}"], as_json=as_json)


for _command in (reword, cluster, partition, titles, seal, stock, release, pool, sign_suite, stats):
    app.command()(_command)


def _mix(text: str) -> Mix | None:
    """The weights that `--difficulty` names."""
    from problems.synthesis.difficulty import LEVELS

    if not text:
        return None
    weights = {}
    for part in text.split(","):
        name, _, weight = part.strip().partition("=")
        level = next((level for level in LEVELS if level == name), None)
        if level is None or not (weight or "1").isdecimal():
            raise typer.BadParameter(f"{part!r} is no level of {', '.join(LEVELS)}", param_hint="--difficulty")
        weights[level] = int(weight or "1")
    if not any(weights.values()):
        raise typer.BadParameter("at least one weight is positive", param_hint="--difficulty")
    return weights
