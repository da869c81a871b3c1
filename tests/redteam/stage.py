"""All attacks at one sandbox level, in a process of its own; one finding a line on stdout, as JSON.

`python -m tests.redteam.stage --wanted LEVEL --state DIR`. It runs as an ordinary user and ends at once under root
(`tests/redteam/README.md`): without a jail, or with one that fails, an attack must meet an account that owns nothing.
`--as-root` is for the jails that only root can start; their guests have an unprivileged uid of their own, which is made
sure of before the first attack. Bombs run only with `--bounded`: when the caller has put this process in a memory and
pids group of its own.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import orjson

from foundation.canonical import text_hash
from foundation.errors import ArenaError
from harness.sandbox.guest_files import open_guest_root
from harness.sandbox.port import Sandbox
from harness.sandbox.probe import open_sandbox
from tests.redteam.attacks import ATTACKS, BOMBS, FORGERIES, SOURCES
from tests.redteam.grounds import open_grounds
from tests.redteam.trial import Trial, report, run_agent, run_attack, try_agent

CONTROL = "reference-agents-only"
_SET_CHILD_SUBREAPER = 36
NO_LEVEL = 3  # exit status when the level does not hold here: nothing was run


def main() -> int:
    """Run the stage. Returns an exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--wanted", required=True)
    parser.add_argument("--state", required=True, type=Path)
    parser.add_argument("--as-root", action="store_true")
    parser.add_argument("--bounded", action="store_true")
    chosen = parser.parse_args()
    if os.geteuid() == 0 and (chosen.wanted == CONTROL or not chosen.as_root):
        sys.exit("never as root")
    # Orphans of a guest come back here instead of going to the host's first process, so that none is overlooked.
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="arena-stage-") as folder:
        os.chdir(folder)
        assert Path.cwd() == Path(folder).resolve()
        return _play(chosen.wanted, chosen.state, is_bounded=chosen.bounded)


def _play(wanted: str, state: Path, *, is_bounded: bool) -> int:
    try:
        sandbox = open_sandbox(state, reference_sha256s=frozenset(map(text_hash, SOURCES)), slots=2, wanted=wanted)
    except ArenaError as error:
        _say("no-level", str(error))
        return NO_LEVEL
    _say("level", {"name": sandbox.level.name, "layers": sandbox.level.layers, "degraded": sandbox.level.degraded})
    root = open_guest_root(state).path
    for kind, trial in _trials(sandbox, root, is_control=wanted == CONTROL, is_bounded=is_bounded):
        _say(kind, trial)
    return 0


def _trials(sandbox: Sandbox, root: Path, *, is_control: bool, is_bounded: bool) -> Iterator[tuple[str, Trial]]:
    with open_grounds() as grounds:
        honest = try_agent(sandbox, "honest", grounds, {}, root)
    yield "honest", honest
    if os.geteuid() == 0 and "privilege" in honest.harm:
        sys.exit("a guest of this jail keeps privileges: no attack is started")
    for attack in ATTACKS:
        yield "attack", run_attack(sandbox, attack, {}, root)
    if is_control:
        return
    for forgery in FORGERIES:
        with open_grounds() as grounds:
            yield "forgery", try_agent(sandbox, forgery.agent, grounds, forgery.limits, root)
    for bomb in BOMBS if is_bounded else ():
        for kind, amount in (("fuse", bomb.little), ("bomb", bomb.amount)):
            episode, toolbox = run_agent(sandbox, bomb.agent, {"amount": amount}, bomb.limits, {})
            yield kind, report(bomb.agent, episode, toolbox, set())


def _say(kind: str, finding: object) -> None:
    sys.stdout.write(orjson.dumps([kind, msgspec.to_builtins(finding)]).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
