"""Shipped suites: pinned by hash, remade byte for byte, disjoint, and asked of the catalogue the demo makes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

import problems
from arena.bank.suite_signature import check_suite, sign_suite
from arena.chain.keys import keypair_signer, verify
from arena.chain.opening import OWNER_URI
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError
from harness.catalogue.synthetic import generate
from neurons.settings.inputs import SYNTHETIC_DOCUMENTS, SYNTHETIC_SEED
from problems.formats import write_problems
from problems.model import BUCKETS, Bucket, Product
from problems.suites import (
    SUITE_VERSION,
    SUITES,
    TITLES_FILE,
    CatalogueRecipe,
    SuiteManifest,
    accept_lexically,
    decode_manifest,
    load_shipped,
    open_suite,
    products_sha256,
    shipped_answers,
    shipped_bytes,
)
from problems.synthesis import ProblemMaker, measure_ambiguity
from problems.title_index import TitleIndex
from problems.titles import LexicalTitles, encode_accepted
from problems.wording import reads_back
from tests.keys import generate_signer
from tests.problems.stand import check_problem_set

FOLDER = Path(problems.__file__).parent / "shipped"


def make_suites(products: Sequence[Product], *, documents: int, seed: int) -> dict[str, bytes]:
    """The bytes of every shipped file but the signatures, by name, from `generate(documents, seed)`.

    Byte for byte the same wherever it runs. Raises ArenaError P4011 when the catalogue yields too few problems.
    """
    index = TitleIndex(products)
    maker = ProblemMaker(index)
    recipe = CatalogueRecipe(documents=documents, seed=seed, products_sha256=products_sha256(index.products))
    suites = {name: maker.make(seed=suite_seed(name), counts=_counts()) for name in SUITES}
    release = accept_lexically(
        (problem for made in suites.values() for problem in made), index, f"synthetic-{documents}-{seed}"
    )
    title_file = encode_accepted(release)
    files = {TITLES_FILE: title_file}
    for place, (name, made) in enumerate(suites.items()):
        problem_file = "".join(f"{line}\n" for line in write_problems(made)).encode()
        manifest = SuiteManifest(
            name=name,
            version=SUITE_VERSION,
            catalogue=recipe,
            seed=str(suite_seed(name)),
            after=SUITES[:place],
            counts={str(bucket): count for bucket, count in _counts().items()},
            problems_sha256=hashlib.sha256(problem_file).hexdigest(),
            titles=release.name,
            titles_sha256=hashlib.sha256(title_file).hexdigest(),
        )
        files[f"{name}.jsonl"] = problem_file
        files[f"{name}.manifest.json"] = canonical_bytes(manifest)
    return files


def suite_seed(name: str) -> int:
    """The seed of a suite: public, since the suite is."""
    return int(hashlib.sha256(f"agent-arena/suite/{name}".encode()).hexdigest()[:15], 16)


def _counts() -> dict[Bucket, int]:
    return dict.fromkeys(BUCKETS, 10)


def main() -> None:
    products = tuple(generate(SYNTHETIC_DOCUMENTS, SYNTHETIC_SEED))
    made = make_suites(products, documents=SYNTHETIC_DOCUMENTS, seed=SYNTHETIC_SEED)
    signer = keypair_signer(OWNER_URI)
    FOLDER.mkdir(exist_ok=True)
    for name, content in made.items():
        (FOLDER / name).write_bytes(content)
    for name in SUITES:
        signature = sign_suite(decode_manifest(made[f"{name}.manifest.json"]), signer)
        (FOLDER / f"{name}.signature.json").write_bytes(msgspec.json.encode(signature))


replace = msgspec.structs.replace


@pytest.fixture(scope="module")
def shelf() -> TitleIndex:
    return TitleIndex(generate(SYNTHETIC_DOCUMENTS, SYNTHETIC_SEED))


def test_the_suites_are_remade_byte_for_byte_from_their_recipe(shelf):
    made = make_suites(shelf.products, documents=SYNTHETIC_DOCUMENTS, seed=SYNTHETIC_SEED)
    assert set(made) == {TITLES_FILE, *(f"{name}.{kind}" for name in SUITES for kind in ("jsonl", "manifest.json"))}
    for name, content in made.items():
        assert content == shipped_bytes(name), f"{name}: run python -m tests.problems.test_suites_shipped"
    problems = [problem for name in SUITES for problem in load_shipped(name).problems]
    assert len(shipped_answers()) == sum(len(problem.rewards) for problem in problems)


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_holds_ten_of_each_bucket_and_every_one_is_usable(name, shelf):
    suite = load_shipped(name)
    assert [problem.bucket for problem in suite.problems] == [bucket for bucket in BUCKETS for _ in range(10)]
    for titles in (suite.titles, LexicalTitles()):
        checks = check_problem_set(suite.problems, shelf.products, shelf.product, titles, seed=5)
        assert all(check.is_usable and not check.warnings and check.random_reward_e4 != 10_000 for check in checks)
    for problem in suite.problems:
        assert reads_back(problem)
        assert measure_ambiguity(problem, shelf, suite.titles) == measure_ambiguity(problem, shelf)


def test_a_file_that_was_edited_is_refused():
    manifest = load_shipped("s1").manifest
    problems, titles = shipped_bytes("s1.jsonl"), shipped_bytes(TITLES_FILE)
    assert len(open_suite(manifest, problems, titles).problems) == 30
    for edited in ((problems.replace(b"PHP", b"PHp", 1), titles), (problems, titles + b" "), (titles, problems)):
        with pytest.raises(ArenaError, match="P4010"):
            open_suite(manifest, *edited)
    renamed = replace(manifest, titles="another")
    with pytest.raises(ArenaError, match=r"P4010.*another"):
        open_suite(renamed, problems, titles)


def test_another_version_or_an_unknown_suite_is_refused():
    newer = replace(load_shipped("s1").manifest, version=2)
    with pytest.raises(ArenaError, match=r"P4010.*version 2"):
        decode_manifest(canonical_bytes(newer))
    with pytest.raises(ArenaError, match="P4010"):
        decode_manifest(b'{"name": "s1"}')
    with pytest.raises(ArenaError, match="P4010"):
        load_shipped("s4")
    with pytest.raises(ArenaError, match="P4010"):
        shipped_bytes("s4.jsonl")


def test_a_signature_holds_for_one_manifest_and_one_operator():
    operator, stranger = generate_signer(), generate_signer()
    manifest = load_shipped("s2").manifest
    signature = sign_suite(manifest, operator)
    check_suite(manifest, signature, verify, operator.hotkey)
    fields = [name for name in manifest.__struct_fields__ if isinstance(getattr(manifest, name), str)]
    assert {"name", "problems_sha256", "titles_sha256", "seed"} <= set(fields)
    for field in fields:
        with pytest.raises(ArenaError, match="P4010"):
            check_suite(replace(manifest, **{field: "0" * 64}), signature, verify, operator.hotkey)
    for bad in (
        replace(signature, hotkey=stranger.hotkey),
        replace(sign_suite(manifest, stranger), hotkey=operator.hotkey),
        replace(signature, signature="no hex"),
        replace(signature, signature="00" * 64),
    ):
        with pytest.raises(ArenaError, match="P4010"):
            check_suite(manifest, bad, verify, operator.hotkey)


if __name__ == "__main__":
    main()
