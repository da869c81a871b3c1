"""Proof files: what they prove, and that any change of proof, content or checkpoint is refused, here and by the script
that strangers are given, which is run as they would run it: alone."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.chain.keys import keypair_signer, verify
from arena.records import verify_proof
from arena.records.model import SignedRecord
from arena.records.proof import Proof, encode_proof, prove
from arena.records.sequencer import Sequencer
from foundation.errors import ArenaError
from tests.arena.log_stand import HOST, Clock, MemoryLog, attempt, signed_note

ALICE, BOB = keypair_signer("//Alice"), keypair_signer("//Bob")
SCRIPT = Path(verify_proof.__file__)
SIZE = 11
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@cache
def log() -> MemoryLog:
    made = MemoryLog(ALICE.hotkey)
    asyncio.run(Sequencer(made, ALICE, Clock(), HOST).append([attempt(number) for number in range(SIZE)]))
    return made


@cache
def note(size: int) -> str:
    return signed_note(ALICE, log().log[:size])


@cache
def proven(seq: int, size: int = SIZE, older: int = 0) -> tuple[Proof, SignedRecord]:
    return asyncio.run(prove(log(), ALICE.hotkey, seq, note(size), verify, older_note=note(older) if older else ""))


def run_script(folder: Path, proof: bytes, *, content: bytes | None = None, notes: tuple[bytes, ...] = ()):
    """The script as a stranger runs it."""
    (folder / "proof.json").write_bytes(proof)
    command = [sys.executable, "-I", str(SCRIPT), str(folder / "proof.json")]
    if content is not None:
        (folder / "content").write_bytes(content)
        command += ["--content", str(folder / "content")]
    for number, text in enumerate(notes):
        (folder / f"note-{number}").write_bytes(text)
        command += ["--note", str(folder / f"note-{number}")]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def is_refused(raw: bytes, content: bytes | None = None, notes: tuple[str, ...] = ()) -> bool:
    try:
        verify_proof.check(raw, content, list(notes))
    except MALFORMED:
        return True
    return False


def test_the_script_alone_checks_a_proof(tmp_path: Path) -> None:
    proof, record = proven(4, older=6)
    held = tuple(note(size).encode() for size in (SIZE, 6))
    done = run_script(tmp_path, encode_proof(proof), content=record.content, notes=held)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"record 4 of {ALICE.hotkey} stands in its log of {SIZE} records",
        "none of its first 6 records was changed since",
        "content compared: yes, checkpoints of yours: 2",
    ]
    done = run_script(tmp_path, encode_proof(proof) + b"\n")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "does not hold: this is no proof file\n")


def test_other_content_or_a_kept_note_it_does_not_lead_to_is_refused() -> None:
    proof, record = proven(4, older=6)
    raw = encode_proof(proof)
    assert is_refused(raw, record.content + b" ", (note(SIZE),)) and is_refused(raw, record.content, (note(5),))


@given(st.data())
def test_any_changed_byte_of_a_proof_is_refused(data: st.DataObject) -> None:
    raw = bytearray(encode_proof(proven(4, older=6)[0]))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    assert is_refused(bytes(raw))


def test_a_log_that_was_rewritten_gives_no_proof_under_the_checkpoint_signed_before() -> None:
    other = MemoryLog(ALICE.hotkey)
    asyncio.run(Sequencer(other, ALICE, Clock(1), HOST).append([attempt(number) for number in range(SIZE)]))
    with pytest.raises(ArenaError, match="V2050"):
        asyncio.run(prove(other, ALICE.hotkey, 4, note(SIZE), verify))
    other.log = log().log[:5]
    for seq in (4, 6):
        with pytest.raises(ArenaError, match="V2053"):
            asyncio.run(prove(other, ALICE.hotkey, seq, note(SIZE), verify))


@pytest.mark.parametrize(
    ("seq", "size", "older"), [(SIZE, SIZE - 1, 0), (0, SIZE, 0), (4, SIZE, SIZE), (4, 5, 6), (SIZE + 1, SIZE, 0)]
)
def test_what_a_checkpoint_does_not_cover_is_not_proven(seq: int, size: int, older: int) -> None:
    with pytest.raises(ArenaError, match="V2053"):
        proven(seq, size, older)
    with pytest.raises(ArenaError, match=r"V2053.*of another log"):
        asyncio.run(prove(log(), BOB.hotkey, 4, note(SIZE), verify))
