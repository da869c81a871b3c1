"""Which jobs are quarantined: those that ended the workers of two slots that served well before and after.

Pure. A job that meets a slot in trouble is no suspect: an end is charged to it only where the slot's next worker
started at once, which includes the jail's self-test.
"""

from __future__ import annotations

from collections import OrderedDict

_ENDS = 2
_KEPT_MAX = 10_000

JobKey = tuple[str, str]  # sha256 of the agent's source and problem id; of a judging "" and the body's hash


class Quarantine:
    """What each job ended."""

    def __init__(self) -> None:
        self._ended_by: OrderedDict[JobKey, list[int]] = OrderedDict()  # the oldest is forgotten first

    def charge(self, job: JobKey, slot: int, of: int) -> bool:
        """The job ended the worker of this slot: whether it is quarantined now. `of`: in how many slots it may run;
        with a single one the second end in it counts, too."""
        ended = self._ended_by.setdefault(job, [])
        ended.append(slot)
        if len(self._ended_by) > _KEPT_MAX:
            self._ended_by.popitem(last=False)
        return len(ended) >= _ENDS and len(set(ended)) >= min(_ENDS, of)

    def clear(self, job: JobKey) -> None:
        """The job came to its end: what it ended was by chance."""
        self._ended_by.pop(job, None)
