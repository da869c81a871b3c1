"""Writes the shipped suites anew: `python -m tests.problems.ship_suites`, after synthesis was changed on purpose.

The manifests are signed with the well-known development key. Another suite under the same name is another suite: raise
`SUITE_VERSION` once one has been released.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

import problems
from arena.bank.suite_signature import DEVELOPMENT_KEY_URI, sign_suite
from arena.chain.keys import keypair_signer
from harness.catalogue.synthetic.generator import generate
from neurons.node.wiring import SYNTHETIC_DOCUMENTS, SYNTHETIC_SEED
from problems.suites.shipped import SUITES, decode_manifest, make_suites

FOLDER = Path(problems.__file__).parent / "shipped"


def main() -> None:
    products = tuple(generate(SYNTHETIC_DOCUMENTS, SYNTHETIC_SEED))
    made = make_suites(products, documents=SYNTHETIC_DOCUMENTS, seed=SYNTHETIC_SEED).files
    signer = keypair_signer(DEVELOPMENT_KEY_URI)
    FOLDER.mkdir(exist_ok=True)
    for name, content in made.items():
        (FOLDER / name).write_bytes(content)
    for name in SUITES:
        signature = sign_suite(decode_manifest(made[f"{name}.manifest.json"]), signer)
        (FOLDER / f"{name}.signature.json").write_bytes(msgspec.json.encode(signature))


if __name__ == "__main__":
    main()
