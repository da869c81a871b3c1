"""Logs go to stderr, as JSON lines where no person is looking."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

WRITE_SOME = """
import sys, structlog
from neurons.settings.observe import configure_logs
configure_logs(sys.argv[1], sys.argv[2])
log = structlog.get_logger()
log.debug("small thing")
log.info("race opened", race="r1", problems=90)
try:
    1 / 0
except ZeroDivisionError:
    log.exception("loop failed")
"""


def write_some(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WRITE_SOME, *arguments], capture_output=True, text=True, check=True)


@pytest.mark.parametrize("log_format", ["json", "auto"])
def test_without_a_terminal_every_line_is_json_and_stdout_stays_free(log_format: str) -> None:
    done = write_some(log_format, "info")
    rows = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.stdout == ""
    assert [(row["level"], row["event"]) for row in rows] == [("info", "race opened"), ("error", "loop failed")]
    assert rows[0]["race"] == "r1"
    assert rows[0]["timestamp"].endswith("Z")
    assert "ZeroDivisionError" in rows[1]["exception"]


def test_console_lines_are_for_people() -> None:
    shown = write_some("console", "debug").stderr
    assert "small thing" in shown
    assert "race=r1" in shown
    assert not shown.lstrip().startswith("{")


def test_a_higher_level_keeps_less() -> None:
    assert "race opened" not in write_some("json", "error").stderr
