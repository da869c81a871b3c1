"""Suite signatures: the operator's key under a suite's manifest.

A signature covers a domain tag and the manifest's canonical bytes, so it holds for one name, version,
catalogue recipe, problem file and title release, and for nothing else; `check_suite` raises P4010 unless the key is
the one expected. The suites that come with the code are signed with the **well-known development key** `//Owner`,
whose secret everybody can derive: that proves which files belong together, not who made them. An operator of a real
network signs suites of its own: `write_suite` and `read_suite`, four files in one folder.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from arena.bank.signed import check_signed, decode_written, read_file
from arena.chain.port import Signer, Verifier
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError
from problems.formats import write_problems
from problems.model import Problem
from problems.suites import (
    SUITE_VERSION,
    CatalogueRecipe,
    ShippedSuite,
    SuiteManifest,
    decode_manifest,
    load_shipped,
    open_suite,
    shipped_bytes,
)
from problems.titles import AcceptedTitles, cut_titles, encode_accepted

_DOMAIN = b"agent-arena/suite/1\n"
# the address of the local subnet's owner; a test derives it
DEVELOPMENT_HOTKEY = "5FTyuyEQQZs8tCcPTUFqotkm2SYfDnpefn9FitRgmTHnFDBD"


_PROBLEMS, TITLES, _MANIFEST, _SIGNATURE = ".jsonl", ".titles.json", ".manifest.json", ".signature.json"


class SuiteSignature(msgspec.Struct, frozen=True, kw_only=True):
    """Who signed a manifest. `signature` is 64 bytes, hex; randomised, so never an identity."""

    suite: str
    hotkey: str
    signature: str


def sign_suite(manifest: SuiteManifest, signer: Signer) -> SuiteSignature:
    """The signer's signature under a manifest."""
    return SuiteSignature(suite=manifest.name, hotkey=signer.hotkey, signature=signer.sign(_message(manifest)).hex())


def check_suite(manifest: SuiteManifest, signature: SuiteSignature, verify: Verifier, operator: str) -> None:
    """Raises ArenaError P4010 unless `operator` (ss58) signed exactly this manifest."""
    check_signed(signature.hotkey, signature.signature, _message(manifest), operator, verify, manifest.name)


def open_shipped(name: str, verify: Verifier) -> ShippedSuite:
    """A shipped suite whose files match its manifest and whose manifest the development key signed.

    Raises ArenaError P4010 otherwise.
    """
    suite = load_shipped(name)
    signature = decode_written(shipped_bytes(f"{name}.signature.json"), SuiteSignature, name)
    check_suite(suite.manifest, signature, verify, DEVELOPMENT_HOTKEY)
    return suite


def write_suite(
    folder: Path,
    name: str,
    problems: Sequence[Problem],
    titles: AcceptedTitles,
    catalogue: CatalogueRecipe,
    signer: Signer,
) -> SuiteManifest:
    """Write a suite of one's own, signed: problems, their accepted titles, manifest and signature.

    Raises ArenaError P4001 when `titles` lacks one that the suite asks for, OSError when the folder can't be written.
    """
    problem_file = "".join(f"{line}\n" for line in write_problems(problems)).encode()
    title_file = encode_accepted(cut_titles(titles, problems))
    manifest = SuiteManifest(
        name=name,
        version=SUITE_VERSION,
        catalogue=catalogue,
        seed="",
        after=(),
        counts={str(bucket): count for bucket, count in Counter(problem.bucket for problem in problems).items()},
        problems_sha256=hashlib.sha256(problem_file).hexdigest(),
        titles=titles.name,
        titles_sha256=hashlib.sha256(title_file).hexdigest(),
    )
    folder.mkdir(parents=True, exist_ok=True)
    for kind, content in (
        (_PROBLEMS, problem_file),
        (TITLES, title_file),
        (_MANIFEST, canonical_bytes(manifest)),
        (_SIGNATURE, msgspec.json.encode(sign_suite(manifest, signer))),
    ):
        (folder / f"{name}{kind}").write_bytes(content)
    return manifest


def read_suite(folder: Path, name: str, verify: Verifier, operator: str) -> ShippedSuite:
    """The suite of that name which the operator (ss58) signed. The catalogue is not looked at.

    Raises ArenaError P4001 naming a file that is not there, P4010 for files that are not the ones `operator` signed.
    """
    kinds = (_MANIFEST, _SIGNATURE, _PROBLEMS, TITLES)
    manifest_file, signature, problem_file, title_file = (read_file(folder / f"{name}{kind}") for kind in kinds)
    manifest = decode_manifest(manifest_file)
    if manifest.name != name:
        raise ArenaError("P4010", f"{folder / name}{_MANIFEST}: it is of {manifest.name!r}")
    check_suite(manifest, decode_written(signature, SuiteSignature, name), verify, operator)
    return open_suite(manifest, problem_file, title_file)


def _message(manifest: SuiteManifest) -> bytes:
    return _DOMAIN + canonical_bytes(manifest)
