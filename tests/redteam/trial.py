"""One attack, run and judged by the host: the agent's own word counts for nothing but system-call results."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import orjson

from foundation.canonical import canonical_bytes
from harness.sandbox.guest_files import content_sha256
from harness.sandbox.port import Sandbox
from harness.sandbox.processes import descendants
from harness.session import Episode, EpisodePorts, run_episode
from harness.tools.port import ToolOutcome
from harness.trace import EvaluationBody, ToolCall
from harness.work import WorkMeter
from problems.model import Problem, RewardItem
from tests.harness.episode_stand import StandGateway, StandToolbox, rules
from tests.redteam.attacks import Attack, source_of
from tests.redteam.grounds import Grounds, open_grounds

_REFUSALS = {errno.EPERM, errno.ENOSYS, errno.EACCES, errno.EAFNOSUPPORT}
_LIVE_CALLS_MIN = 8  # refusals prove something only where the same calls pass without a jail
_SUPERVISORS = {"bwrap", "warden.py"}
_TRIED, _REACHED, _WAIT = "tried", "reached", "wait"


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What the host found. `refused_calls` and `passed_calls` are set by an attack on system calls."""

    agent: str
    was_tried: bool
    has_reached: bool
    stop: str
    code: str
    owner: str
    harm: tuple[str, ...]
    detail: str = ""
    passed_calls: tuple[str, ...] = ()
    recommended: tuple[str, ...] = ()


class WatchingToolbox(StandToolbox):
    """The stand's tools, with a log of what was really executed, and a look around whenever the agent says a word."""

    def __init__(self, watch: dict[str, Callable[[], None]]) -> None:
        self.log: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self._watch = watch

    def dispatch(self, name: str, arguments: str, work: WorkMeter | None = None) -> ToolOutcome:
        outcome = super().dispatch(name, arguments, work)
        self.log.append((name, arguments, outcome.result))
        with contextlib.suppress(orjson.JSONDecodeError, AttributeError):
            word = str(orjson.loads(arguments).get("q"))
            self.words.append(word)
            self._watch.get(word, lambda: None)()
        return outcome


def run_attack(sandbox: Sandbox, attack: Attack, limits: dict[str, int], root: Path) -> Trial:
    """The attack, with what comes before it and what runs beside it, on fresh grounds."""
    with open_grounds() as grounds, contextlib.ExitStack() as stack:
        if attack.first:
            target = {**grounds.targets, "note": grounds.note}
            run_agent(sandbox, attack.first, target, limits, {})
        if attack.beside:
            stack.enter_context(_beside(sandbox, attack.beside, grounds, limits))
        return try_agent(sandbox, attack.agent, grounds, limits, root)


def try_agent(sandbox: Sandbox, agent: str, grounds: Grounds, limits: dict[str, int], root: Path) -> Trial:
    """Run `agent` against `grounds` and look at everything afterwards."""
    bystanders = set(descendants(os.getpid()))
    seen: dict[int, str] = {}
    harm: set[str] = set()

    def look() -> None:
        for pid in set(descendants(os.getpid())) - bystanders:
            seen[pid] = started_at(pid)
            if _could_be_root(pid):
                harm.add("privilege")
        if agent == "listen" and grounds.can_be_entered():
            harm.add("entered")

    root_before = _stamp(root)
    episode, toolbox = run_agent(sandbox, agent, grounds.targets, limits, {_TRIED: look})
    body = episode.body
    harm |= grounds.harm()
    if _stamp(root) != root_before:
        harm.add("root")
    harm |= grounds.stolen(canonical_bytes(body).decode() + episode.exit.output_tail + episode.exit.claim)
    left = [pid for pid, born in seen.items() if born and started_at(pid) == born]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if left:
        harm.add("left")
    if not is_record_true(body, toolbox.log):
        harm.add("record")
    if grounds.answer in set(body.recommended or ()) - set(body.unsurfaced):
        harm.add("score")
    passed = _passed_calls(body.claim) if agent == "raw_system_calls" else ()
    if len(passed) >= _LIVE_CALLS_MIN:
        harm.add("calls")
    return report(agent, episode, toolbox, harm, passed)


def report(
    agent: str, episode: Episode, toolbox: WatchingToolbox, harm: set[str], passed: tuple[str, ...] = ()
) -> Trial:
    """The finding on one run."""
    failure = episode.body.failure
    return Trial(
        agent=agent,
        was_tried=_TRIED in toolbox.words,
        has_reached=_REACHED in toolbox.words,
        stop=episode.body.stop,
        code=failure.code if failure else "",
        owner=failure.owner.value if failure else "",
        harm=tuple(sorted(harm)),
        detail=f"{episode.body.claim[:300]} {episode.exit.error[:200]} {episode.exit.output_tail[-300:]}",
        passed_calls=passed,
        recommended=tuple(episode.body.recommended or ()),
    )


def run_agent(
    sandbox: Sandbox,
    agent: str,
    targets: dict[str, object],
    limits: dict[str, int],
    watch: dict[str, Callable[[], None]],
) -> tuple[Episode, WatchingToolbox]:
    """One episode of the program `agent` on a problem that names its `targets`."""
    told = orjson.dumps({**targets, "program": agent}).decode()
    problem = Problem(
        problem_id="p-1", bucket="product", query=told, rewards=(RewardItem(product_id="1", title=("lamp",)),)
    )
    toolbox = WatchingToolbox(watch)
    ports = EpisodePorts(toolbox=toolbox, gateway=StandGateway(), sandbox=sandbox)
    return run_episode(source_of(agent), problem, ports, rules(**{"agent_time_ms": 15_000, **limits})), toolbox


def is_record_true(body: EvaluationBody, log: list[tuple[str, str, str]]) -> bool:
    """True when the calls in the record are those that the host executed, in order, with the results it gave."""
    recorded = [(call.name, call.arguments, call.result) for call in body.events if isinstance(call, ToolCall)]
    return recorded == log


def started_at(pid: int) -> str:
    """The start time of a living process; empty when it is gone or only waits to be reaped."""
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


@contextlib.contextmanager
def _beside(sandbox: Sandbox, agent: str, grounds: Grounds, limits: dict[str, int]):
    arrived, leave = threading.Event(), threading.Event()

    def wait() -> None:
        arrived.set()
        leave.wait(30)

    told = {"plan": grounds.plan}
    thread = threading.Thread(target=run_agent, args=(sandbox, agent, told, limits, {_WAIT: wait}))
    thread.start()
    try:
        assert arrived.wait(30), "the neighbour never arrived"
        yield
    finally:
        leave.set()
        thread.join()


def _could_be_root(pid: int) -> bool:
    """True for a guest's process that is root, holds a capability or may gain one, as the host sees it. The jail's own
    supervisors are no guests: they run other programs."""
    try:
        command = Path("/proc", str(pid), "cmdline").read_text().split("\0")
        lines = Path("/proc", str(pid), "status").read_text().splitlines()
    except OSError:
        return False
    if not any(word.endswith("/runner.py") for word in command) or _SUPERVISORS & {Path(w).name for w in command}:
        return False
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return (
        "0" in status["Uid"].split()
        or int(status["CapEff"], 16) != 0
        or int(status["CapPrm"], 16) != 0
        or status["NoNewPrivs"].strip() != "1"
    )


def _passed_calls(claim: str) -> tuple[str, ...]:
    results = orjson.loads(claim) if claim else {}
    return tuple(name for name, number in results.items() if number not in _REFUSALS)


def _stamp(root: Path) -> str:
    """The guest root's identity, with the bytecode that its own hash leaves out."""
    cached = sorted((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("arena/**/*.pyc"))
    return content_sha256(root / "arena") + str(cached)
