"""The system-call filter of a guest, as a seccomp-BPF program; x86_64 and aarch64, no libseccomp.

A foreign architecture (and the x32 ABI) is killed; clone3 and all calls newer than this file answer ENOSYS, so
that the C library falls back to what BPF can judge; socket() opens nothing, and a pair of sockets is the only one there
is; no namespace, no file table that hides behind a thread, no shared memory without a file, no lock and no watch on a
file; the calls of `syscalls.DENIED` answer EPERM. Everything else passes: a deny list reduces the kernel's attack
surface and is one layer among several. `Exposure` says which namespaces are missing around the guest, and closes what
they would have closed.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping
from typing import Literal

import msgspec

from foundation.errors import ArenaError
from harness.sandbox.confinement.syscalls import (
    DENIED,
    DENIED_WITH_HOST_UID,
    DENIED_WITHOUT_NAMESPACES,
    HARMLESS_FCNTLS,
    HARMLESS_IOCTLS,
    REFUSED_ADVICE,
    REFUSED_PRCTLS,
    SELF_ONLY,
)

_Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
LOAD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_OFFSET_NUMBER, _OFFSET_ARCH = 0, 4
_REFUSED, _MISSING, _NO_FAMILY = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS, ERRNO | errno.EAFNOSUPPORT
_AF_UNIX = 1
_X32_BIT = 0x40000000
# NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET and NEWTIME
_CLONE_NEW = 0x7E020000 | 0x80
_CLONE_FILES, _CLONE_THREAD = 0x400, 0x10000
_CLOSE_RANGE_CLOEXEC = 4
_MAP_SHARED, _MAP_ANONYMOUS, _MAP_HUGETLB = 0x01, 0x20, 0x40000  # MAP_SHARED_VALIDATE has the first bit too

FIRST_UNKNOWN_CALL = 470  # numbers are the same on all platforms from 424 on; Linux 6.17 ends with 469

Exposure = Literal["namespaces", "own-uid", "host-uid"]


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """What the filter must know of a platform. `column` picks the numbers in the tables."""

    audit: int
    column: int
    ioctl: int
    fcntl: int
    mmap: int
    madvise: int
    socket: int
    socketpair: int
    sendto: int
    prctl: int
    clone: int
    clone3: int = 435
    close_range: int = 436
    has_x32: bool = False

    def denied_numbers(self, exposure: Exposure = "namespaces") -> tuple[int, ...]:
        """System-call numbers that are refused whatever their arguments are on this platform, ascending."""
        tables = [DENIED]
        if exposure != "namespaces":
            tables.append(DENIED_WITHOUT_NAMESPACES)
        if exposure == "host-uid":
            tables.append(DENIED_WITH_HOST_UID)
        return tuple(sorted(n for table in tables for pair in table.values() if (n := pair[self.column]) is not None))


ARCHITECTURES: Mapping[str, Architecture] = {
    "x86_64": Architecture(
        audit=0xC000003E, column=0, ioctl=16, fcntl=72, mmap=9, madvise=28, socket=41, socketpair=53, sendto=44,
        prctl=157, clone=56, has_x32=True,
    ),
    "aarch64": Architecture(
        audit=0xC00000B7, column=1, ioctl=29, fcntl=25, mmap=222, madvise=233, socket=198, socketpair=199, sendto=206,
        prctl=167, clone=220,
    ),
}  # fmt: skip


def native_architecture() -> Architecture:
    """The running machine's. Raises ArenaError V2060 on anything but x86_64 and aarch64."""
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise ArenaError("V2060", f"no system-call filter for {machine}: x86_64 and aarch64 only")
    return ARCHITECTURES[machine]


def build_filter(architecture: Architecture, exposure: Exposure = "namespaces") -> bytes:
    """The program as bytes, eight an instruction, as `bwrap --seccomp` and prctl take it.

    `exposure`: `namespaces` for a guest inside pid, network and ipc namespaces; `own-uid` and `host-uid` for one
    without, by whether its uid owns anything else on the host.
    """
    code: list[_Instruction] = [
        (LOAD, 0, 0, _OFFSET_ARCH),
        (JUMP_EQUAL, 1, 0, architecture.audit),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, _OFFSET_NUMBER),
    ]
    if architecture.has_x32:
        code += [(JUMP_GREATER_EQUAL, 0, 1, _X32_BIT), (RETURN, 0, 0, KILL)]
    code += [(JUMP_GREATER_EQUAL, 0, 1, FIRST_UNKNOWN_CALL), (RETURN, 0, 0, _MISSING)]
    code += [(JUMP_EQUAL, 0, 1, architecture.clone3), (RETURN, 0, 0, _MISSING)]
    code += [  # no namespaces, and no thread with open files of its own, which /proc would show under another number
        (JUMP_EQUAL, 0, 6, architecture.clone),
        (LOAD, 0, 0, _low(0)),
        (JUMP_SET, 2, 0, _CLONE_NEW),
        (JUMP_SET, 0, 2, _CLONE_THREAD),
        (JUMP_SET, 1, 0, _CLONE_FILES),
        (RETURN, 0, 0, _REFUSED),
        (RETURN, 0, 0, ALLOW),
    ]
    # No shared memory without a file: its pages stay when no process maps them. No huge pages: no count shows them.
    code += [
        (JUMP_EQUAL, 0, 6, architecture.mmap),
        (LOAD, 0, 0, _low(3)),
        (JUMP_SET, 2, 0, _MAP_HUGETLB),
        (JUMP_SET, 0, 2, _MAP_ANONYMOUS),
        (JUMP_SET, 0, 1, _MAP_SHARED),
        (RETURN, 0, 0, _REFUSED),
        (RETURN, 0, 0, ALLOW),
    ]
    code += [(JUMP_EQUAL, 0, 1, architecture.socket), (RETURN, 0, 0, _NO_FAMILY)]
    code += _decide_by_value(architecture.socketpair, 0, (_AF_UNIX,), on_hit=ALLOW, on_miss=_NO_FAMILY)
    code += _require_zero(architecture.sendto, (_low(4), _low(4) + 4))  # an address is a pointer: both halves
    code += _decide_by_value(architecture.ioctl, 1, HARMLESS_IOCTLS, on_hit=ALLOW, on_miss=_REFUSED)
    code += _decide_by_value(architecture.fcntl, 1, HARMLESS_FCNTLS, on_hit=ALLOW, on_miss=_REFUSED)
    harmless = (0, _CLOSE_RANGE_CLOEXEC)
    code += _decide_by_value(architecture.close_range, 2, harmless, on_hit=ALLOW, on_miss=_REFUSED)
    code += _decide_by_value(architecture.madvise, 2, REFUSED_ADVICE, on_hit=_REFUSED, on_miss=ALLOW)
    code += _decide_by_value(architecture.prctl, 0, REFUSED_PRCTLS, on_hit=_REFUSED, on_miss=ALLOW)
    if exposure != "namespaces":
        for numbers, arguments in SELF_ONLY.values():
            # Ids are 32-bit integers: the kernel reads the low half only.
            code += _require_zero(numbers[architecture.column], tuple(_low(n) for n in arguments))
    for number in architecture.denied_numbers(exposure):
        code += [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, _REFUSED)]
    code.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _low(argument: int) -> int:
    """Where the low half of an argument stands; the high one follows."""
    return 16 + 8 * argument


def _require_zero(number: int, offsets: tuple[int, ...]) -> list[_Instruction]:
    """Allow call `number` only when every 32-bit word at `offsets` is 0."""
    count = len(offsets)
    rules: list[_Instruction] = [(JUMP_EQUAL, 0, 2 * count + 2, number)]
    for index, offset in enumerate(offsets):
        rules += [(LOAD, 0, 0, offset), (JUMP_EQUAL, 0, 2 * (count - index) - 1, 0)]
    return [*rules, (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, _REFUSED)]


def _decide_by_value(
    number: int, argument: int, values: tuple[int, ...], *, on_hit: int, on_miss: int
) -> list[_Instruction]:
    """Answer call `number` by whether its `argument` is one of `values`.

    By the low half: the kernel reads these arguments as 32-bit integers.
    """
    count = len(values)
    rules: list[_Instruction] = [(JUMP_EQUAL, 0, count + 3, number), (LOAD, 0, 0, _low(argument))]
    for index, value in enumerate(values):  # a hit jumps to the first answer behind the tests, the last miss over it
        rules.append((JUMP_EQUAL, count - 1 - index, 1 if index == count - 1 else 0, value))
    return [*rules, (RETURN, 0, 0, on_hit), (RETURN, 0, 0, on_miss)]
