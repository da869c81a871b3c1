"""What everybody with the same settings has alike: policy, catalogue, public suite, titles, and what the gate knows;
signer and chain that settings name, and the clock.

Miner and validator on one host get the same suite: the operator's, the shipped one or, over a catalogue of
one's own, a suite seeded by its name. On a real network it comes from the operator and nothing is made here. `arena
check` opens no chain, worker or judge.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from arena.bank.suite_signature import open_shipped, read_suite
from arena.chain.keys import verify
from arena.chain.port import Signer, Subtensor, is_local
from arena.gate.knowledge import GateKnowledge, make_knowledge
from arena.gate.likeness import Sketch
from arena.policies import POLICIES
from arena.policy import Policy
from foundation.canonical import content_hash, text_hash
from foundation.durable_files import coded, write_whole
from foundation.errors import ArenaError, nearest
from harness.agents.registry import published_sources
from harness.catalogue.analysis import analyzer_sha256
from harness.catalogue.layout import FORMAT
from harness.catalogue.native import Engine, open_catalogue
from harness.tools.registry import printed_tools
from neurons.settings.settings import Settings
from problems.formats import read_problems, write_problems
from problems.model import BUCKETS, Bucket, Problem, Product
from problems.suites import SUITES, ShippedSuite
from problems.synthesis import synthesize
from problems.titles import LexicalTitles, TitleMatcher, decode_accepted, join_titles

SYNTHETIC_DOCUMENTS = 20_000
SYNTHETIC_SEED = 7
DEFAULT_POLICY = "paper"


def policy_of(settings: Settings) -> Policy:
    """The policy the settings name, shipped or a JSON file, `paper` where they name none; `models` replaces its model
    list, and so its hash."""
    named = settings.policy or DEFAULT_POLICY
    if not named.endswith(".json") and named not in POLICIES:
        near = nearest(named, POLICIES)
        detail = f"no policy `{named}`; there are {', '.join(POLICIES)}, or a path that ends in .json"
        raise ArenaError("V2030", detail, fix=f"did you mean `{near[0]}`?" if near else "name one of them")
    try:
        policy = POLICIES.get(named) or msgspec.json.decode(Path(named).read_bytes(), type=Policy)
    except (OSError, msgspec.DecodeError) as error:
        raise ArenaError("V2030", f"policy {named}: {error}", fix="check the file") from error
    models = tuple(name.strip() for name in settings.models.split(",") if name.strip())
    return with_models(policy, models) if models else policy


def with_models(policy: Policy, models: tuple[str, ...]) -> Policy:
    """The policy with these models in place of its own."""
    return msgspec.structs.replace(policy, inference=msgspec.structs.replace(policy.inference, models=models))


def catalogue_path(settings: Settings) -> Path:
    """The index folder: the one set, or the synthetic catalogue's in the state folder."""
    if settings.catalogue_dir is not None:
        return settings.catalogue_dir
    made_by = content_hash([FORMAT, analyzer_sha256()])[:8]  # an index of another release would be refused
    return settings.state_dir / "catalogues" / f"synthetic-{SYNTHETIC_DOCUMENTS}-{SYNTHETIC_SEED}-{made_by}"


def prepare_catalogue(settings: Settings) -> Path:
    """The index folder; the synthetic catalogue is made and built once where the settings name none.

    Raises ArenaError V2027 when the state folder is not writable.
    """
    path = catalogue_path(settings)
    settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)  # other miners' sources will lie there
    if settings.catalogue_dir is not None or path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / "lock").open("ab") as lock, tempfile.TemporaryDirectory(dir=path.parent) as folder:
        fcntl.flock(lock, fcntl.LOCK_EX)  # processes of a cluster's machine come here together
        if path.exists():
            return path
        from harness.catalogue.build import build_index, write_documents  # neither is needed again
        from harness.catalogue.synthetic import generate

        documents = Path(folder) / "documents.jsonl"
        with documents.open("wb") as stream:
            write_documents(generate(SYNTHETIC_DOCUMENTS, SYNTHETIC_SEED), stream)
        build_index(documents, path)
    return path


def suite_folder(settings: Settings) -> Path:
    """Where suites stand: on a real network as the operator signed them (`arena problems sign-suite`)."""
    return settings.state_dir / "suites"


def prepare_suite(settings: Settings, policy: Policy, own_hotkey: str = "") -> tuple[Problem, ...]:
    """The active public suite of `policy`: on a real network the one that the operator signed.

    The operator is the key that the setting `bank_hotkey` names; where it names none, the node itself (`own_hotkey`,
    ss58). On the local network a suite that `bank_hotkey` signed serves where one stands; else the shipped suite serves
    where the catalogue can answer it; over any other catalogue a suite of that name is made, and kept as a file.

    Raises ArenaError P4001 when a real network's node has none, P4006 when its answers are not in the catalogue, P4014
    when there are fewer problems than the policy asks for, P4010 when the suite is not what the operator signed, or no
    operator is known, V2064 when a suite made here can't be written.
    """
    name, count = policy.qualifying.suite, policy.qualifying.problems
    folder, catalogue = suite_folder(settings), open_catalogue(catalogue_path(settings))
    is_signed = bool(settings.bank_hotkey) and (folder / f"{name}.manifest.json").exists()
    if not is_local(settings.network) or is_signed:
        operator = settings.bank_hotkey or own_hotkey
        if not operator:
            raise ArenaError("P4010", f"{name}: set bank_hotkey to the operator's key, which signs the suite")
        suite = read_suite(folder, name, verify, operator)
        if misfit := _misfit(suite, catalogue):
            raise misfit
        return _first_of_each(suite.problems, count)
    path = folder / f"{name}-{count}.jsonl"
    if path.exists():
        with path.open(encoding="utf-8") as lines:
            return read_problems(lines)
    if name in SUITES and _misfit(shipped := open_shipped(name, verify), catalogue) is None:
        return _first_of_each(shipped.problems, count)
    seed = int(text_hash(f"agent-arena/suite/{name}")[:15], 16)
    problems = synthesize(catalogue_products(settings), seed=seed, counts=spread_evenly(count))
    with coded(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, "".join(f"{line}\n" for line in write_problems(problems)).encode())
    return problems


def catalogue_products(settings: Settings) -> tuple[Product, ...]:
    """Every product of the open catalogue, by id."""
    return tuple(open_catalogue(catalogue_path(settings)).products())


def gate_knowledge(
    settings: Settings, policy: Policy, suite: tuple[Problem, ...], sketches: Iterable[Sketch] = ()
) -> GateKnowledge:
    """What the gate of this node knows: the catalogue's ids, the public suite's texts, the published agents, the tools'
    own words, and the operator's sketches."""
    return make_knowledge(
        open_catalogue(catalogue_path(settings)).product_ids(),
        (problem.query for problem in suite),
        published_sources(),
        policy.gate,
        published_texts=printed_tools(),
        published_sketches=sketches,
    )


def _misfit(suite: ShippedSuite, catalogue: Engine) -> ArenaError | None:
    """Why the catalogue is not the one that a suite is asked of: P4010 or P4006.

    Its products are counted, not hashed: over millions that takes minutes, and a start should not.
    """
    name, documents = suite.manifest.name, suite.manifest.catalogue.documents
    if len(catalogue) != documents:
        held = len(catalogue)
        return ArenaError("P4010", f"{name} is asked of {documents} documents, this catalogue holds {held}")
    for problem in suite.problems:
        for item in problem.rewards:
            if catalogue.product(item.product_id) is None:
                return ArenaError("P4006", f"{problem.problem_id} of suite {name}: {item.product_id}")
    return None


def _first_of_each(problems: Sequence[Problem], count: int) -> tuple[Problem, ...]:
    """`count` problems, the first of each bucket, by `spread_evenly`. Raises ArenaError P4014 for too few."""
    wanted = spread_evenly(count)
    chosen = tuple(
        problem
        for bucket in BUCKETS
        for problem in [problem for problem in problems if problem.bucket == bucket][: wanted[bucket]]
    )
    if len(chosen) < count:
        raise ArenaError("P4014", f"the suite holds {len(problems)} problems, the policy asks for {count}")
    return chosen


def spread_evenly(total: int) -> dict[Bucket, int]:
    """`total` problems spread evenly over the buckets, the first ones taking what is left."""
    share, rest = divmod(total, len(BUCKETS))
    return {bucket: share + (place < rest) for place, bucket in enumerate(BUCKETS)}


def held_path(state_dir: Path) -> Path:
    """Where a node keeps the logs it pulled from other validators."""
    return state_dir / "held"


def shared_titles_folder(settings: Settings) -> Path:
    """Where title releases of the operator stand."""
    return settings.state_dir / "titles"


def titles_file(settings: Settings) -> str:
    """The accepted titles of the suite, or "" for `lexical/1` on the local network. A race's batch brings its own.

    On a real network they stand beside the suite and are signed with it. The local network takes a release beside the
    index, else the operator's, which also serve batches that were sealed without titles. Raises ArenaError V2040 on a
    real network without them: its scores would not be other validators' scores.
    """
    if is_local(settings.network):
        places = (catalogue_path(settings), shared_titles_folder(settings))
        return next((str(folder / "titles.json") for folder in places if (folder / "titles.json").exists()), "")
    release = suite_folder(settings) / f"{policy_of(settings).qualifying.suite}.titles.json"
    if not release.exists():
        raise ArenaError("V2040", f"no accepted titles at {release}")
    return str(release)


def open_titles(*paths: str | Path) -> TitleMatcher:
    """The matcher of some release files together, or `lexical/1` for none ("" is none). Raises ArenaError P4001 for a
    malformed release."""
    releases = tuple(decode_accepted(Path(path).read_bytes()) for path in paths if path)
    return join_titles(releases) if releases else LexicalTitles()


def open_released_titles(settings: Settings) -> TitleMatcher:
    """The accepted titles of everything public: `titles*.json` beside the index (a suite's, and those of released
    batches) and of the operator's release. Raises ArenaError as `open_titles`."""
    folders = (catalogue_path(settings), shared_titles_folder(settings))
    return open_titles(*(path for folder in folders for path in sorted(folder.glob("titles*.json"))))


def code_commit() -> str:
    """The commit of this checkout, or the installed distribution's version where there is none."""
    root = Path(__file__).resolve().parents[2]
    if (root / ".git").exists() and shutil.which("git"):
        command = ["git", "-C", str(root), "rev-parse", "HEAD"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        if answer.returncode == 0:
            return answer.stdout.strip()
    try:
        return f"agent-arena {version('agent-arena')}"
    except PackageNotFoundError:
        return "unknown"


def signer_of(settings: Settings) -> Signer:
    """The hotkey that the settings name. Raises ArenaError V2030 when it can't be read."""
    from arena.chain.opening import open_signer  # here and below: what only runs agents opens no chain

    return open_signer(
        settings.network,
        name=settings.wallet_name,
        hotkey=settings.wallet_hotkey,
        path=settings.wallet_path,
        password_file=settings.wallet_password_file,
    )


def chain_of(settings: Settings) -> Subtensor:
    """The chain that the settings name. Raises ArenaError as `open_subtensor` does, and V2030 for a proxy's key."""
    from arena.chain.opening import open_subtensor

    of_proxy = msgspec.structs.replace(settings, wallet_hotkey=settings.wallet_proxy)
    return open_subtensor(
        settings.network,
        netuid=settings.netuid,
        state_dir=settings.state_dir,
        now_ms=unix_ms,
        mechanism=settings.mechanism,
        proxy=signer_of(of_proxy) if settings.wallet_proxy else None,
    )


def unix_ms() -> int:
    """The wall clock, passed in wherever a decision needs one."""
    return time.time_ns() // 1_000_000
