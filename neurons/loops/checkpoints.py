"""The checkpoint loop: signs the state of this hotkey's log on a schedule, keeps it in the store and in files outside.

Before anything is appended the whole log is compared with what was signed of it, in the store and in the folders
outside. A log that was cut or rewritten ends the node (V2080, exit code 4). Two roots are never signed for one size;
of two notes with one root the store keeps the first. A store or folder that is away costs time, never a
checkpoint. A note in a folder, `<size>.txt`, appears whole or not at all, is readable by everybody and never changed.

The anchor loop puts the hash of the newest signed checkpoint on chain, and records in which block it stands.

The store is told of an anchor only after the block that holds it is finalized and the chain, asked at that
block, answers with it. Everything follows from the store and the chain, so a restart neither forgets an anchor that was
under way nor commits twice. A chain that is away or refuses costs an anchor and is asked again later, never sooner than
its own rate limit makes sense. The commitment is one slot per hotkey (arena/chain/README.md): while a race needs it, no
ordinary anchor is put there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from arena.chain.keys import verify
from arena.records.log import (
    Checkpoint,
    LogStart,
    LogWalk,
    checkpoint_of,
    committed_checkpoint,
    note_sha256,
    read_checkpoint,
    sign_checkpoint,
)
from arena.records.model import StoredCheckpoint
from foundation.backoff import Backoff, NextTry
from foundation.codes.names import STORE_REFUSED
from foundation.durable_files import replacing
from foundation.errors import ArenaError
from neurons.health.status import ANCHOR_EVERY_S, CHECKPOINT_EVERY_S
from neurons.loops.node import Node

FOLDER = "checkpoints"  # in the state folder
_PUBLIC_MODE = 0o644
_SUFFIX = ".txt"


def last_size(folder: Path) -> int:
    """The size of the largest checkpoint in `folder`, 0 for none. Raises OSError when it can't be listed."""
    if not folder.is_dir():
        return 0
    return max((int(path.stem) for path in folder.glob(f"*{_SUFFIX}") if path.stem.isdecimal()), default=0)


def read_last(folder: Path) -> str:
    """The note of the largest checkpoint in `folder`, "" for none. Raises OSError when it can't be read."""
    size = last_size(folder)
    return (folder / f"{size}{_SUFFIX}").read_text(encoding="utf-8", errors="replace") if size else ""


def write_all(folder: Path, checkpoints: Iterable[StoredCheckpoint]) -> None:
    """Write the notes that are not there yet. Raises OSError when the folder can't be written."""
    folder.mkdir(parents=True, exist_ok=True)
    for checkpoint in checkpoints:
        path = folder / f"{checkpoint.size}{_SUFFIX}"
        if not path.exists():
            with replacing(path) as stream:
                os.fchmod(stream.fileno(), _PUBLIC_MODE)  # whatever the umask says
                stream.write(checkpoint.note.encode())


class CheckpointLoop:
    """Signs checkpoints of one node's log."""

    name, every_s = "checkpoints", 1.0

    def __init__(self, node: Node, outside: Path | None = None, *, every_s: int = CHECKPOINT_EVERY_S) -> None:
        """`outside`: a second folder for the notes, with one folder in it for each validator."""
        self._node = node
        self._every_ms = every_s * 1_000
        folders = (outside / node.signer.hotkey,) if outside else ()
        self._folders = (node.state_dir / FOLDER, *folders)
        self._walk = LogWalk(LogStart(validator=node.signer.hotkey))
        self._last: StoredCheckpoint | None = None
        self._looked_ms: int | None = None
        self._is_open = False
        self._signing = asyncio.Lock()
        self._written: dict[Path, int] = {}  # the last checkpoint that is in each folder

    async def open(self) -> None:
        """Read the log and compare it with what was signed of it. To be called before any work is claimed.

        Raises ArenaError V2080 when they differ, V2050 when the last note in the store is not one this hotkey signed,
        V2021 when the store is away.
        """
        stored = await self._node.store.checkpoints()
        self._last = stored[-1] if stored else None
        known = [read_checkpoint(self._last.note, verify)] if self._last else []
        known += await asyncio.to_thread(self._published)
        await self._catch_up(known)
        self._is_open = True
        self._show()
        records, signed = self._walk.seq, len(stored)
        text = (
            f"the log has {records:,} records and stands behind its {signed:,} checkpoints" if records else "a new log"
        )
        self._node.log.info("log stands", records=records, checkpoints=signed, text=text)

    async def turn(self) -> StoredCheckpoint | None:
        """Sign a checkpoint if one is due, and put files where they are missing; the checkpoint, or None."""
        now_ms = self._node.now_ms()
        since_ms = max(self._last.signed_ms if self._last else 0, self._looked_ms or 0)
        made = None
        if now_ms - since_ms >= self._every_ms:
            made = await self.sign()
            self._looked_ms = now_ms if made or self._walk.seq else None  # an empty log is looked at every turn
        await self._publish()
        return made

    async def close(self) -> None:
        """Sign what was appended since the last checkpoint, at the end of the node. Raises as `sign`."""
        if self._is_open:
            await self.sign()
            await self._publish()

    async def sign(self) -> StoredCheckpoint | None:
        """Sign and store a checkpoint of the log as it is; None when nothing was appended since the last one.

        Raises ArenaError V2080 when the log is not the one that was signed before, V2021 when the store is away.
        """
        node = self._node
        async with self._signing:
            await self._catch_up()
            size, hotkey = self._walk.seq, node.signer.hotkey
            if size == (self._last.size if self._last else 0):
                return None
            note = sign_checkpoint(checkpoint_of(hotkey, self._walk.tree), node.signer)
            signed = StoredCheckpoint(validator=hotkey, size=size, note=note, signed_ms=node.now_ms())
            self._last = made = await self._put(signed)
            self._show()
            root, text = read_checkpoint(made.note, verify).root[:16], f"the log is signed up to record {made.size:,}"
            node.log.info("checkpoint", size=made.size, root=root, text=text)
            return made

    async def newest(self) -> StoredCheckpoint | None:
        """A checkpoint of the log as it is, signed now where records were appended since the last; None for an empty
        log. Raises as `sign`."""
        return await self.sign() or self._last

    async def _put(self, checkpoint: StoredCheckpoint) -> StoredCheckpoint:
        """Store it; where a note of the same size and root was sent before without an answer, that one stands."""
        try:
            await self._node.store.put_checkpoint(checkpoint)
        except ArenaError as error:
            if error.failure.code != STORE_REFUSED:
                raise
            mine = read_checkpoint(checkpoint.note, verify)
            for other in await self._node.store.checkpoints(after_size=checkpoint.size - 1):
                if other.size == checkpoint.size and (theirs := read_checkpoint(other.note, verify)) != mine:
                    detail = f"two roots of {mine.size} records: {mine.root}, {theirs.root}"
                    raise ArenaError("V2080", detail) from error
                if other.size == checkpoint.size:
                    return other
            raise
        return checkpoint

    async def _catch_up(self, known: list[Checkpoint] | None = None) -> None:
        """Take in what was appended since, and compare with checkpoints of sizes passed on the way."""
        node = self._node
        roots: dict[int, str] = {}
        for checkpoint in known or ():
            if roots.setdefault(checkpoint.size, checkpoint.root) != checkpoint.root:
                raise ArenaError("V2080", f"two roots were signed for {checkpoint.size} records")
        end = await node.store.head()
        if end.seq < max([self._walk.seq, *roots]):
            signed = max([self._walk.seq, *roots])
            raise ArenaError("V2080", f"the log ends at record {end.seq}; record {signed} was there: its tail was cut")
        async for leaf in node.store.leaves(node.signer.hotkey, after_seq=self._walk.seq, to_seq=end.seq):
            if wrong := self._walk.misplaced(leaf):
                raise ArenaError("V2080", f"record {leaf.seq}: {wrong[1]}")
            self._walk.take(leaf)
            if leaf.seq in roots and roots[leaf.seq] != self._walk.root:
                raise ArenaError("V2080", f"the first {leaf.seq} records do not have the root {roots[leaf.seq]}")
        if self._walk.head != end:
            raise ArenaError("V2080", f"the records end at {self._walk.seq}, which is not the head at {end.seq}")

    def _published(self) -> list[Checkpoint]:
        """The last checkpoint in each folder. Files that can't be read, or are not ours, prove nothing and are said."""
        found = []
        for folder in self._folders:
            try:
                note = read_last(folder)
                checkpoint = read_checkpoint(note, verify) if note else None
            except (OSError, ArenaError) as error:
                self._node.log.warning("checkpoint file is no evidence", folder=str(folder), reason=str(error))
                continue
            if checkpoint and checkpoint.validator == self._node.signer.hotkey:
                found.append(checkpoint)
        return found

    async def _publish(self) -> None:
        """Bring every folder up to the last checkpoint. One that can't be written is said, and tried again."""
        if self._last is None:
            return
        behind = 0
        for folder in self._folders:
            try:
                if self._written.get(folder) == self._last.size:
                    continue
                size = await asyncio.to_thread(last_size, folder)
                missing = await self._node.store.checkpoints(after_size=size)
                await asyncio.to_thread(write_all, folder, missing)
                self._written[folder] = self._last.size
            except OSError as error:
                behind += 1
                self._node.log.warning("checkpoint not written", folder=str(folder), reason=str(error))
        self._node.metrics.checkpoint_folders_behind.set(behind)

    def _show(self) -> None:
        if self._last:
            self._node.metrics.checkpoint_size.set(self._last.size)
            self._node.metrics.checkpoint_ms.set(self._last.signed_ms)


PAUSES = Backoff(first_ms=60_000, most_ms=1_200_000)  # up to a hundred blocks of the real chain, its limit


class AnchorLoop:
    """Anchors one node's checkpoints."""

    name, every_s = "anchors", 6.0

    def __init__(
        self, node: Node, *, every_s: int = ANCHOR_EVERY_S, is_quiet: Callable[[int], bool] = lambda _: False
    ) -> None:
        """`is_quiet` says of a moment (unix ms) whether the slot belongs to a race: nothing is committed then."""
        self._is_quiet = is_quiet
        self._node = node
        self._every_ms = every_s * 1_000
        self._anchored: StoredCheckpoint | None = None
        self._retry = NextTry()

    async def turn(self) -> StoredCheckpoint | None:
        """Take the anchor one step further; the checkpoint once its anchor is final, else None."""
        node = self._node
        found = await node.store.checkpoints(after_size=self._anchored.size if self._anchored else 0)
        for checkpoint in found:
            if checkpoint.anchor_block:
                self._keep(checkpoint, checkpoint.anchor_block)
        waiting = [each for each in found if each.size > (self._anchored.size if self._anchored else 0)]
        if not waiting:
            return None
        held = await node.chain.commitment(node.signer.hotkey)
        committed = committed_checkpoint(waiting, held)
        if committed is None or held is None:
            await self._commit_if_due(waiting[-1])
            return None
        if await node.chain.finalized_block() < held.block:
            return None
        final = await node.chain.commitment(node.signer.hotkey, held.block)
        if committed_checkpoint([committed], final) is None or final is None:
            return None  # that block is not the one it was: the next turn sees where it stands now
        await node.store.put_anchor(committed.size, note_sha256(committed.note), final.block)
        self._keep(committed, final.block)
        text = f"the log up to record {committed.size:,} is anchored on chain: block {final.block} is final"
        node.log.info("checkpoint anchored", size=committed.size, block=final.block, text=text)
        return committed

    async def _commit_if_due(self, newest: StoredCheckpoint) -> None:
        node, now_ms = self._node, self._node.now_ms()
        since_ms = newest.signed_ms - (self._anchored.signed_ms if self._anchored else 0)
        if since_ms < self._every_ms or now_ms < self._retry.not_before_ms or self._is_quiet(now_ms):
            return
        self._retry = PAUSES.after(self._retry, now_ms)  # also when no answer comes: it may stand on chain all the same
        result = await node.chain.commit(node.signer, note_sha256(newest.note))
        if result.status == "ok":
            text = f"the log up to record {newest.size:,} is committed on chain in block {result.block}"
            node.log.info("checkpoint committed", size=newest.size, block=result.block, text=text)
            return
        node.log.warning(
            "checkpoint not committed",
            size=newest.size,
            status=result.status,
            detail=result.detail,
            seconds=self._retry.pause_ms // 1_000,
        )

    def _keep(self, checkpoint: StoredCheckpoint, block: int) -> None:
        self._anchored = checkpoint
        self._retry = NextTry()
        self._node.metrics.anchor_size.set(checkpoint.size)
        self._node.metrics.anchor_block.set(block)
        self._node.metrics.anchor_ms.set(checkpoint.signed_ms)
