"""A Ray cluster of two nodes in a network namespace of its own, and the work that the tests give it.

Run as a program behind `_APART`: python -m tests.neurons.cluster_stand FOLDER WHAT [ARGUMENT...]. Ray is told no
address but the loopback's, a token is made in FOLDER, and HOME is FOLDER: nothing of the machine's user is touched.
All of its processes end with the program, for they are in a process namespace of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

HEAD, OTHER = "127.0.0.1", "127.0.0.2"
ADDRESS = f"{HEAD}:6379"
ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "build" / "ray"  # where `make prove` installs what the extra `cluster` names
(REQUIREMENT,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["cluster"]
_RAY = (sys.executable, "-m", "ray.scripts.scripts")
_APART = ("unshare", "--net", "--pid", "--mount-proc", "--fork", "--kill-child")


def install(folder: Path, words: tuple[str, ...]) -> None:
    """`pip install WORDS` into `folder`, whole or not at all; skips where pip cannot."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", part, *words]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(part)
        pytest.skip(f"pip could not install {words[-1]}: {done.stderr.strip()[-300:]}")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.move(part, folder)


def missing() -> str:
    """Why no such cluster can be here; "" where it can."""
    if importlib.util.find_spec("ray") is None:
        return "Ray is not installed: pip install -c constraints.txt -e '.[cluster]', or `make prove`"
    if subprocess.run([*_APART, "true"], capture_output=True, check=False).returncode:
        return "no namespaces of one's own can be made here"
    return ""


def is_installed() -> bool:
    """Whether the version that the extra `cluster` names is in PACKAGES."""
    return (PACKAGES / f"{REQUIREMENT.replace('==', '-')}.dist-info").is_dir()


def apart(folder: Path, *words: object) -> object:
    """What this program prints as JSON, run in a network of its own."""
    command = [*_APART, sys.executable, "-m", "tests.neurons.cluster_stand", str(folder), *map(str, words)]
    environment = {**os.environ, "HOME": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400, env=environment)
    assert done.returncode == 0, done.stderr[-4_000:]
    return json.loads(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def two_nodes(folder: Path) -> Iterator[None]:
    """The cluster, until this program ends."""
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH"))))
    place = tempfile.mkdtemp(prefix="rc")  # the paths of Ray's sockets have to be short
    common = ["--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats", "--block"]
    head = ["--head", f"--node-ip-address={HEAD}", "--port=6379", "--include-dashboard=false", f"--temp-dir={place}"]
    try:
        for words in (head, [f"--address={ADDRESS}", f"--node-ip-address={OTHER}"]):
            path = folder / ("head.log" if words is head else "other.log")
            with path.open("w") as log:
                started = subprocess.Popen([*_RAY, "start", *words, *common], stdout=log, stderr=log)
            _wait_for(path, "Ray runtime started", started)
        yield
    finally:
        shutil.rmtree(place, ignore_errors=True)


def raylet_of(address: str) -> int:
    """The process id of a node's raylet: with it the node is gone."""
    import psutil

    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or [""]
        if words[0].endswith("/raylet") and f"--node_ip_address={address}" in words:
            return int(process.pid)
    raise LookupError(address)


def _wait_for(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(1_200):
        if text in log.read_text():
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError(log.read_text()[-2_000:])


def _up() -> None:
    """The loopback of a new namespace is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        fcntl.ioctl(one, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up, running


# -- what is run there


def meets_a_kill(folder: Path, job: int) -> int:
    """The first job that the second node gets waits for that node's end, and the others until it is under way."""
    import ray

    met = folder / "met"
    if not met.exists() and ray.util.get_node_ip_address() == OTHER:
        met.touch()
        time.sleep(120)
    while not met.exists():
        time.sleep(0.05)
    return job * job


def wants_42(job: int) -> int:
    from foundation.errors import ArenaError

    if job != 42:
        raise ArenaError("V2120", f"job {job}")
    return job


def claimed(job: int) -> bool:
    """Whether a job that no machine has the memory for got one processor and the whole of the largest machine."""
    import ray

    own = ray.get_runtime_context().get_assigned_resources()
    return own["CPU"] == 1 and 100 << 20 < own["memory"] < 1 << 60


def dies(job: int) -> int:
    if job == 3:
        os._exit(9)
    return job


def contract(folder: Path) -> object:
    """What `tests/test_executors.py` asks of processes, asked of the cluster; then a node is killed."""
    from foundation.errors import ArenaError
    from neurons.cluster.ray_executor import open_cluster

    lost: list[int] = []
    found: dict[str, object] = {}
    with open_cluster(ADDRESS, lost.append) as executor:
        found["slots"] = executor.slots
        found["order"] = list(executor.map(abs, range(0, -30, -1), died="V2052"))
        taken: list[int] = []
        coming = executor.map(abs, (taken.append(one) or one for one in range(100)), died="V2052")
        next(coming)
        found["taken"] = len(taken)
        for name, work, jobs in (("error", wants_42, [42, 3, 42]), ("died", dies, range(6))):
            try:
                list(executor.map(work, jobs, died="V2052"))
            except ArenaError as error:
                found[name] = [error.failure.code, error.failure.detail]
        (found["claimed"],) = executor.map(claimed, [0], died="V2052", memory_bytes=1 << 60)
        lost.clear()

        def kill() -> None:
            while not (folder / "met").exists():
                time.sleep(0.05)
            os.kill(raylet_of(OTHER), signal.SIGKILL)

        threading.Thread(target=kill, daemon=True).start()
        found["killed"] = list(executor.map(functools.partial(meets_a_kill, folder), range(30), died="V2052"))
        found["lost"] = sum(lost)
    return found


def commands(folder: Path, *words: str) -> object:
    """`arena WORDS` on the cluster, the words of several commands set apart by `+`. Where a command's first word is
    `kill`, the second node is killed once the command has read something. Exit code and both outputs of each."""
    found = []
    for command in " ".join(words).split(" + "):
        is_killing, line = command.startswith("kill "), command.removeprefix("kill ").split()
        began = [sys.executable, "-m", "neurons.cli.app", *line, "--cluster", ADDRESS]
        running = subprocess.Popen(began, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if is_killing:
            begun = (".*.part", "killed.*.jsonl", "killed/episodes.jsonl")
            while running.poll() is None and not any(any(folder.glob(pattern)) for pattern in begun):
                time.sleep(0.02)
            os.kill(raylet_of(OTHER), signal.SIGKILL)
        out, err = running.communicate(timeout=200)
        found.append([running.returncode, out, err])
    return found


if __name__ == "__main__":
    _up()
    _folder = Path(sys.argv[1])
    _known = {"contract": contract, "commands": commands}
    with two_nodes(_folder):
        _answer = _known[sys.argv[2]](_folder, *sys.argv[3:])
    print(json.dumps(_answer))
