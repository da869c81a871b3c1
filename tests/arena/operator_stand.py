"""An operator's folder with everything that validators share, and with what they must not get."""

from __future__ import annotations

from pathlib import Path

import msgspec

from arena.bank.partition_file import unpartitioned
from arena.bank.sealing import deal, lock_all, notice_bytes, write_sealed
from arena.bank.suite_signature import write_suite
from arena.chain.beacon import LocalBeacon, LocalTimelock
from arena.chain.keys import keypair_signer, verify
from arena.chain.port import Signer
from arena.exchange.operator_files import FilesRelease, Operator, ReleaseStore, SharedFile, SignedRelease, sign_release
from arena.exchange.publishing import collect, publish
from arena.policies import DEMO
from problems.formats import write_problems
from problems.suites import CatalogueRecipe, accept_lexically, products_sha256
from problems.synthesis import synthesize
from problems.title_index import TitleIndex
from tests.problems.stand import make_catalogue

NETUID = 15
NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
OPERATOR_KEY = keypair_signer("//Operator")
OPERATOR = Operator(hotkey=OPERATOR_KEY.hotkey, netuid=NETUID)
CATALOGUE = make_catalogue(200)
SHARED = {"policy.json", "s1.jsonl", "s1.titles.json", "s1.manifest.json", "s1.signature.json"}


def seal(folder: Path, closes_ms: list[int], seed: int = 1, signer: Signer = OPERATOR_KEY) -> list[str]:
    """A sealed batch with its notice for each close; the names of the sealed files."""
    problems = synthesize(CATALOGUE, seed=seed, counts={"product": 2 * len(closes_ms)})
    locked = lock_all(
        deal(unpartitioned(problems), len(closes_ms), 2),
        closes_ms,
        timelock=LocalTimelock(),
        beacon=LocalBeacon(lambda: NOW_MS),
        signer=signer,
        random_bytes=lambda size: seed.to_bytes(1, "big") * size,
        now_ms=lambda: NOW_MS,
    )
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for sealed in locked:
        names.append(f"{sealed.notice.race_id}.sealed.json")
        write_sealed(folder / names[-1], sealed)
        (folder / f"{sealed.notice.race_id}.notice.json").write_bytes(notice_bytes(sealed))
    return names


def make_folder(folder: Path, signer: Signer = OPERATOR_KEY) -> set[str]:
    """Policy, suite, two sealed batches, and beside them a bank's own problems and titles; the names to be shared."""
    names = seal(folder / "sealed", [NOW_MS + HOUR_MS, NOW_MS + 2 * HOUR_MS], signer=signer)
    problems = synthesize(CATALOGUE, seed=9, counts={"product": 4, "shop": 2, "voucher": 2})
    recipe = CatalogueRecipe(
        generator="given", documents=len(CATALOGUE), seed=0, products_sha256=products_sha256(CATALOGUE)
    )
    titles = accept_lexically(problems, TitleIndex(CATALOGUE), "operator")
    write_suite(folder / "suites", "s1", problems, titles, recipe, signer)
    (folder / "policy.json").write_bytes(msgspec.json.encode(DEMO))
    (folder / "bank.jsonl").write_text("\n".join(write_problems(problems)))
    (folder / "titles.json").write_bytes((folder / "suites" / "s1.titles.json").read_bytes())
    return SHARED | set(names)


def publish_folder(store: ReleaseStore, *paths: Path, **options) -> SignedRelease:
    """What `arena operator publish` does."""
    given = {"signer": OPERATOR_KEY, "netuid": NETUID, "now_ms": NOW_MS} | options
    return publish(store, collect(paths)[0], timelock=LocalTimelock(), verify=verify, **given)


def keep(store: ReleaseStore, kind: str, path: Path) -> SharedFile:
    """One file published as a release of its own, whatever it holds."""
    with store.locked():
        file = store.add(kind, path.name, path)
        store.keep(release_of(file))
    store.settle()
    return file


def release_of(*files: SharedFile, sequence: int = 1, signer: Signer = OPERATOR_KEY, **fields) -> SignedRelease:
    """A signed release of these files, whether or not they exist."""
    given = {"netuid": NETUID, "made_ms": NOW_MS} | fields
    return sign_release(FilesRelease(sequence=sequence, signer=signer.hotkey, files=files, **given), signer)
