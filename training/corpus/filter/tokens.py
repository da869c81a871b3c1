"""How many tokens a trace has under the trainer's tokenizer, each text counted once.

Promise: `TokenCounter` is the port. `open_counter(path)` reads a real tokenizer.json with the `tokenizers` library
(extra `train`); `open_counter(None)` is the stand-in, which needs nothing and only comes near: it serves tests and the
demo, and its name stands where a tokenizer's hash would in the lineage. Counts are kept in a file by the hash of the
text counted, so a trace is tokenised once for each tokenizer, whatever corpus it is tried for.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from foundation.durable_files import move_into_place
from foundation.errors import ArenaError
from training.corpus.filter.funnel import Bin, Distribution, Lengths
from training.corpus.filter.qwen3_text import RENDERING

STAND_IN = "stand-in/1"
CONTEXT_MARKS = ("<|im_start|>", "<|im_end|>")
BIN_TOKENS = 1_024

_PIECE = re.compile(r"<\|[a-z_]+\|>|[^\W\d_]+|\d|[^\w\s]+|\n+|_")
_LINE = re.compile(r"([0-9a-f]{64}) ([0-9]{1,9})")
_LETTERS_PER_TOKEN = 6
_SIGNS_PER_TOKEN = 3


class TokenCounter(Protocol):
    """Counts tokens. `identity` is the sha256 of a tokenizer.json, or the name of what stands in for one."""

    identity: str

    def count(self, text: str) -> int:
        """Tokens of a text; marks of the chat format are one each."""
        ...


class StandInCounter:
    """Counts pieces of words, digits and signs, without a vocabulary. Deterministic; near a real count, never equal."""

    identity = STAND_IN

    def count(self, text: str) -> int:
        """Tokens of a text, by rule of thumb: six letters, one digit, three signs or one mark a token."""
        total = 0
        for piece in _PIECE.findall(text):
            if piece.isalpha():
                total += -(-len(piece) // _LETTERS_PER_TOKEN)
            elif piece.startswith("<|") and piece.endswith("|>"):
                total += 1
            else:
                total += -(-len(piece) // _SIGNS_PER_TOKEN)
        return total


class FileCounter:
    """A tokenizer.json. Raises ArenaError V2140 without the library, V2141 when the file is not a chat tokenizer's."""

    def __init__(self, path: Path) -> None:
        try:
            library: Any = importlib.import_module("tokenizers")
        except ModuleNotFoundError:
            raise ArenaError("V2140", str(path)) from None
        try:
            content = path.read_bytes()
            text = content.decode("utf-8")
        except (OSError, UnicodeDecodeError) as wrong:
            raise ArenaError("V2141", f"{path}: {wrong}") from None
        try:
            self._tokenizer = library.Tokenizer.from_str(text)
        except Exception as wrong:  # noqa: BLE001 - the library has no other type for a text it can't read
            raise ArenaError("V2141", f"{path}: {wrong}") from None
        absent = [mark for mark in CONTEXT_MARKS if self._tokenizer.token_to_id(mark) is None]
        if absent:
            raise ArenaError("V2141", f"{path}: no token {' or '.join(absent)}")
        self.identity = hashlib.sha256(content).hexdigest()

    def count(self, text: str) -> int:
        """Tokens of a text as the trainer gets them: nothing is added around it, nothing cut off."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)


@functools.lru_cache(maxsize=2)
def open_counter(path: Path | None) -> TokenCounter:
    """The counter of a tokenizer.json, read once in each process; the stand-in for None."""
    return StandInCounter() if path is None else FileCounter(path)


def text_key(text: str) -> str:
    """What a count is kept under."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def cache_path(folder: Path, identity: str) -> Path:
    """The file of one tokenizer's counts; another rendering is another file."""
    return folder / f"{hashlib.sha256(f'{identity} {RENDERING}'.encode()).hexdigest()[:32]}.counts"


def read_counts(path: Path) -> dict[str, int]:
    """Counts by `text_key`; none where there is no file. A line that is no count is passed over: it costs a recount."""
    try:
        text = path.read_text("utf-8", errors="replace")
    except FileNotFoundError:
        return {}
    except OSError as wrong:
        raise ArenaError("V2027", f"{path}: {wrong.strerror}") from None
    found = (_LINE.fullmatch(line) for line in text.split("\n"))
    return {match[1]: int(match[2]) for match in found if match}


def add_counts(path: Path, counts: Mapping[str, int]) -> None:
    """Put counts into the file, sorted, as one replacement: a reader never sees half of it.

    Two that write at once both leave a whole file; the counts of one may be counted again. Raises ArenaError V2027.
    """
    if not counts:
        return
    merged = {**read_counts(path), **counts}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".counts-", delete=False) as file:
            file.writelines(f"{key} {merged[key]}\n" for key in sorted(merged))
        move_into_place(Path(file.name), path)
    except OSError as wrong:
        raise ArenaError("V2027", f"{path}: {wrong.strerror}") from None


def lengths_of(tokens: Iterable[tuple[int, int]], tokens_max: int) -> Lengths:
    """The histogram of (tokens, traces), in bins of 1,024, every bin from 0 up to the longest or the budget."""
    counts = tuple(sorted(tokens))
    longest = max([tokens_max, *(value for value, _ in counts)])
    bins = [0] * (longest // BIN_TOKENS + 1)
    for value, count in counts:
        bins[value // BIN_TOKENS] += count
    return Lengths(
        tokens_max=tokens_max,
        counted=Distribution(counts=counts).traces,
        over=sum(count for value, count in counts if value > tokens_max),
        bins=tuple(
            Bin(from_tokens=number * BIN_TOKENS, to_tokens=(number + 1) * BIN_TOKENS, traces=count)
            for number, count in enumerate(bins)
        ),
    )
