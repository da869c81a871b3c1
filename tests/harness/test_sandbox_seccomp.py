"""The system-call filter, evaluated call by call in a small interpreter for both architectures."""

from __future__ import annotations

import errno
import struct

import pytest

from harness.sandbox.seccomp import (
    ALLOW,
    ARCHITECTURES,
    DENIED,
    EMPTY_NETWORK_FAMILIES,
    ERRNO,
    JUMP_EQUAL,
    JUMP_GREATER_EQUAL,
    JUMP_SET,
    KILL,
    LOAD,
    RETURN,
    Architecture,
    build_filter,
)

EPERM = ERRNO | errno.EPERM
NO_FAMILY = ERRNO | errno.EAFNOSUPPORT
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
    special = {architecture.ioctl, architecture.socket, architecture.clone, architecture.clone3}
    for number in range(600):
        expected = EPERM if number in denied else ALLOW
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
@pytest.mark.parametrize("families", [(), (1,), EMPTY_NETWORK_FAMILIES, (1, 2, 10, 16)])
def test_only_the_listed_socket_families_open(architecture, families):
    program = build_filter(architecture, families)
    for family in range(50):
        expected = ALLOW if family in families else NO_FAMILY
        assert evaluate(program, architecture, architecture.socket, family) == expected
    assert evaluate(program, architecture, architecture.denied_numbers()[0]) == EPERM


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


def test_no_number_stands_for_two_calls():
    for column in (0, 1):
        numbers = [pair[column] for pair in DENIED.values() if pair[column] is not None]
        assert len(numbers) == len(set(numbers))
