"""Is this host ready? One row per thing the software needs: what was found, and the exact fix where it falls short.

What the start of a node checks is checked here by the same functions. A check installs nothing and changes no setting;
all it writes is the guest's file tree in the state folder, which the first run would make too. `fail` means that a
validator cannot run here, `warn` that it runs with less.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import psutil

from arena.chain.opening import open_beacon, open_timelock
from arena.chain.port import LOCAL_NETWORK, StatePrunedError, Subtensor, is_local
from arena.race.schedule import qualified_within_ms, shared_closes_ms
from arena.store.embedded import start_embedded
from arena.store.postgres import PostgresStore
from foundation.codes import CHAIN_STANDS, FILES_LACKING, lookup
from foundation.errors import ArenaError, counted, redacted
from harness.catalogue.native import open_catalogue
from harness.sandbox.probe import level_fixes, open_sandbox
from neurons.health.status import BANK_DAYS_MIN, CLOCK_AHEAD_MS, CLOCK_BEHIND_MS, DAY_MS, duration
from neurons.loops.operator_files import with_held_release
from neurons.node import opening
from neurons.node.reporting import look
from neurons.settings.endpoints import check_endpoints, chosen_endpoints
from neurons.settings.inputs import catalogue_path, chain_of, policy_of, prepare_suite, signer_of, titles_file, unix_ms
from neurons.settings.settings import NOBODY, WORKERS_MAX, Settings
from neurons.worker.ports import RESERVED_BYTES, episode_bytes, open_judges, usable_memory_bytes, worker_count

MEMORY_BYTES, DISK_BYTES = (2 << 30, 6 << 30), (1 << 30, 20 << 30)  # least, good
BEHIND_MS = 180_000
UIDS = 256  # of a subnet
DAY_BLOCKS = 7_200  # what a node has to keep that goes on with a race after a day's outage

Status = Literal["ok", "warn", "fail"]


class DoctorCheck(msgspec.Struct, frozen=True):
    """What was found of one thing, and the exact fix where it falls short. `examine` names it."""

    status: Status
    found: str
    fix: str = ""
    name: str = ""


Check = Callable[[Settings], DoctorCheck]


def examine(settings: Settings, checks: Sequence[tuple[str, Check]]) -> Iterator[DoctorCheck]:
    """Run the checks in order, each row as soon as it is known. What could not be looked at is a `fail` with why."""
    for name, check in checks:
        try:
            row = check(settings)
        except ArenaError as error:
            row = DoctorCheck("fail", f"{error.failure.code} {error.entry.title}: {error.failure.detail}", error.fix)
        except (ImportError, OSError, subprocess.SubprocessError) as error:
            fix = "see the reason above; if the install is broken: make install, or pip install -c constraints.txt -e ."
            row = DoctorCheck("fail", str(error), fix)
        yield msgspec.structs.replace(row, name=name, found=redacted(row.found))


def check_settings(settings: Settings) -> DoctorCheck:
    """What the settings say by themselves, and that no other process of this user validates with the hotkey."""
    signer = opening.require_settings(settings)
    if not _runs(settings):
        with opening.alone_on_host(settings, signer.hotkey):
            pass
    return DoctorCheck("ok", f"hotkey {signer.hotkey}, policy {policy_of(settings).name}")


def _runs(settings: Settings) -> bool:
    """Whether it is the running node that is looked at."""
    return look(settings.state_dir, None, unix_ms()).is_running


def check_release(settings: Settings) -> DoctorCheck:
    """The operator's files, where the start waits for them."""
    policy = with_held_release(settings).policy
    if not settings.operator_hotkey or settings.operator_hotkey == NOBODY or policy:
        return DoctorCheck("ok", f"policy {policy or policy_of(settings).name}")
    about = f"no whole release of {settings.operator_hotkey} is here, and no policy is set"
    if not settings.share:
        raise ArenaError(FILES_LACKING, about)
    return DoctorCheck("warn", about, "the start waits until another validator hands it on; or set policy")


def check_memory(settings: Settings) -> DoctorCheck:
    """Memory that can be used now, for the index, Postgres and the jails."""
    return _judge_bytes("", psutil.virtual_memory().available, *MEMORY_BYTES)


def check_disk(settings: Settings) -> DoctorCheck:
    """The state folder, made as the start makes it, and the space there."""
    opening.make_own_folder(settings.state_dir)
    return _judge_bytes(f"{settings.state_dir}: ", shutil.disk_usage(settings.state_dir).free, *DISK_BYTES)


def require_startable(settings: Settings) -> None:
    """Raises the ArenaError with which a start would end, or wait."""
    later = (check_release, check_suite, check_model) if settings.share else ()  # which others may bring
    for _, check in CHECKS:
        if check not in later:
            check(settings)


def _judge_bytes(place: str, free: int, least: int, good: int) -> DoctorCheck:
    found = f"{place}{free / (1 << 30):.1f} GiB free"
    if free < least:
        return DoctorCheck("fail", found, f"free at least {least >> 30} GiB; {good >> 30} GiB is comfortable")
    if free < good:
        return DoctorCheck("warn", found, f"enough for the demo; the full catalogue wants {good >> 30} GiB")
    return DoctorCheck("ok", found)


def check_engine(settings: Settings) -> DoctorCheck:
    """The index opens, unless the start makes it; numba compiles for this processor, where it is installed."""
    found = f"numpy {np.__version__}"
    if _is_indexed(settings):
        path = catalogue_path(settings)
        found += f", {len(open_catalogue(path))} products in {path}"
    try:
        import numba
    except ImportError:
        fix = "install agent-arena[search] for catalogues of 200,000 documents and more"
        return DoctorCheck("warn" if settings.catalogue_dir else "ok", f"without numba, {found}", fix)
    numba.njit(lambda values: values * 2)(np.arange(3, dtype=np.int64))
    return DoctorCheck("ok", f"numba {numba.__version__}, {found}")


def check_sandbox(settings: Settings) -> DoctorCheck:
    """The jail that holds here after its self-test, by the code that opens it for a race, on the policy's Python."""
    state_dir, wanted = settings.guest_dir or settings.state_dir, settings.sandbox
    level = open_sandbox(state_dir, reference_sha256s=frozenset(), slots=1, wanted=wanted).level
    fix = "" if level.may_race else " or: ".join(level_fixes(state_dir, wanted)) or "set --sandbox auto"
    opening.require_racing_level(policy_of(settings), level, fix)
    found = f"{level.name}: {', '.join(level.layers)}" + "".join(f"; without {reason}" for reason in level.degraded)
    return DoctorCheck("warn" if fix else "ok", found, fix)


def check_postgres(settings: Settings) -> DoctorCheck:
    """The embedded server starts, or the server of the DSN takes this hotkey's login."""
    if dsn := settings.database_dsn.text:

        async def dial() -> None:
            hotkey, is_free = signer_of(settings).hotkey, not _runs(settings)
            await (await PostgresStore.open(dsn, hotkey, is_exclusive=is_free)).close()

        asyncio.run(dial())
        return DoctorCheck("ok", f"{redacted(dsn)} answers, with the schema and the login of this hotkey")
    if (settings.state_dir / "postgres").is_dir():
        start_embedded(settings.state_dir).stop()
        return DoctorCheck("ok", f"the embedded server of {settings.state_dir} was started, or runs")
    with tempfile.TemporaryDirectory(prefix="arena-doctor-") as scratch:
        Path(scratch).chmod(0o755)
        start_embedded(Path(scratch)).stop()
    return DoctorCheck("ok", "an embedded server was started and stopped")


def check_ports(settings: Settings) -> DoctorCheck:
    """No other process holds a port of the settings, unless it is this node, which runs."""
    if _runs(settings):
        return DoctorCheck("ok", "the validator of this state folder runs, and has them")
    opening.require_ports(settings, (settings.metrics_host, settings.metrics_port))
    return DoctorCheck("ok", "free")


def _is_indexed(settings: Settings) -> bool:
    """Whether an index is to be opened; one in the state folder is made, or put there, by the first start."""
    path = catalogue_path(settings)
    return path.exists() or not path.is_relative_to(settings.state_dir)


def check_suite(settings: Settings) -> DoctorCheck:
    """The suite of qualifying, with its accepted titles, as the start opens them; a local network makes its own."""
    if is_local(settings.network) and not _is_indexed(settings):
        return DoctorCheck("ok", "shipped, or made at the first start (local network)")
    policy, titles = policy_of(settings), titles_file(settings)
    suite = prepare_suite(settings, policy, signer_of(settings).hotkey)
    return DoctorCheck("ok", f"{policy.qualifying.suite}: {len(suite)} problems; titles {titles or 'lexical/1'}")


def check_bodies(settings: Settings) -> DoctorCheck:
    """The place of evaluation bodies takes what this validator writes, and gives it back."""
    if (objects := opening.open_bodies(settings)) is None:
        return DoctorCheck("ok", "kept in Postgres")
    asyncio.run(objects.require_writable(signer_of(settings).hotkey))
    return DoctorCheck("ok", f"{objects.location} answers")


def check_model(settings: Settings) -> DoctorCheck:
    """Each model of the policy has an endpoint, or is the scripted one; so has its judge."""
    policy = policy_of(settings)
    named, judges = chosen_endpoints(settings, policy)
    open_judges(policy.rubric, judges)
    if not named:
        return DoctorCheck("ok", "the scripted model")
    silent = check_endpoints(named, policy.inference.models)
    found = "; ".join([f"{', '.join(policy.inference.models)} at {', '.join(one.base_url for one in named)}", *silent])
    return DoctorCheck("warn" if silent else "ok", found, "start it, or take it out of [[upstreams]]" if silent else "")


def check_queue(settings: Settings) -> DoctorCheck:
    """Whatever all hotkeys of a subnet hand in, who commits by the close is qualified while the race waits for it."""
    policy = policy_of(settings)
    grace_ms, limits = policy.race.qualifying_grace_ms, policy.limits
    if is_local(settings.network):
        return DoctorCheck("ok", "local network: its hotkeys are few")
    if not policy.qualifying.worker_ms:
        return DoctorCheck("ok", f"policy {policy.name} does not limit the time of a suite")
    workers = worker_count(settings.workers, usable_memory_bytes(), limits)
    within_ms = qualified_within_ms(policy, UIDS, workers)
    found = f"{workers} workers qualify {UIDS} hotkeys in {within_ms // 60_000} of {grace_ms // 60_000} minutes"
    if within_ms <= grace_ms:
        return DoctorCheck("ok", found)
    enough = next((n for n in range(workers, WORKERS_MAX) if qualified_within_ms(policy, UIDS, n) <= grace_ms), 0)
    if not enough:
        return DoctorCheck("warn", found, "choose a policy with a longer qualifying_grace_ms")
    memory = (RESERVED_BYTES + enough * episode_bytes(limits)) >> 30
    return DoctorCheck("warn", found, f"set workers to at least {enough}; they hold {memory + 1} GiB at their limits")


def check_bank(settings: Settings) -> DoctorCheck:
    """Enough sealed batches for the races to come; on the local network a node makes its own."""
    policy, timelock = policy_of(settings), open_timelock(settings.network)
    bank = opening.open_bank(settings, policy, (), open_beacon(settings.network, unix_ms), timelock)
    level = bank.level(shared_closes_ms(unix_ms(), policy.race), unix_ms())
    if level.is_made_here:
        return DoctorCheck("ok", "made here when it is empty (local network)")
    found = f"{counted(level.races, 'race')}, {duration(level.lasts_ms)}"
    if level.lasts_ms < BANK_DAYS_MIN * DAY_MS:
        return DoctorCheck("warn", found, f"a validator needs {BANK_DAYS_MIN} days: ask the operator for batches")
    return DoctorCheck("ok", found)


def check_network(settings: Settings) -> DoctorCheck:
    """The network is ready for this validator: it is looked at through the port, and nothing is changed on it."""
    if settings.network == LOCAL_NETWORK:
        return DoctorCheck("ok", "local twin, in the state folder")
    return asyncio.run(examine_network(chain_of(settings), signer_of(settings).hotkey, unix_ms(), settings))


async def examine_network(chain: Subtensor, hotkey: str, now_ms: int, settings: Settings | None = None) -> DoctorCheck:
    """The row for a chain as this hotkey finds it: `warn` where a validator would run with less (a head that stands
    still, a node that forgets the last day). Raises ArenaError where it would not start: U3030 when it is away, U3035
    without a permit, and U3037 to U3039 and V2032 where this release can't do its work on it (`Subtensor.check`)."""
    await chain.check(hotkey)
    permitted = await opening.require_permit(chain, hotkey)
    if settings is not None:
        opening.require_company(settings, policy_of(settings), len(permitted))
    metagraph, skew_ms = await chain.metagraph(), now_ms - await chain.head_ms()
    found = f"netuid {chain.netuid}, block {metagraph.block}, uid {metagraph.uid_of(hotkey)} with a permit"
    if await chain.block_at(now_ms - BEHIND_MS) is None:
        found += f"; no final block of the last {BEHIND_MS // 60_000} minutes"
        return DoctorCheck("warn", found, lookup(CHAIN_STANDS).remedy)
    if not -CLOCK_BEHIND_MS <= skew_ms <= CLOCK_AHEAD_MS:
        found += f"; this host's clock is {skew_ms / 1_000:+.0f} s off the newest block's"
        return DoctorCheck("warn", found, "set the clock: timedatectl set-ntp true")
    try:
        await chain.commitment(hotkey, max(1, metagraph.block - DAY_BLOCKS))
    except StatePrunedError as error:
        return DoctorCheck("warn", f"{found}; it has forgotten yesterday's state", error.entry.remedy)
    return DoctorCheck("ok", found)


CHECKS: tuple[tuple[str, Check], ...] = (
    ("settings", check_settings),
    ("release", check_release),
    ("memory", check_memory),
    ("state folder", check_disk),
    ("sandbox", check_sandbox),
    ("postgres", check_postgres),
    ("ports", check_ports),
    ("bodies", check_bodies),
    ("model", check_model),
    ("search engine", check_engine),
    ("suite", check_suite),
    ("network", check_network),
    ("queue", check_queue),
    ("bank", check_bank),
)
