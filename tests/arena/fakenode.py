"""A Substrate node for tests: a real websocket and real runtime metadata over storage kept in memory, block by block.

It decodes every extrinsic with the runtime's own types, checks its signature, applies the few calls this software
makes with the chain's own errors, and answers reads at any past block that it has not pruned. It has no consensus and
emits nothing. A test can make it reorganise, stand still, prune, or hang up in the middle of a call.
"""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import bittensor_core
import websockets
from bittensor._transport.codec import RuntimeCodec

TRANSACTION_VERSION = 1
GENESIS = "0x" + "11" * 32
FIRST_NONCE = 7
STALE = {"code": 1010, "message": "Invalid Transaction", "data": "Transaction is outdated"}
FUTURE = {"code": 1010, "message": "Invalid Transaction", "data": "Transaction will be valid in the future"}
BAD_PROOF = "Transaction has a bad signature"
_INFO = {"weight": {"ref_time": 1, "proof_size": 1}, "class": "Normal", "pays_fee": "No"}


BLOCK_MS = 12_000
FIRST_MS = 1_700_000_000_000  # block 1's timestamp where no block was skipped
_NUMBER_BITS = 64


def _text(name: str) -> bytes:
    """A name of the metadata, in SCALE."""
    return bytes([len(name) << 2]) + name.encode()


def _arguments(call: dict[str, Any]) -> dict[str, Any]:
    return {argument["name"]: argument["value"] for argument in call["call_args"]}


def _parts(decoded: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """(hotkey, function, arguments) of a decoded extrinsic."""
    return decoded["address"], decoded["call"]["call_function"], _arguments(decoded["call"])


class PrunedError(Exception):
    """The node's own words for state that it no longer keeps."""


class HangUpError(Exception):
    """The node closes the connection instead of answering."""


class FakeNode:
    """One subnet of one chain. `block` is the head; `finality` blocks above it aren't final yet."""

    def __init__(
        self,
        metadata: bytes,
        *,
        netuid: int,
        spec_version: int,
        block: int = 1_000,
        renamed: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """`metadata` in version 15. `renamed`: names of storages and calls that this runtime has under another name of
        the same length; give it a `spec_version` of its own, by which the SDK caches metadata."""
        for old, new in renamed:
            metadata = metadata.replace(_text(old), _text(new))
        self.spec_version = spec_version
        length = len(metadata) << 2 | 2  # SCALE `Option<OpaqueMetadata>`, as a node hands metadata out
        self._metadata_hex = "0x01" + length.to_bytes(4, "little").hex() + metadata.hex()
        self._codec = RuntimeCodec(
            metadata,
            spec_version=spec_version,
            transaction_version=TRANSACTION_VERSION,
            spec_name="node-subtensor",
            ss58_format=42,
        )
        self.netuid = netuid
        self.block = 0
        self.finality = 2
        self.pruned_before = 0  # the state of older blocks is gone
        self.hangs_up_on: set[str] = set()  # methods at which the connection is closed
        self.pool_refusal: Any = (
            None  # what the pool says to the next extrinsic, as a runtime's dispatch extension does
        )
        self.bad_proofs = 0  # how many extrinsics are refused as signed for the runtime before an upgrade
        self.is_overtaken = False  # another machine of the next sender's hotkey is faster by one extrinsic
        self.nonce_refusals = 0
        self.is_handed_in_twice = False  # the next extrinsic lands, and its second copy is what gets the answer
        self.swallowed = 0  # how many extrinsics are taken and never included
        self.extrinsics: list[dict[str, Any]] = []
        self.proxies: set[tuple[str, str]] = set()  # (who may sign, for whom)
        self._forks: dict[int, int] = {}  # how often a height was replaced
        self._now_ms = FIRST_MS
        self._storage: dict[str, list[tuple[int, str | None]]] = {}
        self._blocks: dict[int, list[str]] = {}
        self._subscriptions = itertools.count(1)
        self._nonces: dict[str, int] = {}
        self.pallets = FakePallets(self.write, netuid)
        self.advance(block)

    # -- storage, kept by block
    def write(self, pallet: str, item: str, parameters: list[Any], value: Any) -> None:
        """Write one storage entry in the current block."""
        entry = self._codec.storage_entry(pallet, item)
        key = "0x" + self._codec.storage_key(entry, parameters).hex()
        encoded = "0x" + self._codec.encode(entry.value_type, value).hex()
        self._storage.setdefault(key, []).append((self.block, encoded))

    def _read(self, key: str, at: int) -> str | None:
        history = self._storage.get(key, [])
        place = bisect.bisect_right([block for block, _ in history], at)
        return history[place - 1][1] if place else None

    def _keys(self, prefix: str, at: int) -> list[str]:
        return sorted(key for key in self._storage if key.startswith(prefix) and self._read(key, at) is not None)

    def value(self, at: int, pallet: str, item: str, parameters: list[Any]) -> Any:
        """A storage entry's value in a block, or the runtime's default; None where it has neither."""
        entry = self._codec.storage_entry(pallet, item)
        raw = self._read("0x" + self._codec.storage_key(entry, parameters).hex(), at)
        if raw is None and entry.modifier == "Optional":
            return None
        return self._codec.decode(entry.value_type, entry.default_bytes if raw is None else bytes.fromhex(raw[2:]))

    # -- what the network does
    def advance(self, blocks: int = 1, *, block_ms: int = BLOCK_MS) -> None:
        """Seal `blocks` empty blocks, so far apart."""
        for _ in range(blocks):
            self.block += 1
            self._now_ms += block_ms
            self.write("Timestamp", "Now", [], self._now_ms)

    def time_of(self, block: int) -> int:
        """The timestamp of a block, unix milliseconds."""
        return int(self.value(block, "Timestamp", "Now", []))

    def reorg(self, depth: int) -> None:
        """Replace the newest `depth` blocks by empty ones: what they held is gone, and their hashes change."""
        assert 0 < depth <= self.finality, "a final block is never replaced"
        first = self.block - depth + 1
        for key, history in self._storage.items():
            self._storage[key] = [(block, value) for block, value in history if block < first]
        for number in range(first, self.block + 1):
            self._forks[number] = self._forks.get(number, 0) + 1
            self._blocks.pop(number, None)
        for number in range(first, self.block + 1):
            self.block = number
            self.write("Timestamp", "Now", [], self._now_ms - (depth - 1 - (number - first)) * BLOCK_MS)

    def enrol(self, hotkey: str) -> int:
        """Give a hotkey the next uid."""
        return self.pallets.enrol(hotkey)

    def add_proxy(self, proxy: str, hotkey: str) -> None:
        """Let another key sign for a hotkey."""
        self.proxies.add((proxy, hotkey))
        held = [{"delegate": proxy, "proxy_type": "NonCritical", "delay": 0}]
        self.write("Proxy", "Proxies", [hotkey], (held, 0))

    def stake(self, hotkey: str, rao: int, *, has_permit: bool) -> None:
        """Put stake behind a hotkey and decide on its validator permit."""
        self.pallets.stake(hotkey, rao, has_permit=has_permit)

    def block_hash(self, number: int) -> str:
        """Block hashes of this node are the block's number, and how often it was replaced."""
        return GENESIS if number == 0 else f"0x{(self._forks.get(number, 0) << _NUMBER_BITS) + number:064x}"

    # -- extrinsics
    def _include(self, raw: str, decoded: dict[str, Any]) -> None:
        """Seal a block with one extrinsic and its outcome."""
        self.extrinsics.append(decoded)
        self.advance()
        self._blocks[self.block] = [raw]
        hotkey, function, arguments = _parts(decoded)
        records = []
        if function == "proxy" and (hotkey, arguments["real"]) in self.proxies:
            inner = arguments["call"]
            error = self.pallets.dispatch(self.block, arguments["real"], inner["call_function"], _arguments(inner))
            result = {"Ok": ()} if error is None else {"Err": self._dispatch_error(*error)}
            records = [{"Proxy": {"ProxyExecuted": {"result": result}}}]
            error = None  # the extrinsic itself went through
        else:
            error = ("Proxy", "NotProxy") if function == "proxy" else None
            error = error or self.pallets.dispatch(self.block, hotkey, function, arguments)
        if error is None:
            event = {"ExtrinsicSuccess": {"dispatch_info": _INFO}}
        else:
            event = {"ExtrinsicFailed": {"dispatch_error": self._dispatch_error(*error), "dispatch_info": _INFO}}
        records.append({"System": event})
        told = [{"phase": {"ApplyExtrinsic": 0}, "event": record, "topics": []} for record in records]
        self.write("System", "Events", [], told)

    def _dispatch_error(self, pallet: str, name: str) -> dict[str, Any]:
        found = next(entry for entry in self._codec.metadata_ir().pallets if entry.name == pallet)
        names = [entry.name for entry in found.errors]
        return {"Module": {"index": found.index, "error": [names.index(name), 0, 0, 0]}}

    def _is_signed(self, decoded: dict[str, Any]) -> bool:
        call = decoded["call"]
        period, phase = decoded["era"]
        birth = (self.block - phase) // period * period + phase
        payload = self._codec.signature_payload(
            self._composed(call),
            era={"period": period, "current": birth},
            nonce=decoded["nonce"],
            tip=decoded["tip"],
            tip_asset_id=None,
            genesis_hash=GENESIS,
            era_block_hash=self.block_hash(birth),
        )
        signature = bytes.fromhex(decoded["signature"]["Sr25519"].removeprefix("0x"))
        return bool(bittensor_core.verify(payload, signature, decoded["address"], bittensor_core.CRYPTO_SR25519))

    def _composed(self, call: dict[str, Any]) -> Any:
        arguments = _arguments(call)
        if call["call_function"] == "proxy":
            arguments["call"] = self._composed(arguments["call"])
        return self._codec.compose_call(call["call_module"], call["call_function"], arguments)

    # -- JSON-RPC
    def start(self, port: int = 0) -> websockets.serve:
        """A server on loopback, as an async context manager."""
        return websockets.serve(self._serve, "127.0.0.1", port, max_size=2**24)

    async def _serve(self, connection: Any) -> None:
        async for message in connection:
            frame = json.loads(message)
            answers, notices = [], []
            for request in frame if isinstance(frame, list) else [frame]:
                try:
                    answer, following = self._answer(request)
                except HangUpError:
                    await connection.close()
                    return
                answers.append(answer)
                notices += following
            for out in [answers if isinstance(frame, list) else answers[0], *notices]:
                await connection.send(json.dumps(out))

    def _answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        method, parameters = request["method"], request.get("params", [])
        head = {"jsonrpc": "2.0", "id": request["id"]}
        if method in self.hangs_up_on:
            raise HangUpError
        if method == "author_submitAndWatchExtrinsic":
            decoded = self._codec.decode_extrinsic(parameters[0])
            is_of_old_runtime, self.bad_proofs = self.bad_proofs > 0, max(0, self.bad_proofs - 1)
            if is_of_old_runtime or not self._is_signed(decoded):
                return {**head, "error": {"code": 1010, "message": "Invalid Transaction", "data": BAD_PROOF}}, []
            if self.swallowed:
                self.swallowed -= 1
                return {**head, "result": "never"}, []
            if refusal := self._pool_refusal(decoded):
                return {**head, "error": refusal}, []
            subscription, notices = self._submit_and_watch(parameters[0], decoded)
            if self.is_handed_in_twice:
                self.is_handed_in_twice = False
                return {**head, "error": STALE}, []
            return {**head, "result": subscription}, notices
        try:
            return {**head, "result": self._handle(method, parameters)}, []
        except LookupError as error:
            return {**head, "error": {"code": -32601, "message": str(error)}}, []
        except PrunedError as error:
            return {**head, "error": {"code": 4003, "message": str(error)}}, []

    def _pool_refusal(self, decoded: dict[str, Any]) -> Any:
        """What the pool says to an extrinsic that it doesn't take: by its nonce, or because a test says so."""
        refusal, self.pool_refusal = self.pool_refusal, None
        if refusal is None and self.is_overtaken:
            self.is_overtaken = False
            self._spend_nonce(decoded["address"])
        next_one = self._nonces.get(decoded["address"], FIRST_NONCE)
        if refusal is None and decoded["nonce"] == next_one:
            self._spend_nonce(decoded["address"])
            return None
        self.nonce_refusals += refusal is None
        return refusal or (STALE if decoded["nonce"] < next_one else FUTURE)

    def _spend_nonce(self, hotkey: str) -> None:
        self._nonces[hotkey] = self._nonces.get(hotkey, FIRST_NONCE) + 1

    def _submit_and_watch(self, raw: str, decoded: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
        self._include(raw, decoded)
        subscription = f"s{next(self._subscriptions)}"
        included = self.block_hash(self.block)
        states: list[Any] = ["ready", {"inBlock": included}, {"finalized": included}]
        return subscription, [
            {
                "jsonrpc": "2.0",
                "method": "author_extrinsicUpdate",
                "params": {"subscription": subscription, "result": state},
            }
            for state in states
        ]

    def _handle(self, method: str, p: list[Any]) -> Any:
        match method:
            case "chain_getHead":
                return self.block_hash(self.block)
            case "chain_getFinalizedHead":
                return self.block_hash(self.block - self.finality)
            case "chain_getBlockHash":
                number = self.block if not p or p[0] is None else int(p[0])
                return self.block_hash(number) if number <= self.block else None
            case "chain_getHeader":
                return self._header(self._number(p, 0))
            case "chain_getBlock":
                number = self._number(p, 0)
                block = {"header": self._header(number), "extrinsics": self._blocks.get(number, [])}
                return {"block": block, "justifications": None}
            case "state_getRuntimeVersion":
                return {
                    "specName": "node-subtensor",
                    "specVersion": self.spec_version,
                    "transactionVersion": TRANSACTION_VERSION,
                }
            case "state_call" if p[0] == "Metadata_metadata_at_version":
                return self._metadata_hex
            case "state_getStorageAt" | "state_getStorage":
                return self._read(p[0], self._kept(p, 1))
            case "state_queryStorageAt":
                at = self._kept(p, 1)
                return [{"block": self.block_hash(at), "changes": [[key, self._read(key, at)] for key in p[0]]}]
            case "state_getKeys":
                return self._keys(p[0], self._kept(p, 1))
            case "state_getKeysPaged":
                return [key for key in self._keys(p[0], self._kept(p, 3)) if key > (p[2] or "")][: p[1]]
            case "account_nextIndex":
                return self._nonces.get(p[0], FIRST_NONCE)
            case _ if method.startswith(("author_unwatch", "chain_unsub")):
                return True
        raise LookupError(f"{method} {json.dumps(p)[:120]}")

    def _header(self, number: int) -> dict[str, Any]:
        return {
            "number": hex(number),
            "parentHash": self.block_hash(number - 1) if number else "0x" + "00" * 32,
            "stateRoot": GENESIS,
            "extrinsicsRoot": "0x" + blake2b(str(number).encode(), digest_size=32).hexdigest(),
            "digest": {"logs": []},
        }

    def _number(self, parameters: list[Any], index: int) -> int:
        value = parameters[index] if len(parameters) > index else None
        if value is None:
            return self.block
        return 0 if value == GENESIS else int(value, 16) & ((1 << _NUMBER_BITS) - 1)

    def _kept(self, parameters: list[Any], index: int) -> int:
        """The block whose state is asked for, unless it was pruned."""
        number = self._number(parameters, index)
        if number < self.pruned_before:
            raise PrunedError(f"Client error: UnknownBlock: State already discarded for {self.block_hash(number)}")
        return number


# -- what the fake node's runtime does with the few calls this software makes: the chain's own refusals and effects


Refusal = tuple[str, str]  # pallet and error
_SUBNETS_MAX = 4_096  # weights of mechanism m stand under m * 4096 + netuid
SUBNET_DEFAULTS = {
    "NetworksAdded": True,
    "Tempo": 360,
    "WeightsSetRateLimit": 100,
    "MinAllowedWeights": 1,
    "MaxWeightsLimit": 65_535,
    "CommitRevealWeightsEnabled": False,
    "RevealPeriodEpochs": 1,
    "BlocksSinceLastStep": 0,
    "ServingRateLimit": 50,
}


class FakePallets:
    """One subnet's neurons and what they sent. `write` puts a value into storage in the current block."""

    def __init__(self, write: Callable[[str, str, list[Any], Any], None], netuid: int) -> None:
        self._write = write
        self.netuid = netuid
        self.stake_threshold = 0  # rao that setting weights takes
        self._uids: dict[str, int] = {}
        self._stakes: dict[str, int] = {}
        self._permits: dict[str, bool] = {}
        self._updates: dict[int, dict[str, int]] = {0: {}}  # by mechanism
        self._served: dict[str, int] = {}
        for item, value in SUBNET_DEFAULTS.items():
            write("SubtensorModule", item, [netuid], value)

    # -- what the network decides
    def enrol(self, hotkey: str) -> int:
        uid = self._uids.setdefault(hotkey, len(self._uids))
        self._write("SubtensorModule", "Uids", [self.netuid, hotkey], uid)
        self._write("SubtensorModule", "Keys", [self.netuid, uid], hotkey)
        self._write("SubtensorModule", "Owner", [hotkey], hotkey)
        self._write_vectors()
        return uid

    def stake(self, hotkey: str, rao: int, *, has_permit: bool) -> None:
        self._write("SubtensorModule", "TotalHotkeyAlpha", [hotkey, self.netuid], rao)
        self._stakes[hotkey] = rao
        self._permits[hotkey] = has_permit
        self._write_vectors()

    def _write_vectors(self) -> None:
        in_order = sorted(self._uids, key=self._uids.__getitem__)
        permits = [self._permits.get(key, False) for key in in_order]
        for mechanism, updates in self._updates.items():
            at = [mechanism * _SUBNETS_MAX + self.netuid]
            self._write("SubtensorModule", "LastUpdate", at, [updates.get(key, 0) for key in in_order])
        self._write("SubtensorModule", "ValidatorPermit", [self.netuid], permits)

    # -- what is sent
    def dispatch(self, block: int, hotkey: str, function: str, arguments: dict[str, Any]) -> Refusal | None:
        """Run a call; None where it went through."""
        match function:
            case "set_commitment":
                return self._set_commitment(block, hotkey, arguments)
            case "serve_axon":
                return self._serve(block, hotkey, arguments)
            case "set_mechanism_weights" | "commit_timelocked_mechanism_weights":
                return self._take_weights(block, hotkey, arguments)
        return "System", "CallFiltered"

    def _set_commitment(self, block: int, hotkey: str, arguments: dict[str, Any]) -> Refusal | None:
        if hotkey not in self._uids:
            return "Commitments", "AccountNotAllowedCommit"
        record = {"deposit": 0, "block": block, "info": arguments["info"]}
        self._write("Commitments", "CommitmentOf", [self.netuid, hotkey], record)
        return None

    def _serve(self, block: int, hotkey: str, arguments: dict[str, Any]) -> Refusal | None:
        if hotkey not in self._uids:
            return "SubtensorModule", "HotKeyNotRegisteredInNetwork"
        if block - self._served.get(hotkey, -(10**9)) < SUBNET_DEFAULTS["ServingRateLimit"]:
            return "SubtensorModule", "ServingRateLimitExceeded"
        self._served[hotkey] = block
        kept = {name: value for name, value in arguments.items() if name != "netuid"}
        self._write("SubtensorModule", "Axons", [self.netuid, hotkey], {"block": block, **kept})
        return None

    def _take_weights(self, block: int, hotkey: str, arguments: dict[str, Any]) -> Refusal | None:
        if self._stakes.get(hotkey, 0) < self.stake_threshold:
            return "SubtensorModule", "NotEnoughStakeToSetWeights"
        if hotkey not in self._uids:
            return "SubtensorModule", "HotKeyNotRegisteredInSubNet"
        if not self._permits.get(hotkey):
            return "SubtensorModule", "NeuronNoValidatorPermit"
        if "commit" in arguments:  # it stays sealed: this chain sees no pulses
            self._updates.setdefault(arguments["mecid"], {})[hotkey] = block
            self._write_vectors()
            return None
        if any(uid >= len(self._uids) for uid in arguments["dests"]):
            return "SubtensorModule", "UidVecContainInvalidOne"
        self._set(block, hotkey, arguments["mecid"], arguments["dests"], arguments["weights"])
        return None

    def _set(self, block: int, hotkey: str, mechanism: int, uids: list[int], weights: list[int]) -> None:
        pairs = list(zip(uids, weights, strict=True))
        at = [mechanism * _SUBNETS_MAX + self.netuid, self._uids[hotkey]]
        self._write("SubtensorModule", "Weights", at, pairs)
        self._updates.setdefault(mechanism, {})[hotkey] = block
        self._write_vectors()
