"""The partition manifest: which leak cluster serves which pool, frozen, and unreadable without its key.

A `PartitionManifest` that exists is disjoint: no answer class, no problem and no cluster is in two rows, so
none is in two pools. One that breaks this cannot be made, decoded or replaced into being: it raises P4021. Clusters,
answers, problem ids and queries are in it as keyed tokens only, since a plain hash of a public catalogue is guessed in
seconds; a token can be opened alone, at the release of its problem, without opening another.

Applying the changes that lead from one manifest to another gives that other one byte for byte, or P4021: whoever keeps
one whole manifest and the changes after it keeps every manifest in between. A change grows with what entered, not with
the bank.

One value has one byte string: rows and tokens are sorted, so the hash does not depend on the order of the problems. It
is signed by the bank that ships it (`arena.bank`), not here.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from foundation.canonical import canonical_bytes, content_hash
from foundation.errors import ArenaError
from problems.model import POOLS, Pool

FORMAT = 1
KEY_BYTES = 32
RULES = "title-key/1"  # how answers are named; another rule is another manifest
_TOKEN = re.compile(r"[0-9a-f]{64}")
_SEED_END = 2**53
_HELD = ("answers", "problems", "queries")  # tokens that a frozen row keeps


class PoolRow(msgspec.Struct, frozen=True, kw_only=True):
    """One frozen cluster. All fields but the pool are tokens (64 hex digits), each list sorted."""

    cluster: str
    pool: Pool
    answers: tuple[str, ...]  # every mark of its problems' answers (`problems.pools.clusters.answer_marks`)
    problems: tuple[str, ...]
    queries: tuple[str, ...] = ()  # the content words of its problems' queries
    absorbed: tuple[str, ...] = ()  # clusters of the same pool that a later problem joined to this one


class PartitionManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The pools of a bank, public form. Raises ArenaError P4021 when it is not disjoint, sorted and well formed."""

    format: int = FORMAT
    rules: str = RULES
    serial: int  # 1 when frozen, one more for each extension
    previous_sha256: str = ""
    seed: int  # of the draw; without the key it says nothing
    key_commitment: str
    headline: tuple[str, ...]  # the evaluation set itself: later problems of its clusters are `eval`, but not in it
    rows: tuple[PoolRow, ...]

    def __post_init__(self) -> None:
        """Refuse what is not sound."""
        if (self.format, self.rules) != (FORMAT, RULES):
            raise ArenaError("P4021", f"format: {self.format} {self.rules} is not {FORMAT} {RULES}")
        if self.serial < 1 or not 0 <= self.seed < _SEED_END or (self.serial == 1) != (self.previous_sha256 == ""):
            raise ArenaError("P4021", "serial, seed or previous_sha256: out of range")
        rows = self.rows
        token_lists = [(row.cluster,) for row in rows]
        for field in ("answers", "problems", "queries", "absorbed"):
            token_lists += [getattr(row, field) for row in rows]
        tokens = itertools.chain(*token_lists, self.headline, (self.key_commitment,))
        if any(_TOKEN.fullmatch(token) is None for token in tokens):
            raise ArenaError("P4021", "token: 64 lower-case hex digits are expected")
        sorted_lists = [*token_lists, self.headline, [row.cluster for row in rows]]
        if not all(left < right for tokens in sorted_lists for left, right in itertools.pairwise(tokens)):
            raise ArenaError("P4021", "rows: not in ascending order, or one token stands twice")
        if not all(row.answers and row.problems for row in rows):
            raise ArenaError("P4021", "rows: a cluster without answers or problems")
        for name, lists in (
            ("answer", (row.answers for row in rows)),
            ("problem", (row.problems for row in rows)),
            ("cluster", ((row.cluster, *row.absorbed) for row in rows)),
        ):
            repeated = (token for token, times in Counter(itertools.chain.from_iterable(lists)).items() if times > 1)
            if (twice := next(repeated, None)) is not None:
                raise ArenaError("P4021", f"{name}: {twice[:12]}… stands in two rows")
        evaluated = {token for row in rows if row.pool == "eval" for token in row.problems}
        if not evaluated.issuperset(self.headline):
            raise ArenaError("P4021", "headline: holds a problem that is not in the pool eval")

    @property
    def sha256(self) -> str:
        """The content hash (hex) by which records and batches name this manifest."""
        return content_hash(self)

    @property
    def problem_counts(self) -> dict[Pool, int]:
        """How many problems each pool has."""
        counts: Counter[Pool] = Counter()
        for row in self.rows:
            counts[row.pool] += len(row.problems)
        return {pool: counts[pool] for pool in POOLS}


class ManifestChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step from a manifest to its successor; what is not named here stays as it was."""

    previous_sha256: str
    sha256: str  # of the manifest it leads to
    serial: int
    rows: tuple[PoolRow, ...]  # new, or changed, by cluster
    gone: tuple[str, ...]  # clusters that another row absorbed


def token_of(key: bytes, mark: str) -> str:
    """The token (hex) of a text under the manifest's key: an HMAC under a key of its own, derived from both."""
    text = mark.encode(errors="surrogatepass")
    own_key = hmac.digest(key, b"agent-arena/partition-opening/1\n" + text, "sha256")
    return hmac.digest(own_key, text, "sha256").hex()


def commitment_of(key: bytes) -> str:
    """What the manifest says of its key. Raises ValueError for a key that has not 32 bytes."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a partition key has {KEY_BYTES} bytes, not {len(key)}")
    return hashlib.sha256(b"agent-arena/partition-key/1\n" + key).hexdigest()


def change_between(older: PartitionManifest, newer: PartitionManifest) -> ManifestChange:
    """The change from a manifest to its direct successor.

    Raises ArenaError P4021 when `newer` is no such one, or something frozen moved (`apply_changes`).
    """
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
    """The manifest that the changes, oldest first, lead to; needs no key.

    Raises ArenaError P4021 when they lead to no sound one, to another than the last of them names, or when a change
    moves a frozen cluster to another pool or takes something from it.
    """
    rows = {row.cluster: row for row in older.rows}
    sha256 = older.sha256
    for change in changes:
        if change.previous_sha256 != sha256:
            raise ArenaError("P4021", f"{change.serial} does not follow {sha256[:12]}…")
        now = {token: row for row in change.rows for token in (row.cluster, *row.absorbed)}
        for name in rows.keys() & {*change.gone, *now}:
            before, after = rows[name], now.get(name)
            if (
                after is None
                or after.pool != before.pool
                or not {after.cluster, *after.absorbed}.issuperset(before.absorbed)
                or any(set(getattr(before, held)).difference(getattr(after, held)) for held in _HELD)
            ):
                raise ArenaError("P4021", f"cluster {name[:12]}… changed its pool or lost something")
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


def manifest_bytes(manifest: PartitionManifest) -> bytes:
    """The canonical JSON that is hashed, signed and stored."""
    return canonical_bytes(manifest)
