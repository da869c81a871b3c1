"""How many tokens a trace has under the trainer's tokenizer, each text counted once.

`TokenCounter` is the port. `open_counter(path)` reads a real tokenizer.json with the `tokenizers` library
(extra `train`); `open_counter(None)` is the stand-in, which needs nothing and only comes near: it serves tests and the
demo, and its name stands where a tokenizer's hash would in the lineage. Counts are kept in a file by the hash of the
text counted, so a trace is tokenised once for each tokenizer, whatever corpus it is tried for.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import itertools
import re
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from foundation.durable_files import move_into_place
from foundation.errors import ArenaError
from training.corpus.disk_sort import sorted_on_disk
from training.corpus.filter.funnel import Bin, Distribution, Lengths
from training.corpus.filter.qwen3_text import RENDERING

STAND_IN = "stand-in/1"
CONTEXT_MARKS = ("<|im_start|>", "<|im_end|>")
BIN_TOKENS = 1_024

_PIECE = re.compile(r"<\|[a-z_]+\|>|[^\W\d_]+|\d|[^\w\s]+|\n+|_")
_LINE = re.compile(r"([0-9a-f]{64}) ([0-9]{1,9})")
_END = b"\1"  # numpy drops zeros at the end of bytes
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


class CountTable(Mapping[str, int]):
    """Counts by `text_key`, 37 bytes each. The first of two lines for one key is the one that counts."""

    def __init__(self, lines: Iterable[str]) -> None:
        keys, counts = bytearray(), array("I")
        for line in lines:
            if match := _LINE.fullmatch(line.rstrip("\n")):
                keys += bytes.fromhex(match[1]) + _END
                counts.append(int(match[2]))
        found, first = np.unique(np.frombuffer(keys, "S33"), return_index=True)
        self._keys, self._counts = found, np.asarray(counts)[first]

    def __getitem__(self, key: str) -> int:
        raw = np.bytes_(bytes.fromhex(key) + _END)
        place = int(np.searchsorted(self._keys, raw))
        if place == len(self._keys) or self._keys[place] != raw:
            raise KeyError(key)
        return int(self._counts[place])

    def __iter__(self) -> Iterator[str]:
        return (key[:-1].hex() for key in self._keys.tolist())

    def __len__(self) -> int:
        return len(self._keys)


def read_counts(path: Path) -> CountTable:
    """Counts by `text_key`; none where there is no file. A line that is no count is passed over: it costs a recount.

    One file is read once in each process while it stays the same.
    """
    try:
        found = path.stat()
        return _read_table(path, found.st_mtime_ns, found.st_size)
    except FileNotFoundError:
        return CountTable(())
    except OSError as wrong:
        raise ArenaError("V2027", f"{path}: {wrong.strerror}") from None


def add_counts(path: Path, counts: Iterable[tuple[str, int]]) -> None:
    """Put counts into the file, sorted, as one replacement: a reader never sees half of it.

    Two that write at once both leave a whole file; the counts of one may be counted again. Raises ArenaError V2027.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        known = read_counts(path)
        pairs = itertools.chain(known.items(), counts)
        ordered = sorted_on_disk((key.encode(), f"{key} {count}\n".encode()) for key, count in pairs)
        with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=".counts-", delete=False) as file:
            for _, lines in itertools.groupby(ordered, key=lambda pair: pair[0]):
                file.write(next(lines)[1])
        move_into_place(Path(file.name), path)
    except OSError as wrong:
        raise ArenaError("V2027", f"{path}: {wrong.strerror}") from None


@functools.lru_cache(maxsize=1)
def _read_table(path: Path, modified_ns: int, size_bytes: int) -> CountTable:
    with path.open(encoding="utf-8", errors="replace") as lines:
        return CountTable(lines)


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
