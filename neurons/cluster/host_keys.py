"""Whether a host holds a wallet's keys, or a validator runs there: then it is no place for a cluster.

Whoever reaches the ports of a cluster's machine, and has its token, runs what he likes there as this user. With a
validator's hotkey he signs records and weights, with a coldkey he moves stake.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from foundation.errors import ArenaError
from neurons.health.node_file import read_node_file
from neurons.health.status import SILENT_MS

_PUBLIC = "pub.txt"  # how btcli ends the names of files that hold no secret
_PYTHON_OR_ARENA = re.compile(r"python[0-9.]*|arena")
_VALUED = ("-X", "-W")  # options of the interpreter that a value follows
_QUESTIONS = ("status", "pause", "resume")  # of `arena validator`: they start none
_LOOKS = ("--dry-run", "--help")


def wallet_keys(wallets: Path) -> Iterator[Path]:
    """The files below a folder of wallets that hold a private key, encrypted or not, by name."""
    for wallet in sorted(path for path in wallets.expanduser().glob("*") if path.is_dir()):
        for key in (wallet / "coldkey", *sorted((wallet / "hotkeys").glob("*"))):
            if key.is_file() and not key.name.endswith(_PUBLIC):
                yield key


def require_no_keys(wallets: Path, state_dir: Path, now_ms: int, validators: Iterable[str]) -> None:
    """Raises ArenaError V2207 with the first key's path, or with a validator, whose key may lie anywhere: one of
    `validators`, which run here, or one whose node said so lately in this state folder (it may run in a container).
    What a node that was killed left there means nothing once it is silent."""
    for key in wallet_keys(wallets):
        raise ArenaError("V2207", str(key))
    for told in validators:
        raise ArenaError("V2207", f"a validator runs here: {told}")
    node = read_node_file(state_dir)
    if node.beat is not None and node.ending is None and abs(now_ms - node.beat.beat_ms) <= SILENT_MS:
        raise ArenaError("V2207", f"validator {node.beat.hotkey} runs here, over {state_dir}")


def running_validators() -> Iterator[str]:
    """The validators among this machine's processes, under whatever flags they were started: process id and program."""
    import psutil

    for process in psutil.process_iter(["pid", "cmdline"]):
        if program := validator_program(process.info["cmdline"] or ()):
            yield f"process {process.info['pid']}, {program}"


def validator_program(words: Sequence[str]) -> str:
    """The program of a command line that starts a validator, of this subnet or by its file's name of another one; ""
    for every other command line."""
    if not words or not _PYTHON_OR_ARENA.fullmatch(Path(words[0]).name):
        return ""
    for place, word in enumerate(words):
        rest = words[place + 1 :]
        if Path(word).name == "arena" or word == "neurons.cli.app":
            is_run = rest[:1] == ["validator"]
            rest = rest[1:]
        else:
            is_run = Path(word).name == "validator.py" or word == "neurons.validator"
        if is_run:
            is_question = (rest[:1] and rest[0] in _QUESTIONS) or any(flag in rest for flag in _LOOKS)
            return "" if is_question else word
        if (
            place and not word.startswith("-") and words[place - 1] not in _VALUED
        ):  # the interpreter's script or module: what follows are its own words
            return ""
    return ""
