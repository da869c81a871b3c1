"""One table: what happened and when, against the code it gets."""

from __future__ import annotations

import pytest

from foundation.codes.row import Owner
from foundation.errors import ArenaError
from harness.errors import classify_exception, classify_guest, classify_host, stable_text
from harness.limits import EpisodeLimits
from harness.sandbox.port import GuestExit

LIMITS = EpisodeLimits()

GUEST = [
    ("SyntaxError", "load", "A1002"),
    ("IndentationError", "load", "A1002"),
    ("TabError", "load", "A1002"),
    ("MissingAgentMainError", "load", "A1003"),
    ("ImportError", "load", "A1024"),
    ("SyntaxError", "raise", "A1024"),
    ("ToolError", "raise", "A1024"),
    ("SystemExit", "raise", "A1024"),
    ("KeyboardInterrupt", "raise", "A1024"),
    ("SomethingOfTheAgents", "raise", "A1024"),
    ("TypeError", "not_json", "A1025"),
    ("RecursionError", "not_json", "A1025"),
]

ENDS = [
    ("wall_clock", "wall_clock", "A1020"),
    ("output", "output", "A1026"),
    ("protocol", "protocol", "A1027"),
    ("died", "died", "A1028"),
    ("frame", "frame", "A1029"),
    ("memory", "memory", "A1030"),
    ("cpu", "cpu", "A1031"),
    ("processes", "processes", "A1032"),
    ("disk", "disk", "A1033"),
    ("resources", "resources", "A1030"),
]

REFUSALS = [
    ("MemoryError: ", "memory", "A1030"),
    ("OSError: [Errno 12] Cannot allocate memory", "memory", "A1030"),
    ("BlockingIOError: [Errno 11] Resource temporarily unavailable", "processes", "A1032"),
    ("RuntimeError: can't start new thread", "processes", "A1032"),
    ("OSError: [Errno 28] No space left on device", "disk", "A1033"),
    ("OSError: [Errno 27] File too large", "disk", "A1033"),
]

HOST = [
    (ArenaError("U3002"), "model", "U3002"),
    (ArenaError("U3010"), "tool", "U3010"),
    (ArenaError("V2002"), "start", "V2002"),
    (OSError("fork"), "start", "V2002"),
    (OSError("pipe"), "loop", "V2004"),
    (KeyError("bug"), "tool", "V2004"),
    (ValueError("bug"), "model", "V2004"),
]


@pytest.mark.parametrize(("name", "phase", "code"), GUEST)
def test_an_exception_of_the_agent_gets_the_code_of_its_phase(name, phase, code):
    assert classify_exception(name, phase) == code


@pytest.mark.parametrize(("end", "stop", "code"), ENDS)
def test_each_end_that_the_sandbox_reports_has_one_reason(end, stop, code):
    got_stop, failure = classify_guest(GuestExit(end=end), LIMITS)
    assert (got_stop, failure.code) == (stop, code)


@pytest.mark.parametrize("phase", ["load", "raise", "not_json"])
@pytest.mark.parametrize(("error", "stop", "code"), REFUSALS)
def test_an_agent_that_ends_by_a_refusal_ended_by_that_limit(error, stop, code, phase):
    got_stop, failure = classify_guest(GuestExit(end="final", error=error, error_kind=phase), LIMITS)
    assert (got_stop, failure.code, failure.detail) == (stop, code, "")


@pytest.mark.parametrize(("error", "phase", "code"), HOST)
def test_what_breaks_on_our_side_is_never_the_agents(error, phase, code):
    failure = classify_host(error, phase)
    assert failure.code == code and failure.owner is not Owner.AGENT


def test_details_hold_nothing_that_differs_between_hosts():
    assert stable_text("<x at 0x7f12ab34cd>") == stable_text("<x at 0x7fffffff0000>")
    assert stable_text("no file /tmp/tmpa1/x") == stable_text("no file /tmp/tmpb2/y")
    by_cgroup, by_watchdog = (GuestExit(end="resources", error=e) for e in ("memory", "SIGKILL"))
    assert classify_guest(by_cgroup, LIMITS) == classify_guest(by_watchdog, LIMITS)
