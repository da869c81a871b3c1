"""What a runtime answers beside its storage: its metadata, and the calls with which wallets read a subnet at once.

The metadata of spec 343 lacks what wallets ask since: `get_subnet_hyperparams_v3`, storages behind its values, and
locks of stake; they are put in here with the types that subtensor's source gives them. Answers are made of the node's
storage; what the node doesn't keep is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bittensor._transport.codec import RuntimeCodec

TRANSACTION_VERSION = 1
ROOT = 0  # the subnet that every chain has
# Of a subnet: name, storage item, variant of the runtime's `HyperparamValue`.
HYPERPARAMETERS = (
    ("rho", "Rho", "U16"),
    ("kappa", "Kappa", "U16"),
    ("immunity_period", "ImmunityPeriod", "U16"),
    ("min_allowed_weights", "MinAllowedWeights", "U16"),
    ("max_weights_limit", "MaxWeightsLimit", "U16"),
    ("tempo", "Tempo", "U16"),
    ("weights_version", "WeightsVersionKey", "U64"),
    ("weights_rate_limit", "WeightsSetRateLimit", "U64"),
    ("activity_cutoff", "ActivityCutoff", "U64"),
    ("registration_allowed", "NetworkRegistrationAllowed", "Bool"),
    ("target_regs_per_interval", "TargetRegistrationsPerInterval", "U16"),
    ("min_burn", "MinBurn", "TaoBalance"),
    ("max_burn", "MaxBurn", "TaoBalance"),
    ("bonds_moving_avg", "BondsMovingAverage", "U64"),
    ("max_regs_per_block", "MaxRegistrationsPerBlock", "U16"),
    ("serving_rate_limit", "ServingRateLimit", "U64"),
    ("max_validators", "MaxAllowedValidators", "U16"),
    ("commit_reveal_period", "RevealPeriodEpochs", "U64"),
    ("commit_reveal_weights_enabled", "CommitRevealWeightsEnabled", "Bool"),
    ("liquid_alpha_enabled", "LiquidAlphaOn", "Bool"),
)
# Variant, its index in the runtime's enum, and a field of SubnetHyperparamsV2 that has its type.
_VARIANTS = (
    ("Bool", 0, "registration_allowed"),
    ("U16", 1, "rho"),
    ("U64", 3, "weights_version"),
    ("TaoBalance", 5, "min_burn"),
    ("I32F32", 6, "alpha_sigmoid_steepness"),
)
# Storage by subnet, its type, the octets of it, and the default. SubtensorModule, at 14bc6f9.
_STORAGES = (
    ("ActivityCutoffFactorMilli", "u32", 4, 13_889),
    ("BurnHalfLife", "u16", 2, 360),
    ("BurnIncreaseMult", "FixedU128", 16, int(1.26 * (1 << 64))),
    ("CollateralDrainRatio", "FixedU128", 16, 0),  # the SDK's own table has it of spec 435
    ("CollateralLockShare", "u16", 2, 0),
    ("MinChildkeyTakePerSubnet", "u16", 2, 0),
    ("OwnerCutAutoLockEnabled", "bool", 1, 0),
    ("OwnerCutEnabled", "bool", 1, 1),
    ("SubnetEmissionEnabled", "bool", 1, 1),
)
_BY_SUBNET = b"\x01\x01\x04\x06"  # always with a value, a map, by one key, that is its own hash
# Locks of stake, in SubtensorModule of spec 423: maybe without a value, by subnet and hotkey, or by subnet.
_LOCKS = (
    ("HotkeyLock", b"\x00\x01\x08\x06\x02"),
    ("DecayingHotkeyLock", b"\x00\x01\x08\x06\x02"),
    ("OwnerLock", b"\x00\x01\x04\x06"),
    ("DecayingOwnerLock", b"\x00\x01\x04\x06"),
)
_LOCK_RATES = (("UnlockRate", 934_866), ("MaturityRate", 934_866))  # blocks
_FIRST_PALLET = b"\x18System\x01\x18System"  # its name, and the prefix of its storage
_TYPES_AT = 5  # magic, and one byte of version

Reader = Callable[[str, str, list[Any]], Any]  # a storage item's value, or its default


def grow_metadata(plain: bytes, renamed: tuple[tuple[str, str], ...] = ()) -> bytes:
    """Metadata of version 15 with what wallets ask, where it lacks that. `renamed`: names that are another of the same
    length here."""
    for old, new in renamed:
        plain = plain.replace(_text(old), _text(new))
    if _text("get_subnet_hyperparams_v3") in plain:
        return plain
    return _with_locks(_with_storages(_with_hyperparameters(plain)))


def as_option(plain: bytes) -> bytes:
    """SCALE `Option<OpaqueMetadata>`, as a node hands metadata out."""
    return b"\x01" + _compact(len(plain)) + plain


def make_codec(plain: bytes, spec_version: int) -> RuntimeCodec:
    """The codec of a runtime, of its metadata."""
    return RuntimeCodec(
        plain,
        spec_version=spec_version,
        transaction_version=TRANSACTION_VERSION,
        spec_name="node-subtensor",
        ss58_format=42,
    )


class RuntimeApis:
    """The answers, encoded as the metadata says."""

    def __init__(self, codec: RuntimeCodec) -> None:
        self._codec = codec
        self._types = _types_of(codec)

    def answer(self, call: str, argument: str, netuid: int, block: int, read: Reader) -> str:
        """The result of `call` ("API_method", as `state_call` names it) in a block, as hex.

        Raises LookupError for a call that isn't answered.
        """
        api, _, method = call.partition("_")
        is_known = int.from_bytes(bytes.fromhex(argument.removeprefix("0x"))[:2], "little") == netuid
        match method:
            case "get_metagraph" | "get_mechagraph":
                value = self._metagraph(netuid, block, read) if is_known else None
            case "get_dynamic_info":
                value = self._dynamic_info(netuid, read) if is_known else None
            case "get_all_dynamic_info":
                value = [self._dynamic_info(each, read) for each in sorted({ROOT, netuid})]
            case "current_alpha_price":
                value = 0
            case "get_neurons_lite":
                value = self._neurons(netuid, read) if is_known else []
            case "get_subnet_hyperparams_v3":
                value = _hyperparameters(netuid, read) if is_known else None
            case _:
                raise LookupError(call)
        return "0x" + self._codec.encode(self._codec.runtime_api_map[api][method]["output"], value).hex()

    def _metagraph(self, netuid: int, block: int, read: Reader) -> dict[str, Any]:
        neurons = self._neurons(netuid, read)
        fields = self._fields("Metagraph")
        graph = {name: self._zero(kind) for name, kind in fields.items()}
        columns = [name for name in fields if name in ("hotkeys", "coldkeys", "identities", "axons", "incentives")]
        columns += [name for name in fields if name in (*_NEURON_COLUMNS, "block_at_registration")]
        for name in columns:
            graph[name] = [self._zero(self._types[_number(fields[name])]["sequence"]["type"]) for _ in neurons]
        graph |= {
            "netuid": netuid,
            "block": block,
            "tempo": read("SubtensorModule", "Tempo", [netuid]),
            "num_uids": len(neurons),
            "max_uids": read("SubtensorModule", "MaxAllowedUids", [netuid]),
            "hotkeys": [each["hotkey"] for each in neurons],
            "coldkeys": [each["coldkey"] for each in neurons],
            "axons": [each["axon_info"] for each in neurons],
            "active": [each["active"] for each in neurons],
            "validator_permit": [each["validator_permit"] for each in neurons],
            "last_update": [each["last_update"] for each in neurons],
            "alpha_stake": [sum(rao for _, rao in each["stake"]) for each in neurons],
            "total_stake": [sum(rao for _, rao in each["stake"]) for each in neurons],
        }
        return graph | {
            name: read("SubtensorModule", item, [netuid]) for name, item, _ in HYPERPARAMETERS if name in graph
        }

    def _dynamic_info(self, netuid: int, read: Reader) -> dict[str, Any]:
        plain = {name: self._zero(kind) for name, kind in self._fields("DynamicInfo").items()}
        symbol = list(read("SubtensorModule", "TokenSymbol", [netuid]).encode())
        return plain | {"netuid": netuid, "tempo": read("SubtensorModule", "Tempo", [netuid]), "token_symbol": symbol}

    def _neurons(self, netuid: int, read: Reader) -> list[dict[str, Any]]:
        permits = read("SubtensorModule", "ValidatorPermit", [netuid])
        updates = read("SubtensorModule", "LastUpdate", [netuid])
        plain = {name: self._zero(kind) for name, kind in self._fields("NeuronInfoLite").items()}
        found = []
        for uid, (permit, update) in enumerate(zip(permits, updates, strict=True)):
            hotkey = read("SubtensorModule", "Keys", [netuid, uid])
            coldkey = read("SubtensorModule", "Owner", [hotkey])
            known = {
                "uid": uid,
                "netuid": netuid,
                "hotkey": hotkey,
                "coldkey": coldkey,
                "active": True,
                "validator_permit": permit,
                "last_update": update,
                "stake": [(coldkey, read("SubtensorModule", "TotalHotkeyAlpha", [hotkey, netuid]))],
                "axon_info": read("SubtensorModule", "Axons", [netuid, hotkey]) or plain["axon_info"],
            }
            found.append(plain | known)
        return found

    def _fields(self, name: str) -> dict[str, str]:
        return _fields_of(self._codec, name)

    def _zero(self, kind: str | int) -> Any:
        """The value of a type that is all zeros and has nothing in it."""
        ((form, of),) = self._types[_number(kind)].items()
        match form:
            case "primitive":
                return "" if of == "str" else False if of == "bool" else 0
            case "compact":
                return self._zero(of["type"])
            case "sequence":
                return []
            case "array":
                return "0x" + "00" * of["len"]
            case "tuple":
                return tuple(self._zero(each) for each in of)
            case "variant":
                return None
        fields = of["fields"]
        if len(fields) == 1 and "name" not in fields[0]:
            return self._zero(fields[0]["type"])
        return {each["name"]: self._zero(each["type"]) for each in fields}


_NEURON_COLUMNS = (
    "active",
    "validator_permit",
    "pruning_score",
    "last_update",
    "emission",
    "dividends",
    "consensus",
    "trust",
    "rank",
    "alpha_stake",
    "tao_stake",
    "total_stake",
)


def _hyperparameters(netuid: int, read: Reader) -> list[dict[str, Any]]:
    return [
        {"name": "0x" + name.encode().hex(), "value": {variant: read("SubtensorModule", item, [netuid])}}
        for name, item, variant in HYPERPARAMETERS
    ]


def _types_of(codec: RuntimeCodec) -> dict[int, dict[str, Any]]:
    return {each["id"]: each["type"]["def"] for each in codec.registry_types()}


def _number(kind: str | int) -> int:
    return kind if isinstance(kind, int) else int(kind.rpartition("::")[2])


def _fields_of(codec: RuntimeCodec, name: str) -> dict[str, str]:
    """The fields of the struct `name`, and their types' names."""
    found = next(each["type"] for each in codec.registry_types() if each["type"].get("path", [""])[-1] == name)
    return {each["name"]: f"scale_info::{each['type']}" for each in found["def"]["composite"]["fields"]}


# -- SCALE, where the codec writes no metadata


def _with_hyperparameters(plain: bytes) -> bytes:
    """Metadata (V15) with `SubnetInfoRuntimeApi.get_subnet_hyperparams_v3` and its types."""
    codec = make_codec(plain, 0)
    kinds = {name: _number(kind) for name, kind in _fields_of(codec, "SubnetHyperparamsV2").items()}
    types = _types_of(codec)
    octet = next(number for number, each in types.items() if each == {"primitive": "u8"})
    octets = next(number for number, each in types.items() if each == {"sequence": {"type": octet}})
    netuid = _number(codec.runtime_api_map["SubnetInfoRuntimeApi"]["get_metagraph"]["inputs"][0][1])
    first = len(types)
    value, entry, entries, output = range(first, first + 4)
    variants = [
        _text(name) + _vector([_field(kinds[field])]) + bytes([index]) + b"\x00" for name, index, field in _VARIANTS
    ]
    optional = [_text("None") + b"\x00\x00\x00", _text("Some") + _vector([_field(entries)]) + b"\x01\x00"]
    added = [
        _type(value, "HyperparamValue", b"\x01" + _vector(variants)),
        _type(entry, "HyperparamEntry", b"\x00" + _vector([_field(octets, "name"), _field(value, "value")])),
        _type(entries, "", b"\x02" + _compact(entry)),
        _type(output, "Option", b"\x01" + _vector(optional), parameter=entries),
    ]
    asked = _vector([_text("netuid") + _compact(netuid)])
    method = _text("get_subnet_hyperparams_v3") + asked + _compact(output) + b"\x00"
    plain = _with_types(plain, first, added)
    name = _text("SubnetInfoRuntimeApi")
    methods_at = plain.index(name) + len(name)
    one_more = bytes([plain[methods_at] + 4])  # in SCALE's compact form
    return plain[:methods_at] + one_more + method + plain[methods_at + 1 :]


def _with_types(plain: bytes, first: int, added: list[bytes]) -> bytes:
    """Metadata with more types, of which the first has the number `first`."""
    types_end = _TYPES_AT + len(_compact(first))
    pallets_at = plain.index(_FIRST_PALLET) - 1  # one byte says how many pallets there are
    head = plain[:_TYPES_AT] + _compact(first + len(added)) + plain[types_end:pallets_at]
    return head + b"".join(added) + plain[pallets_at:]


def _with_storages(plain: bytes) -> bytes:
    """Metadata with the storages of `_STORAGES`."""
    kinds = _kinds_of(plain)
    entries = [
        _text(name)
        + _BY_SUBNET
        + _compact(kinds["u16"])
        + _compact(kinds[kind])
        + _compact(octets)
        + default.to_bytes(octets, "little")
        + b"\x00"
        for name, kind, octets, default in _STORAGES
    ]
    return _with_entries(plain, entries)


def _with_locks(plain: bytes) -> bytes:
    """Metadata with the storages of `_LOCKS`, all empty, and of `_LOCK_RATES`."""
    kinds, types = _kinds_of(plain), _types_of(make_codec(plain, 0))
    by_both = next(number for number, each in types.items() if each == {"tuple": [kinds["u16"], kinds["AccountId32"]]})
    state = len(types)
    fields = (("locked_mass", "u64"), ("conviction", "FixedU128"), ("last_update", "u64"))
    lock = _type(state, "LockState", b"\x00" + _vector([_field(kinds[kind], name) for name, kind in fields]))
    plain = _with_types(plain, state, [lock])
    entries = [
        _text(name)
        + form
        + _compact(by_both if form[2] == 8 else kinds["u16"])
        + _compact(state)
        + _compact(1)
        + b"\x00\x00"
        for name, form in _LOCKS
    ]
    entries += [
        _text(name) + b"\x01\x00" + _compact(kinds["u64"]) + _compact(8) + blocks.to_bytes(8, "little") + b"\x00"
        for name, blocks in _LOCK_RATES
    ]
    return _with_entries(plain, entries)


def _with_entries(plain: bytes, entries: list[bytes]) -> bytes:
    """Metadata with more storages in SubtensorModule."""
    pallet = _text("SubtensorModule")
    count_at = plain.index(pallet + b"\x01" + pallet) + 2 * len(pallet) + 1
    count = int.from_bytes(plain[count_at : count_at + 2], "little") >> 2
    return plain[:count_at] + _compact(count + len(entries)) + b"".join(entries) + plain[count_at + 2 :]


def _kinds_of(plain: bytes) -> dict[str, int]:
    """The numbers of types by their names."""
    defined = {each["id"]: each["type"] for each in make_codec(plain, 0).registry_types()}
    return {each["def"].get("primitive", each.get("path", [""])[-1]): number for number, each in defined.items()}


def _compact(number: int) -> bytes:
    if number < 1 << 6:
        return bytes([number << 2])
    if number < 1 << 14:
        return (number << 2 | 1).to_bytes(2, "little")
    return (number << 2 | 2).to_bytes(4, "little")


def _text(text: str) -> bytes:
    return _compact(len(text)) + text.encode()


def _vector(parts: list[bytes]) -> bytes:
    return _compact(len(parts)) + b"".join(parts)


def _field(kind: int, name: str = "") -> bytes:
    return (b"\x01" + _text(name) if name else b"\x00") + _compact(kind) + b"\x00\x00"


def _type(number: int, name: str, definition: bytes, parameter: int | None = None) -> bytes:
    path = _vector([_text(name)] if name else [])
    parameters = _vector([] if parameter is None else [_text("T") + b"\x01" + _compact(parameter)])
    return _compact(number) + path + parameters + definition + b"\x00"
