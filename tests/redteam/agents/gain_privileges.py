"""Tries to become somebody else, and looks for setuid programs to run."""

from __future__ import annotations

import os
import stat
import subprocess

from arena_sdk import tools


def agent_main(problem):
    told = []
    for become in (os.setuid, os.setgid, os.seteuid):
        try:
            become(0)
        except OSError as error:
            told.append(type(error).__name__)
    for directory in ("/usr/bin", "/bin", "/usr/sbin", "/opt/py/bin"):
        try:
            entries = [entry for entry in os.scandir(directory) if entry.is_file()]
        except OSError as error:
            told.append(type(error).__name__)
            continue
        told += [entry.name for entry in entries if entry.stat().st_mode & stat.S_ISUID]
    try:  # a setuid program that does nothing when asked for its version
        told.append(subprocess.run(["/usr/bin/su", "--version"], capture_output=True, text=True).stdout)
    except OSError as error:
        told.append(type(error).__name__)
    tools.find_product(q="tried")
    return told
