"""The local twin of the chain: the same port, in one file, with an injected clock.

Blocks follow the clock and never step back; an accepted extrinsic is in the block under construction (`block()
+ 1`), so a read at a final block never changes; refusals are the chain's own (`not_registered`, `rate_limited`,
`failed` with a reason). Reads without a block see what is accepted so far. A write is one transaction, durable when it
returns: kill -9 at any instant leaves the file as it was before or after it. Deviations from the real chain:
registration is free, permits follow stake at once and not at the epoch, there are no emissions, and reorgs and late
finality come when a simulation writes them into the tables `reorg` and `finality`.

Every call is one question with one answer, asked of the file or, by a machine without it, over HTTP. An extrinsic is
signed by the hotkey over its question, so the chain checks it alike wherever it comes from.
"""

from __future__ import annotations

import abc
import asyncio
import hashlib
import http.client
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from arena.chain.keys import canonical_hotkey, verify
from arena.chain.port import (
    ChainResult,
    Commitment,
    Metagraph,
    Neuron,
    Renew,
    Signer,
    endpoint_refusal,
    hash_refusal,
    weights_refusal,
)
from foundation.canonical import canonical_bytes
from foundation.durable_files import coded
from foundation.errors import ArenaError, Failure

EXTRINSIC_DOMAIN = b"agent-arena/local-chain/1\n"
_HASH_DOMAIN = b"agent-arena/local-block/1\n"
_BUSY_TIMEOUT_S = 30.0
_OTHER_FOLDER = "give a --state-dir that this user may write to"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS chain (one INTEGER PRIMARY KEY CHECK (one = 1), rules TEXT NOT NULL,
    genesis_ms INTEGER NOT NULL, high_block INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS neuron (uid INTEGER NOT NULL, hotkey TEXT NOT NULL, coldkey TEXT NOT NULL,
    from_block INTEGER NOT NULL, until_block INTEGER);
CREATE TABLE IF NOT EXISTS stake (hotkey TEXT NOT NULL, block INTEGER NOT NULL, stake_rao INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS commitment (hotkey TEXT NOT NULL, block INTEGER NOT NULL, sha256 TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS endpoint (hotkey TEXT NOT NULL, block INTEGER NOT NULL, endpoint TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS weights (hotkey TEXT NOT NULL, block INTEGER NOT NULL, pairs TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS commitment_by_hotkey ON commitment (hotkey, block);
CREATE INDEX IF NOT EXISTS weights_by_hotkey ON weights (hotkey, block);
CREATE INDEX IF NOT EXISTS stake_by_hotkey ON stake (hotkey, block);
CREATE INDEX IF NOT EXISTS endpoint_by_hotkey ON endpoint (hotkey, block);
CREATE TABLE IF NOT EXISTS reorg (from_block INTEGER NOT NULL, to_block INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS finality (one INTEGER PRIMARY KEY CHECK (one = 1), lag INTEGER NOT NULL,
    floor INTEGER NOT NULL);
"""
_METAGRAPH = """
SELECT uid, hotkey, coldkey,
    coalesce((SELECT stake_rao FROM stake s WHERE s.hotkey = n.hotkey AND s.block <= :b ORDER BY s.rowid DESC LIMIT 1),
        0),
    coalesce((SELECT endpoint FROM endpoint e
        WHERE e.hotkey = n.hotkey AND e.block <= :b AND e.block >= n.from_block ORDER BY e.rowid DESC LIMIT 1), '')
FROM neuron n WHERE from_block <= :b AND (until_block IS NULL OR until_block > :b) ORDER BY uid
"""


class LocalRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a local chain is made with; fixed at creation and kept in its file. Blocks count from 1."""

    netuid: int = 15
    block_ms: int = 12_000
    finality_blocks: int = 2
    tempo: int = 360
    weights_rate_limit_blocks: int = 100
    commitment_rate_limit_blocks: int = 0  # 0: none
    permit_stake_rao: int = 1_000_000_000_000  # 1,000 TAO
    max_uids: int = 256


ROUTE = "/v1/local-chain"
QUESTION_BYTES_MAX, ANSWER_BYTES_MAX = 1 << 20, 16 << 20
TIMEOUT_S = 20.0
_AWAY = "U3030"
# What is signed of each extrinsic, by the fields of its question.
_SIGNED: dict[str, tuple[str, ...]] = {
    "register": (),
    "commit": ("sha256",),
    "publish": ("endpoint",),
    "set_weights": ("uids", "weights_u16"),
}
Call = Literal[
    "block", "finalized_block", "block_at", "head_ms", "block_hash", "metagraph", "commitment", "commitments",
    "commitment_place", "weights", "owner_hotkey", "register", "commit", "publish", "set_weights",
]  # fmt: skip
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
_Whole = Annotated[int, msgspec.Meta(gt=-(2**53), lt=2**53)]  # what is signed holds no larger one
_Answer = TypeVar("_Answer")
_Table = Literal["commitment", "endpoint", "weights"]


class ChainQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One call of the port with its arguments; what a call does not take is left out. `signature` is hex."""

    call: Call
    netuid: _Number
    block: _Number | None = None
    unix_ms: _Number = 0
    hotkey: str = ""
    hotkeys: tuple[str, ...] = ()
    sha256: str = ""
    endpoint: str = ""
    uids: tuple[_Whole, ...] = ()
    weights_u16: tuple[_Whole, ...] = ()
    signature: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{2})*$")] = ""


class ChainAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the port returned, or why it failed."""

    value: Any = None
    failure: Failure | None = None


def extrinsic_payload(asked: ChainQuestion) -> bytes:
    """The bytes that a hotkey signs for an extrinsic of the local chain."""
    arguments = {name.removesuffix("_u16"): getattr(asked, name) for name in _SIGNED[asked.call]}
    return EXTRINSIC_DOMAIN + canonical_bytes({"call": asked.call, "netuid": asked.netuid, "arguments": arguments})


class Twin(abc.ABC):
    """A `Subtensor` of questions, however they are asked."""

    netuid: int

    @abc.abstractmethod
    async def _ask(self, kind: type[_Answer], question: ChainQuestion) -> _Answer:
        """The chain's answer, as a value of `kind`. Raises the ArenaError that it answers with."""

    async def check(self, hotkey: str | None = None) -> None:
        """Ask whether it answers: the twin is of the release that serves it. Raises ArenaError U3030."""
        await self.block()

    async def block(self) -> int:
        """The latest sealed block."""
        return await self._read(int, "block")

    async def finalized_block(self) -> int:
        """The latest block that can't be taken back; 0 before there is one."""
        return await self._read(int, "finalized_block")

    async def block_at(self, unix_ms: int) -> int | None:
        """The last block not later than that moment, once a later one is final; 0: before the first block."""
        return await self._read(int | None, "block_at", unix_ms=unix_ms)  # type: ignore[arg-type]

    async def head_ms(self) -> int:
        """When the latest block was due."""
        return await self._read(int, "head_ms")

    async def block_hash(self, block: int) -> str:
        """The hash of a sealed block; a reorg changes it. Raises U3049 for a future block."""
        return await self._read(str, "block_hash", block=block)

    async def metagraph(self, block: int | None = None) -> Metagraph:
        """The subnet at a sealed block, or with everything accepted so far. Raises U3049 for a future block."""
        return await self._read(Metagraph, "metagraph", block=block)

    async def commitment(self, hotkey: str, block: int | None = None) -> Commitment | None:
        """The hotkey's latest commitment at a sealed block, or with everything accepted so far."""
        return await self._read(Commitment | None, "commitment", hotkey=hotkey, block=block)  # type: ignore[arg-type]

    async def commitments(self, hotkeys: Sequence[str], block: int) -> dict[str, Commitment]:
        """The commitments of several hotkeys at a sealed block, by hotkey as asked; without those that have none."""
        return await self._read(dict[str, Commitment], "commitments", hotkeys=tuple(hotkeys), block=block)

    async def commitment_place(self, hotkey: str, sha256: str, block: int) -> int:
        """Where a commitment stands among those of its block; behind all of them where it is not found."""
        return await self._read(int, "commitment_place", hotkey=hotkey, sha256=sha256, block=block)

    async def weights(self, hotkey: str) -> tuple[tuple[int, int], ...]:
        """(uid, u16) pairs last set by a validator, by uid; zeros are not kept."""
        return await self._read(tuple[tuple[int, int], ...], "weights", hotkey=hotkey)

    async def owner_hotkey(self) -> str | None:
        """The owner's hotkey; None for a chain that was made without one. Nobody else registers in block 1."""
        return await self._read(str | None, "owner_hotkey")  # type: ignore[arg-type]

    async def register(self, signer: Signer) -> ChainResult:
        """Register the hotkey on the lowest free uid. A registered hotkey is `ok` again, without a change."""
        return await self._send("register", signer)

    async def commit(self, signer: Signer, sha256: str) -> ChainResult:
        """Commit a hash. `failed` for a malformed sha256."""
        return await self._send("commit", signer, sha256=sha256)

    async def publish(self, signer: Signer, endpoint: str) -> ChainResult:
        """Say where the hotkey answers. `failed` for what is not `http://<ip>:<port>`."""
        return await self._send("publish", signer, endpoint=endpoint)

    async def set_weights(
        self, signer: Signer, uids: tuple[int, ...], weights_u16: tuple[int, ...], *, renew: Renew | None = None
    ) -> ChainResult:
        """Set a vector whose maximum is 65535. Refused: unknown uid, no permit, rate limit, malformed vector."""
        return await self._send("set_weights", signer, uids=uids, weights_u16=weights_u16)

    async def _read(self, kind: type[_Answer], call: Call, **asked: object) -> _Answer:
        return await self._ask(kind, msgspec.convert({"call": call, "netuid": self.netuid, **asked}, ChainQuestion))

    async def _send(self, call: Call, signer: Signer, **asked: object) -> ChainResult:
        named = {"call": call, "netuid": self.netuid, "hotkey": signer.hotkey, **asked}
        unsigned = msgspec.convert(named, ChainQuestion)
        signature = signer.sign(extrinsic_payload(unsigned)).hex()
        return await self._ask(ChainResult, msgspec.structs.replace(unsigned, signature=signature))


class LocalSubtensor(Twin):
    """A `Subtensor` over one SQLite file, shared by every process that opens it."""

    def __init__(
        self,
        path: Path,
        *,
        now_ms: Callable[[], int],
        netuid: int = 15,
        rules: LocalRules | None = None,
        owner: str = "",
    ) -> None:
        """Open the chain at `path`, or make it there.

        A new chain takes `rules`, or the defaults with `netuid`, and holds `owner`, where one is given, at uid 0 from
        its first block: nobody else can take the uid that burns. An existing one keeps what it was made with: raises
        ArenaError V2030 when `netuid` or `rules` say otherwise, V2027 when its folder and U3030 when its file can't be
        used. `now_ms` gives unix milliseconds.
        """
        self._now_ms, self._path = now_ms, path
        wanted = rules or LocalRules(netuid=netuid)
        self._create(wanted, canonical_hotkey(owner) or owner)
        with self._transaction(is_write=False) as db:
            text, self._genesis_ms = db.execute("SELECT rules, genesis_ms FROM chain").fetchone()
        self.rules = msgspec.json.decode(text, type=LocalRules)  # those this chain was made with
        if self.rules.netuid != wanted.netuid or rules not in (None, self.rules):
            raise ArenaError("V2030", f"the local chain at {path} was made with other rules: {self.rules}")
        self.netuid = self.rules.netuid

    def answer(self, asked: ChainQuestion) -> Any:
        """What the chain says. Raises ArenaError U3030, U3049, and V2030 for a question about another subnet."""
        if asked.netuid != self.netuid:
            raise ArenaError("V2030", f"netuid {asked.netuid}: this chain has netuid {self.netuid}")
        answer = getattr(self, f"_{asked.call}")
        with self._transaction(is_write=asked.call in _SIGNED) as db:
            if asked.call not in _SIGNED:
                return answer(db, asked)
            hotkey, block = canonical_hotkey(asked.hotkey) or asked.hotkey, self._next_block(db)
            if not verify(hotkey, extrinsic_payload(asked), bytes.fromhex(asked.signature)):
                return ChainResult(status="failed", block=block, detail="bad signature")
            return answer(db, asked, hotkey, block)

    async def _ask(self, kind: type[_Answer], question: ChainQuestion) -> _Answer:
        return cast(_Answer, await asyncio.to_thread(self.answer, question))

    # -- reads
    def _block(self, db: sqlite3.Connection, asked: ChainQuestion) -> int:
        return self._sealed(db)

    def _finalized_block(self, db: sqlite3.Connection, asked: ChainQuestion) -> int:
        return finalized_at(db, self._sealed(db), self.rules.finality_blocks)

    def _head_ms(self, db: sqlite3.Connection, asked: ChainQuestion) -> int:
        return int(self._genesis_ms + (self._sealed(db) - 1) * self.rules.block_ms)

    def _block_at(self, db: sqlite3.Connection, asked: ChainQuestion) -> int | None:
        block: int = 1 + (asked.unix_ms - self._genesis_ms) // self.rules.block_ms
        return max(0, block) if self._finalized_block(db, asked) > block else None

    def _block_hash(self, db: sqlite3.Connection, asked: ChainQuestion) -> str:
        at = self._at(db, asked.block)
        replaced = _value(db, "SELECT count(*) FROM reorg WHERE ? BETWEEN from_block AND to_block", at)
        return "0x" + hashlib.sha256(_HASH_DOMAIN + f"{self._genesis_ms}/{at}/{replaced}".encode()).hexdigest()

    def _metagraph(self, db: sqlite3.Connection, asked: ChainQuestion) -> Metagraph:
        return self._subnet(db, self._at(db, asked.block))

    def _commitment(self, db: sqlite3.Connection, asked: ChainQuestion) -> Commitment | None:
        return _latest_commitment(db, asked.hotkey, self._at(db, asked.block))

    def _commitments(self, db: sqlite3.Connection, asked: ChainQuestion) -> dict[str, Commitment]:
        at = self._at(db, asked.block)
        found = {hotkey: _latest_commitment(db, hotkey, at) for hotkey in asked.hotkeys}
        return {hotkey: commitment for hotkey, commitment in found.items() if commitment is not None}

    def _commitment_place(self, db: sqlite3.Connection, asked: ChainQuestion) -> int:
        query = "SELECT hotkey, sha256 FROM commitment WHERE block = ? ORDER BY rowid"
        wanted = (canonical_hotkey(asked.hotkey) or asked.hotkey, asked.sha256)
        return [*db.execute(query, (self._at(db, asked.block),)), wanted].index(wanted)

    def _weights(self, db: sqlite3.Connection, asked: ChainQuestion) -> tuple[tuple[int, int], ...]:
        last = "SELECT pairs FROM weights WHERE hotkey = ? ORDER BY rowid DESC LIMIT 1"
        pairs = _value(db, last, canonical_hotkey(asked.hotkey) or asked.hotkey)
        return () if pairs is None else msgspec.json.decode(pairs, type=tuple[tuple[int, int], ...])

    def _owner_hotkey(self, db: sqlite3.Connection, asked: ChainQuestion) -> str | None:
        return cast("str | None", _value(db, "SELECT hotkey FROM neuron WHERE uid = 0 AND from_block = 1"))

    # -- extrinsics
    def _register(self, db: sqlite3.Connection, asked: ChainQuestion, hotkey: str, block: int) -> ChainResult:
        if self._subnet(db, block).uid_of(hotkey) is not None:
            return ChainResult(status="ok", block=block, detail="already registered")
        taken = {row[0] for row in db.execute("SELECT uid FROM neuron WHERE until_block IS NULL")}
        uid = next((free for free in range(self.rules.max_uids) if free not in taken), None)
        if uid is None:
            return ChainResult(status="failed", block=block, detail="the subnet is full")
        db.execute("INSERT INTO neuron VALUES (?, ?, ?, ?, NULL)", (uid, hotkey, hotkey, block))
        return ChainResult(status="ok", block=block, detail=f"uid {uid}")

    def _commit(self, db: sqlite3.Connection, asked: ChainQuestion, hotkey: str, block: int) -> ChainResult:
        return self._keep(db, hotkey, block, "commitment", asked.sha256, hash_refusal(asked.sha256))

    def _publish(self, db: sqlite3.Connection, asked: ChainQuestion, hotkey: str, block: int) -> ChainResult:
        value, refusal = asked.endpoint.rstrip("/"), endpoint_refusal(asked.endpoint)
        return self._keep(db, hotkey, block, "endpoint", value, refusal)

    def _set_weights(self, db: sqlite3.Connection, asked: ChainQuestion, hotkey: str, block: int) -> ChainResult:
        uids, weights_u16 = asked.uids, asked.weights_u16
        refusal = weights_refusal(uids, weights_u16)
        neurons = {neuron.uid: neuron for neuron in self._subnet(db, block).neurons}
        own = next((neuron for neuron in neurons.values() if neuron.hotkey == hotkey), None)
        if refusal is None and own is not None:
            unknown = sorted(set(uids) - set(neurons))
            refusal = f"unknown uids {unknown[:5]}" if unknown else None
            refusal = refusal if own.has_validator_permit else "no validator permit"
        pairs = sorted((uid, weight) for uid, weight in zip(uids, weights_u16, strict=False) if weight)
        return self._keep(db, hotkey, block, "weights", msgspec.json.encode(pairs).decode(), refusal)

    # -- the twin's own control: what the demo decides in the network's place
    async def set_stake(self, hotkey: str, stake_rao: int) -> None:
        """Set the stake behind a hotkey; the validator permit follows it."""
        row = "INSERT INTO stake (hotkey, block, stake_rao) VALUES (?, ?, ?)"
        address = canonical_hotkey(hotkey) or hotkey
        await self.control(lambda db, block: db.execute(row, (address, block, stake_rao)))

    async def control(self, change: Callable[[sqlite3.Connection, int], object]) -> None:
        """Change the chain's file in the network's place, in the block under construction."""

        def run() -> None:
            with self._transaction(is_write=True) as db:
                change(db, self._next_block(db))

        await asyncio.to_thread(run)

    def _keep(
        self, db: sqlite3.Connection, hotkey: str, block: int, table: _Table, value: str, refusal: str | None
    ) -> ChainResult:
        """Add a registered hotkey's value to its history, unless it is refused or comes before the table's limit."""
        if refusal:
            return ChainResult(status="failed", block=block, detail=refusal)
        if self._subnet(db, block).uid_of(hotkey) is None:
            return ChainResult(status="not_registered", block=block)
        rules = self.rules
        limits = {"commitment": rules.commitment_rate_limit_blocks, "weights": rules.weights_rate_limit_blocks}
        last = _value(db, f"SELECT max(block) FROM {table} WHERE hotkey = ?", hotkey)
        wait = 0 if last is None else limits.get(table, 0) - (block - last)
        if wait > 0:
            return ChainResult(status="rate_limited", block=block, detail=f"{wait} blocks left")
        db.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", (hotkey, block, value))
        return ChainResult(status="ok", block=block)

    def _subnet(self, db: sqlite3.Connection, block: int) -> Metagraph:
        neurons = tuple(
            Neuron(
                uid=uid,
                hotkey=hotkey,
                coldkey=coldkey,
                has_validator_permit=stake_rao >= self.rules.permit_stake_rao,
                stake_rao=stake_rao,
                endpoint=endpoint,
            )
            for uid, hotkey, coldkey, stake_rao, endpoint in db.execute(_METAGRAPH, {"b": block})
        )
        return Metagraph(netuid=self.netuid, block=block, tempo=self.rules.tempo, neurons=neurons)

    # -- blocks and transactions
    @contextmanager
    def _transaction(self, *, is_write: bool) -> Iterator[sqlite3.Connection]:
        """One transaction, on whatever stands at the path now. Raises ArenaError U3030 where it can't be had."""
        try:
            with closing(sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE" if is_write else "BEGIN")
                yield connection
                connection.execute("COMMIT")  # an open transaction rolls back
        except sqlite3.Error as error:
            raise ArenaError("U3030", f"{self._path}: {error}") from error

    def _create(self, rules: LocalRules, owner: str) -> None:
        """Make the chain unless the file already holds one; `owner` holds uid 0 from block 1 on.

        Raises ArenaError V2027 for a folder that can't be had, U3030 for a file that can't be used.
        """
        folder = self._path.parent
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # the state folder
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise ArenaError("V2027", f"{folder} cannot be made ({error.strerror})", fix=_OTHER_FOLDER) from error
        if not os.access(folder, os.W_OK):
            raise ArenaError("V2027", f"{folder} cannot be written", fix=_OTHER_FOLDER)
        try:
            with closing(sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(_SCHEMA)
                text = msgspec.json.encode(rules).decode()
                connection.execute("BEGIN IMMEDIATE")
                made = connection.execute("INSERT OR IGNORE INTO chain VALUES (1, ?, ?, 1)", (text, self._now_ms()))
                if made.rowcount and owner:
                    connection.execute("INSERT INTO neuron VALUES (0, ?, ?, 1, NULL)", (owner, owner))
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise ArenaError("U3030", f"{self._path}: {error}") from error

    def _sealed(self, db: sqlite3.Connection) -> int:
        by_clock: int = 1 + max(0, self._now_ms() - self._genesis_ms) // self.rules.block_ms
        return max(by_clock, int(_value(db, "SELECT high_block FROM chain")))

    def _at(self, db: sqlite3.Connection, block: int | None) -> int:
        sealed = self._sealed(db)
        if block is None:
            return sealed + 1
        if not 0 <= block <= sealed:
            raise ArenaError("U3049", f"block {block} is not sealed; the chain is at {sealed}")
        return block

    def _next_block(self, db: sqlite3.Connection) -> int:
        """The block that a write stands in. The highest is remembered: a clock that steps back takes no block back."""
        sealed = self._sealed(db)
        db.execute("UPDATE chain SET high_block = ?", (sealed,))
        return sealed + 1


def finalized_at(db: sqlite3.Connection, sealed: int, usual_lag: int) -> int:
    """The latest final block while `sealed` is the head. It never steps back."""
    row = db.execute("SELECT lag, floor FROM finality").fetchone()
    lag, floor = (usual_lag, 0) if row is None else (int(row[0]), int(row[1]))
    return max(0, floor, sealed - lag)


def _value(db: sqlite3.Connection, query: str, *values: object) -> Any:
    """The one value of a query's first row; None where there is no row."""
    row = db.execute(query, values).fetchone()
    return None if row is None else row[0]


def _latest_commitment(db: sqlite3.Connection, hotkey: str, block: int) -> Commitment | None:
    """The hotkey's latest commitment at the end of `block`."""
    address = canonical_hotkey(hotkey) or hotkey
    query = "SELECT sha256, block FROM commitment WHERE hotkey = ? AND block <= ? ORDER BY rowid DESC LIMIT 1"
    row = db.execute(query, (address, block)).fetchone()
    return None if row is None else Commitment(hotkey=address, sha256=row[0], block=row[1])


class RemoteSubtensor(Twin):
    """A `Subtensor` that asks a `ChainServer`."""

    def __init__(self, url: str, *, netuid: int) -> None:
        """`url` is `http://host:port`. Raises ArenaError V2030 for another form."""
        parts = urlsplit(url)
        try:
            host, port = parts.hostname, parts.port or 80
        except ValueError as error:
            raise ArenaError("V2030", f"network {url}: {error}") from error
        if parts.scheme != "http" or host is None or parts.path.strip("/"):
            raise ArenaError("V2030", f"network {url} is not http://host:port")
        self._url, self._host, self._port, self.netuid = url, host, port, netuid

    async def _ask(self, kind: type[_Answer], question: ChainQuestion) -> _Answer:
        content = await asyncio.to_thread(self._post, msgspec.json.encode(question))
        with coded(f"{self._url}: no answer of a local chain", _AWAY):
            answer = msgspec.json.decode(content, type=ChainAnswer)
            if answer.failure is None:
                return msgspec.convert(answer.value, kind)
        raise ArenaError(answer.failure.code, answer.failure.detail)

    def _post(self, body: bytes) -> bytes:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            connection.request("POST", ROUTE, body, {"content-type": "application/json"})
            return connection.getresponse().read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise ArenaError(_AWAY, f"{self._url}: {str(error) or type(error).__name__}") from error
        finally:
            connection.close()
