"""Whatever a guest dies of reaches the one reader of deaths: every exit status and every signal, at every level."""

from __future__ import annotations

import signal

import pytest

from harness.sandbox import bubblewrap, landlock
from tests.harness.jail_stand import WHY_NO_JAIL, best_sandbox, has_jail, run
from tests.harness.landlock_stand import best_landlock

DYING = "import os\ndef agent_main(p):\n {how}\n"
# Each status that a supervisor could take for something else, and the edges between them.
STATUSES = (0, 1, 3, 124, 125, 126, 127, 128, 129, 137, 152, *range(159, 194), 254, 255)
# Real-time signals have no name. 32 and 33 are left out: they are the C library's own, and whether a guest can die of
# them hangs on what this process ignored before it started one; their exit statuses are among `STATUSES`.
SIGNALS = tuple(
    number
    for number in sorted(signal.valid_signals())
    if number not in (signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGPIPE, signal.SIGXFSZ)
    and number not in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
)


@pytest.fixture
def read(monkeypatch):
    """The statuses that adapters hand to the reader, in order; what it makes of them is not asked here."""
    statuses: list[int] = []

    def note(ended, status, *, was_out_of_memory):
        statuses.append(status)
        return ended

    for adapter in (bubblewrap, landlock):
        monkeypatch.setattr(adapter, "explain_death", note)
    return statuses


@pytest.fixture(params=["bubblewrap", "landlock"])
def level(request):
    if request.param == "landlock":
        return request.param, best_landlock()
    if not has_jail():
        pytest.skip(WHY_NO_JAIL)
    return request.param, best_sandbox()


def test_every_exit_status_is_handed_on_as_it_is(level, read):
    _, sandbox = level
    for status in STATUSES:
        assert run(DYING.format(how=f"os._exit({status})"), None, sandbox).end == "died"
    assert read == list(STATUSES)


def test_every_signal_is_handed_on_as_its_number(level, read):
    _, sandbox = level
    for number in SIGNALS:
        how = f"import signal, time; signal.signal({number}, 0) if {number} != 9 else 0"
        source = DYING.format(how=f"{how}; os.kill(os.getpid(), {number}); time.sleep(20)")
        assert run(source, None, sandbox).end == "died", number
    assert [status - 128 for status in read] == list(SIGNALS)
