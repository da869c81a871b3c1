"""Which jobs are quarantined: those that ended the workers of two slots that served well before and after.

Pure. A job that meets a slot in trouble is no suspect: an end is charged to it only where the slot's next worker
started at once, which includes the jail's self-test.
"""

from __future__ import annotations

from collections import OrderedDict

_ENDS = 2
_KEPT_MAX = 10_000

JobKey = tuple[str, str]  # sha256 of the agent's source, problem id


class Quarantine:
    """What each job ended. `slots`: how many the pool has; with a single one the second end in it counts, too."""

    def __init__(self, slots: int) -> None:
        self._apart = min(_ENDS, slots)
        self._ended_by: OrderedDict[JobKey, list[int]] = OrderedDict()  # the oldest is forgotten first

    def charge(self, job: JobKey, slot: int) -> bool:
        """The job ended the worker of this slot: whether it is quarantined now."""
        ended = self._ended_by.setdefault(job, [])
        ended.append(slot)
        if len(self._ended_by) > _KEPT_MAX:
            self._ended_by.popitem(last=False)
        return len(ended) >= _ENDS and len(set(ended)) >= self._apart

    def clear(self, job: JobKey) -> None:
        """The job came to its end: what it ended was by chance."""
        self._ended_by.pop(job, None)
