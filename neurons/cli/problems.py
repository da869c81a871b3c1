"""`arena problems`: list, check, score and make problems. The rules stand in the room `problems`."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from problems.model import Problem
    from problems.product import Product
    from problems.titles import TitleMatcher

app = typer.Typer(help="List, check and score problems.", no_args_is_help=True)

_ProblemFile = Annotated[Path, typer.Argument(help="Problem file: upstream test set, SN15 suite, or ours.")]
_Documents = Annotated[Path | None, typer.Option(help="Product documents, one JSON object a line.")]
_Catalogue = Annotated[Path | None, typer.Option(help="Index folder made by `arena catalogue build`.")]
_Titles = Annotated[str, typer.Option(help="Title matcher: lexical/1, or the file of a bank's title release.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON line each.")]


@app.command()
def score(
    cases: Annotated[Path, typer.Option(help="Cases, one JSON object a line: case_id, reward, voucher, product_ids.")],
    documents: Annotated[Path, typer.Option(help="The documents the recommended ids are looked up in.")],
    titles: _Titles = "lexical/1",
) -> None:
    """Score recommendations kept in a file, with the validator's own code.

    Prints one JSON line per case: its case_id and the reference scorer's keys (gt, rule, product, title, price,
    service, sku & attrs, shop or budget, success), rounded to 12 digits. A malformed case or document gives that case
    `unscored` with a code instead, and exit code 1.
    """
    from problems.cases import Documents, score_cases

    matcher = _matcher(titles)
    with _opened(documents) as stream:
        held = Documents(stream)
    unscored = 0
    with _opened(cases) as stream:
        for result in score_cases(stream, held, matcher):
            unscored += result.failure is not None
            typer.echo(_line(result.plain()))
    raise typer.Exit(1 if unscored else 0)


@app.command("list")
def list_problems(path: _ProblemFile, as_json: _Json = False) -> None:
    """List the problems of a file: id, bucket, items, query.

    Answers are not shown. `--json` prints what an agent would be given.
    """
    for problem in _read(path):
        if as_json:
            typer.echo(_line(problem.view()))
            continue
        first = problem.query.strip().splitlines()[0] if problem.query.strip() else ""
        typer.echo(f"{problem.problem_id:<20} {problem.bucket:<8} {len(problem.rewards)}  {first[:80]}")


@app.command()
def check(
    path: _ProblemFile,
    documents: _Documents = None,
    catalogue: _Catalogue = None,
    titles: _Titles = "lexical/1",
    as_json: _Json = False,
) -> None:
    """Check that every problem of a file is well formed, solvable, and not free.

    Reading the file checks its form. With --documents or --catalogue each problem's own answer must score 1 and no
    answer 0; the problems that fail are named, and the exit code is 1.
    """
    problems = _read(path)
    if documents is None and catalogue is None:
        typer.echo(_line({"problems": len(problems)}) if as_json else f"{len(problems)} problems are well formed")
        return
    from problems.selfcheck import check_solvable

    matcher = _matcher(titles)
    product_of = {product.product_id: product for product in _products(documents, catalogue)}.get
    results = [check_solvable(problem, product_of, matcher) for problem in problems]
    bad = [result for result in results if not result.is_usable]
    for result in results if as_json else [result for result in results if result.failure or result.warnings]:
        if as_json:
            typer.echo(_line(result))
        elif result.failure:
            typer.echo(f"{result.problem_id}: {result.failure.code} {result.failure.detail}")
        else:
            typer.echo(f"{result.problem_id}: warning: {'; '.join(result.warnings)}")
    if not as_json:
        typer.echo(f"{len(results) - len(bad)} of {len(results)} problems are solvable and not free")
    raise typer.Exit(1 if bad else 0)


@app.command()
def synthesize(
    out: Annotated[Path, typer.Option(help="File to write; refused when it exists.")],
    documents: _Documents = None,
    catalogue: _Catalogue = None,
    product: Annotated[int, typer.Option(min=0, help="How many product problems.")] = 28,
    shop: Annotated[int, typer.Option(min=0, help="How many shop problems.")] = 24,
    voucher: Annotated[int, typer.Option(min=0, help="How many voucher problems.")] = 23,
    seed: Annotated[
        int | None, typer.Option(help="Makes the set reproducible, and guessable: for tests. Default: 256 random bits.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Make new problems over a catalogue, each solvable by construction.

    They are written in our own format, one a line. Whoever knows seed and catalogue knows the answers, so leave the
    seed out for problems that will be raced.
    """
    from problems.suites import write_problems
    from problems.synthesis import synthesize as make

    if out.exists():
        raise typer.BadParameter(f"{out} exists", param_hint="--out")
    made = make(
        tuple(_products(documents, catalogue)),
        seed=secrets.randbits(256) if seed is None else seed,
        counts={"product": product, "shop": shop, "voucher": voucher},
    )
    out.write_text("".join(f"{line}\n" for line in write_problems(made)), encoding="utf-8")
    summary = {"problems": len(made), "path": str(out)}
    typer.echo(_line(summary) if as_json else f"{len(made)} problems written to {out}")


def _read(path: Path) -> Sequence[Problem]:
    from problems.suites import read_problems

    with _opened(path) as stream:
        return read_problems(stream)


def _products(documents: Path | None, catalogue: Path | None) -> Iterator[Product]:
    """Every product of exactly one of the two sources."""
    from harness.catalogue.documents import read_products
    from harness.catalogue.engine import open_catalogue

    if documents is not None and catalogue is None:
        yield from read_products(documents)
    elif catalogue is not None and documents is None:
        yield from open_catalogue(catalogue).products()
    else:
        raise typer.BadParameter("give either --documents or --catalogue")


def _matcher(name: str) -> TitleMatcher:
    """A built-in matcher, or the release in the file of that name."""
    from problems.titles import decode_accepted, matcher_named

    path = Path(name)
    return decode_accepted(path.read_bytes()) if path.is_file() else matcher_named(name)


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        stream = path.open("rb")
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}") from error
    with stream:
        yield stream


def _line(value: object) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()
