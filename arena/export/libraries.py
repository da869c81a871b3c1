"""What maintained libraries find in an export, beside our own patterns (`arena.secrets`): counted, nothing removed.

Both come with the extra `privacy`: datafog-core for personal data, detect-secrets for credentials. None asks a network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version

from arena.secrets import long_runs

_PERSONAL = ["EMAIL", "PHONE", "SSN", "CREDIT_CARD", "IP_ADDRESS"]
_AROUND_BYTES = 48  # of a run that may be a credential: what it is called, and how it goes on
_HASH = b"0123456789abcdef"
_SEEN_MAX = 100_000  # runs that are remembered, so that one in many rows counts once


class Libraries:
    """Both, and what they found: by library and its version, counts by kind."""

    def __init__(self) -> None:
        """Raises ImportError where one of them is not installed."""
        from datafog_core import scan
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
        from detect_secrets.plugins.base import RegexBasedDetector

        kinds: Iterable[tuple[str, type]] = get_mapping_from_secret_type_to_class().items()
        self._detectors = [(name, one()) for name, one in kinds if issubclass(one, RegexBasedDetector)]
        self._scan, self._personal, self._secrets = scan, Counter[str](), Counter[str]()
        self._seen = set[bytes]()
        counted = {"datafog-core": self._personal, "detect-secrets": self._secrets}
        self.found: dict[str, dict[str, int]] = {f"{name} {version(name)}": each for name, each in counted.items()}

    def look(self, lines: Iterable[bytes]) -> None:
        """Look at rows: personal data but digits without a separator, as products have them for ids; credentials
        among long runs that hold a digit and are no hash."""
        if len(self._seen) > _SEEN_MAX:
            self._seen.clear()
        for line in lines:
            found = self._scan(line.decode("utf-8", "replace"), {"entities": _PERSONAL})
            self._personal.update(one.entity_type.lower() for one in found if not one.matched_text.isdigit())
            near = []
            for begin, end in long_runs(line):
                run = line[begin:end]
                if run not in self._seen and run.strip(_HASH) and any(byte in b"0123456789" for byte in run):
                    near.append(line[max(0, begin - _AROUND_BYTES) : end + _AROUND_BYTES].decode("utf-8", "replace"))
                self._seen.add(run)
            text = "\n".join(near)
            for name, detector in self._detectors if near else ():
                self._secrets.update(name for _ in set(detector.analyze_string(text)))
