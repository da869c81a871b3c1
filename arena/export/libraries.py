"""What maintained libraries find in an export, beside our own patterns (`arena.secrets`): counted, nothing removed.

Both come with the extra `privacy`: datafog-core looks for personal data, detect-secrets for credentials. Where one is
missing, nothing is looked for and the manifest says nothing of it. Neither asks a network.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from arena.export.model import LibraryFindings

NAMES = ("datafog-core", "detect-secrets")
_PERSONAL = {"entities": ["EMAIL", "PHONE", "SSN", "CREDIT_CARD", "IP_ADDRESS"]}
_RUN = re.compile(
    r"(?<![\w+/=.-])(?![0-9a-f]{64}(?![\w+/=.-]))[\w+/=.-]{16,}+|://[^\s/@\"\\]{1,200}@|-----BEGIN", re.ASCII
)
_BEFORE_CHARS, _BEHIND_CHARS = 64, 32  # of a run that may be a credential: what it is called, and how it ends


class Libraries:
    """Counts findings by kind, of everything that it is given."""

    def __init__(self) -> None:
        """Raises ImportError where a library is not installed."""
        from datafog_core import scan
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
        from detect_secrets.plugins.base import RegexBasedDetector

        found = get_mapping_from_secret_type_to_class().items()
        self._detectors = [(name, one()) for name, one in found if issubclass(one, RegexBasedDetector)]
        self._scan, self._counts, self._rows = scan, Counter[str](), 0

    def look(self, lines: Iterable[bytes]) -> None:
        """Look at rows. A number without any separator is an id of a product, not somebody's."""
        for line in lines:
            text = line.decode("utf-8", "replace")
            self._rows += 1
            entities = [one.entity_type for one in self._scan(text, _PERSONAL) if not one.matched_text.isdigit()]
            self._counts.update(name.lower().replace("_", " ") for name in entities)
            places = [(max(0, one.start() - _BEFORE_CHARS), one.end() + _BEHIND_CHARS) for one in _RUN.finditer(text)]
            near = "\n".join(text[begin:end] for begin, end in places)
            for name, detector in self._detectors if near else ():
                self._counts[name] += len(set(detector.analyze_string(near)))

    @property
    def findings(self) -> LibraryFindings:
        """What was found until now."""
        by = tuple(f"{name} {version(name)}" for name in NAMES)
        return LibraryFindings(by=by, rows=self._rows, found=dict(sorted((+self._counts).items())))


def installed() -> Libraries | None:
    """The libraries; None where they are not both installed."""
    with suppress(ImportError, PackageNotFoundError):
        return Libraries()
    return None
