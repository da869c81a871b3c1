"""Makes a kept case with the code of one commit: `PYTHONPATH=CHECKOUT python tests/kept/make.py OUT`.

A small validator's whole first race by the commands alone (four agents of which two qualify, one does not and one is
rejected; local chain, scripted model and judge, 2,000 synthetic products), then the state folder, its store as a
backup, and a signed export. OUT gets `state.tar.xz`, `export.tar.xz` and `expected.json`. Run again it makes another
race: seeds and times are drawn. What is kept is therefore never made again; a later commit gets a case of its own.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
ENTRY = "from neurons.cli.app import main; import sys; main(sys.argv[1:])"
VALIDATOR = "//Alice"
POLICY = {
    "qualifying": {"problems": 3},
    "race": {"problems": 6, "batch_problems": 9, "closes_after_ms": 20_000},
}
IDLER = '"""Gives up."""\n\n\ndef agent_main(problem: dict[str, str]) -> None:\n    """Do nothing."""\n'
BASELINE = (HERE.parents[1] / "harness" / "agents" / "baseline.py").read_text("utf-8")
COEFFICIENT = 0.3  # the scripted judge likes few traces: enough of them pass
WAIT_S = 300.0


def arena(*words: object, cwd: Path) -> str:
    """Run one command of the code on PYTHONPATH; what it printed."""
    done = subprocess.run([sys.executable, "-c", ENTRY, *map(str, words)], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"arena {' '.join(map(str, words))}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def agents(documents: Path) -> dict[str, str]:
    """Sources by the miner's development key."""
    ids = [json.loads(line)["id"] for line in documents.read_text("utf-8").splitlines()[:12]]
    return {
        "//Ada": BASELINE.replace('MODEL = ""', 'MODEL = "scripted-expert"'),
        "//Ben": BASELINE.replace('MODEL = ""', 'MODEL = "scripted-careful"'),
        "//Fay": IDLER,
        "//Gus": f"IDS = {ids!r}\n\n{IDLER}",
    }


def run_race(folder: Path) -> str:
    """Run a validator until its first race is settled and paid; the race's id."""
    state = folder / "state"
    words = ["validator", "--policy", folder / "policy.json", "--state-dir", state, "--wallet.hotkey", VALIDATOR]
    words += ["--catalogue-dir", folder / "index", "--guest-dir", folder / "guest", "--workers", 2]
    with (folder / "validator.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", ENTRY, *map(str, words)], cwd=folder, stdout=log, stderr=log)
        try:
            began = time.monotonic()
            while time.monotonic() - began < WAIT_S and process.poll() is None:
                time.sleep(2)
                if (state / "store.json").exists():
                    races = json.loads(arena("race", "list", "--json", "--state-dir", state, cwd=folder))
                    if races:
                        time.sleep(4)  # the weights' answer
                        return str(races)
            raise SystemExit((folder / "validator.log").read_text()[-3_000:])
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def corpus_of(folder: Path) -> dict[str, object]:
    """What a corpus of the export comes to."""
    words = ("--out", folder / "corpus", "--coefficient", COEFFICIENT, "--state-dir", folder / "seals", "--json")
    (built,) = json.loads(arena("corpus", "build", folder / "export", *words, cwd=folder))["built"]
    return {"kept": built["funnel"]["kept"], "rows_sha256": built["lineage"]["rows_sha256"]}


def pack(archive: Path, folder: Path, names: list[str]) -> None:
    """One compressed archive of files in `folder`, without owners and times."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(archive, "w:xz", preset=9) as stream:
        for name in names:
            stream.add(folder / name, name, filter=plain)


def main(out: Path) -> None:
    """Make the case in `out`."""
    with tempfile.TemporaryDirectory(prefix="kept-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        state = folder / "state"
        arena("catalogue", "synth", "--out", folder, "--count", 2_000, "--seed", 11, cwd=folder)
        arena("catalogue", "build", folder / "documents.jsonl", "--out", folder / "index", cwd=folder)
        policy = json.loads(arena("explain", "demo", "--json", cwd=folder))["policy"]
        for part, values in POLICY.items():
            policy[part] |= values
        (folder / "policy.json").write_text(json.dumps({**policy, "name": "kept"}))
        for key, source in agents(folder / "documents.jsonl").items():
            file = folder / f"{key.strip('/')}.py"
            file.write_text(source)
            words = ("--wallet.hotkey", key, "--register", "--policy", folder / "policy.json", "--state-dir", state)
            done = subprocess.run(
                [sys.executable, "-c", ENTRY, "submit", str(file), *map(str, words)], cwd=folder, capture_output=True
            )
            print(key, done.returncode)
        print(run_race(folder))
        where = ("--state-dir", state)
        arena("store", "backup", "--out", folder / "backup", *where, cwd=folder)
        views = ("--format", "jsonl", "--format", "parquet", "--format", "messages")
        arena("records", "export", "--out", folder / "export", *views, "--wallet.hotkey", VALIDATOR, *where, cwd=folder)
        expected = {
            "races": json.loads(arena("race", "list", "--json", *where, cwd=folder)),
            "replay": json.loads(arena("race", "replay", "race-000001", "--json", *where, cwd=folder)),
            "corpus": corpus_of(folder),
            "export": {
                str(path.relative_to(folder / "export")): hashlib.sha256(path.read_bytes()).hexdigest()
                for path in sorted((folder / "export").rglob("*"))
                if path.is_file()
            },
        }
        out.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(state / "postgres")
        (state / "store.json").unlink()
        shutil.copytree(folder / "backup", state / "backup")
        shutil.copyfile(folder / "policy.json", state / "policy.json")
        pack(out / "state.tar.xz", folder, ["state"])
        pack(out / "export.tar.xz", folder, ["export"])
        (out / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
