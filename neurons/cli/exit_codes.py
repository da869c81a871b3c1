"""The exit codes of every command, and which one a coded failure ends with.

0 ok, 1 the thing tested failed, 2 usage, 3 environment not ready, 4 integrity violation.
"""

from __future__ import annotations

from foundation.codes import Owner
from foundation.errors import ArenaError

EXIT_FAILED, EXIT_USAGE, EXIT_NOT_READY, EXIT_INTEGRITY = 1, 2, 3, 4
EXIT_INTERRUPTED = 130  # the shell's own convention

_BY_OWNER = {
    Owner.AGENT: EXIT_FAILED,
    Owner.VALIDATOR: EXIT_NOT_READY,
    Owner.UPSTREAM: EXIT_NOT_READY,
    Owner.PROBLEM: EXIT_USAGE,
}
# A mistyped path or setting is usage (2) whatever the code's owner; a log that fails verification is 4.
_BY_EXIT = {
    EXIT_FAILED: "V2123 V2147 V2148",
    EXIT_USAGE: "A1009 V2027 V2030 V2081 V2082 V2105 V2120",
    EXIT_INTEGRITY: "P4010 V2050 V2080 V2095 V2099 V2166",
}
_BY_CODE = {code: exit_code for exit_code, codes in _BY_EXIT.items() for code in codes.split()}


def exit_code(error: ArenaError) -> int:
    """The exit code of a coded failure (docs/architecture.md#commands-and-errors)."""
    return _BY_CODE.get(error.failure.code, _BY_OWNER[error.owner])
