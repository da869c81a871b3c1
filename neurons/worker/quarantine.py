"""Which jobs are quarantined: those that ended workers in two places that served well before and after.

Pure. A place is a slot of this machine, or another machine with all its slots, which fail together. A job that meets a
place in trouble is no suspect: an end is charged to it only where the slot's next worker started at once, which
includes the jail's self-test.
"""

from __future__ import annotations

from collections import OrderedDict

_ENDS = 2
_KEPT_MAX = 10_000

Place = int | str  # a slot of this machine, or another machine's name
JobKey = tuple[str, str]  # sha256 of the agent's source and problem id; of a judging "" and the body's hash


class Quarantine:
    """What each job ended."""

    def __init__(self) -> None:
        self._ended_by: OrderedDict[JobKey, list[Place]] = OrderedDict()  # the oldest is forgotten first

    def charge(self, job: JobKey, place: Place, of: int) -> bool:
        """The job ended a worker in this place: whether it is quarantined now. `of`: in how many places it may run now;
        with a single one the second end in it counts, too."""
        ended = self._ended_by.setdefault(job, [])
        ended.append(place)
        if len(self._ended_by) > _KEPT_MAX:
            self._ended_by.popitem(last=False)
        return len(ended) >= _ENDS and len(set(ended)) >= min(_ENDS, of)

    def clear(self, job: JobKey) -> None:
        """The job came to its end: what it ended was by chance."""
        self._ended_by.pop(job, None)
