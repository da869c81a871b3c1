"""One submission's way to a training row, by the commands alone, and which functions of the product ran on it.

A miner submits at the door of a running validator, so the two overlap; each process says which step it is of. Submit,
validator (gate, qualifying, race, settlement, weights), run, export, corpus, sft: on the local chain, with the
scripted model and judge and the embedded store. Every Python process is watched, the validator's workers and the gate's
child included. Not counted is what runs inside a jail (its Python reads no site packages), and the preparation: the
catalogue, the policy and a random model.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.structure.product import Product

HERE = Path(__file__).parent
VALIDATOR, MINER = "//Alice", "//Bob"
STEP = "TRIP_STEP"  # in the environment of every process of the trip
LOG, DOOR = "validator.log", b"address published"  # asking the door itself would be a step of the way
WAIT_S = 600.0
LOOK_S = 2.0
# A short race of the demo's rules, with leases that no slow machine has to renew. It closes late enough for a
# submission on a busy machine to come in before, and for the next race not to begin before it was seen.
POLICY = {
    "qualifying": {"problems": 3, "variant_blocks": 1},
    "race": {"problems": 6, "batch_problems": 9, "closes_after_ms": 120_000, "lease_ms": 120_000},
}
MODEL = """
import sys
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM, set_seed
tokenizer, out = AutoTokenizer.from_pretrained(sys.argv[1]), sys.argv[2]
set_seed(0)
sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)
ends = dict(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
config = Qwen3Config(vocab_size=len(tokenizer), head_dim=16, max_position_embeddings=32768, **ends, **sizes)
Qwen3ForCausalLM(config).save_pretrained(out)
tokenizer.save_pretrained(out)
"""
RECIPE = """
name = "trip"
stage = "sft"
model = "{model}"
[data]
corpus = ["{corpus}"]
tokens_max = 30000
[lora]
r = 0
[optim]
lr = 1e-3
steps_max = 2
batch_rows = 1
accumulation = 1
is_bf16 = false
is_checkpointing = false
"""


class Called(NamedTuple):
    """A function of the product that ran: its file in the repository, its first line and its qualified name."""

    file: str
    line: int
    name: str


class Trip:
    """The commands of one trip in a folder of its own, run by a Python that is watched, or by this one."""

    def __init__(self, product: Product, folder: Path) -> None:
        self.product, self.folder = product, folder
        self.state = folder / "state"
        self.called: dict[str, set[Called]] = {}
        self._step = "none"
        script = tomllib.loads((product.root / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]["arena"]
        module, _, function = script.partition(":")
        self._entry = f"import sys; from {module} import {function}; {function}(sys.argv[1:])"
        self._watched = self._make_python()

    def _make_python(self) -> Path:
        """A virtual environment whose every process starts with `watch.begin`, however it is started."""
        home = self.folder / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(home)], check=True)
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
        self._pipe = self.folder / "called"
        os.mkfifo(self._pipe)
        shutil.copyfile(HERE / "watch.py", packages / "structure_watch.py")
        given = (
            str(self.product.root),
            tuple(path.relative_to(self.product.root).as_posix() for path in self.product.roots),
            tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}),
            str(self._pipe),
        )
        (packages / "structure_watch.pth").write_text(f"import structure_watch; structure_watch.begin(*{given!r})\n")
        return home / "bin" / "python"

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Collect what the watched processes tell, by step."""
        pipe = os.open(self._pipe, os.O_RDWR)  # both ends: it stays open between processes

        def collect() -> None:
            rest = b""
            while True:
                *lines, rest = (rest + os.read(pipe, 65_536)).split(b"\n")
                for line in lines:
                    if line == b"end":
                        return
                    step, file, number, name = line.decode().split("\t")
                    self.called.setdefault(step, set()).add(Called(file, int(number), name))

        reader = threading.Thread(target=collect, daemon=True)
        reader.start()
        try:
            yield
        finally:
            os.write(pipe, b"end\n")
            reader.join()
            os.close(pipe)

    def arena(self, *words: object, is_watched: bool = True) -> str:
        """Run one command to its end and return what it printed. Raises where it fails."""
        done = subprocess.run(
            self._command(is_watched, *words), cwd=self.folder, env=self._environment(), capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"arena {' '.join(map(str, words))}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def _command(self, is_watched: bool, *words: object) -> list[str]:
        python = str(self._watched if is_watched else sys.executable)
        return [python, "-c", self._entry, *map(str, words)]

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ARENA_", "OPENAI_"))}
        return {
            **kept,
            "PYTHONPATH": str(self.product.root),
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            STEP: self._step,
        }

    def prepare(self) -> None:
        """What the trip needs and does not measure."""
        self.arena("catalogue", "synth", "--out", self.folder, "--count", 2_000, is_watched=False)
        self.index = self.folder / "index"
        self.arena("catalogue", "build", self.folder / "documents.jsonl", "--out", self.index, is_watched=False)
        policy = json.loads(self.arena("explain", "demo", "--json", is_watched=False))["policy"]
        for part, values in POLICY.items():
            policy[part] |= values
        self.policy = self.folder / "policy.json"
        self.policy.write_text(json.dumps({**policy, "name": "trip"}))
        (self.tokenizer, *_) = (path.parent for root in self.product.roots for path in root.rglob("tokenizer.json"))
        self.model = self.folder / "model"
        subprocess.run([sys.executable, "-c", MODEL, str(self.tokenizer), str(self.model)], check=True)
        self.recipe = self.folder / "sft.toml"
        self.recipe.write_text(RECIPE.format(model=self.model, corpus=self.folder / "corpus"))

    def take(self) -> None:
        """The trip, step by step."""
        here = ("--state-dir", self.state)
        agent, policy = HERE.parents[1] / "harness" / "agents" / "baseline.py", ("--policy", self.policy)
        miner = ("--wallet.hotkey", MINER)
        self._step = "validator"
        validator = ("--catalogue-dir", self.index, "--wallet.hotkey", VALIDATOR, "--workers", 1)
        with self._validating(*policy, *validator, *here) as wait_until:
            wait_until("no door was opened", lambda: DOOR in (self.folder / LOG).read_bytes())
            self._step = "submit"
            self.arena("submit", agent, *miner, "--register", "--yes", *policy, *here)
            self._step = "validator"
            wait_until("no race was settled", lambda: self._is_settled(*here))
            time.sleep(2 * LOOK_S)  # its checkpoint, and the weights' answer
        self._step = "run"
        self.arena("run", agent, "--count", 1, "--catalogue", self.index, *policy, *here)
        self._step = "export"
        export = ("--out", self.folder / "export", "--format", "parquet", "--format", "messages")
        self.arena("records", "export", *export, "--wallet.hotkey", VALIDATOR, *here)
        self._step = "corpus"
        corpus = ("--out", self.folder / "corpus", "--tokenizer", self.tokenizer, "--rule", "coefficient_e4_min=3000")
        self.arena("corpus", "build", self.folder / "export", *corpus, *here)
        self._step = "sft"
        self.arena("train", "sft", "--recipe", self.recipe, "--out", self.folder / "run", *here)

    @contextmanager
    def _validating(self, *words: object) -> Iterator[Callable[[str, Callable[[], bool]], None]]:
        """A validator, stopped at the end as its operator would; given is how to wait for something while it runs."""
        log = (self.folder / LOG).open("wb")
        process = subprocess.Popen(
            self._command(True, "validator", *words), cwd=self.folder, env=self._environment(), stdout=log, stderr=log
        )

        def wait_until(failure: str, is_so: Callable[[], bool]) -> None:
            began = time.monotonic()
            while not is_so():
                time.sleep(LOOK_S)
                if process.poll() is not None or time.monotonic() - began > WAIT_S:
                    tail = (self.folder / LOG).read_text(errors="replace")[-3_000:]
                    raise SystemExit(f"{failure}: {process.poll()}\n{tail}")

        try:
            yield wait_until
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(WAIT_S)
            log.close()
        if code:
            raise SystemExit(f"the validator ended with {code}")

    def _is_settled(self, *words: object) -> bool:
        races = json.loads(self._answer("race", "list", "--json", *words) or "[]")
        return any(race["standings"] for race in races)

    def _answer(self, *words: object) -> str | None:
        """What a command prints that is no part of the trip; None where it fails."""
        done = subprocess.run(
            self._command(False, *words), cwd=self.folder, env=self._environment(), capture_output=True, text=True
        )
        return None if done.returncode else done.stdout


def take_trip(product: Product) -> dict[str, set[Called]]:
    """The functions called, by step. Takes some minutes; raises SystemExit with the command that failed."""
    with tempfile.TemporaryDirectory(prefix="trip-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # the embedded server runs as a user of its own
        trip = Trip(product, folder)
        trip.prepare()
        with trip.listening():
            trip.take()
        return trip.called
