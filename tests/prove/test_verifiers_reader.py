"""The run folder of `verifiers` 0.4 is opened by that package itself, in an environment of its own.

It asks for an older openai than this project pins, so it can't be installed beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.arena.test_export_formats import rows, written

VERSION = "0.4.0"
PROGRAM = """
import json, sys
from pathlib import Path
from verifiers.v1.trace import WireTrace
from verifiers.v1.utils.trace_store import read_episodes
print(json.dumps([
    [one.id, one.ok, [[trace.reward, trace.num_turns, trace.num_branches, [m.role for m in trace.messages],
                       trace.usage.prompt_tokens if trace.usage else None] for trace in one.traces]]
    for one in read_episodes(Path(sys.argv[1]), WireTrace)
]))
"""


@pytest.mark.prove
def test_verifiers_reads_the_runs_folder(tmp_path: Path) -> None:
    """ARENA_VERIFIERS_PYTHON names a Python that has it; without, one is made here from the package index."""
    written(tmp_path / "view", "verifiers", rows())
    python = os.environ.get("ARENA_VERIFIERS_PYTHON") or _made(tmp_path / "venv")
    command = [python, "-c", PROGRAM, str(tmp_path / "view" / "000003")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    episodes = json.loads(done.stdout.splitlines()[-1])
    assert [ok for _, ok, _ in episodes] == [True, True, False, True, True, True]
    reward, turns, branches, roles, _ = episodes[0][2][0]
    assert (reward, branches, roles[:3]) == (1.0, 1, ["system", "user", "assistant"])
    assert turns == roles.count("assistant")


def _made(folder: Path) -> str:
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    subprocess.run([str(python), "-m", "pip", "install", "-q", f"verifiers=={VERSION}"], check=True, timeout=900)
    return str(python)
