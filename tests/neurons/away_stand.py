"""Another machine, as far as a pipe can tell: its frames are written down, and it can be lost."""

from __future__ import annotations

import sys
from pathlib import Path

_RELAY = """
import os, subprocess, sys, threading, time
log, gate, command = sys.argv[1], sys.argv[2], sys.argv[3:]
if not os.path.exists(gate): sys.exit(1)
child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def up():
    with open(log, "ab", buffering=0) as seen:
        while data := os.read(0, 65536):
            seen.write(data); child.stdin.write(data); child.stdin.flush()
    child.stdin.close()
def watch():
    while os.path.exists(gate): time.sleep(0.05)
    child.kill(); os._exit(1)
threading.Thread(target=up, daemon=True).start()
threading.Thread(target=watch, daemon=True).start()
while data := os.read(child.stdout.fileno(), 65536):
    os.write(1, data)
"""


class Away:
    """A folder that plays the machine: `launch` runs a command on it while the file `up` stands."""

    def __init__(self, folder: Path) -> None:
        self._gate, self.log = folder / "up", folder / "frames"
        (folder / "relay.py").write_text(_RELAY)
        self.launch = (sys.executable, str(folder / "relay.py"), str(self.log), str(self._gate))
        self.come_back()

    def come_back(self) -> None:
        """It can be reached."""
        self._gate.touch()

    def lose(self) -> None:
        """Everything on it ends at once, and it can't be reached."""
        self._gate.unlink()

    def episodes_begun(self) -> int:
        """Agents that were sent there."""
        return self.log.read_bytes().count(b"def agent_main") if self.log.exists() else 0
