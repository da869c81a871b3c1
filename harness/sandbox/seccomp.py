"""The system-call filter of a guest, as a seccomp-BPF program; x86_64 and aarch64, no libseccomp.

Promise: a foreign architecture (and the x32 ABI) is killed; clone3 answers ENOSYS, so that the C library falls back to
clone, whose flags BPF can read; clone with a namespace flag, terminal injection and the calls of `DENIED` answer EPERM;
socket() opens only the families asked for. Everything else passes: a deny list reduces the kernel's attack surface and
is one layer among several (sandbox notes, section 4). Read `DENIED` again at kernel upgrades.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping

import msgspec

from problems.errors import ArenaError

AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10
EMPTY_NETWORK_FAMILIES = (AF_UNIX, AF_INET, AF_INET6)  # for jails with an empty network namespace; () without one

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
LOAD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_OFFSET_NUMBER, _OFFSET_ARCH, _OFFSET_ARGUMENT_0, _OFFSET_ARGUMENT_1 = 0, 4, 16, 24
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_X32_BIT = 0x40000000
# NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET and NEWTIME
_CLONE_NEW = 0x7E020000 | 0x80

# name -> (x86_64, aarch64); None where the platform has no such call
DENIED: Mapping[str, tuple[int | None, int | None]] = {
    # other processes' memory
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # mounts, roots and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "statmount": (457, 457),
    "listmount": (458, 458),
    # large kernel attack surface
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    # keyrings
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # modules, kexec, machine state, clocks
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "syslog": (103, 116),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "lookup_dcookie": (212, 18),
    "vhangup": (153, 58),
    "nfsservctl": (180, 42),
    "personality": (135, 92),
    "iopl": (172, None),
    "ioperm": (173, None),
    "uselib": (134, None),
    "modify_ldt": (154, None),
    # placement of memory
    "move_pages": (279, 239),
    "mbind": (237, 235),
    "migrate_pages": (256, 238),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    # files outside every mount, device nodes, execution by descriptor
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "execveat": (322, 281),
    # System V IPC
    "msgget": (68, 186),
    "semget": (64, 190),
    "shmget": (29, 194),
    # the confinement itself
    "seccomp": (317, 277),
    "landlock_create_ruleset": (444, 444),
    "lsm_get_self_attr": (459, 459),
    "lsm_set_self_attr": (460, 460),
    "lsm_list_modules": (461, 461),
}


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """What the filter must know of a platform. `column` picks the numbers in `DENIED`."""

    audit: int
    column: int
    ioctl: int
    socket: int
    clone: int
    clone3: int = 435
    has_x32: bool = False

    def denied_numbers(self) -> tuple[int, ...]:
        """System-call numbers of `DENIED` on this platform, ascending."""
        return tuple(sorted(n for pair in DENIED.values() if (n := pair[self.column]) is not None))


ARCHITECTURES: Mapping[str, Architecture] = {
    "x86_64": Architecture(audit=0xC000003E, column=0, ioctl=16, socket=41, clone=56, has_x32=True),
    "aarch64": Architecture(audit=0xC00000B7, column=1, ioctl=29, socket=198, clone=220),
}


def native_architecture() -> Architecture:
    """The running machine's. Raises ArenaError V2060 on anything but x86_64 and aarch64."""
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise ArenaError("V2060", f"no system-call filter for {machine}: x86_64 and aarch64 only")
    return ARCHITECTURES[machine]


def build_filter(architecture: Architecture, families: tuple[int, ...] = EMPTY_NETWORK_FAMILIES) -> bytes:
    """The program as bytes, eight an instruction, as `bwrap --seccomp` and prctl take it.

    `families` are the socket families that stay open: () where there is no network namespace, since Landlock knows
    neither UDP nor path-named sockets (notes, section 6). socketpair() always passes: asyncio needs it.
    """
    refuse, missing = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS
    code: list[tuple[int, int, int, int]] = [
        (LOAD, 0, 0, _OFFSET_ARCH),
        (JUMP_EQUAL, 1, 0, architecture.audit),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, _OFFSET_NUMBER),
    ]
    if architecture.has_x32:
        code += [(JUMP_GREATER_EQUAL, 0, 1, _X32_BIT), (RETURN, 0, 0, KILL)]
    code += [(JUMP_EQUAL, 0, 1, architecture.clone3), (RETURN, 0, 0, missing)]
    code += [
        (JUMP_EQUAL, 0, 4, architecture.clone),
        (LOAD, 0, 0, _OFFSET_ARGUMENT_0),
        (JUMP_SET, 0, 1, _CLONE_NEW),
        (RETURN, 0, 0, refuse),
        (RETURN, 0, 0, ALLOW),
    ]
    code += [
        (JUMP_EQUAL, 0, 5, architecture.ioctl),
        (LOAD, 0, 0, _OFFSET_ARGUMENT_1),
        (JUMP_EQUAL, 1, 0, _TIOCSTI),
        (JUMP_EQUAL, 0, 1, _TIOCLINUX),
        (RETURN, 0, 0, refuse),
        (RETURN, 0, 0, ALLOW),
    ]
    code += _socket_rules(architecture.socket, families)
    for number in architecture.denied_numbers():
        code += [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, refuse)]
    code.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _socket_rules(number: int, families: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    refuse = ERRNO | errno.EAFNOSUPPORT
    count = len(families)
    if not count:
        return [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, refuse)]
    rules = [(JUMP_EQUAL, 0, count + 3, number), (LOAD, 0, 0, _OFFSET_ARGUMENT_0)]
    for index, family in enumerate(families):  # a hit jumps to the ALLOW behind the last test, the last miss over it
        rules.append((JUMP_EQUAL, count - 1 - index, 1 if index == count - 1 else 0, family))
    return [*rules, (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, refuse)]
