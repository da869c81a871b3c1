"""The oracle: freeze, annotate, compile, verify, one trace at a time (paper, A.1), and what it would cost.

Each trace meets exactly one fate, the first stage that stops it. A fault of the endpoint or a limit that is reached is
the fate of the traces that it meets, with its code, and never counts as a model's failure. A tasklet is accepted when
the teacher solves more of its trials than the student by a margin that two equal models reach by luck no more often
than `chance_e4`, and the student does not find it trivial. Nothing here changes a corpus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import comb

import msgspec

from arena.policy import Policy
from foundation.codes.names import MODEL_BUSY, MODEL_FAILED, MODEL_UNREADABLE, NO_ANSWER_TO_THIS, OVER_LIMIT
from foundation.codes.row import owner_of
from foundation.errors import ArenaError
from foundation.progress import PhaseProgress
from harness.catalogue.port import Catalogue
from judge.neutral import neutral_text
from training.corpus.leak_guard import answered
from training.corpus.model import Trace
from training.trac.annotation import annotate, annotator_chat, author_chat, compile_tasklet, read_trace, ungrounded
from training.trac.asking import Asker, prompt_tokens_bound
from training.trac.model import (
    DIMENSIONS,
    FATES,
    Fate,
    FaultCount,
    OracleReport,
    OracleRules,
    Price,
    Roles,
    Tasklet,
    TrialVerdict,
)

_BYTES_PER_TOKEN = 4
_ID = "0" * 10


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and their price."""

    prompt_tokens: int
    completion_tokens: int
    micro_usd: int = 0


class StageCost(msgspec.Struct, frozen=True, kw_only=True):
    """One stage: calls (a trial counts as one), and what they cost. `is_priced` False: no price was given."""

    stage: str
    model: str
    calls: int
    likely: Amount
    most: Amount
    is_priced: bool


class CostEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """A run."""

    traces: int
    admitted: int
    stages: tuple[StageCost, ...]

    @property
    def likely_micro_usd(self) -> int:
        """The likely price of all stages."""
        return sum(one.likely.micro_usd for one in self.stages)

    @property
    def most_micro_usd(self) -> int:
        """The price at most."""
        return sum(one.most.micro_usd for one in self.stages)


def estimate(
    traces: Sequence[Trace], rules: OracleRules, roles: Roles, prices: Mapping[str, Price], policy: Policy
) -> CostEstimate:
    """What these traces cost."""
    admitted = [trace for trace in traces if admit(trace, rules)]
    shown = [read_trace(trace) for trace in admitted]
    count, trials, written = len(shown), len(shown) * rules.trials, rules.reply_tokens_max
    annotating = sum(prompt_tokens_bound(annotator_chat(one, name, ())) for one in shown for name in DIMENSIONS)
    compiling = sum(prompt_tokens_bound(author_chat(one, (_ID,) * 5)) for one in shown)
    notes = 4 * count * written  # the supervisor reads what the four others wrote
    limits = policy.limits
    prompts = completions = 0  # tokens of episodes like these, one each
    for trace in admitted:
        before = 0  # each turn sends all before it
        for message in trace.messages:
            texts = [message.content, message.reasoning, *(f"{call.name}{call.arguments}" for call in message.calls)]
            tokens = sum(len(text.encode("utf-8", "replace")) for text in texts) // _BYTES_PER_TOKEN
            if message.role == "assistant":
                prompts += before + len(trace.tools) // _BYTES_PER_TOKEN
                completions += tokens
            before += tokens
    trial_likely = Amount(prompt_tokens=rules.trials * prompts, completion_tokens=rules.trials * completions)
    trial_most = Amount(
        prompt_tokens=trials * limits.prompt_tokens, completion_tokens=trials * limits.completion_tokens
    )

    def asked(calls: int, prompt_tokens: int) -> tuple[Amount, Amount]:
        likely = Amount(prompt_tokens=prompt_tokens * 3 // 4, completion_tokens=calls * written // 4)
        return likely, Amount(prompt_tokens=prompt_tokens, completion_tokens=calls * written)

    rows = (
        ("annotate", roles.annotator, 5 * count, *asked(5 * count, annotating + notes)),
        ("compile", roles.author, count, *asked(count, compiling)),
        ("student", roles.student, trials, trial_likely, trial_most),
        ("teacher", roles.teacher, trials, trial_likely, trial_most),
    )
    stages = tuple(
        StageCost(
            stage=stage,
            model=model,
            calls=calls,
            likely=_priced(likely, prices.get(model, Price())),
            most=_priced(most, prices.get(model, Price())),
            is_priced=model in prices,
        )
        for stage, model, calls, likely, most in rows
    )
    return CostEstimate(traces=len(traces), admitted=count, stages=stages)


def _priced(amount: Amount, price: Price) -> Amount:
    cost = price.micro_usd(amount.prompt_tokens, amount.completion_tokens)
    return msgspec.structs.replace(amount, micro_usd=cost)


Attempt = Callable[[str, Tasklet, int], bool]  # model, tasklet, number of the trial from 0: whether it was solved


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """How a tasklet fared. `teacher` is None where the student alone decided."""

    fate: Fate
    student: int
    teacher: int | None


def calibrated_margin(trials: int, chance_e4: int) -> int:
    """The least number of solved trials by which a model has to be better.

    Two equal models of `trials` trials each differ by d or more in one direction most often when they solve half; then
    the chance is the sum over k >= d of C(2n, n + k) / 4^n. Above `trials` where no margin is rare enough: nothing can
    then be accepted, and more trials are needed.
    """
    outcomes, tail = 4**trials, 0
    for margin in range(trials, 0, -1):
        tail += comb(2 * trials, trials + margin)
        if tail * 10_000 > chance_e4 * outcomes:
            return margin + 1
    return 1


def verify(tasklet: Tasklet, student: str, teacher: str, rules: OracleRules, attempt: Attempt) -> Verified:
    """Run the trials that are needed. Raises what an attempt raises."""
    margin = calibrated_margin(rules.trials, rules.chance_e4)
    solved = 0
    for number in range(rules.trials):
        solved += attempt(student, tasklet, number)
        if solved * 10_000 > rules.student_max_e4 * rules.trials:
            return Verified(fate="trivial", student=solved, teacher=None)
    if solved + margin > rules.trials:
        return Verified(fate="no_margin", student=solved, teacher=None)
    taught = sum(attempt(teacher, tasklet, number) for number in range(rules.trials))
    fate: Fate = "accepted" if taught - solved >= margin else "no_margin"
    return Verified(fate=fate, student=solved, teacher=taught)


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
