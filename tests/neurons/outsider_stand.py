"""Somebody else on this host: another user with an installation, a wallet and a folder of its own, who can read nothing
of the validator's."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[2]
USER = 61_191  # nobody's
_ACCOUNT: dict[str, Any] = {"user": USER, "group": USER, "extra_groups": []}
_PACKAGES = Path(msgspec.__file__).resolve().parents[1]
_WALLET = """
import pathlib, sys
import bittensor_core as core
from arena.chain.keys import wallet_signer
key = core.Keypair.create_from_mnemonic(core.Keypair.generate_mnemonic())
path = pathlib.Path(sys.argv[1], "mine", "hotkeys", "first")
path.parent.mkdir(parents=True)
path.write_bytes(bytes(core.serialized_keypair_to_keyfile_data(key)))
print(wallet_signer("mine", "first", sys.argv[1]).hotkey)
"""


@cache
def why_no_outsider() -> str:
    """Why this host can't show it, or ""."""
    return _reachable_python()[1]


@cache
def _reachable_python() -> tuple[Path, str]:
    """An interpreter of this version that the other user can start, and to which it can give these packages."""
    if os.geteuid() != 0:
        return Path(), "the tests do not run as root, so they can be nobody else"
    name = f"python3.{sys.version_info.minor}"
    code = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(_PACKAGES)!r}]; import msgspec, httpx2, neurons.miner, venv"
    )
    reason = ""
    for path in dict.fromkeys((Path(sys.executable).resolve(), Path("/usr/bin") / name, Path("/usr/local/bin") / name)):
        try:
            tried = subprocess.run([path, "-c", code], cwd="/", env={}, capture_output=True, text=True, **_ACCOUNT)
        except OSError as error:
            reason = str(error)
            continue
        if tried.returncode == 0:
            return path, ""
        reason = tried.stderr.strip().splitlines()[-1]
    return Path(), f"another user has no Python here: {reason}"


class Outsider:
    """The other user. `hotkey` is that of its wallet."""

    def __init__(self, folder: Path, network: str) -> None:
        """`folder` is made, and is the user's own; `network` is the address of the chain."""
        self.folder, self._network = folder, network
        folder.mkdir()
        os.chown(folder, USER, USER)
        python, reason = _reachable_python()
        assert not reason, reason
        self._run([python, "-m", "venv", "--without-pip", str(folder / "installed")])
        self._python = folder / "installed" / "bin" / "python"
        (site,) = (folder / "installed" / "lib").glob("python*/site-packages")
        (site / "arena.pth").write_text(f"{ROOT}\n{_PACKAGES}\n")
        self.wallets = folder / "wallets"
        self.hotkey = self._run([self._python, "-c", _WALLET, str(self.wallets)]).stdout.strip()

    def arena(self, *arguments: object, exit_code: int = 0) -> str:
        """What a command prints, or why it failed. Fails with everything it said where it ends otherwise."""
        done = self._run(self._command(arguments), exit_code=exit_code)
        return done.stderr if exit_code else done.stdout

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """A command that runs on; whoever starts it ends it."""
        options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(
            self._command(arguments), cwd=self.folder, env=self._environment(), **options, **_ACCOUNT
        )

    def can_read(self, path: Path) -> bool:
        """Whether the user can open a file or list a folder."""
        code = f"import os; print(os.access({str(path)!r}, os.R_OK))"
        return self._run([self._python, "-c", code]).stdout.strip() == "True"

    def _command(self, arguments: tuple[object, ...]) -> list[str]:
        return [str(self._python), "-m", "neurons.cli.app", *map(str, arguments)]

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder),
            "PYTHONUNBUFFERED": "1",
            "ARENA_STATE_DIR": str(self.folder / "state"),
            "ARENA_NETWORK": self._network,
            "ARENA_WALLET_PATH": str(self.folder / "wallets"),
            "ARENA_WALLET_NAME": "mine",
            "ARENA_WALLET_HOTKEY": "first",
        }

    def _run(self, command: list[Any], *, exit_code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment(), capture_output=True, text=True, check=False, **_ACCOUNT
        )
        assert done.returncode == exit_code, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done
