"""Writes the shipped suites anew: `python -m tests.problems.ship_suites`, after synthesis was changed on purpose.

The manifests are signed with the well-known development key. Another suite under the same name is another suite: raise
`SUITE_VERSION` once one has been released.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

import problems
from arena.bank.suite_signature import sign_suite
from arena.chain.keys import keypair_signer
from arena.chain.opening import OWNER_URI
from foundation.canonical import canonical_bytes
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
    products_sha256,
)
from problems.synthesis import ProblemMaker
from problems.title_index import TitleIndex
from problems.titles import encode_accepted

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


if __name__ == "__main__":
    main()
