"""What one caller may take in a while: requests are refused beyond it, bytes wait. Pure, with its clock passed in.

Callers are told apart by hotkey, after their signature was checked, so nobody spends another's share; the door
tells strangers apart by address. A share fills up again with time and never beyond its burst.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from foundation.errors import ArenaError

CALLERS_MAX = 20_000  # remembered at once; beyond it those that were not seen for longest are forgotten


class ShareRules(msgspec.Struct, frozen=True, kw_only=True):
    """One caller's share. A race of 64 agents over 90 problems is some 70 MB of rows."""

    requests_per_s: float = 10.0
    requests_burst: int = 200
    bytes_per_s: float = 16 * 2**20
    bytes_burst: int = 128 << 20


class _Share:
    def __init__(self, rules: ShareRules, now_s: float) -> None:
        self.requests, self.bytes = float(rules.requests_burst), float(rules.bytes_burst)
        self.read_s = now_s


class Shares:
    """The shares of all callers. Those not seen for long are full again, so forgetting them loses nothing; memory is
    bounded by CALLERS_MAX of them."""

    def __init__(self, rules: ShareRules, monotonic: Callable[[], float]) -> None:
        self._rules, self._monotonic = rules, monotonic
        self._shares: dict[str, _Share] = {}

    def spend_request(self, caller: str) -> None:
        """Take one request. Raises ArenaError V2112 when the share is used up."""
        share = self._filled(caller)
        if share.requests < 1:
            raise ArenaError("V2112", f"{self._rules.requests_per_s:g} requests a second")
        share.requests -= 1

    def spend_bytes(self, caller: str, size: int) -> float:
        """Take `size` bytes that are about to be sent; the seconds to wait before sending more."""
        share = self._filled(caller)
        share.bytes -= size
        return max(0.0, -share.bytes / self._rules.bytes_per_s)

    def _filled(self, caller: str) -> _Share:
        now_s, rules = self._monotonic(), self._rules
        if len(self._shares) > CALLERS_MAX:
            by_age = sorted(self._shares.items(), key=lambda item: item[1].read_s)
            self._shares = dict(by_age[CALLERS_MAX // 2 :])
        share = self._shares.setdefault(caller, _Share(rules, now_s))
        passed_s = max(0.0, now_s - share.read_s)
        share.requests = min(float(rules.requests_burst), share.requests + passed_s * rules.requests_per_s)
        share.bytes = min(float(rules.bytes_burst), share.bytes + passed_s * rules.bytes_per_s)
        share.read_s = now_s
        return share
