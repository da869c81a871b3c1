"""The shipped suites: problems, accepted titles, and the variants that qualifying asks."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from importlib import resources

import msgspec

from foundation.durable_files import coded
from foundation.errors import ArenaError
from problems.formats import read_problems
from problems.model import Problem, Product, check_problem, variant_digest, variant_id
from problems.synthesis import ProblemMaker, TooFewProblemsError
from problems.title_index import TitleIndex
from problems.titles import AcceptedTitles, decode_accepted, reward_titles

SUITES = ("s1", "s2", "s3")
SUITE_VERSION = 1
TITLES_FILE = "titles.json"
_FOLDER = "shipped"


class CatalogueRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """The catalogue a suite is asked of: `harness.catalogue.synthetic.generate(documents, seed)` makes it,
    or, where the generator is `given`, nobody does, and its products identify it."""

    generator: str = "synthetic"
    documents: int
    seed: int
    products_sha256: str  # of `products_sha256` over what that makes


class SuiteManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a suite is. Its canonical bytes are what the operator signs."""

    name: str
    version: int
    catalogue: CatalogueRecipe
    seed: str  # decimal text: canonical integers end at 2^53; "": the problems follow from no seed
    after: tuple[str, ...]  # suites whose answers are kept out of this one, in the order they were made
    counts: dict[str, int]
    problems_sha256: str  # of the problem file's bytes
    titles: str  # name of the title release
    titles_sha256: str  # of its bytes


class ShippedSuite(msgspec.Struct, frozen=True, kw_only=True):
    """A suite with its title release."""

    manifest: SuiteManifest
    problems: tuple[Problem, ...]
    titles: AcceptedTitles


@functools.cache
def load_shipped(name: str) -> ShippedSuite:
    """The shipped suite of that name. Raises ArenaError P4010 when there is none, or a file is not the one pinned."""
    if name not in SUITES:
        raise ArenaError("P4010", f"{name!r} is not one of {', '.join(SUITES)}")
    manifest = decode_manifest(shipped_bytes(f"{name}.manifest.json"))
    if manifest.name != name:
        raise ArenaError("P4010", f"{name}: the manifest is of {manifest.name!r}")
    return open_suite(manifest, shipped_bytes(f"{name}.jsonl"), shipped_bytes(TITLES_FILE))


def shipped_answers() -> frozenset[str]:
    """The product ids that answer in a shipped suite: what a batch over the synthetic catalogue must leave alone."""
    suites = map(load_shipped, SUITES)
    return frozenset(item.product_id for suite in suites for one in suite.problems for item in one.rewards)


def shipped_bytes(file_name: str) -> bytes:
    """The bytes of a shipped file. Raises ArenaError P4010 when it is missing."""
    with coded(file_name, "P4010"):
        return resources.files("problems").joinpath(_FOLDER, file_name).read_bytes()


def decode_manifest(content: bytes) -> SuiteManifest:
    """A manifest from its JSON. Raises ArenaError P4010 when it has another shape or version."""
    try:
        manifest = msgspec.json.decode(content, type=SuiteManifest)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ArenaError("P4010", str(error)) from error
    if manifest.version != SUITE_VERSION:
        raise ArenaError("P4010", f"{manifest.name}: version {manifest.version} is not {SUITE_VERSION}")
    return manifest


def open_suite(manifest: SuiteManifest, problem_file: bytes, title_file: bytes) -> ShippedSuite:
    """The suite that a manifest pins. Raises ArenaError P4010 for other bytes, and what the readers raise."""
    for what, content, pinned in (
        ("problems", problem_file, manifest.problems_sha256),
        ("titles", title_file, manifest.titles_sha256),
    ):
        if hashlib.sha256(content).hexdigest() != pinned:
            raise ArenaError("P4010", f"{manifest.name}: {what} are not the ones the manifest names")
    titles = decode_accepted(title_file)
    if titles.name != manifest.titles:
        raise ArenaError("P4010", f"{manifest.name}: title release {titles.name!r} is not {manifest.titles!r}")
    return ShippedSuite(manifest=manifest, problems=read_problems(problem_file.splitlines()), titles=titles)


def accept_lexically(problems: Iterable[Problem], index: TitleIndex, catalogue: str) -> AcceptedTitles:
    """The title release of `lexical/1` for these problems: per reward title, every product of the index it takes."""
    accepted = {
        title: frozenset(index.products[place].product_id for place in index.similar(title))
        for title in sorted(reward_titles(problems))
    }
    return AcceptedTitles(name=f"lexical/1@{catalogue}", accepted=accepted)


def products_sha256(products: Iterable[Product]) -> str:
    """sha256 hex over products in order of id, one JSON line each: what a catalogue recipe has to come to."""
    digest = hashlib.sha256()
    for product in sorted(products, key=lambda one: one.product_id):
        digest.update(msgspec.json.encode(product, order="deterministic") + b"\n")
    return digest.hexdigest()


_TRIES = 20  # draws whose title is too like an answer of the suite are thrown away


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A variant and the titles that count for it."""

    problem: Problem
    titles: AcceptedTitles


class VariantMaker:
    """The variants of one suite over one catalogue."""

    def __init__(self, suite: Iterable[Problem], products: Iterable[Product]) -> None:
        """`suite` are all the public problems that are asked, since none of their answers may answer here."""
        self._suite = {problem.problem_id: problem for problem in suite}
        self._answers = frozenset(item.product_id for one in self._suite.values() for item in one.rewards)
        # without the long texts, which no problem asks about
        short = (
            msgspec.structs.replace(one, short_description="", description="", specification="") for one in products
        )
        self._index = TitleIndex(short)
        self._maker = ProblemMaker(self._index, exclude=self._answers)

    def variant(self, problem_id: str, seed: str) -> Variant:
        """The variant of the suite's problem under a seed.

        Raises ArenaError P4006 when the suite has no such problem, P4013 when the catalogue yields no variant of it.
        """
        model = self._suite.get(problem_id)
        if model is None:
            raise ArenaError("P4006", f"{problem_id} is not in the suite")
        named = variant_id(problem_id, seed)
        for attempt in range(_TRIES):
            number = int(variant_digest(f"draw {attempt}", problem_id, seed), 16)
            try:
                drawn = self._maker.make_like(model, seed=number, problem_id=named)
            except TooFewProblemsError as error:
                raise ArenaError("P4013", f"{problem_id}: {error.failure.detail}") from error
            titles = accept_lexically((drawn,), self._index, "variant")
            if not any(ids & self._answers for ids in titles.accepted.values()):
                check_problem(drawn)
                return Variant(problem=drawn, titles=titles)
        raise ArenaError("P4013", f"{problem_id}: all of {_TRIES} draws resemble answers of the suite")
