"""What the commands of `arena problems` read: problem files, suites, catalogues, title releases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from problems.model import Problem
    from problems.pools.product_classes import ProductClasses
    from problems.product import Product
    from problems.scoring.title_index import TitleIndex
    from problems.scoring.title_matching import AcceptedTitles, TitleMatcher


def read_file(path: Path) -> Sequence[Problem]:
    """The problems of a file, or of the shipped suite of that name where no such file exists.

    Raises ArenaError P4001 to P4009 naming the line and the field, typer.BadParameter when it can't be opened or holds
    no problem.
    """
    from problems.suites.formats import read_problems

    if not path.exists() and (suite := shipped_named(str(path))):
        return suite
    with opened(path) as stream:
        problems = read_problems(stream)
    if not problems:
        raise typer.BadParameter(f"{path} holds no problem")
    return problems


def read_files(paths: Sequence[Path]) -> list[Problem]:
    """The problems of several files, in order."""
    return [problem for path in paths for problem in read_file(path)]


def shipped_named(name: str) -> Sequence[Problem]:
    """The problems of a shipped suite; none when no suite has that name. Raises ArenaError P4018 for damaged files."""
    from arena.bank.suite_signature import open_shipped
    from arena.chain.keys import verify
    from problems.suites.shipped import SUITES

    return open_shipped(name, verify).problems if name in SUITES else ()


def has_catalogue(documents: Path | None, catalogue: Path | None) -> bool:
    """Whether one of the two was given."""
    return documents is not None or catalogue is not None


def read_products(documents: Path | None, catalogue: Path | None) -> Iterator[Product]:
    """Every product of exactly one of the two sources. Raises typer.BadParameter for none or both."""
    from harness.catalogue.engines.native import open_catalogue
    from harness.catalogue.index.documents import read_products as read_documents

    if documents is not None and catalogue is None:
        yield from read_documents(documents)
    elif catalogue is not None and documents is None:
        yield from open_catalogue(catalogue).products()
    else:
        raise typer.BadParameter("give either --documents or --catalogue")


def read_title_index(documents: Path | None, catalogue: Path | None) -> TitleIndex:
    """The products with the index that synthesis and ambiguity look things up in."""
    from problems.scoring.title_index import TitleIndex

    return TitleIndex(read_products(documents, catalogue))


def read_classes(documents: Path | None, catalogue: Path | None) -> ProductClasses:
    """Which products are near-identical; by their titles alone where no catalogue is given."""
    from problems.pools.product_classes import NO_CATALOGUE, find_classes

    return find_classes(read_products(documents, catalogue)) if has_catalogue(documents, catalogue) else NO_CATALOGUE


def read_matcher(name: str) -> TitleMatcher:
    """A built-in matcher, or the release in the file of that name."""
    from problems.scoring.title_matching import decode_accepted, matcher_named

    path = Path(name)
    return decode_accepted(path.read_bytes()) if path.is_file() else matcher_named(name)


def read_release(path: Path) -> AcceptedTitles:
    """The title release in a file. Raises ArenaError P4012 when it is none, typer.BadParameter for an unreadable
    one."""
    from problems.scoring.title_matching import decode_accepted

    with opened(path) as stream:
        return decode_accepted(stream.read())


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file, for reading. Raises typer.BadParameter when it can't be opened."""
    try:
        stream = path.open("rb")
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}") from error
    with stream:
        yield stream


def refuse_existing(path: Path, instead: str = "choose another path, or move it away") -> None:
    """Raise typer.BadParameter when something stands at `--out` already, or there is no folder to put it in."""
    if path.exists():
        raise typer.BadParameter(f"{path} exists: {instead}", param_hint="--out")
    if not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {path.absolute().parent}", param_hint="--out")
