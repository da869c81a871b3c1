"""Selection: which records of a range go out whole, and why each of the others does not. Pure.

It asks first who may see what (`arena.visibility.rule`), then the request's filters, then the cursor; the
first reason found is the reason given. What decides is the record itself, the releases up to the range's end and, for
an evaluation, its body and verdict: never the order in which records are looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

from arena.export.files import LOG, REFERENCES, read_rows
from arena.export.model import Cursor, Filters, Request, Withheld
from arena.records.body import decode_content
from arena.records.model import (
    AttemptRecord,
    EvaluationRecord,
    GateRecord,
    RecordContent,
    ReleasedProblem,
    ReleaseRecord,
    SettlementRecord,
    Subject,
    VerdictRecord,
)
from arena.visibility.rule import Moment, Thing, may_see, settlement_moment, standing_of
from foundation.errors import ArenaError
from harness.trace import EvaluationBody
from judge.verdict import UnscoredVerdict, Verdict
from problems.model import Pool

Releases = Mapping[str, Mapping[str, ReleasedProblem]]  # race -> public problem id -> what its release says
AboutProblem = EvaluationRecord | VerdictRecord | AttemptRecord


class Selection:
    """The choice one request makes, given the releases that are in the log up to its end."""

    def __init__(
        self, request: Request, releases: Releases, start: Cursor, embargoed: Collection[str] = frozenset()
    ) -> None:
        """`embargoed`: the released races whose traces stay sealed for now. Raises ArenaError V2030 when a day of the
        filters is not a day."""
        self.request = request
        self._releases = releases
        self._embargoed = embargoed
        self.start = start
        self._from_ms = _day_ms(request.filters.from_day)
        self._to_ms = _day_ms(request.filters.to_day, days=1)

    def reason(self, seq: int, content: RecordContent) -> Withheld | None:
        """Why this record is left out as far as it says itself; None when only its size or contents could hold it."""
        payload = content.payload
        if isinstance(payload, ReleaseRecord):
            return None
        if isinstance(payload, SettlementRecord):
            race_moment: Moment = "settled" if payload.race_id in self._releases else "racing"
            withheld = self._withheld("settlement", settlement_moment(payload, race_moment))
            is_asked = not self.request.filters.races or payload.race_id in self.request.filters.races
        elif isinstance(payload, GateRecord):
            withheld = self._withheld("gate_verdict", "open")
            is_asked = not self.request.filters.races and self._is_of_agent(payload.subject)
        else:
            moment, pool = standing_of(payload.context, self._releases, self._embargoed)
            withheld = self._withheld("verdict" if isinstance(payload, VerdictRecord) else "trace", moment, pool)
            is_asked = self._is_asked(content.recorded_ms, payload)
        if withheld:
            return withheld
        if not is_asked:
            return "filter"
        race = race_of(content)
        is_exported = seq <= self.start.exported_to and (not race or race in self.start.races)
        return "exported" if is_exported else None

    def evaluation_reason(
        self, evaluation: EvaluationRecord, body: EvaluationBody, verdict: Verdict | UnscoredVerdict | None
    ) -> Withheld | None:
        """Why an evaluation is left out for what its body and verdict say."""
        filters: Filters = self.request.filters
        if filters.buckets and body.bucket not in filters.buckets:
            return "filter"
        if filters.is_agentic_only and not evaluation.is_agentic:
            return "filter"
        least = filters.coefficient_e4_min
        if least and not (isinstance(verdict, Verdict) and verdict.coefficient_e4 >= least):
            return "filter"
        return None

    def is_released(self, race_id: str) -> bool:
        """Whether nothing of this race waits any more. What belongs to no race never waits."""
        return not race_id or (race_id in self._releases and race_id not in self._embargoed)

    def problem(self, evaluation: EvaluationRecord) -> tuple[Pool, str]:
        """Pool and cluster id of an evaluation that goes out."""
        released = self._releases.get(evaluation.context.race_id, {}).get(evaluation.context.problem_id)
        if evaluation.context.stage != "race" or released is None:
            return "never_touch", ""
        return released.pool, released.cluster_id

    def _withheld(self, thing: Thing, moment: Moment, pool: Pool | None = None) -> Withheld | None:
        """Why a row about this does not go out to everybody."""
        access = may_see("public", thing, moment, pool=pool, pools=self.request.pools)
        if access.is_seen:
            return None
        return "pool" if access.opens in ("named", "never") else "unreleased"

    def _is_asked(self, recorded_ms: int, payload: AboutProblem) -> bool:
        filters, subject = self.request.filters, payload.subject
        if subject.is_control and subject.agent_version_id not in filters.agents:
            return False  # no miner's work: goes out only when its id is asked for
        if filters.races and payload.context.race_id not in filters.races:
            return False
        if not self._is_of_agent(payload.subject):
            return False
        if not isinstance(payload, EvaluationRecord):
            return True
        is_late_enough = self._from_ms is None or recorded_ms >= self._from_ms
        return is_late_enough and (self._to_ms is None or recorded_ms < self._to_ms)

    def _is_of_agent(self, subject: Subject) -> bool:
        asked = self.request.filters.agents
        return not asked or bool({subject.agent_version_id, subject.miner_hotkey} & set(asked))


def race_of(content: RecordContent) -> str:
    """The race a record's release waits for, or "" for a record that belongs to none."""
    payload = content.payload
    if isinstance(payload, ReleaseRecord | SettlementRecord):
        return payload.race_id
    if isinstance(payload, GateRecord):
        return ""
    return payload.context.race_id if payload.context.stage == "race" else ""


def releases_of(records: Mapping[str, ReleaseRecord]) -> Releases:
    """The released problems by race and public id."""
    return {
        race_id: {problem.problem_id: problem for problem in record.problems} for race_id, record in records.items()
    }


def check_request(request: Request) -> None:
    """Raises ArenaError V2030 for a request nothing can be made of."""
    for day in (request.filters.from_day, request.filters.to_day):
        _day_ms(day)
    if request.rows_per_shard < 1 or request.row_bytes_max < 1:
        raise ArenaError("V2030", "a shard has at least one row, and a row at least one byte")
    if not request.pools or not request.formats:
        raise ArenaError("V2030", "name at least one pool and one format")
    if len(set(request.formats)) != len(request.formats) or len(set(request.pools)) != len(request.pools):
        raise ArenaError("V2030", "a format or pool is named twice")


def _day_ms(day: str, *, days: int = 0) -> int | None:
    """Unix milliseconds at the start of a UTC day, or of the day that many days later; None for ""."""
    if not day:
        return None
    try:
        start = date.fromisoformat(day)
        if start.isoformat() != day:
            raise ValueError("not YYYY-MM-DD")
        start += timedelta(days=days)
    except (ValueError, OverflowError) as error:
        raise ArenaError("V2030", f"{day!r} is not a day: {error}") from error
    return int(datetime.combine(start, time(), UTC).timestamp() * 1000)


def read_releases(folder: Path) -> tuple[ReleaseRecord, ...]:
    """The release records of a verified export and of its references, each once, by their numbers. Raises ArenaError
    V2050 for a line that can't be read."""
    references = folder / REFERENCES
    paths = [*([references] if references.exists() else []), *sorted((folder / LOG).glob("*.jsonl.zst"))]
    found: dict[int, ReleaseRecord] = {}
    for path in paths:
        for row in read_rows(path):
            payload = None if row.content is None else decode_content(bytes(row.content)).payload
            if isinstance(payload, ReleaseRecord):
                found[row.seq] = payload
    return tuple(found[seq] for seq in sorted(found))
