"""The oracle: freeze, annotate, compile, verify, one trace at a time (paper, A.1). Off by default.

Promise: each trace meets exactly one fate, the first stage that stops it; results come in the order of the traces,
whatever runs side by side. Everything that was paid for is kept, so a run that ended early goes on where it was, and a
second run costs nothing. Nothing here changes a corpus: what is accepted is listed beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from foundation.codes.names import NO_ANSWER_TO_THIS
from foundation.errors import ArenaError
from foundation.progress import PhaseProgress
from harness.catalogue.port import Catalogue
from judge.neutral import neutral_text
from training.corpus.filter.leak_guard import answered
from training.corpus.model import Trace
from training.trac.annotation import annotate
from training.trac.asking import Asker
from training.trac.compilation import compile_tasklet, ungrounded
from training.trac.model import FATES, OracleReport, OracleRules, Roles, TrialVerdict
from training.trac.reading import read_trace
from training.trac.verification import Attempt, calibrated_margin, verify

_DETAIL_CHARS = 300


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
    """What becomes of each trace. Raises ArenaError V2148, A1040, U3001 to U3004: whatever was answered is kept."""
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
    """What becomes of one trace."""
    so_far = TrialVerdict(trace_id=trace.trace_id, place=trace.source.place, fate="not_admitted")
    if not admit(trace, rules):
        return so_far
    shown = read_trace(trace)
    try:
        annotations = annotate(shown, roles.annotator, rules, asker)
    except ArenaError as error:
        return _stopped(so_far, "not_annotated", error, "U3050")
    so_far = _with(so_far, fate="not_accepted", annotations=annotations)
    if not annotations[-1].train_use_decision:
        return so_far
    targets = answered(trace)
    if not targets:
        return _with(so_far, fate="no_tasklet", detail="the trace recommends nothing")
    try:
        tasklet = compile_tasklet(shown, targets, roles.author, rules, asker)
    except ArenaError as error:
        return _stopped(so_far, "no_tasklet", error, "U3051")
    so_far = _with(so_far, tasklet=tasklet)
    if missing := ungrounded(tasklet, catalogue, rules.search_pages):
        return _with(so_far, fate="not_grounded", detail=f"not found by the prompt's words: {', '.join(missing)}")
    found = verify(tasklet, roles.student, roles.teacher, rules, attempt)
    return _with(so_far, fate=found.fate, student_successes=found.student, teacher_successes=found.teacher)


def report(found: Sequence[TrialVerdict], rules: OracleRules, roles: Roles, asker: Asker) -> OracleReport:
    """The counts of a finished run."""
    counts = Counter(one.fate for one in found)
    return OracleReport(
        rules=rules,
        roles=roles,
        margin=calibrated_margin(rules.trials, rules.chance_e4),
        traces=len(found),
        fates=tuple((fate, counts[fate]) for fate in FATES),
        usage=asker.usage(),
    )


def _with(so_far: TrialVerdict, **fields: object) -> TrialVerdict:
    return msgspec.structs.replace(so_far, **fields)


def _stopped(so_far: TrialVerdict, fate: str, error: ArenaError, code: str) -> TrialVerdict:
    """The fate where the models' own replies were the trouble, or one question was more than the endpoint takes; any
    other error ends the run."""
    if error.failure.code not in (code, NO_ANSWER_TO_THIS):
        raise error
    detail = neutral_text(f"{error.failure.code}: {error.failure.detail}")
    return _with(so_far, fate=fate, detail=detail[:_DETAIL_CHARS])
