"""Shipped suites: s1, s2 and s3, thirty problems each over the synthetic catalogue, and the manifests that pin them.

`load_shipped` gives the problems of a suite only if their file and its title release have the hashes that the
manifest names (P4018 otherwise); what is shipped can be remade byte for byte from the recipe in the manifest. The three
share no answer class. The files are in `problems/shipped/` and are read when asked for. Who signed a manifest is
checked in `arena.bank.suite_signature`. The suites are public, as the paper's are: they qualify agents and are held out
from every sealed batch (`shipped_answers`) and from training, but they are no secret.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from importlib import resources

import msgspec

from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError
from problems.model import Problem
from problems.product import Product
from problems.scoring.title_index import TitleIndex
from problems.scoring.title_matching import AcceptedTitles, decode_accepted, reward_titles
from problems.suites.formats import read_problems

SUITES = ("s1", "s2", "s3")
SUITE_VERSION = 1
TITLES_FILE = "titles.json"
_FOLDER = "shipped"


class CatalogueRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """The catalogue a suite is asked of: `harness.catalogue.synthetic.generator.generate(documents, seed)` makes it,
    or, where the generator is `given`, nobody does, and it is told by its products."""

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
    """The shipped suite of that name. Raises ArenaError P4018 when there is none, or a file is not the one pinned."""
    if name not in SUITES:
        raise ArenaError("P4018", f"{name!r} is none of {', '.join(SUITES)}")
    manifest = decode_manifest(shipped_bytes(f"{name}.manifest.json"))
    if manifest.name != name:
        raise ArenaError("P4018", f"{name}: the manifest is of {manifest.name!r}")
    return open_suite(manifest, shipped_bytes(f"{name}.jsonl"), shipped_bytes(TITLES_FILE))


def shipped_answers() -> frozenset[str]:
    """The product ids that answer in a shipped suite: what a batch over the synthetic catalogue must leave alone."""
    suites = map(load_shipped, SUITES)
    return frozenset(item.product_id for suite in suites for one in suite.problems for item in one.rewards)


def shipped_bytes(file_name: str) -> bytes:
    """The bytes of a shipped file. Raises ArenaError P4018 when it is missing."""
    try:
        return resources.files("problems").joinpath(_FOLDER, file_name).read_bytes()
    except OSError as error:
        raise ArenaError("P4018", f"{file_name}: {error.strerror or error}") from error


def manifest_bytes(manifest: SuiteManifest) -> bytes:
    """The canonical bytes of a manifest: what is hashed and signed."""
    return canonical_bytes(manifest)


def decode_manifest(content: bytes) -> SuiteManifest:
    """A manifest from its JSON. Raises ArenaError P4018 when it has another shape or version."""
    try:
        manifest = msgspec.json.decode(content, type=SuiteManifest)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ArenaError("P4018", str(error)) from error
    if manifest.version != SUITE_VERSION:
        raise ArenaError("P4018", f"{manifest.name}: version {manifest.version} is not {SUITE_VERSION}")
    return manifest


def open_suite(manifest: SuiteManifest, problem_file: bytes, title_file: bytes) -> ShippedSuite:
    """The suite that a manifest pins. Raises ArenaError P4018 for other bytes, and what the readers raise."""
    for what, content, pinned in (
        ("problems", problem_file, manifest.problems_sha256),
        ("titles", title_file, manifest.titles_sha256),
    ):
        if hashlib.sha256(content).hexdigest() != pinned:
            raise ArenaError("P4018", f"{manifest.name}: {what} are not the ones the manifest names")
    titles = decode_accepted(title_file)
    if titles.name != manifest.titles:
        raise ArenaError("P4018", f"{manifest.name}: title release {titles.name!r} is not {manifest.titles!r}")
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
