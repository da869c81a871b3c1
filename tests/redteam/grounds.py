"""What an attacker is let loose on: things of the host made for one attack, and the host's own view of what became of
them. Nothing here is worth anything, and everything is cleaned up by the number or path that was recorded.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.redteam.table import CALLS

# A process of the host: a secret in its environment, its memory and an open file that has no name. It
# counts signals instead of ending by them, and lets itself be read where the kernel asks for consent.
_VICTIM = """
import ctypes, os, signal, sys, tempfile
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1 & (2**64 - 1)), 0, 0, 0)
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"!"))
signal.signal(signal.SIGUSR2, lambda *_: os.write(1, b"?"))
secret = ctypes.create_string_buffer(b"memory-" + os.environ["ARENA_SEED"].encode())
file = tempfile.TemporaryFile()
file.write(b"descriptor-" + os.environ["ARENA_SEED"].encode())
file.flush()
print(ctypes.addressof(secret), flush=True)
while sys.stdin.buffer.read(1): pass
"""
MACHINE = os.uname().machine
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Grounds:
    """Canaries for one attack. `targets` is what the attacker is told, the rest is the host's."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        seed = secrets.token_hex(8)
        kinds = ("file", "answers", "environment", "memory", "descriptor", "plan", "note")
        self.secrets = {kind: f"{kind}-{seed}" for kind in kinds}
        self.answer = "19" + str(secrets.randbelow(10**8)).zfill(8)
        (folder / "canary.txt").write_text(f"file-{seed}")
        (folder / "answers.jsonl").write_text(f'{{"reward": "answers-{seed}"}}')
        (folder / "trajectory.jsonl").write_text('{"problem_id": "p", "success": false}\n')
        (folder / "program.py").write_text("# the host's\n")
        (folder / "outbox").mkdir()
        for path, mode in (("trajectory.jsonl", 0o666), ("program.py", 0o666), ("outbox", 0o777)):
            (folder / path).chmod(mode)
        self._folder = folder
        self._doors = self._listen(folder, f"arena-redteam-{seed}", stack)
        self._victim, address = self._start_victim(seed, stack)
        self._before = self._fingerprint()
        with socket.create_server(("127.0.0.1", 0)) as free:
            door = free.getsockname()[1]
        self._guests = {socket.AF_INET: ("127.0.0.1", door), socket.AF_UNIX: f"\0arena-redteam-door-{seed}"}
        self.targets: dict[str, object] = {
            "file": str(folder / "canary.txt"),
            "answers": str(folder / "answers.jsonl"),
            "trajectory": str(folder / "trajectory.jsonl"),
            "programs": [str(folder / "program.py"), "/arena/runner.py", "/arena/arena_sdk/tools.py"],
            "outbox": str(folder / "outbox"),
            "victim": self._victim.pid,
            "memory": [self._victim.pid, address, 64],
            "tcp": self._doors["tcp"].getsockname()[1],
            "udp": self._doors["udp"].getsockname()[1],
            "abstract": f"arena-redteam-{seed}",
            "socket": str(folder / "socket"),
            "door": door,
            "abstract_door": f"arena-redteam-door-{seed}",
            "calls": [[name, row[MACHINE != "x86_64"], row[2]] for name, row in CALLS.items()],
            "guess": self.answer,
        }

    def harm(self) -> set[str]:
        """What the host finds changed: the doors that were reached, `mark`, `signal`, `victim`."""
        found = {name for name, door in self._doors.items() if _was_knocked(door)}
        if self._fingerprint() != self._before:
            found.add("mark")
        if self._victim.poll() is not None:
            found.add("victim")
        elif b"!" in self._told():
            found.add("signal")
        return found

    def _told(self) -> bytes:
        """What the victim wrote: asked by a signal of ours, which it answers after every earlier one."""
        stream, told = self._victim.stdout.fileno(), b""
        self._victim.send_signal(signal.SIGUSR2)
        while b"?" not in told and select.select([stream], [], [], 5)[0]:
            told += os.read(stream, 100)
        return told

    def stolen(self, text: str) -> set[str]:
        """The kinds of secrets that `text` holds."""
        found = {kind for kind, secret in self.secrets.items() if secret in text}
        return found | ({"counters"} if _BOOT.read_text().strip() in text else set())

    def can_be_entered(self) -> bool:
        """True when a door that the guest opened lets the host in: then others could talk to it."""
        for family, address in self._guests.items():
            with socket.socket(family) as caller, contextlib.suppress(OSError):
                caller.settimeout(1)
                caller.connect(address)
                return True
        return False

    def _listen(self, folder: Path, name: str, stack: contextlib.ExitStack) -> dict[str, socket.socket]:
        tcp = socket.create_server(("127.0.0.1", 0))
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", 0))
        abstract, path = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        abstract.bind("\0" + name)
        path.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        doors = {"tcp": tcp, "udp": udp, "abstract": abstract, "path": path}
        for door in doors.values():
            stack.enter_context(door)
            door.setblocking(False)
            if door is not udp:
                door.listen()
        return doors

    def _start_victim(self, seed: str, stack: contextlib.ExitStack) -> tuple[subprocess.Popen[bytes], int]:
        environment = {**os.environ, "ARENA_SEED": seed, "ARENA_SECRET": f"environment-{seed}"}
        command = [sys.executable, "-c", _VICTIM]
        victim = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd="/")
        stack.callback(_end, victim)
        address = int(victim.stdout.readline())
        os.set_blocking(victim.stdout.fileno(), False)
        return victim, address

    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for path in sorted(self._folder.rglob("*")):
            digest.update(f"{path}\0{path.lstat().st_mode}\0".encode())
            if path.is_file() and not path.is_symlink():
                digest.update(path.read_bytes())
        return digest.hexdigest()


@contextlib.contextmanager
def open_grounds() -> Iterator[Grounds]:
    """Fresh grounds in a folder that every uid can enter."""
    with tempfile.TemporaryDirectory(prefix="arena-redteam-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        yield Grounds(folder, stack)


def _was_knocked(door: socket.socket) -> bool:
    try:
        if door.type == socket.SOCK_DGRAM:
            return bool(door.recv(100))
        door.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
