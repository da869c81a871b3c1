"""What the fake node's runtime does with the few calls this software makes: the chain's own refusals and effects.

Sealed weights stay sealed. There is no consensus.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
