"""The node's file: its last heartbeat and, after its end, how it ended.

`node.json` in the state folder is replaced whole or not at all, and whoever reads it needs neither a running
node nor a database. It is for operators and proves nothing. It holds no secret.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from foundation.canonical import UNREADABLE_JSON
from foundation.durable_files import replacing
from foundation.errors import Failure

FILE_NAME = "node.json"
_MODE = 0o644

CHECKPOINT_EVERY_S, ANCHOR_EVERY_S = 600, 3_600  # between two signatures of a log that grew, and two anchors on chain
BANK_DAYS_MIN = 30  # a stock of batches that lasts for fewer is warned of


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """What a loop waits for: the failure it met last, how often in a row, and since when (unix milliseconds)."""

    loop: str
    code: str
    detail: str
    since_ms: int
    failures: int


class RestingSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A worker slot in which no worker could be started, `tries` times in a row, since `since_ms` (unix ms)."""

    slot: int
    since_ms: int
    tries: int
    failure: Failure


class ChainFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The chain as this node saw it last. `uid` None: not registered; `seen_ms` 0: never seen."""

    seen_ms: int = 0
    block: int = 0
    finalized_block: int = 0
    grew_ms: int = 0  # when the newest block was first seen
    uid: int | None = None
    has_permit: bool = False
    stake_rao: int = 0
    placed_block: int = 0  # at which uid, permit and stake were read; 0: never
    is_stale: bool = False


class PeerSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What another validator last said of its rules (`arena.exchange.port.Progress`), and when it was heard."""

    hotkey: str
    policy_sha256: str
    guest_sha256: str
    seen_ms: int


class OperatorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's files as this node has them. `sequence` 0: no release was seen yet. `policy_waits` is the hash of
    a released policy that takes effect at the next start, "" for none."""

    operator: str
    sequence: int = 0
    release_sha256: str = ""
    files: int = 0
    lacking: int = 0
    whole_sequence: int = 0  # the newest whose files are all here
    policy_waits: str = ""
    second_sha256: str = ""  # another release that the operator signed with one number
    unusable: tuple[str, ...] = ()  # files that can't be used here


class UnjudgedTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A trace whose judging ended the workers of two slots: its evaluation's record, and the race or ""."""

    seq: int
    body_sha256: str
    race_id: str


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A node at one moment. All times are unix milliseconds."""

    hotkey: str
    netuid: int
    process_id: int
    started_ms: int
    beat_ms: int
    policy: str
    policy_sha256: str
    guest_sha256: str
    sandbox: str
    code_commit: str
    records: int
    owed_verdicts: int
    chain: ChainFacts
    waits: tuple[Wait, ...] = ()
    peers: tuple[PeerSeen, ...] = ()
    bank_until_ms: int | None = None  # when the bank's stock is used up; None: it can't run low, or isn't known
    resting: tuple[RestingSlot, ...] = ()  # worker slots in which none could be started
    unjudged: tuple[UnjudgedTrace, ...] = ()
    release: OperatorFacts | None = None  # None: this node takes nobody's files


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a node ended: with a failure, or (None) on demand."""

    at_ms: int
    failure: Failure | None = None


class NodeFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file."""

    beat: Heartbeat | None = None
    ending: Ending | None = None


def skewed(beat: Heartbeat) -> tuple[PeerSeen, ...]:
    """The peers that run under another policy or guest than this node."""
    own = (beat.policy_sha256, beat.guest_sha256)
    return tuple(peer for peer in beat.peers if (peer.policy_sha256, peer.guest_sha256) != own)


def write_node_file(state_dir: Path, content: NodeFile) -> None:
    """Replace the file in one step. Raises OSError when the folder can't be written."""
    with replacing(state_dir / FILE_NAME) as stream:
        os.fchmod(stream.fileno(), _MODE)  # whatever the umask says
        stream.write(msgspec.json.encode(content))


def read_node_file(state_dir: Path) -> NodeFile:
    """What the node last said; an empty value where it never did, or where the file can't be understood."""
    try:
        return msgspec.json.decode((state_dir / FILE_NAME).read_bytes(), type=NodeFile)
    except (OSError, *UNREADABLE_JSON):
        return NodeFile()


def last_place(state_dir: Path, hotkey: str, netuid: int) -> ChainFacts:
    """Uid, permit and stake as this hotkey's node saw them last, at whatever block; empty where it never did."""
    beat = read_node_file(state_dir).beat
    if beat is None or (beat.hotkey, beat.netuid) != (hotkey, netuid):
        return ChainFacts()
    seen = beat.chain
    return ChainFacts(uid=seen.uid, has_permit=seen.has_permit, stake_rao=seen.stake_rao)


def note_ending(state_dir: Path, failure: Failure | None, now_ms: int) -> None:
    """Keep how the node ended beside its last heartbeat. Raises OSError when the folder can't be written."""
    beat = read_node_file(state_dir).beat
    write_node_file(state_dir, NodeFile(beat=beat, ending=Ending(at_ms=now_ms, failure=failure)))
