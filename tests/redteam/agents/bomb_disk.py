"""Fills every mount that it can write to."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from pathlib import Path

from arena_sdk import tools


def agent_main(problem):
    tools.find_product(q="tried")
    places = {os.environ["TMPDIR"], "/tmp", "/var/tmp", "/dev/shm"}
    with contextlib.suppress(OSError):
        places |= {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    for place in sorted(place for place in places if not place.startswith(("/proc", "/sys"))):
        try:
            for number in range(json.loads(problem["query"])["amount"]):
                Path(place, f"filler-{number}").write_bytes(b"x" * (1 << 20))
                time.sleep(0.02)  # where the size is watched, not given: until it has been looked at
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
                raise
    tools.find_product(q="reached")
