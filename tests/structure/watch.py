"""Runs at the start of every Python process of the trip, before anything else; the standard library only.

It tells the trip each function of the product when it is first called other than to import a module: one line of step,
file, first line and qualified name into a named pipe. A pipe, because a process may have been forbidden to write
files, or be killed at any moment.
"""

from __future__ import annotations

import os
import site
import sys
import threading
from types import CodeType, FrameType

_CO_OPTIMIZED = 0x1  # set in functions, not in the bodies of modules and classes


def begin(root: str, roots: tuple[str, ...], packages: tuple[str, ...], pipe: str) -> None:
    """Watch this process. `root`: the repository; `roots`: its product packages; `packages`: site folders to add."""
    for folder in packages:
        site.addsitedir(folder)
    sys.path[:0] = [root]
    starts = tuple(f"{root}/{name}/" for name in roots)
    seen: dict[int, CodeType] = {}  # by identity: hashing a code object reads all of it
    step = os.environ.get("TRIP_STEP", "validator")  # the gate's child and a jail's have no environment of ours
    out, which = -1, (0, 0)

    def tell(line: str) -> None:
        """A process may close every descriptor that it does not know, and have its number taken by another file."""
        nonlocal out, which
        try:
            status = os.fstat(out)
            is_ours = (status.st_dev, status.st_ino) == which
        except OSError:
            is_ours = False
        if not is_ours:
            try:
                out = os.open(pipe, os.O_WRONLY | os.O_CLOEXEC)
            except OSError:  # it was forbidden to open files meanwhile, or may have no more of them
                return
            which = (os.fstat(out).st_dev, os.fstat(out).st_ino)
        os.write(out, line.encode())

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or id(code) in seen:
            return
        is_ours = code.co_filename.startswith(starts)
        if is_ours and _is_importing(frame, starts):
            return  # to be looked at again: it may be called later, too
        seen[id(code)] = code
        if is_ours and code.co_flags & _CO_OPTIMIZED and not code.co_name.startswith("<"):
            line = f"{step}\t{code.co_filename[len(root) + 1 :]}\t{code.co_firstlineno}\t{code.co_qualname}\n"
            tell(line)

    threading.setprofile(note)
    sys.setprofile(note)


def _is_importing(frame: FrameType | None, starts: tuple[str, ...]) -> bool:
    """True where a module of the product is being imported further up; a script's own body is no import."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "<module>" and code.co_filename.startswith(starts):
            return frame.f_globals.get("__name__") != "__main__"
        frame = frame.f_back
    return False
