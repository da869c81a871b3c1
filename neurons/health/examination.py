"""One row of the doctor's report."""

from __future__ import annotations

from typing import Literal

import msgspec

Status = Literal["ok", "warn", "fail"]


class DoctorCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of one thing, and the exact fix where it falls short."""

    name: str
    status: Status
    found: str
    fix: str = ""
