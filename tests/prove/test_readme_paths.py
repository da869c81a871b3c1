"""README.md from a clean clone, and from a release without one: each person's lines in the order printed, as typed, and
what the page says one sees. The release is built, signed and checked by its own commands.

One demo serves the operator and the researcher; the validator's and the miner's lines share a node, as on the page.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.neurons.arena_stand import short_folder
from tests.readme_blocks import ROOT, block_under

pytestmark = pytest.mark.prove
WAIT_S = 600.0
SEEN = {
    "arena records verify --state-dir state/demo/latest": "ok: every signature",
    "arena records verify --export day1": "ok: ",
    "arena store restore backup1 --state-dir restored": "records of 1 log restored",
    "arena records export --out day1 --state-dir state/demo/latest --wallet.hotkey //Validator": "trajectories in",
}
MINER_SEES = ("agent.py", "accept", "mean score", "taken by", "agent")


def release_of(clone: Path, folder: Path) -> Path:
    """The scripts of an environment that holds nothing but a checked release's wheel, with the extra `train`."""
    key, signers, script = folder / "key", folder / "signers", clone / ".ci" / "release.py"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    signers.write_text("tester " + key.with_suffix(".pub").read_text())
    subprocess.run([sys.executable, script, "build", "--key", key, "--out", folder / "release"], check=True)
    (made,) = (folder / "release").iterdir()
    subprocess.run([sys.executable, script, "verify", made, "--signers", signers], check=True)
    (wheel,) = made.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    pip = [folder / "env" / "bin" / "pip", "install", "--quiet", "--constraint", made / "constraints.txt"]
    subprocess.run([*pip, "--no-deps", "torch==2.13.0+cpu"], check=False)  # where the index has it, as in the Makefile
    subprocess.run([*pip, f"{wheel}[train]"], check=True)
    return folder / "env" / "bin"


class Clone:
    """A clean clone, or an empty folder and a release; `arena` is on its path, a default state folder its own."""

    def __init__(self, folder: Path, *, is_release: bool) -> None:
        self.folder = folder / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(self.folder)], check=True)
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("ARENA_", "OPENAI_", "PYTHON"))
        }
        if is_release:
            scripts = release_of(self.folder, folder)
            shutil.rmtree(self.folder)
            self.folder.mkdir()
        else:
            scripts = folder / "bin"
            scripts.mkdir()
            entry = f"import sys; sys.path.insert(0, {str(self.folder)!r}); from neurons.cli.app import main; main()"
            (scripts / "arena").write_text(f"#!{sys.executable}\n{entry}\n")
            (scripts / "arena").chmod(0o755)
            kept["PYTHONPATH"] = str(self.folder)
        path = f"{scripts}{os.pathsep}{kept['PATH']}"
        own = {"PATH": path, "HOME": str(folder), "ARENA_STATE_DIR": str(folder / "home"), "COLUMNS": "80"}
        self.environment = {**kept, **own}

    def run(self, line: str, *codes: int) -> str:
        """One line as typed, with the yes that its question gets; what it printed."""
        line = line.replace("arena submit ", "arena submit --yes ")
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=WAIT_S
        )
        assert done.returncode in (codes or (0,)), f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def until(self, line: str, said: str) -> str:
        """Give the line again until it says so."""
        end_s = time.monotonic() + WAIT_S
        while said not in (told := self.run(line, 0, 1, 3)):
            assert time.monotonic() < end_s, f"{line} never said {said!r}:\n{told}"
            time.sleep(3.0)
        return told


@pytest.fixture(scope="module", params=["clone", "release"])
def clone(request: pytest.FixtureRequest) -> Iterator[Clone]:
    with short_folder() as folder:
        made = Clone(folder, is_release=request.param == "release")
        made.run("arena demo --state-dir state")
        yield made


def test_the_operators_lines_end_as_the_page_says(clone: Clone) -> None:
    for line in block_under("I am an operator").lines:
        assert SEEN.get(line, "") in clone.run(line), line
    assert "ok: every signature" in clone.run("arena records verify --state-dir restored")


def test_the_researchers_lines_end_as_the_page_says(clone: Clone) -> None:
    if not (clone.folder / "day1").exists():
        clone.run(block_under("I am an operator").lines[1])
    told = [clone.run(line) for line in block_under("I am a researcher").lines]
    assert " traces" in told[0] and "made a model of" in told[1] and "success (ASR)" in told[2]
    assert (clone.folder / "report.html").stat().st_size > 10_000


def test_the_validators_and_the_miners_lines_end_as_the_page_says(clone: Clone) -> None:
    doctor, dry_run, start, submit, status = block_under("I am a validator").lines
    assert "This host is ready" in clone.run(doctor)
    assert "wallet_hotkey" in clone.run(dry_run)
    with (clone.folder / "node.log").open("wb") as log:
        node = subprocess.Popen(
            ["bash", "-c", f"exec {start}"], cwd=clone.folder, env=clone.environment, stdout=log, stderr=log
        )
    try:
        clone.until("cat node.log", '"event":"ready"')
        assert "taken by" in clone.until(submit, "taken by")
        told = [
            clone.until(line, said) for line, said in zip(block_under("I am a miner").lines, MINER_SEES, strict=True)
        ]
        assert "problem.jsonl" in told[0]
        shown = clone.until(status, "set for race-")
        assert shown.startswith("all is well"), shown
    finally:
        node.send_signal(signal.SIGINT)
        assert node.wait(WAIT_S) == 0, (clone.folder / "node.log").read_text()[-2_000:]
