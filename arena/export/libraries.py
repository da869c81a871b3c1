"""What maintained libraries find in an export, beside our own patterns (`arena.secrets`): counted, nothing removed.

Both come with the extra `privacy`: datafog-core for personal data, detect-secrets for credentials. None asks a network.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version

_PERSONAL = {"entities": ["EMAIL", "PHONE", "SSN", "CREDIT_CARD", "IP_ADDRESS"]}
_RUN = re.compile(r"(?<![\w+/=.-])(?![0-9a-f]{64}\b)[\w+/=.-]{16,}+|://[^\s/@\"\\]{1,200}+@|-----BEGIN", re.ASCII)
_BEFORE_CHARS, _BEHIND_CHARS = 64, 32  # of a run that may be a credential: what it is called, and how it ends


class Libraries:
    """Both, and what they found: by library and its version, counts by kind."""

    def __init__(self) -> None:
        """Raises ImportError where one of them is not installed."""
        from datafog_core import scan
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
        from detect_secrets.plugins.base import RegexBasedDetector

        kinds = get_mapping_from_secret_type_to_class().items()
        self._detectors = [(name, one()) for name, one in kinds if issubclass(one, RegexBasedDetector)]
        self._scan, self._personal, self._secrets = scan, Counter[str](), Counter[str]()
        counted = {"datafog-core": self._personal, "detect-secrets": self._secrets}
        self.found = {f"{name} {version(name)}": counts for name, counts in counted.items()}

    def look(self, lines: Iterable[bytes]) -> None:
        """Look at rows. Digits without a separator are no finding: products have such ids."""
        for line in lines:
            text = line.decode("utf-8", "replace")
            found = [one.entity_type.lower() for one in self._scan(text, _PERSONAL) if not one.matched_text.isdigit()]
            self._personal.update(found)
            runs = [
                text[max(0, run.start() - _BEFORE_CHARS) : run.end() + _BEHIND_CHARS] for run in _RUN.finditer(text)
            ]
            near = "\n".join(runs)
            for name, detector in self._detectors if runs else ():
                self._secrets.update(name for _ in set(detector.analyze_string(near)))
