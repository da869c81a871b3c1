"""What one evaluation is recorded as, wherever it ran: the attempt, the evaluation, and the verdict where there is one.

Pure. A validator's worker and the study write their records from this one function, in this order.
"""

from __future__ import annotations

import msgspec

from arena.evaluate import Evaluation
from arena.records.model import (
    AttemptRecord,
    Conditions,
    Context,
    EvaluationRecord,
    Payload,
    Subject,
    VerdictRecord,
)


def records_of(
    evaluation: Evaluation,
    *,
    attempt_id: str,
    subject: Subject,
    context: Context,
    conditions: Conditions,
    body_sha256: str,
) -> list[Payload]:
    """The records of an evaluation. Of `conditions`, the sandbox is the one that the episode ran in."""
    body = evaluation.body
    records: list[Payload] = [
        AttemptRecord(
            attempt_id=attempt_id,
            subject=subject,
            context=context,
            ended="evaluated",
            body_sha256=body_sha256,
            failure=body.failure,
        ),
        EvaluationRecord(
            attempt_id=attempt_id,
            subject=subject,
            context=context,
            conditions=msgspec.structs.replace(conditions, sandbox=evaluation.sandbox),
            body_sha256=body_sha256,
            stop=body.stop,
            failure=body.failure,
            is_agentic=body.is_agentic,
            totals=body.totals,
            outcome=evaluation.outcome,
        ),
    ]
    if evaluation.verdict is not None:
        records.append(VerdictRecord(subject=subject, context=context, verdict=evaluation.verdict))
    return records
