"""The system-call filter of a guest, as a seccomp-BPF program; x86_64 and aarch64, no libseccomp.

A foreign architecture is killed. Of the calls that Linux numbers alike everywhere, which are the
newer ones, those that programs need are known, and all others, clone3 among them, answer ENOSYS, so that the C library
falls back to what BPF can judge. socket() opens nothing, and a pair of sockets is the only one there is; no namespace,
no file table that hides behind a thread, no shared memory without a file, no lock and no watch on a file; the calls of
`DENIED` answer EPERM. Everything else passes: a deny list reduces the kernel's attack surface and is one layer among
several. `Exposure` says which namespaces are missing around the guest, and closes what they would have closed.
"""

from __future__ import annotations

import errno
import platform
import re
import struct
from collections.abc import Mapping
from typing import Literal

import msgspec

from foundation.errors import ArenaError

_Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
LOAD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_OFFSET_NUMBER, _OFFSET_ARCH = 0, 4
_REFUSED, _MISSING, _NO_FAMILY = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS, ERRNO | errno.EAFNOSUPPORT
_AF_UNIX = 1
# NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET and NEWTIME
_CLONE_NEW = 0x7E020000 | 0x80
_CLONE_FILES, _CLONE_THREAD = 0x400, 0x10000
_CLOSE_RANGE_CLOEXEC = 4
_MAP_SHARED, _MAP_ANONYMOUS, _MAP_HUGETLB = 0x01, 0x20, 0x40000  # MAP_SHARED_VALIDATE has the first bit too

FIRST_COMMON_CALL = 424  # from here on a call has the same number on all platforms
# pidfd_send_signal, pidfd_open, close_range, openat2, faccessat2, epoll_pwait2, futex_waitv, fchmodat2,
# map_shadow_stack, futex_wake, futex_wait, futex_requeue and mseal
COMMON_CALLS = (424, 434, 436, 437, 439, 441, 449, 452, 453, 454, 455, 456, 462)

Exposure = Literal["namespaces", "own-uid", "host-uid"]
Numbers = tuple[int | None, int | None]  # x86_64, aarch64; None where the platform has no such call


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """What the filter must know of a platform. `column` picks its numbers in the tables."""

    audit: int
    column: int

    def number(self, name: str) -> int:
        """Of a call that is judged by its arguments, on this platform."""
        found = JUDGED[name][self.column]
        assert found is not None, f"{name} is on every platform"
        return found

    def denied_numbers(self, exposure: Exposure = "namespaces") -> tuple[int, ...]:
        """System-call numbers that are refused whatever their arguments are on this platform, ascending."""
        tables = [DENIED]
        if exposure != "namespaces":
            tables.append(DENIED_WITHOUT_NAMESPACES)
        if exposure == "host-uid":
            tables.append(DENIED_WITH_HOST_UID)
        return tuple(sorted(n for table in tables for pair in table.values() if (n := pair[self.column]) is not None))


ARCHITECTURES: Mapping[str, Architecture] = {
    "x86_64": Architecture(audit=0xC000003E, column=0),
    "aarch64": Architecture(audit=0xC00000B7, column=1),
}


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
    code: list[_Instruction] = [  # the x32 ABI's numbers are above all known ones
        (LOAD, 0, 0, _OFFSET_ARCH),
        (JUMP_EQUAL, 1, 0, architecture.audit),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, _OFFSET_NUMBER),
    ]
    code.append((JUMP_GREATER_EQUAL, 0, len(COMMON_CALLS) + 1, FIRST_COMMON_CALL))
    code += [(JUMP_EQUAL, len(COMMON_CALLS) - place, 0, number) for place, number in enumerate(COMMON_CALLS)]
    code.append((RETURN, 0, 0, _MISSING))
    number = architecture.number
    code += [  # no namespaces, and no thread with open files of its own, which /proc would show under another number
        (JUMP_EQUAL, 0, 6, number("clone")),
        (LOAD, 0, 0, _low(0)),
        (JUMP_SET, 2, 0, _CLONE_NEW),
        (JUMP_SET, 0, 2, _CLONE_THREAD),
        (JUMP_SET, 1, 0, _CLONE_FILES),
        (RETURN, 0, 0, _REFUSED),
        (RETURN, 0, 0, ALLOW),
    ]
    # No shared memory without a file: its pages stay when no process maps them. No huge pages: no count shows them.
    code += [
        (JUMP_EQUAL, 0, 6, number("mmap")),
        (LOAD, 0, 0, _low(3)),
        (JUMP_SET, 2, 0, _MAP_HUGETLB),
        (JUMP_SET, 0, 2, _MAP_ANONYMOUS),
        (JUMP_SET, 0, 1, _MAP_SHARED),
        (RETURN, 0, 0, _REFUSED),
        (RETURN, 0, 0, ALLOW),
    ]
    code += [(JUMP_EQUAL, 0, 1, number("socket")), (RETURN, 0, 0, _NO_FAMILY)]
    code += _decide_by_value(number("socketpair"), 0, (_AF_UNIX,), on_hit=ALLOW, on_miss=_NO_FAMILY)
    code += _require_zero(number("sendto"), (_low(4), _low(4) + 4))  # an address is a pointer: both halves
    for name, (argument, values) in HARMLESS_VALUES.items():
        code += _decide_by_value(number(name), argument, values, on_hit=ALLOW, on_miss=_REFUSED)
    for name, (argument, values) in REFUSED_VALUES.items():
        code += _decide_by_value(number(name), argument, values, on_hit=_REFUSED, on_miss=ALLOW)
    if exposure != "namespaces":
        for name, arguments in SELF_ONLY.items():
            # Ids are 32-bit integers: the kernel reads the low half only.
            code += _require_zero(number(name), tuple(map(_low, arguments)))
    for denied in architecture.denied_numbers(exposure):
        code += [(JUMP_EQUAL, 0, 1, denied), (RETURN, 0, 0, _REFUSED)]
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


def _calls(text: str) -> Mapping[str, Numbers]:
    """A table of calls: `name x86_64 aarch64`, by topic; `-` where the platform has no such call."""
    rows = re.findall(r"(\w+) (\d+) (\d+|-)(?:,|$)", text, re.MULTILINE)
    return {name: (int(x86_64), None if aarch64 == "-" else int(aarch64)) for name, x86_64, aarch64 in rows}


# Judged by their arguments.
JUDGED = _calls(
    """
clone 56 220, mmap 9 222, madvise 28 233, socket 41 198, socketpair 53 199, sendto 44 206, ioctl 16 29, fcntl 72 25,
    prctl 157 167, close_range 436 436, prlimit64 302 261, sched_setaffinity 203 122, sched_setscheduler 144 119,
    sched_setparam 142 118, sched_setattr 314 274, setpriority 141 140
    """
)
DENIED = _calls(
    """
other processes' memory: ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272
mounts, roots and namespaces: mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, unshare 272 97,
    setns 308 268
large kernel attack surface: bpf 321 280, userfaultfd 323 282, perf_event_open 298 241, fanotify_init 300 262,
    open_by_handle_at 304 265, name_to_handle_at 303 264
keyrings: add_key 248 217, request_key 249 218, keyctl 250 219
modules, kexec, machine state, clocks: kexec_load 246 104, kexec_file_load 320 294, init_module 175 105,
    finit_module 313 273, delete_module 176 106, reboot 169 142, acct 163 89, swapon 167 224, swapoff 168 225,
    settimeofday 164 170, clock_settime 227 112, adjtimex 159 171, clock_adjtime 305 266, syslog 103 116,
    quotactl 179 60, lookup_dcookie 212 18, vhangup 153 58, nfsservctl 180 42, personality 135 92, iopl 172 -,
    ioperm 173 -, uselib 134 -, modify_ldt 154 -
placement of memory: move_pages 279 239, mbind 237 235, migrate_pages 256 238, set_mempolicy 238 237
files outside every mount, device nodes, execution by descriptor: memfd_create 319 279, mknod 133 -, mknodat 259 33,
    execveat 322 281
System V and POSIX messages: kernel objects that outlive their maker: msgget 68 186, msgsnd 69 189, msgrcv 70 188,
    msgctl 71 187, semget 64 190, semop 65 193, semtimedop 220 192, semctl 66 191, shmget 29 194, shmat 30 196,
    shmctl 31 195, mq_open 240 180, mq_unlink 241 181
watches and locks on files: those of the guest root are every guest's: inotify_init 253 -, inotify_init1 294 26,
    inotify_add_watch 254 27, inotify_rm_watch 255 28, fanotify_mark 301 263, flock 73 32
sockets beyond a pair: a queue of connections, a larger buffer, a file in flight are in no table: connect 42 203,
    bind 49 200, listen 50 201, accept 43 202, accept4 288 242, sendmsg 46 211, sendmmsg 307 269, setsockopt 54 208
pages that a pipe or a socket holds on to after their file is gone: splice 275 76, tee 276 77, vmsplice 278 75,
    sendfile 40 71
counters of the whole host, what it holds in its cache, and the size and free space of its disks, which no mount hides:
    sysinfo 99 179, mincore 27 232, fadvise64 221 223, readahead 187 213, statfs 137 43, fstatfs 138 44, ustat 136 -
the host's writes to its disks, for which everybody waits: sync 162 81, syncfs 306 267, sync_file_range 277 84
the confinement itself: seccomp 317 277
    """
)

# Without namespaces of its own a guest shares the kernel's objects with the host; an old Landlock knows no truncation.
DENIED_WITHOUT_NAMESPACES = _calls(
    """
truncate 76 45, ioprio_set 251 30
    """
)
# With the host's own uid: Landlock does not mediate attributes, and the guest would own every file of the host's user.
DENIED_WITH_HOST_UID = _calls(
    """
chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92 -, lchown 94 -, fchown 93 55,
    fchownat 260 54, setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15,
    fremovexattr 199 16, utime 132 -, utimes 235 -, futimesat 261 -, utimensat 280 88
    """
)
# Calls that name a process, and the arguments that must be 0: the caller itself.
SELF_ONLY: Mapping[str, tuple[int, ...]] = {
    "prlimit64": (0,),
    "sched_setaffinity": (0,),
    "sched_setscheduler": (0,),
    "sched_setparam": (0,),
    "sched_setattr": (0,),
    "setpriority": (0, 1),
}
# By call: the argument that is looked at, and its values that pass.
HARMLESS_VALUES: Mapping[str, tuple[int, tuple[int, ...]]] = {
    # What an interpreter asks of files, pipes and pairs: TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX.
    "ioctl": (1, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),
    # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_QUERY and F_DUPFD_CLOEXEC. Left out: locks, leases, watches
    # and hints, which an inode keeps for everybody, and the size of a pipe.
    "fcntl": (1, (0, 1, 2, 3, 4, 1027, 1030)),
    "close_range": (2, (0, _CLOSE_RANGE_CLOEXEC)),
}
# By call: the argument that is looked at, and its values that are refused.
REFUSED_VALUES: Mapping[str, tuple[int, tuple[int, ...]]] = {
    # PR_SET_PDEATHSIG: to outlive its supervisor. PR_SET_DUMPABLE: to hide its open files from a host without
    # privileges. PR_SET_SECCOMP: programs in kernel memory. PR_SET_MEMORY_MERGE: pages shared with others.
    "prctl": (0, (1, 4, 22, 67)),
    # MADV_MERGEABLE, and MADV_COLD and MADV_PAGEOUT, which put pages where no count of resident memory sees them.
    "madvise": (2, (12, 20, 21)),
}
