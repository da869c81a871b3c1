"""The container level: its command line word by word, its probing, and the contract of every jail through a stand-in.

No engine is needed or used. `docker_standin` takes the place of the `docker` client and runs the guest under
bubblewrap; what a real engine makes of the flags is for the self-test at start to find out on the host that has one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from foundation.errors import ArenaError
from harness.limits import EpisodeLimits
from harness.sandbox.guest_root.rootfs import open_guest_root
from harness.sandbox.jails.docker import (
    GUEST_LABEL,
    Container,
    DockerSandbox,
    ask_engine,
    is_pinned,
    run_arguments,
    sweep_containers,
)
from harness.sandbox.port import GuestChoice
from harness.sandbox.probing.probe import open_sandbox, try_docker
from tests.harness.jail_stand import WHY_NO_JAIL, guest_root, has_jail, run, state_dir
from tests.harness.sandbox_contract import SandboxContract

REPOSITORY = Path(__file__).parents[2]
IMAGE = "registry.example/agent-arena-guest@sha256:" + "ab" * 32


class Standin:
    """A `docker` command on this host whose engine, image and containers are files in a folder."""

    def __init__(self, folder: Path, runtimes: str = "runc runsc") -> None:
        self.folder = folder
        (folder / "image").write_text(IMAGE)
        (folder / "label").write_text(json.dumps({GUEST_LABEL: guest_root().content_sha256}))
        (folder / "runtimes").write_text(runtimes)
        (folder / "root").symlink_to(guest_root().path)
        self.command = folder / "docker"
        self.command.write_text(
            f"#!/bin/sh\nexport STANDIN_DIR={folder} PYTHONPATH={REPOSITORY}:{':'.join(sys.path)}\n"
            f'exec {sys.executable} {Path(__file__).with_name("docker_standin.py")} "$@"\n'
        )
        self.command.chmod(0o755)

    def attempts(self, runtime: str = ""):
        return list(try_docker(guest_root(), 2, IMAGE, runtime, str(self.command)))

    def containers(self) -> list[str]:
        return [path.name for path in self.folder.glob("container-*")]


@pytest.fixture
def standin(tmp_path):
    if not has_jail():
        pytest.skip(WHY_NO_JAIL)
    return Standin(tmp_path)


@pytest.fixture(scope="module")
def contained(tmp_path_factory):
    if not has_jail():
        pytest.skip(WHY_NO_JAIL)
    standin = Standin(tmp_path_factory.mktemp("standin"))
    (attempt,) = standin.attempts("runc")
    assert attempt.sandbox is not None, attempt.reason
    yield attempt.sandbox
    assert standin.containers() == []


class TestContractThroughTheStandin(SandboxContract):
    @pytest.fixture
    def sandbox(self, contained):
        return contained


LIMITS = EpisodeLimits(memory_bytes=1 << 30, processes=64, disk_bytes=64 << 20)
GOLDEN = """docker run --rm --interactive --name arena-jail-1-2 --label agent-arena.host=77 --pull never
--log-driver none --network none --read-only --cap-drop ALL --security-opt no-new-privileges --pids-limit 64
--memory 1073741824 --memory-swap 1073741824 --user 60600:60600 --hostname guest --workdir /tmp
--tmpfs /tmp:rw,noexec,nosuid,nodev,mode=1777,size=67108864,nr_inodes=20000 --shm-size 1048576
--env PATH=/opt/py/bin --env HOME=/tmp --env TMPDIR=/tmp --env LANG=C.UTF-8 --env LD_LIBRARY_PATH=/opt/py/lib
--env MALLOC_ARENA_MAX=2 --env PYTHONHOME=/opt/py --env PYTHONHASHSEED=0 --env PYTHONDONTWRITEBYTECODE=1
--env PYTHONUTF8=1 {runtime}IMAGE /opt/py/bin/python3 -s -P /arena/runner.py""".replace("IMAGE", IMAGE)


@pytest.mark.parametrize(("runtime", "flag"), [("runc", ""), ("runsc", "--runtime=runsc ")])
def test_the_command_line_is_exactly_this(runtime, flag):
    container = Container(image=IMAGE, runtime=runtime)
    words = run_arguments(container, LIMITS, name="arena-jail-1-2", uid=60_600, host_pid=77)
    assert words == GOLDEN.format(runtime=flag).split()


def test_no_word_of_it_opens_the_host():
    words = run_arguments(Container(image=IMAGE, runtime="runc"), LIMITS, name="n", uid=60_600, host_pid=1)
    flags = {word.partition("=")[0] for word in words if word.startswith("-")}
    opening = {
        "-v",
        "--volume",
        "--mount",
        "--privileged",
        "--cap-add",
        "--device",
        "-p",
        "--publish",
        "--pid",
        "--ipc",
    }
    assert not flags & opening and "docker.sock" not in " ".join(words)


@pytest.mark.parametrize(
    "image", ["agent-arena-guest", "guest:latest", "guest@sha256:abc", f"{IMAGE} --privileged", f"--privileged {IMAGE}"]
)
def test_an_image_without_a_digest_is_a_wrong_setting(image):
    assert not is_pinned(image)
    with pytest.raises(ArenaError) as caught:
        run_arguments(Container(image=image, runtime="runc"), LIMITS, name="n", uid=60_600, host_pid=1)
    assert caught.value.failure.code == "V2030"
    with pytest.raises(ArenaError) as caught:
        choice = GuestChoice(docker_image=image)
        open_sandbox(state_dir(), reference_sha256s=frozenset(), slots=1, wanted="docker", choice=choice)
    assert caught.value.failure.code == "V2030"


def test_the_level_needs_an_image():
    with pytest.raises(ArenaError) as caught:
        open_sandbox(state_dir(), reference_sha256s=frozenset(), slots=1, wanted="docker")
    assert caught.value.failure.code == "V2030"


def test_runsc_is_taken_where_the_engine_has_it_and_runc_where_not(standin):
    assert "runsc" in standin.attempts()[0].sandbox.level.layers
    (standin.folder / "runtimes").write_text("runc")
    missing, plain = standin.attempts()
    assert missing.sandbox is None and "runsc" in missing.fix
    assert "runc" in plain.sandbox.level.layers and plain.sandbox.level.name == "docker"


def test_an_engine_that_is_down_is_a_reason_with_a_fix(standin):
    (standin.folder / "engine-is-down").touch()
    (attempt,) = standin.attempts()
    assert attempt.sandbox is None and "daemon" in attempt.reason and attempt.fix


def test_a_client_that_is_not_there_is_a_reason_with_a_fix(tmp_path):
    (attempt,) = try_docker(guest_root(), 1, IMAGE, "", str(tmp_path / "docker"))
    assert attempt.sandbox is None and attempt.reason and attempt.fix


def test_an_image_of_another_guest_is_refused_with_the_command_that_builds_the_right_one(standin):
    (standin.folder / "label").write_text(json.dumps({GUEST_LABEL: "00" * 32}))
    (attempt,) = standin.attempts()
    assert attempt.sandbox is None and str(guest_root().path) in attempt.fix


@pytest.mark.parametrize("labels", [{}, None])
def test_an_image_that_does_not_say_what_it_holds_is_refused(standin, labels):
    (standin.folder / "label").write_text(json.dumps(labels))
    with pytest.raises(ArenaError, match="label"):
        ask_engine(str(standin.command), IMAGE)


def test_a_container_that_sees_the_host_fails_the_self_test(standin):
    (standin.folder / "root").unlink()
    (standin.folder / "root").symlink_to("/")
    assert not any(attempt.sandbox for attempt in standin.attempts("runc"))


def test_a_container_that_cannot_be_removed_is_a_fault_of_ours(standin):
    (good,) = standin.attempts("runc")
    text = standin.command.read_text()
    standin.command.write_text(text.replace("exec ", 'case "$1" in rm) echo daemon error >&2; exit 1;; esac\nexec '))
    with pytest.raises(ArenaError) as caught:
        run("def agent_main(p): return 1", None, good.sandbox)
    assert caught.value.failure.code == "V2002" and "daemon error" in caught.value.failure.detail


def test_containers_of_dead_hosts_are_swept_and_others_stay(standin):
    sleepers = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    try:
        (standin.folder / "container-dead").write_text(f"{sleepers[0].pid} 999999999")
        (standin.folder / "container-living").write_text(f"{sleepers[1].pid} {os.getpid()}")
        sweep_containers(str(standin.command))
        assert standin.containers() == ["container-living"]
        assert sleepers[0].wait(timeout=10) == -9 and sleepers[1].poll() is None
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


def test_a_slot_is_free_again_after_a_fault(standin):
    (attempt,) = standin.attempts("runc")
    broken = Container(image=IMAGE, runtime="runc", command=str(standin.folder / "missing"))
    sandbox = DockerSandbox(broken, attempt.sandbox.level, slots=1, clock=time.monotonic)
    for _ in range(3):
        with pytest.raises(ArenaError) as caught:
            run("def agent_main(p): return 1", None, sandbox)
        assert caught.value.failure.code == "V2002"


def test_the_image_is_built_from_nothing_but_the_guest_root():
    text = (REPOSITORY / "docker" / "guest.Dockerfile").read_text()
    steps = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert [re.match(r"[A-Z]+", step)[0] for step in steps] == ["FROM", "ARG", "LABEL", "COPY"]
    assert steps[0] == "FROM scratch" and GUEST_LABEL in steps[2]


def test_a_level_tells_the_guest_it_runs(standin):
    (attempt,) = standin.attempts("runc")
    level = attempt.sandbox.level
    root = open_guest_root(state_dir())
    assert (level.guest_sha256, level.python_version) == (root.content_sha256, root.minor_version)
    assert msgspec.json.decode(msgspec.json.encode(level), type=type(level)) == level
