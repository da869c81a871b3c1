"""The checkpoint loop: signs the state of this hotkey's log on a schedule, keeps it in the store and in files outside.

Before anything is appended the whole log is compared with what was signed of it, in the store and in the folders
outside. A log that was cut or rewritten ends the node (V2080, exit code 4). Two roots are never signed for one size;
of two notes with one root the store keeps the first. A store or folder that is away costs time, never a
checkpoint. A note in a folder, `<size>.txt`, appears whole or not at all, is readable by everybody and never changed.

The anchor loop puts the hash of the newest signed checkpoint on chain, and records in which block it stands.

The store learns of an anchor only after the block that holds it is finalized and the chain, asked at that
block, answers with it. Everything follows from the store and the chain, so a restart neither forgets an anchor that was
under way nor commits twice. A chain that is away or refuses costs an anchor and is asked again later, never sooner than
its own rate limit makes sense. The commitment is one slot per hotkey (arena/chain/README.md): while a race needs it, no
ordinary anchor is put there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from arena.chain.keys import verify
from arena.chain.port import Commitment
from arena.records.log import (
    Checkpoint,
    LogStart,
    LogWalk,
    committed_checkpoint,
    note_sha256,
    read_checkpoint,
    sign_checkpoint,
)
from arena.records.model import StoredCheckpoint
from arena.store.location import read_location
from arena.store.log_copy import read_events, write_copy
from foundation.backoff import Backoff, NextTry
from foundation.codes import HOTKEY_IN_USE
from foundation.durable_files import replacing
from foundation.errors import ArenaError, counted
from neurons.health.status import ANCHOR_EVERY_S, CHECKPOINT_EVERY_S
from neurons.loops.node import Node

FOLDER = "checkpoints"  # in the state folder
_PUBLIC_MODE = 0o644
_FIX_CUT = "restore a later backup, or start with the bodies_url that holds this log's copy; nothing is signed before"
_FIX_RESTORED = (
    "start with the bodies_url that holds the log's copy, or with its checkpoint_dir; if the validator has not run "
    "since the backup, restore that into a new folder with --not-run-since"
)
_SUFFIX = ".txt"


def last_size(folder: Path) -> int:
    """The size of the largest checkpoint in `folder`, 0 for none. Raises OSError when it can't be listed."""
    return max((int(path.stem) for path in folder.glob(f"*{_SUFFIX}") if path.stem.isdecimal()), default=0)


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
        self._looked_ms = 0
        self._signing = asyncio.Lock()
        self._copied: dict[str, int] = {}  # events of each race that are in the log's copy
        self._behind = len(self._folders)  # folders that may lack the last checkpoint

    async def open(self, notes: Iterable[str] = ()) -> None:
        """Read the log and compare it with what was signed of it, also with these `notes`, which others hold. To be
        called before any work is claimed.

        Raises ArenaError V2080 when they differ, or where nothing says how a restored one ended, V2050 when the last
        note in the store is not one this hotkey signed, V2021 when the store is away.
        """
        known = [*await asyncio.to_thread(self._published), *(read_checkpoint(note, verify) for note in notes)]
        await self._catch_up(known)
        store, hotkey, location = self._node.store, self._node.signer.hotkey, read_location(self._node.state_dir)
        is_restored = location is not None and location.is_restored and not known
        if is_restored and not (store.objects and await store.objects.log_parts(hotkey, 0)):
            lost = f"the log was restored up to record {self._walk.seq}, and nothing shows what was signed after it"
            raise ArenaError("V2080", lost, fix=_FIX_RESTORED)
        records, signed = self._walk.seq, len(await store.checkpoints())
        text = f"the log has {counted(records, 'record')} and stands behind {counted(signed, 'checkpoint')}"
        text = text if records else "a new log"
        self._node.log.info("log stands", records=records, checkpoints=signed, text=text)

    async def turn(self) -> StoredCheckpoint | None:
        """Sign a checkpoint if one is due, and put files where they are missing; the checkpoint, or None."""
        now_ms = self._node.now_ms()
        since_ms = max(self._last.signed_ms if self._last else 0, self._looked_ms)
        made = None
        if now_ms - since_ms >= self._every_ms:
            made = await self.sign()
            self._looked_ms = now_ms if self._walk.seq else 0  # an empty log is looked at every turn
        await self._publish()
        return made

    async def close(self) -> None:
        """Sign what was appended since the last checkpoint, at the end of the node. Raises as `sign`."""
        await self.sign()
        await self._publish()

    async def sign(self) -> StoredCheckpoint | None:
        """Sign and store a checkpoint of the log as it is; None when nothing was appended since the last one.

        Raises ArenaError V2080 when the log is not the one that was signed before, V2021 when the store is away.
        """
        node, hotkey = self._node, self._node.signer.hotkey
        async with self._signing:
            before, events = self._last, await read_events(node.store, self._copied)
            await self._catch_up()
            if self._walk.seq == (self._last.size if self._last else 0):
                return self._last if self._last != before else None
            note = sign_checkpoint(self._walk.checkpoint, node.signer)
            made = StoredCheckpoint(validator=hotkey, size=self._walk.seq, note=note, signed_ms=node.now_ms())
            await write_copy(node.store, made, self._last.size if self._last else 0, events)
            self._copied |= {each.stream: each.index + 1 for each in events}
            await node.store.put_checkpoint(made)
            self._note_last(made)
            text = f"the log is signed up to record {made.size:,}"
            node.log.info("checkpoint", size=made.size, root=self._walk.checkpoint.root[:16], text=text)
            return made

    async def newest(self) -> StoredCheckpoint | None:
        """A checkpoint of the log as it is, signed now where records were appended since the last; None for an empty
        log. Raises as `sign`."""
        return await self.sign() or self._last

    async def _catch_up(self, known: Sequence[Checkpoint] = ()) -> None:
        """Take in what was appended since, and compare it with what was signed: the store's newest checkpoint, which
        may be one that was sent without an answer, and those `known`."""
        store, roots, walk = self._node.store, dict[int, str](), self._walk
        stored = await store.checkpoints(after_size=self._last.size if self._last else 0)
        for checkpoint in (*known, *(read_checkpoint(one.note, verify) for one in stored[-1:])):
            if roots.setdefault(checkpoint.size, checkpoint.root) != checkpoint.root:
                raise ArenaError("V2080", f"two roots were signed for {checkpoint.size} records")
        end, signed = await store.head(), max([walk.seq, *roots])
        if end.seq < signed:
            detail = f"the log ends at record {end.seq}; records {end.seq + 1} to {signed} were signed and are missing"
            raise ArenaError("V2080", detail, fix=_FIX_CUT)
        self._require_root(roots)
        async for leaf in store.leaves(self._node.signer.hotkey, after_seq=walk.seq, to_seq=end.seq):
            if wrong := walk.misplaced(leaf):
                raise ArenaError("V2080", f"record {leaf.seq}: {wrong[1]}")
            walk.take(leaf)
            self._require_root(roots)
        if walk.head != end:
            raise ArenaError("V2080", f"the records end at {walk.seq}, which is not the head at {end.seq}")
        if stored:
            self._note_last(stored[-1])

    def _require_root(self, roots: Mapping[int, str]) -> None:
        size = self._walk.seq
        if size in roots and roots[size] != self._walk.checkpoint.root:
            raise ArenaError("V2080", f"the first {size} records do not have the root {roots[size]}")

    def _published(self) -> list[Checkpoint]:
        """The last checkpoint in each folder. Files that can't be read, or are not ours, prove nothing and are said."""
        found = []
        for folder in self._folders:
            try:
                if size := last_size(folder):
                    note = (folder / f"{size}{_SUFFIX}").read_text(encoding="utf-8", errors="replace")
                    found.append(read_checkpoint(note, verify))
            except (OSError, ArenaError) as error:
                self._node.log.warning("checkpoint file proves nothing", folder=str(folder), reason=str(error))
        return [each for each in found if each.validator == self._node.signer.hotkey]

    async def _publish(self) -> None:
        """Bring every folder up to the last checkpoint. One that can't be written is said, and tried again."""
        last, behind = self._last, 0
        if last is None or not self._behind:
            return
        for folder in self._folders:
            try:
                size = await asyncio.to_thread(last_size, folder)
                await asyncio.to_thread(write_all, folder, await self._node.store.checkpoints(after_size=size))
            except OSError as error:
                behind += 1
                self._node.log.warning("checkpoint not written", folder=str(folder), reason=str(error))
        if self._last is last:  # else one was signed meanwhile
            self._behind = behind
        self._node.metrics.checkpoint_folders_behind.set(behind)

    def _note_last(self, last: StoredCheckpoint) -> None:
        self._last, self._behind = last, len(self._folders)
        self._node.metrics.checkpoint_size.set(last.size)
        self._node.metrics.checkpoint_ms.set(last.signed_ms)


PAUSES = Backoff(first_ms=60_000, most_ms=1_200_000)  # up to a hundred blocks of the real chain, its limit


class AnchorLoop:
    """Anchors one node's checkpoints."""

    name, every_s = "anchors", 6.0

    def __init__(self, node: Node, *, is_quiet: Callable[[int], bool] = lambda _: False) -> None:
        """`is_quiet` says of a moment (unix ms) whether the slot belongs to a race: nothing is committed then."""
        self._is_quiet = is_quiet
        self._node = node
        self._anchored: StoredCheckpoint | None = None
        self._committed_block = 0  # of the last anchor of this process
        self._retry = NextTry()

    async def turn(self) -> StoredCheckpoint | None:
        """Take the anchor one step further; the checkpoint once its anchor is final, else None."""
        node = self._node
        found = await node.store.checkpoints(after_size=self._anchored.size if self._anchored else 0)
        for checkpoint in found:
            if checkpoint.anchor_block:
                self._keep(checkpoint)
        waiting = [each for each in found if each.size > (self._anchored.size if self._anchored else 0)]
        if not waiting:
            return None
        final = await node.chain.commitment(node.signer.hotkey, await node.chain.finalized_block())
        anchored = committed_checkpoint(waiting, final)
        if anchored is None or final is None:
            held = await node.chain.commitment(node.signer.hotkey)
            await self._require_own(held)
            if committed_checkpoint(waiting, held) is None:
                await self._commit_if_due(waiting[-1])
            return None
        await node.store.put_anchor(anchored.size, note_sha256(anchored.note), final.block)
        self._keep(anchored)
        text = f"the log up to record {anchored.size:,} is anchored on chain: block {final.block} is final"
        node.log.info("checkpoint anchored", size=anchored.size, block=final.block, text=text)
        return anchored

    async def _require_own(self, held: Commitment | None) -> None:
        """Raises ArenaError V2024 where another process has committed for this hotkey since we did: a validator over
        another log, or a miner. What stood there before is no sign of one."""
        node = self._node
        if held is None or not 0 < self._committed_block < held.block or held.sha256 in node.committed:
            return
        if any(note_sha256(each.note) == held.sha256 for each in await node.store.checkpoints()):
            return  # of the process before
        detail = f"{held.sha256[:16]} was committed for {held.hotkey} in block {held.block}, and not by this node"
        raise ArenaError(
            HOTKEY_IN_USE, detail, fix="stop the other validator or miner of this hotkey, then start again"
        )

    async def _commit_if_due(self, newest: StoredCheckpoint) -> None:
        node, now_ms = self._node, self._node.now_ms()
        since_ms = newest.signed_ms - (self._anchored.signed_ms if self._anchored else 0)
        if since_ms < ANCHOR_EVERY_S * 1_000 or now_ms < self._retry.not_before_ms or self._is_quiet(now_ms):
            return
        self._retry = PAUSES.after(self._retry, now_ms)  # also when no answer comes: it may stand on chain all the same
        node.committed.add(note_sha256(newest.note))
        result = await node.chain.commit(node.signer, note_sha256(newest.note))
        facts = {"size": newest.size, "status": result.status, "detail": result.detail}
        if result.status == "ok":
            self._committed_block = result.block
            text = f"the log up to record {newest.size:,} is committed on chain in block {result.block}"
            node.log.info("checkpoint committed", **facts, text=text)
        else:
            node.log.warning("checkpoint not committed", **facts, seconds=self._retry.pause_ms // 1_000)

    def _keep(self, checkpoint: StoredCheckpoint) -> None:
        self._anchored = checkpoint
        self._retry = NextTry()
        self._node.metrics.anchor_size.set(checkpoint.size)
        self._node.metrics.anchor_ms.set(checkpoint.signed_ms)
