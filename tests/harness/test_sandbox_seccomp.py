"""The system-call filter, evaluated call by call in a small interpreter for both architectures."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from harness.sandbox import seccomp

EPERM = seccomp.ERRNO | errno.EPERM
ENOSYS = seccomp.ERRNO | errno.ENOSYS
NO_FAMILY = seccomp.ERRNO | errno.EAFNOSUPPORT
AF_UNIX = 1
HEADERS = {
    "x86_64": (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h")),
    "aarch64": (Path("/usr/include/asm-generic/unistd.h"),),
}


class Filter:
    """What the kernel would answer to system calls under one filter."""

    def __init__(self, machine: str, exposure: str) -> None:
        self.architecture, self.exposure = seccomp.ARCHITECTURES[machine], exposure
        self.program = seccomp.build_filter(self.architecture, exposure)

    def __call__(self, call: int | str, *arguments: int, audit: int | None = None) -> int:
        number = self.architecture.number(call) if isinstance(call, str) else call
        padded = [a & 0xFFFFFFFFFFFFFFFF for a in arguments] + [0] * (6 - len(arguments))
        audit = self.architecture.audit if audit is None else audit
        data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, audit, 0, *padded)
        counter = accumulator = 0
        while True:
            code, if_true, if_false, k = struct.unpack_from("HBBI", self.program, 8 * counter)
            counter += 1
            if code == seccomp.LOAD:
                (accumulator,) = struct.unpack_from("=I", data, k)
            elif code == seccomp.RETURN:
                return k
            else:
                is_hit = {
                    seccomp.JUMP_EQUAL: accumulator == k,
                    seccomp.JUMP_GREATER_EQUAL: accumulator >= k,
                    seccomp.JUMP_SET: bool(accumulator & k),
                }[code]
                counter += if_true if is_hit else if_false


@pytest.fixture(params=seccomp.ARCHITECTURES)
def machine(request) -> str:
    return request.param


@pytest.fixture(params=["namespaces", "own-uid", "host-uid"])
def judge(request, machine) -> Filter:
    return Filter(machine, request.param)


def test_every_denied_call_is_refused_and_every_other_one_passes(machine):
    judge = Filter(machine, "namespaces")
    denied = set(judge.architecture.denied_numbers())
    special = {judge.architecture.number(name) for name in ("ioctl", "fcntl", "socket", "socketpair", "clone")}
    for number in range(600):
        is_missing = number >= seccomp.FIRST_COMMON_CALL and number not in seccomp.COMMON_CALLS
        if number not in special:
            assert judge(number) == (EPERM if number in denied else ENOSYS if is_missing else seccomp.ALLOW), number


def test_newer_calls_are_missing_unless_known_so_that_the_c_library_falls_back(judge):
    clone3, io_uring_setup, unheard_of, landlock_create_ruleset, memfd_secret, later = 435, 425, 470, 444, 447, 9_999
    for number in (clone3, io_uring_setup, unheard_of, landlock_create_ruleset, memfd_secret, later):
        assert judge(number) == ENOSYS


def test_clone_makes_processes_and_threads_but_no_namespace_and_no_files_of_its_own(judge):
    thread, files = 0x10000, 0x400
    for flags in (17, 0x3D0F00, thread | files, files | 17):  # fork, pthread_create
        assert judge("clone", flags) == seccomp.ALLOW
    for flag in (0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert judge("clone", flag | 17) == EPERM, hex(flag)
    assert judge("clone", thread) == judge("clone", thread | 0xB00) == EPERM


def test_a_foreign_architecture_is_killed_and_the_x32_abi_has_no_call(judge):
    for audit in {a.audit for a in seccomp.ARCHITECTURES.values()} - {judge.architecture.audit} | {0x40000003}:
        assert judge(0, audit=audit) == seccomp.KILL
    assert judge(0x40000000 | 1) == judge(-1) == ENOSYS


def test_no_socket_reaches_anybody_but_its_own_pair(judge):
    for family in range(50):
        assert judge("socket", family) == NO_FAMILY
        assert judge("socketpair", family) == (seccomp.ALLOW if family == AF_UNIX else NO_FAMILY)
    assert judge("sendto", 3, 0x7000, 8, 0, 0, 0) == seccomp.ALLOW  # send()
    for address in (1, 1 << 32, 0xFFFFFFFF_00000000):
        assert judge("sendto", 3, 0x7000, 8, 0, address, 16) == EPERM
    for name in ("connect", "bind", "listen", "accept", "accept4", "sendmsg", "sendmmsg", "setsockopt"):
        number = seccomp.DENIED[name][judge.architecture.column]
        assert number is not None and judge(number, 3) == EPERM


@pytest.mark.parametrize("name", seccomp.SELF_ONLY)
def test_without_a_pid_namespace_a_process_changes_only_itself(judge, name):
    assert judge(name, *[0] * 6) == seccomp.ALLOW
    for argument in seccomp.SELF_ONLY[name]:
        answer = seccomp.ALLOW if judge.exposure == "namespaces" else EPERM
        assert judge(name, *(4242 if place == argument else 0 for place in range(6))) == answer


@pytest.mark.parametrize("name", [*seccomp.HARMLESS_VALUES, *seccomp.REFUSED_VALUES])
def test_a_call_passes_by_the_value_of_one_argument_also_with_high_bits_set(judge, name):
    argument, values = {**seccomp.HARMLESS_VALUES, **seccomp.REFUSED_VALUES}[name]
    hit, miss = (seccomp.ALLOW, EPERM) if name in seccomp.HARMLESS_VALUES else (EPERM, seccomp.ALLOW)
    terminal_injection = (0x5412, 0x541C, 0x40086602, 0x401C5820)
    for value in (*range(70), *range(1024, 1060), *terminal_injection, *values):
        for high in (0, 1 << 32):
            arguments = [0] * argument + [value | high]
            assert judge(name, *arguments) == (hit if value in values else miss), value


def test_memory_is_private_or_has_a_file(judge):
    private, shared, validated, anonymous, huge = 2, 1, 3, 0x20, 0x40000
    for flags in (private, shared, validated, private | anonymous, private | anonymous | 0x20000):
        assert judge("mmap", 0, 4096, 3, flags) == seccomp.ALLOW
    for flags in (shared | anonymous, validated | anonymous, private | anonymous | huge, shared | huge):
        assert judge("mmap", 0, 4096, 3, flags) == EPERM


def test_with_the_hosts_uid_no_attribute_of_a_file_can_be_changed(judge):
    for pair in seccomp.DENIED_WITH_HOST_UID.values():
        number = pair[judge.architecture.column]
        if number is not None:
            assert judge(number) == (EPERM if judge.exposure == "host-uid" else seccomp.ALLOW)


def test_every_number_is_the_kernel_headers_number(machine):
    header = next((path for path in HEADERS[machine] if path.exists()), None)
    if header is None:
        pytest.skip(f"no kernel headers for {machine} here")
    text = header.read_text()
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    column = seccomp.ARCHITECTURES[machine].column
    tables = {**seccomp.DENIED, **seccomp.DENIED_WITHOUT_NAMESPACES, **seccomp.DENIED_WITH_HOST_UID, **seccomp.JUDGED}
    ours = {name: pair[column] for name, pair in tables.items()}
    compared = {name: number for name, number in ours.items() if name in known}
    assert len(compared) > 80
    assert compared == {name: known[name] for name in compared}
    assert not {name for name, number in ours.items() if number is None} & known.keys()
