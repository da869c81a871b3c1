"""The oracle: freeze, annotate, compile, verify, one trace at a time (paper, A.1). Off by default.

Each trace meets exactly one fate, the first stage that stops it; results come in the order of the traces,
whatever runs side by side. A fault of the endpoint or a limit that is reached is the fate of the traces that it meets,
with its code, and never counts as a model's failure. Everything that was paid for is kept, so a run that ended early
goes on where it was, and a second run costs nothing. Nothing here changes a corpus: what is accepted is listed beside
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from foundation.codes.names import MODEL_BUSY, MODEL_FAILED, MODEL_UNREADABLE, NO_ANSWER_TO_THIS, OVER_LIMIT
from foundation.codes.row import owner_of
from foundation.errors import ArenaError
from foundation.progress import PhaseProgress
from harness.catalogue.port import Catalogue
from judge.neutral import neutral_text
from training.corpus.leak_guard import answered
from training.corpus.model import Trace
from training.trac.annotation import annotate
from training.trac.asking import Asker
from training.trac.compilation import compile_tasklet, ungrounded
from training.trac.model import FATES, Fate, FaultCount, OracleReport, OracleRules, Roles, TrialVerdict
from training.trac.reading import read_trace
from training.trac.verification import Attempt, calibrated_margin, verify

_DETAIL_CHARS = 300
_FATE_BY_CODE: dict[str, Fate] = {
    **dict.fromkeys((MODEL_FAILED, MODEL_UNREADABLE, MODEL_BUSY, NO_ANSWER_TO_THIS), "not_answered"),
    OVER_LIMIT: "not_reached",
    "U3050": "not_annotated",
    "U3051": "no_tasklet",
}


def admit(trace: Trace, rules: OracleRules) -> bool:
    """Freeze: a trace whose outcome was a success; any with the paper's flag for failed traces."""
    return trace.facts.is_success is True or rules.admits_failed


def judge_traces(
    traces: Sequence[Trace],
    rules: OracleRules,
    roles: Roles,
    asker: Asker,
    catalogue: Catalogue,
    attempt: Attempt,
    *,
    parallel: int = 1,
    progress: PhaseProgress | None = None,
) -> Iterator[TrialVerdict]:
    """What becomes of each trace.

    Raises ArenaError U3001 (no such endpoint, key or model) and A1040 (it refuses even a short question): nothing can
    be asked then. Whatever was answered is kept.
    """
    with ThreadPoolExecutor(parallel) as pool:
        running = [pool.submit(judge_trace, one, rules, roles, asker, catalogue, attempt) for one in traces]
        try:
            for number, future in enumerate(running, 1):
                yield future.result()
                if progress:
                    progress(number, len(running))
        finally:
            for future in running:  # after an error nothing more is begun
                future.cancel()


def judge_trace(
    trace: Trace, rules: OracleRules, roles: Roles, asker: Asker, catalogue: Catalogue, attempt: Attempt
) -> TrialVerdict:
    """What becomes of one trace. Raises as `judge_traces`."""
    so_far = TrialVerdict(trace_id=trace.trace_id, place=trace.source.place, fate="not_admitted")
    if not admit(trace, rules):
        return so_far
    shown = read_trace(trace)
    try:
        annotations = annotate(shown, roles.annotator, rules, asker)
        so_far = _with(so_far, fate="not_accepted", annotations=annotations)
        if not annotations[-1].train_use_decision:
            return so_far
        targets = answered(trace)
        if not targets:
            return _with(so_far, fate="no_tasklet", detail="the trace recommends nothing")
        tasklet = compile_tasklet(shown, targets, roles.author, rules, asker)
        so_far = _with(so_far, tasklet=tasklet)
        if missing := ungrounded(tasklet, catalogue, rules.search_pages):
            return _with(so_far, fate="not_grounded", detail=f"not found by the prompt's words: {', '.join(missing)}")
        found = verify(tasklet, roles.student, roles.teacher, rules, attempt)
    except ArenaError as error:
        code = error.failure.code
        if code not in _FATE_BY_CODE:
            raise
        detail = neutral_text(error.failure.detail)[:_DETAIL_CHARS]
        return _with(so_far, fate=_FATE_BY_CODE[code], code=code, detail=detail)
    return _with(so_far, fate=found.fate, student_successes=found.student, teacher_successes=found.teacher)


def report(found: Sequence[TrialVerdict], rules: OracleRules, roles: Roles, asker: Asker) -> OracleReport:
    """The counts of a finished run."""
    counts = Counter(one.fate for one in found)
    faults = Counter(one.code for one in found if one.code)
    return OracleReport(
        rules=rules,
        roles=roles,
        margin=calibrated_margin(rules.trials, rules.chance_e4),
        traces=len(found),
        fates=tuple((fate, counts[fate]) for fate in FATES),
        faults=tuple(FaultCount(code=code, owner=owner_of(code), traces=faults[code]) for code in sorted(faults)),
        usage=asker.usage(),
    )


def _with(so_far: TrialVerdict, **fields: object) -> TrialVerdict:
    return msgspec.structs.replace(so_far, **fields)
