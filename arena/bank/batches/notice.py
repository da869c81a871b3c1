"""The notice of a sealed batch: everything about it that may be known before its race, signed by the bank's key.

Promise: a notice says which round opens the batch and what the batch commits to (problems with answers, pools and
clusters under a salt nobody has yet); nothing in it can be guessed from a public catalogue, and a notice that passes
`check_notice` was signed as it stands by that key. Public problem ids are random, and are in the order of the ids.
"""

from __future__ import annotations

import hashlib

import msgspec

from arena.chain.port import Signer, Verifier
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError

NOTICE_VERSION = 1
_DOMAIN = b"agent-arena/sealed-batch/1\n"


class NoticedProblem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sealed problem by its public id, and the keyed commitment (hex) to its leak cluster."""

    problem_id: str
    cluster_commitment: str


class BatchNotice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is public of a sealed batch. `race_id` is the bank's name for the race that closes before `round`."""

    version: int
    race_id: str
    network: str  # the beacon
    round: int  # the first round after the race's close
    batch_sha256: str
    partition_sha256: str
    problems: tuple[NoticedProblem, ...]
    ciphertext_sha256: str
    made_ms: int  # unix milliseconds, by the bank's clock
    signer: str  # hotkey, ss58
    titles: str = ""  # name of the matcher whose verdicts lie inside; "": none lie there

    @property
    def problem_ids(self) -> tuple[str, ...]:
        """Public ids in batch order."""
        return tuple(problem.problem_id for problem in self.problems)

    @property
    def cluster_commitments(self) -> dict[str, str]:
        """Per public problem id, the keyed commitment (hex) to its leak cluster."""
        return {problem.problem_id: problem.cluster_commitment for problem in self.problems}


class SignedNotice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A notice with the bank's signature (hex): the public form of a sealed batch file."""

    notice: BatchNotice
    signature: str


def sign_notice(notice: BatchNotice, signer: Signer) -> SignedNotice:
    """The notice signed. Raises ValueError when it names another signer."""
    if notice.signer != signer.hotkey:
        raise ValueError(f"the notice names {notice.signer}, the key is {signer.hotkey}")
    return SignedNotice(notice=notice, signature=signer.sign(_message(notice)).hex())


def check_notice(signed: SignedNotice, bank_hotkey: str, verify: Verifier, place: str) -> None:
    """Raise ArenaError P4025 unless this is a notice of that bank as it signed it; `place` names it in errors.

    One signature has one accepted spelling.
    """
    notice = signed.notice
    if notice.version != NOTICE_VERSION:
        raise ArenaError("P4025", f"{place}: format {notice.version} is not {NOTICE_VERSION}")
    if notice.signer != bank_hotkey:
        raise ArenaError("P4025", f"{place}: signed by {notice.signer}, the bank is {bank_hotkey}")
    try:
        signature = bytes.fromhex(signed.signature)
        message = _message(notice)
    except (ValueError, TypeError) as error:
        raise ArenaError("P4025", f"{place}: {error}") from error
    if signature.hex() != signed.signature or not verify(bank_hotkey, message, signature):
        raise ArenaError("P4025", f"{place}: the signature does not fit")


def _message(notice: BatchNotice) -> bytes:
    return _DOMAIN + hashlib.sha256(canonical_bytes(notice)).digest()
