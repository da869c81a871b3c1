"""The system-call filter, evaluated call by call in a small interpreter for both architectures."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from harness.sandbox.seccomp import (
    ALLOW,
    ARCHITECTURES,
    DENIED,
    DENIED_WITH_HOST_UID,
    DENIED_WITHOUT_NAMESPACES,
    ERRNO,
    FIRST_UNKNOWN_CALL,
    HARMLESS_FCNTLS,
    HARMLESS_IOCTLS,
    JUMP_EQUAL,
    JUMP_GREATER_EQUAL,
    JUMP_SET,
    KILL,
    LOAD,
    REFUSED_ADVICE,
    REFUSED_PRCTLS,
    RETURN,
    SELF_ONLY,
    Architecture,
    build_filter,
)

EPERM = ERRNO | errno.EPERM
ENOSYS = ERRNO | errno.ENOSYS
NO_FAMILY = ERRNO | errno.EAFNOSUPPORT
AF_UNIX = 1
PLATFORMS = pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=ARCHITECTURES.keys())


def evaluate(program: bytes, architecture: Architecture, number: int, *arguments: int, audit: int | None = None) -> int:
    """What the kernel would answer to one system call."""
    padded = [a & 0xFFFFFFFFFFFFFFFF for a in arguments] + [0] * (6 - len(arguments))
    data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, architecture.audit if audit is None else audit, 0, *padded)
    counter = accumulator = 0
    while True:
        code, if_true, if_false, k = struct.unpack_from("HBBI", program, 8 * counter)
        counter += 1
        if code == LOAD:
            (accumulator,) = struct.unpack_from("=I", data, k)
        elif code == RETURN:
            return k
        else:
            is_hit = {
                JUMP_EQUAL: accumulator == k,
                JUMP_GREATER_EQUAL: accumulator >= k,
                JUMP_SET: bool(accumulator & k),
            }[code]
            counter += if_true if is_hit else if_false


@PLATFORMS
def test_every_denied_call_is_refused_and_every_other_one_passes(architecture):
    program = build_filter(architecture)
    denied = set(architecture.denied_numbers())
    named = ("ioctl", "fcntl", "socket", "socketpair", "clone", "clone3")
    special = {getattr(architecture, name) for name in named}
    for number in range(600):
        expected = EPERM if number in denied else ENOSYS if number >= FIRST_UNKNOWN_CALL else ALLOW
        if number not in special:
            assert evaluate(program, architecture, number) == expected, number


@PLATFORMS
def test_clone3_falls_back_to_clone_and_clone_makes_no_namespace(architecture):
    program = build_filter(architecture)
    assert evaluate(program, architecture, architecture.clone3) == ERRNO | errno.ENOSYS
    assert evaluate(program, architecture, architecture.clone, 17) == ALLOW  # fork
    assert evaluate(program, architecture, architecture.clone, 0x3D0F00) == ALLOW  # pthread_create
    for flag in (0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert evaluate(program, architecture, architecture.clone, flag | 17) == EPERM, hex(flag)


@PLATFORMS
def test_terminal_injection_is_refused_also_with_high_bits_set(architecture):
    program = build_filter(architecture)
    assert evaluate(program, architecture, architecture.ioctl, 0, 0x5413) == ALLOW
    for command in (0x5412, 0x541C, 0x5412 | 1 << 32):
        assert evaluate(program, architecture, architecture.ioctl, 0, command) == EPERM


@PLATFORMS
def test_a_foreign_architecture_is_killed(architecture):
    others = {a.audit for a in ARCHITECTURES.values()} - {architecture.audit} | {0x40000003}
    for audit in others:
        assert evaluate(build_filter(architecture), architecture, 0, audit=audit) == KILL


def test_the_x32_numbers_of_x86_64_are_killed():
    architecture = ARCHITECTURES["x86_64"]
    program = build_filter(architecture)
    assert evaluate(program, architecture, 0x40000000 | 1) == KILL
    assert evaluate(program, architecture, -1) == KILL


@PLATFORMS
def test_every_jump_stays_inside_the_program(architecture):
    program = build_filter(architecture)
    count = len(program) // 8
    assert len(program) % 8 == 0 and count < 4096
    for index in range(count):
        code, if_true, if_false, _ = struct.unpack_from("HBBI", program, 8 * index)
        assert code in (LOAD, RETURN) or index + 1 + max(if_true, if_false) < count


SHARED = pytest.mark.parametrize("exposure", ["own-uid", "host-uid"])
EVERYWHERE = pytest.mark.parametrize("exposure", ["namespaces", "own-uid", "host-uid"])


@PLATFORMS
@EVERYWHERE
def test_no_socket_reaches_anybody_but_its_own_pair(architecture, exposure):
    program = build_filter(architecture, exposure)
    for family in range(50):
        assert evaluate(program, architecture, architecture.socket, family) == NO_FAMILY
        expected = ALLOW if family == AF_UNIX else NO_FAMILY
        assert evaluate(program, architecture, architecture.socketpair, family) == expected
    assert evaluate(program, architecture, architecture.sendto, 3, 0x7000, 8, 0, 0, 0) == ALLOW  # send()
    for address in (1, 1 << 32, 0xFFFFFFFF_00000000):
        assert evaluate(program, architecture, architecture.sendto, 3, 0x7000, 8, 0, address, 16) == EPERM
    for name in ("connect", "bind", "listen", "accept", "accept4", "sendmsg", "sendmmsg", "setsockopt"):
        number = DENIED[name][architecture.column]
        assert number is not None and evaluate(program, architecture, number, 3) == EPERM


@PLATFORMS
@SHARED
@pytest.mark.parametrize("name", SELF_ONLY)
def test_without_a_pid_namespace_a_process_changes_only_itself(architecture, exposure, name):
    program = build_filter(architecture, exposure)
    numbers, arguments = SELF_ONLY[name]
    number = numbers[architecture.column]
    assert evaluate(program, architecture, number, *[0] * 6) == ALLOW
    for argument in arguments:
        values = [0] * 6
        values[argument] = 4242
        assert evaluate(program, architecture, number, *values) == EPERM


@PLATFORMS
@EVERYWHERE
def test_only_harmless_requests_reach_a_device(architecture, exposure):
    program = build_filter(architecture, exposure)
    for command in HARMLESS_IOCTLS:
        assert evaluate(program, architecture, architecture.ioctl, 0, command) == ALLOW
    for command in (0x5412, 0x541C, 0x40086602, 0x401C5820, 0):
        assert evaluate(program, architecture, architecture.ioctl, 0, command) == EPERM
    for option in REFUSED_PRCTLS:
        assert evaluate(program, architecture, architecture.prctl, option, 0) == EPERM
    assert evaluate(program, architecture, architecture.prctl, 38, 1) == ALLOW  # PR_SET_NO_NEW_PRIVS


@PLATFORMS
@EVERYWHERE
def test_files_are_duplicated_and_closed_but_neither_locked_nor_watched(architecture, exposure):
    program = build_filter(architecture, exposure)
    for command in HARMLESS_FCNTLS:
        assert evaluate(program, architecture, architecture.fcntl, 3, command) == ALLOW
    for command in (*range(5, 50), *range(1024, 1027), *range(1031, 1060)):
        assert evaluate(program, architecture, architecture.fcntl, 3, command) == EPERM, command
        assert evaluate(program, architecture, architecture.fcntl, 3, command | 1 << 32) == EPERM, command
    for flags, answer in ((0, ALLOW), (4, ALLOW), (2, EPERM), (6, EPERM)):
        assert evaluate(program, architecture, architecture.close_range, 3, 9, flags) == answer


@PLATFORMS
@EVERYWHERE
def test_memory_is_private_or_has_a_file_and_stays_where_it_is_counted(architecture, exposure):
    program = build_filter(architecture, exposure)
    private, shared, validated, anonymous, huge = 2, 1, 3, 0x20, 0x40000
    for flags in (private, shared, validated, private | anonymous, private | anonymous | 0x20000):
        assert evaluate(program, architecture, architecture.mmap, 0, 4096, 3, flags) == ALLOW
    for flags in (shared | anonymous, validated | anonymous, private | anonymous | huge, shared | huge):
        assert evaluate(program, architecture, architecture.mmap, 0, 4096, 3, flags) == EPERM
    for advice in range(30):
        answer = EPERM if advice in REFUSED_ADVICE else ALLOW
        assert evaluate(program, architecture, architecture.madvise, 0, 4096, advice) == answer


@PLATFORMS
@EVERYWHERE
def test_all_threads_of_a_process_have_the_same_files(architecture, exposure):
    program = build_filter(architecture, exposure)
    thread, files = 0x10000, 0x400
    assert evaluate(program, architecture, architecture.clone, thread) == EPERM
    assert evaluate(program, architecture, architecture.clone, thread | 0xB00) == EPERM
    assert evaluate(program, architecture, architecture.clone, thread | files) == ALLOW
    assert evaluate(program, architecture, architecture.clone, files | 17) == ALLOW


@PLATFORMS
def test_with_the_hosts_uid_no_attribute_of_a_file_can_be_changed(architecture):
    own, shared = build_filter(architecture, "own-uid"), build_filter(architecture, "host-uid")
    for pair in DENIED_WITH_HOST_UID.values():
        number = pair[architecture.column]
        if number is not None:
            assert evaluate(own, architecture, number) == ALLOW
            assert evaluate(shared, architecture, number) == EPERM


def test_a_call_newer_than_the_tables_is_answered_as_missing():
    for architecture in ARCHITECTURES.values():
        program = build_filter(architecture)
        assert evaluate(program, architecture, FIRST_UNKNOWN_CALL) == ENOSYS
        assert evaluate(program, architecture, FIRST_UNKNOWN_CALL - 1) == ALLOW


HEADERS = {
    "x86_64": (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h")),
    "aarch64": (Path("/usr/include/asm-generic/unistd.h"),),
}


@pytest.mark.parametrize("machine", HEADERS)
def test_every_number_is_the_kernel_headers_number(machine):
    header = next((path for path in HEADERS[machine] if path.exists()), None)
    if header is None:
        pytest.skip(f"no kernel headers for {machine} here")
    text = header.read_text()
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    architecture = ARCHITECTURES[machine]
    tables = {**DENIED, **DENIED_WITHOUT_NAMESPACES, **DENIED_WITH_HOST_UID}
    ours = {name: pair[architecture.column] for name, pair in tables.items()}
    ours |= {name: numbers[architecture.column] for name, (numbers, _) in SELF_ONLY.items()}
    named = ("ioctl", "fcntl", "mmap", "madvise", "socket", "socketpair", "sendto", "prctl", "clone", "clone3")
    ours |= {name: getattr(architecture, name) for name in named}
    compared = {name: number for name, number in ours.items() if name in known}
    assert len(compared) > 80
    assert compared == {name: known[name] for name in compared}
    absent = {name for name, number in ours.items() if number is None}
    assert not absent & known.keys()
