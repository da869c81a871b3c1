"""The warden: starts one guest under Landlock and a system-call filter, and ends everything that came from it.

A program of its own, run by the guest's interpreter; standard library only, and no package of ours is imported.
When it has exited, no process that descends from the guest is alive, however it detached; when the host's end
of the control pipe closes, for whatever reason, everything ends. It reads no frame and judges nothing.

How it finds daemons without a pid namespace: it adopts them (child subreaper), and it kills with kill(-1), which the
kernel does in one sweep that no fork escapes. What the sweep may touch is bounded before the guest exists: either by a
pair of uids that own nothing else (the guest can't signal the warden back), or by a Landlock domain scoped for signals.
A warden that could signal its own parent refuses to go on, so a sweep can never reach the host.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import struct
import sys
from typing import NoReturn, TypedDict

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every platform
_RULE_PATH_BENEATH = 1
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
_SECCOMP_MODE_FILTER = 2
_EXIT_NOT_CONFINED = 125
_SIGNAL_BASE = 128


class Order(TypedDict):
    """What the host asks for, as JSON in the first argument."""

    control_fd: int  # read end of a pipe whose other end the host holds
    uids: list[int] | None  # [guest's, warden's]; None: keep the host's user
    scoped: int  # Landlock scopes of warden and guest: abstract sockets, signals
    handled: int  # Landlock file rights that are denied unless a rule gives them
    rules: list[tuple[str, int]]  # path, rights beneath it
    filter: str  # seccomp program, hexadecimal
    processes_ceiling: int | None  # RLIMIT_NPROC of the guest, for a uid that is not its own
    directory: str  # where the guest starts
    command: list[str]
    environment: dict[str, str]


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_void_p)]


def main(order: Order) -> NoReturn:
    """Run one guest to its end and exit with its status (128 and the signal's number when it was killed)."""
    _check(_prctl(_PR_SET_CHILD_SUBREAPER, 1), "become a subreaper")
    if order["uids"] is not None:
        guest_uid, own_uid = order["uids"]
        os.setgroups([])
        os.setresgid(guest_uid, guest_uid, guest_uid)
        # Effective uid: may signal the guest. Real and saved uid: the guest may not signal back.
        os.setresuid(own_uid, guest_uid, own_uid)
    _check(_prctl(_PR_SET_NO_NEW_PRIVS, 1), "give up new privileges")
    if order["scoped"]:
        _restrict(order["scoped"], 0, [])
    _refuse_to_reach_the_host()
    wakeup, on_child = os.pipe()  # the first becomes readable when a child ends
    os.set_blocking(wakeup, False)
    os.set_blocking(on_child, False)
    signal.set_wakeup_fd(on_child, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    guest = os.fork()
    if guest == 0:
        _become_guest(order)
    # The host sees the ends of the guest's pipes only when nobody else holds them.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)
    status = _wait(guest, order["control_fd"], wakeup)
    while True:  # kill and reap until nothing is left; the sweep spares its caller
        with contextlib.suppress(ProcessLookupError):  # nobody is left to signal; the dead are still to be reaped
            os.kill(-1, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(status)


def _refuse_to_reach_the_host() -> None:
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        return
    except ProcessLookupError as error:
        raise RuntimeError("the host is gone") from error
    raise RuntimeError("signals would reach the host")


def _become_guest(order: Order) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        if order["uids"] is not None:
            guest_uid = order["uids"][0]
            os.setresuid(guest_uid, guest_uid, guest_uid)
        _check(_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL), "die with the warden")
        if order["processes_ceiling"] is not None:
            ceiling = min(order["processes_ceiling"], _hard_limit(resource.RLIMIT_NPROC))
            resource.setrlimit(resource.RLIMIT_NPROC, (ceiling, ceiling))
        _restrict(order["scoped"], order["handled"], order["rules"])
        os.chdir(order["directory"])
        os.closerange(3, _hard_limit(resource.RLIMIT_NOFILE))
        program = bytes.fromhex(order["filter"])
        buffer = ctypes.create_string_buffer(program, len(program))
        header = _Filter(len(program) // 8, ctypes.cast(buffer, ctypes.c_void_p))
        is_installed = _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(header))
        _check(is_installed, "install the system-call filter")
        os.execve(order["command"][0], order["command"], order["environment"])
    except (OSError, RuntimeError) as error:
        _fail(error)


def _hard_limit(which: int) -> int:
    hard = resource.getrlimit(which)[1]
    return hard if 0 <= hard < 1 << 20 else 1 << 20


def _restrict(scoped: int, handled: int, rules: list[tuple[str, int]]) -> None:
    """Enter a new Landlock domain. Older kernels take the longer structure as long as what they lack is 0."""
    attributes = struct.pack("=QQQ", handled, 0, scoped)
    ruleset = _check(_call(_CREATE_RULESET, attributes, len(attributes), 0), "make a Landlock ruleset")
    for path, rights in rules:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", rights, place)
        _check(_call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0), f"add a Landlock rule for {path}")
        os.close(place)
    _check(_call(_RESTRICT_SELF, ruleset, 0), "enter a Landlock domain")
    os.close(ruleset)


def _wait(guest: int, control_fd: int, wakeup: int) -> int:
    """Until the guest's first process ends or the host says so; reaps what was adopted. The status for `exit`."""
    poll = select.poll()
    poll.register(control_fd, select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if control_fd in ready:
            return _SIGNAL_BASE + signal.SIGKILL
        with contextlib.suppress(BlockingIOError):
            while os.read(wakeup, 512):
                continue
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == guest:
                code = os.waitstatus_to_exitcode(ended[1])
                return code if code >= 0 else _SIGNAL_BASE - code


def _prctl(option: int, *arguments: int) -> int:
    padded = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    return int(_LIBC.prctl(option, *padded))


def _call(number: int, *arguments: int | bytes) -> int:
    typed = [a if isinstance(a, bytes) else ctypes.c_ulong(a) for a in arguments]
    return int(_LIBC.syscall(ctypes.c_long(number), *typed))


def _check(result: int, purpose: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot {purpose}: {os.strerror(number)}")
    return result


def _fail(error: Exception) -> NoReturn:
    """Tell the host in one line: it takes the last line of a guest that never became ready."""
    os.write(2, f"the guest cannot be confined: {error}\n".encode())
    os._exit(_EXIT_NOT_CONFINED)


_LIBC = ctypes.CDLL(None, use_errno=True)

if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except (OSError, RuntimeError) as failure:
        _fail(failure)
