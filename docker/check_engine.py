"""Does a sandbox engine keep its promises on this host? Prints one signed JSON, to send back to the project.

    make install
    .venv/bin/python docker/check_engine.py > result.json
    .venv/bin/python docker/check_engine.py --engine runsc --image REGISTRY/agent-arena-guest@sha256:... > result.json
    .venv/bin/python docker/check_engine.py --verify result.json

Each engine has to pass the self-test of a node's start, then the whole contract of tests/harness/sandbox_contract.py:
honest agents work, hostile ones see, reach and leave nothing, limits end a run for their own reason. Nothing is sent
anywhere and no setting of the host is changed; progress goes to stderr. The image: docker/README.md.

Exit code 0: every engine that was asked for passed (without --engine: every one that is here, and one is). 1: a check
failed, or --verify found another content or signature. 3: an engine that was named is unusable here, or all are.

The docker and runsc parts, and aarch64, have never been run by us: that is what this program is for.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from arena.chain.keys import Signer, generate_signer, verify, wallet_signer
from foundation.canonical import canonical_bytes, content_hash
from foundation.errors import ArenaError
from harness.sandbox.guest_root.rootfs import GuestRoot, open_guest_root
from harness.sandbox.port import Sandbox
from harness.sandbox.probing.probe import Attempt, is_pinned, try_bubblewrap, try_docker, try_landlock
from neurons.settings.inputs import code_commit

ROOT = Path(__file__).resolve().parents[1]
CONTRACT = ROOT / "tests" / "harness" / "engine_contract.py"
ENGINES = ("bubblewrap", "landlock", "docker", "runsc")
DOMAIN = b"agent-arena/engine-check/1\n"
NO_IMAGE = "no --image: build the guest's image and name it by digest (docker/README.md)"
DETAIL_CHARACTERS = 600


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check: passed, failed or skipped, and its last words where it did not pass."""

    name: str
    outcome: str
    detail: str = ""


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one engine. `unusable`: it is not here, or a node would not use it, and `reason` says why; `layers`
    and `degraded` are what its records would say."""

    name: str
    state: str  # passed, failed, unusable
    subject: str = ""
    reason: str = ""
    fix: str = ""
    layers: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is signed."""

    made_ms: int
    host: dict[str, str]
    software: dict[str, str]
    engines: tuple[Engine, ...]


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """The result with its hash, and a signature over domain and hash."""

    result: Result
    sha256: str
    hotkey: str
    is_throwaway_key: bool
    signature: str


class _Contract:
    """A plugin of pytest: gives the engine to the contract and keeps what came of each test."""

    def __init__(self, engine: Sandbox) -> None:
        self._engine, self.checks = engine, list[Check]()

    @pytest.fixture
    def engine(self) -> Sandbox:
        return self._engine

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a test's end, or the failure of its set-up."""
        if report.when == "call" or report.outcome != "passed":
            detail = "" if report.outcome == "passed" else report.longreprtext[-DETAIL_CHARACTERS:]
            self.checks.append(Check(name=report.nodeid.rpartition("::")[2], outcome=report.outcome, detail=detail))


def attempts(name: str, root: GuestRoot, image: str) -> Iterator[Attempt]:
    """The ways into one engine, lazily."""
    if name == "bubblewrap":
        yield from try_bubblewrap(root, slots=4)
    elif name == "landlock":
        yield from try_landlock(root, 4, lambda: open_guest_root(Path("/var/lib/agent-arena")))
    elif not image:
        yield Attempt(level="docker", subject=name, reason=NO_IMAGE)
    else:
        yield from try_docker(root, 4, image, "runc" if name == "docker" else "runsc")


def examine(name: str, root: GuestRoot, image: str) -> Engine:
    """One engine: its self-test, then the contract."""
    tried = list[Attempt]()
    for attempt in attempts(name, root, image):
        tried.append(attempt)
        if attempt.sandbox is not None:
            break
    last = tried[-1]
    if last.sandbox is None:
        reason = "; ".join(f"{attempt.subject}: {attempt.reason}" for attempt in tried)
        return Engine(name=name, state="unusable", subject=last.subject, reason=reason, fix=last.fix)
    contract, level = _Contract(last.sandbox), last.sandbox.level
    with contextlib.redirect_stdout(sys.stderr):
        sys.stderr.write(f"{name}: {last.subject}\n")
        options = [
            "-p",
            "no:cacheprovider",
            "--tb",
            "short",
            "--rootdir",
            str(ROOT),
            "-c",
            str(ROOT / "pyproject.toml"),
        ]
        pytest.main([*options, str(CONTRACT)], plugins=[contract])
    checks = (Check(name="self-test", outcome="passed"), *contract.checks)
    is_well = len(checks) > 1 and all(check.outcome != "failed" for check in checks)
    return Engine(
        name=name,
        state="passed" if is_well else "failed",
        subject=last.subject,
        layers=level.layers,
        degraded=level.degraded,
        checks=checks,
    )


def host_facts() -> dict[str, str]:
    """What the result depends on: processor, kernel, distribution, C library, who runs it. No name, no address."""
    distribution = ""
    with contextlib.suppress(OSError):
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    return {
        "machine": platform.machine(),
        "kernel": platform.release(),
        "distribution": distribution or "unknown",
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory_mib": str(psutil.virtual_memory().total >> 20),
        "user": "root" if os.geteuid() == 0 else "an ordinary user",
        "in_container": str(Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()).lower(),
        "docker_client": shutil.which("docker") or "none",
    }


def signed(result: Result, signer: Signer, *, is_throwaway_key: bool) -> Signed:
    """The result with its signature."""
    sha256 = content_hash(msgspec.to_builtins(result))
    signature = signer.sign(DOMAIN + sha256.encode()).hex()
    return Signed(
        result=result, sha256=sha256, hotkey=signer.hotkey, is_throwaway_key=is_throwaway_key, signature=signature
    )


def is_unchanged(content: bytes) -> bool:
    """Whether hash and signature are the result's. Raises msgspec.DecodeError for what is no result."""
    found = msgspec.json.decode(content, type=Signed)
    is_same = content_hash(msgspec.to_builtins(found.result)) == found.sha256
    return is_same and verify(found.hotkey, DOMAIN + found.sha256.encode(), bytes.fromhex(found.signature))


def main() -> int:
    """Read the command line, check, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", action="append", choices=ENGINES, help="only this one; repeatable; default: all")
    parser.add_argument("--image", default="", help="the guest's image for docker and runsc, NAME@sha256:...")
    parser.add_argument("--wallet.name", dest="wallet", default="", help="sign with a hotkey of this wallet")
    parser.add_argument("--wallet.hotkey", dest="hotkey", default="default", help="its hotkey; default: default")
    parser.add_argument("--verify", type=Path, metavar="FILE", help="check a result that was printed before")
    parser.add_argument("--guest-root", type=Path, metavar="DIR", help="make what the image is built from, print where")
    given = parser.parse_args()
    if given.guest_root:
        sys.stdout.write(f"{open_guest_root(given.guest_root).path}\n")
        return 0
    if given.verify:
        is_well = is_unchanged(given.verify.read_bytes())
        sys.stdout.write("ok: content and signature belong together\n" if is_well else "changed after it was signed\n")
        return 0 if is_well else 1
    if given.image and not is_pinned(given.image):
        parser.error("--image: name it by digest, NAME@sha256:<64 digits>")
    signer = wallet_signer(given.wallet, given.hotkey) if given.wallet else generate_signer()
    with tempfile.TemporaryDirectory(prefix="arena-engine-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # a guest with a uid of its own has to reach its interpreter
        root = open_guest_root(Path(folder))
        engines = tuple(examine(name, root, given.image) for name in given.engine or ENGINES)
    software = {"commit": code_commit(), "guest_sha256": root.content_sha256, "guest_python": root.python_version}
    result = Result(made_ms=time.time_ns() // 1_000_000, host=host_facts(), software=software, engines=engines)
    whole = signed(result, signer, is_throwaway_key=not given.wallet)
    sys.stdout.write(msgspec.json.format(canonical_bytes(msgspec.to_builtins(whole)), indent=2).decode() + "\n")
    for engine in engines:
        passed = sum(check.outcome == "passed" for check in engine.checks)
        told = engine.reason or f"{passed} of {len(engine.checks)} checks passed"
        sys.stderr.write(f"{engine.name}: {engine.state}; {told}\n")
    states = {engine.state for engine in engines}
    if "failed" in states:
        return 1
    return 3 if "passed" not in states or (given.engine and "unusable" in states) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ArenaError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(3)
