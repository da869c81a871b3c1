"""Manifest changes: what a partition manifest says that the one before it did not.

Promise: applying the changes that lead from one manifest to another gives that other one byte for byte, or P4021; so
whoever keeps one whole manifest and the changes after it keeps every manifest in between. A change holds keyed tokens
only, as manifests do. It grows with what entered, not with the bank. Pure; who signed what is told in `arena.bank`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from foundation.errors import ArenaError
from problems.pools.manifest import PartitionManifest, PoolRow


class ManifestChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step from a manifest to its successor; what is not named here stays as it was."""

    previous_sha256: str
    sha256: str  # of the manifest it leads to
    serial: int
    rows: tuple[PoolRow, ...]  # new, or changed, by cluster
    gone: tuple[str, ...]  # clusters that another row absorbed


def change_between(older: PartitionManifest, newer: PartitionManifest) -> ManifestChange:
    """The change from a manifest to its direct successor. Raises ArenaError P4021 when `newer` is no such one."""
    before = {row.cluster: row for row in older.rows}
    after = {row.cluster for row in newer.rows}
    change = ManifestChange(
        previous_sha256=newer.previous_sha256,
        sha256=newer.sha256,
        serial=newer.serial,
        rows=tuple(row for row in newer.rows if before.get(row.cluster) != row),
        gone=tuple(sorted(before.keys() - after)),
    )
    if apply_changes(older, (change,)) != newer:
        raise ArenaError("P4021", f"{newer.serial} does not follow {older.serial}")
    return change


def apply_changes(older: PartitionManifest, changes: Sequence[ManifestChange]) -> PartitionManifest:
    """The manifest that the changes, oldest first, lead to. Raises ArenaError P4021 when they lead to no sound one, or
    to another than the last of them names."""
    rows = {row.cluster: row for row in older.rows}
    sha256 = older.sha256
    for change in changes:
        if change.previous_sha256 != sha256:
            raise ArenaError("P4021", f"{change.serial} does not follow {sha256[:12]}…")
        for name in change.gone:
            rows.pop(name, None)
        rows.update((row.cluster, row) for row in change.rows)
        sha256 = change.sha256
    if not changes:
        return older
    ordered = tuple(rows[name] for name in sorted(rows))
    last = changes[-1]
    made = msgspec.structs.replace(older, serial=last.serial, previous_sha256=last.previous_sha256, rows=ordered)
    if made.sha256 != last.sha256:
        raise ArenaError("P4021", f"the changes lead to {made.sha256[:12]}…, not to {last.sha256[:12]}…")
    return made
