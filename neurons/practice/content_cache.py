"""What a miner's commands would make again at each run, kept in the user's cache folder.

An entry is found by everything that it follows from (recipe and code), so a stale one is never used; one that
was cut short, edited or replaced is made again; two commands at once make an entry once. A folder that can't be written
costs time and nothing else, and is said.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from foundation.canonical import content_hash
from foundation.durable_files import write_whole
from harness.catalogue.port import Catalogue
from problems.model import BUCKETS, Bucket, Problem
from problems.suites.formats import read_problems, write_problems
from problems.synthesis.generator import synthesize

_ROOT = Path(__file__).parents[2]
_CODE_ENDINGS = frozenset({".py", ".json", ".txt"})
_SEAL_CHARS = 64  # sha256 hex of what follows, in front of it


def default_cache_dir() -> Path:
    """The user's cache folder: XDG_CACHE_HOME, else ~/.cache, and `agent-arena` in it. Makes nothing."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path("~/.cache").expanduser()) / "agent-arena"


class ContentCache:
    """Sealed texts by key in a folder. `say` gets a line for people when the folder can't be used."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say

    def text(self, kind: str, recipe: Sequence[object], make: Callable[[], str]) -> str:
        """The text that `make` gives for this recipe: from the folder, or made now and kept there."""
        path = self._folder / kind / content_hash([kind, code_sha256(), *recipe])[:32]
        if (found := unsealed(path)) is not None:
            return found
        with contextlib.ExitStack() as stack:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(_locked(path.with_suffix(".lock")))
            except OSError as error:
                self._say(f"nothing is cached: {error.filename or self._folder}: {error.strerror}")
                return make()
            if (found := unsealed(path)) is not None:  # another command made it meanwhile
                return found
            text = make()
            try:
                write_whole(path, f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}".encode())
            except OSError as error:
                self._say(f"nothing is cached: {path}: {error.strerror}")
            return text


def cached_practice(cache: ContentCache, catalogue: Catalogue, seed: int, per_bucket: int) -> tuple[Problem, ...]:
    """Practice problems over an open catalogue, `per_bucket` of each bucket, buckets in turn: never from a sealed
    batch, and the same for everybody with the same catalogue."""

    def make() -> str:
        counts: dict[Bucket, int] = dict.fromkeys(BUCKETS, per_bucket)
        made = synthesize(tuple(catalogue.products()), seed=seed, counts=counts)
        return "".join(f"{line}\n" for line in write_problems(made))

    recipe = (catalogue.content_sha256, seed, per_bucket)
    known = read_problems(cache.text("practice", recipe, make).encode().splitlines())
    return tuple(one for offset in range(per_bucket) for one in known[offset::per_bucket])


@functools.cache
def code_sha256() -> str:
    """sha256 hex over the files that problems are made by: every one of the room `problems`, and of the catalogues."""
    digest = hashlib.sha256()
    for folder in ("problems", "harness/catalogue"):
        for path in sorted((_ROOT / folder).rglob("*")):
            if path.suffix in _CODE_ENDINGS and "shipped" not in path.parts:
                content = path.read_bytes()
                digest.update(f"{path.relative_to(_ROOT)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def unsealed(path: Path) -> str | None:
    """The text of an entry; None where there is none, or it is not what its seal says."""
    try:
        content = path.read_bytes()
    except OSError:
        return None  # absent or unreadable alike: it is made again
    seal, text = content[:_SEAL_CHARS], content[_SEAL_CHARS + 1 :]
    if hashlib.sha256(text).hexdigest().encode() != seal:
        return None
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Waits until no other process makes this entry. Raises OSError. The lock goes with its process."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
