"""The oracle: freeze, annotate, compile, verify, one trace at a time (paper, A.1), and what it would cost.

Each trace meets exactly one fate, the first stage that stops it. A fault of the endpoint is the fate of the traces that
it meets, with its code, and never counts as a model's failure. A tasklet is accepted when the
teacher solves more of its trials than the student by a margin that two equal models reach by luck no more often than
`chance_e4`, and the student does not find it trivial. A trial is an episode of the arena's own with the baseline agent:
a solved one would count there too. Nothing here changes a corpus. Shares are ten-thousandths, prices millionths of a
dollar.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Literal, get_args

import msgspec

from arena.policy import Policy
from foundation.canonical import text_hash
from foundation.codes import BAD_REQUEST
from foundation.errors import ArenaError
from harness.agents.registry import baseline_source
from harness.catalogue.port import Catalogue, SearchRequest
from harness.inference.port import ModelReply
from harness.limits import TokenPrice
from harness.trace import Completion
from judge.citations import check_quote
from judge.parse import RefusedReplyError
from judge.render import SPANS_MAX, RenderedTrace, SpanKind, cut_span, neutral_name, neutral_text, span_text
from problems.model import Problem, RewardItem
from training.corpus.gates import answered
from training.corpus.model import Trace
from training.rollouts.rollout import OwnEndpoint
from training.run_context import RunContext
from training.trac.asking import Answer, Asker, Chat, Usage, is_of_trace, prompt_text, prompt_tokens_bound, read_json

Dimension = Literal["intent", "search", "observation", "justification", "supervisor"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)

PROMPT_CHARS = (20, 2_000)
TERMS_MAX = 12
CITATIONS_MAX = 8
_EXPLANATION_CHARS = 2_000
_WORD = re.compile(r"\w+")
_FORM = '{"score": 0.0, "citations": [{"span": 1, "quote": "..."}], "explanation": "..."'


class SpanQuote(msgspec.Struct, frozen=True, kw_only=True):
    """A passage of the trace, verbatim, and the span it is in."""

    span: int
    quote: str


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """What one annotator says, of a score in [0, 1]. `train_use_decision` is the supervisor's alone."""

    dimension: str = ""
    score: float
    citations: tuple[SpanQuote, ...]
    explanation: str
    train_use_decision: bool | None = None


class Tasklet(msgspec.Struct, frozen=True, kw_only=True):
    """A task of its own: what is asked, the words that find each target, and the products that answer it."""

    prompt: str
    search_terms: tuple[str, ...]
    target_ids: tuple[str, ...] = ()


QUESTIONS: dict[Dimension, tuple[str, tuple[SpanKind, ...]]] = {  # and the kinds of span of which one must be cited
    "intent": (
        "Did the agent understand what the user wants: product type, every attribute, price, services, shop, budget?",
        ("completion", "call"),
    ),
    "search": (
        "Are the searches well chosen: specific words, filters where they help, reformulated when results were poor?",
        ("call",),
    ),
    "observation": (
        "Did the agent read the results rightly: no datum misread, overlooked or made up?",
        ("completion", "result"),
    ),
    "justification": (
        "Is the recommendation justified by what the tools returned, against the candidates that were seen?",
        ("completion",),
    ),
    "supervisor": (
        "Weigh the four annotations below against the record. Should a model be trained on this run? Set"
        " train_use_decision to true only for a run worth imitating as a whole.",
        ("completion", "call", "result"),
    ),
}


def read_trace(trace: Trace) -> RenderedTrace:
    """The spans of a trace, its request first; system prompts are left out. The same trace gives the same text."""
    names = {call.id: call.name for message in trace.messages for call in message.calls}
    parts: list[tuple[int, SpanKind, str, str]] = [(0, "query", trace.query, "")]  # with step and tool
    step = 0
    for message in trace.messages:
        if message.role == "tool":
            parts.append((step, "result", message.content, neutral_name(names.get(message.call_id, ""))))
        if message.role == "assistant":
            step += 1
            prose = "\n".join(part for part in (message.reasoning, message.content) if part.strip())
            parts += [(step, "completion", prose, "")] if prose else []
            parts += [(step, "call", call.arguments, neutral_name(call.name)) for call in message.calls]
    spans = tuple(
        msgspec.structs.replace(cut_span(number, kind, content), step=step, tool=tool)
        for number, (step, kind, content, tool) in enumerate(parts[:SPANS_MAX], 1)
    )
    return RenderedTrace(body_sha256=trace.trace_id, spans=spans, text="\n\n".join(map(span_text, spans)))


def annotator_chat(trace: RenderedTrace, dimension: Dimension, earlier: Sequence[Annotation]) -> Chat:
    """The conversation that asks for one annotation; the supervisor is shown the `earlier` ones."""
    question, kinds = QUESTIONS[dimension]
    is_supervisor = dimension == "supervisor"
    form = _FORM + (', "train_use_decision": false}' if is_supervisor else "}")
    system = prompt_text("trac", "annotate").format(question=question, form=form, kinds=" or ".join(kinds))
    shown = trace.text
    if is_supervisor:
        plain = [{"dimension": one.dimension, "score": one.score, "why": one.explanation} for one in earlier]
        shown += f"\n\n[[annotations of the four others]]\n{msgspec.json.encode(plain).decode()}"
    return ("system", system), ("user", shown)


def check_annotation(text: str, trace: RenderedTrace, dimension: Dimension) -> Annotation:
    """An annotation whose citations hold. Raises RefusedReplyError naming the first thing that is wrong."""
    reply = read_json(text, Annotation)
    if not 0 <= reply.score <= 1:
        raise RefusedReplyError(f"score {reply.score} is not between 0 and 1")
    if (reply.train_use_decision is not None) != (dimension == "supervisor"):
        raise RefusedReplyError("train_use_decision is the supervisor's, and only the supervisor's")
    if not 1 <= len(reply.citations) <= CITATIONS_MAX:
        raise RefusedReplyError(f"{len(reply.citations)} citations are not 1 to {CITATIONS_MAX}")
    spans = {span.number: span for span in trace.spans}
    for one in reply.citations:
        check_quote(one.quote, one.span, spans)
    kinds = QUESTIONS[dimension][1]
    if not any(spans[one.span].kind in kinds for one in reply.citations):
        raise RefusedReplyError(f"no citation is of a span of kind {' or '.join(kinds)}")
    return msgspec.structs.replace(reply, dimension=dimension, explanation=reply.explanation[:_EXPLANATION_CHARS])


def author_chat(trace: RenderedTrace, targets: tuple[str, ...]) -> Chat:
    """The conversation that asks for a tasklet."""
    return ("system", prompt_text("trac", "tasklet").format(targets=", ".join(targets))), ("user", trace.text)


def check_tasklet(text: str, targets: tuple[str, ...]) -> Tasklet:
    """A tasklet of the agreed form. Raises RefusedReplyError; grounding is `ungrounded`'s."""
    reply = read_json(text, Tasklet)
    prompt = " ".join(reply.prompt.split())
    if not PROMPT_CHARS[0] <= len(prompt) <= PROMPT_CHARS[1]:
        raise RefusedReplyError(f"the prompt has {len(prompt)} characters, not {PROMPT_CHARS[0]} to {PROMPT_CHARS[1]}")
    if named := [one for one in targets if one in prompt]:
        raise RefusedReplyError(f"the prompt names the product {named[0]}")
    terms = tuple(dict.fromkeys(" ".join(one.split()) for one in reply.search_terms if one.strip()))
    if not 1 <= len(terms) <= TERMS_MAX:
        raise RefusedReplyError(f"{len(terms)} search terms are not 1 to {TERMS_MAX}")
    words = set(_WORD.findall(prompt.casefold()))
    for term in terms:
        if unseen := sorted(set(_WORD.findall(term.casefold())) - words):
            raise RefusedReplyError(f"the search term {term!r} uses {unseen[0]!r}, which the prompt does not")
    return Tasklet(prompt=prompt, search_terms=terms, target_ids=targets)


def ungrounded(tasklet: Tasklet, catalogue: Catalogue, pages: int) -> tuple[str, ...]:
    """The targets that no search by the prompt's words brings to its first `pages` pages; none if it is grounded."""
    found = {
        product.product_id
        for term in tasklet.search_terms
        for page in range(1, pages + 1)
        for product in catalogue.search(SearchRequest(q=term, page=str(page)))
    }
    return tuple(one for one in tasklet.target_ids if one not in found)


Fate = Literal[
    "not_admitted",  # freeze: its outcome was no success, or none was recorded
    "not_annotated",  # an annotator gave no annotation whose citations are in the trace
    "not_accepted",  # the supervisor's train_use_decision is no
    "no_tasklet",  # the trace recommends nothing, or the author gave no tasklet that can be read
    "not_grounded",  # a target cannot be found by words that are in the tasklet's prompt
    "trivial",  # the student solves it by itself
    "no_margin",  # the teacher is not better than the student by more than luck
    "not_answered",  # the endpoint failed at a question or a trial: nothing is known; the next run asks again
    "accepted",
]
FATES: tuple[Fate, ...] = get_args(Fate)  # in the order of the stages
_DETAIL_CHARS = 300


class OracleRules(msgspec.Struct, frozen=True, kw_only=True):
    """How strict the oracle is. `chance_e4`: how often two equal models may seem to differ by the margin."""

    admits_failed: bool = False  # the paper's ORO_ALLOW_FAILED_TRACES
    replies_max: int = 2  # to one annotator or the author, the refused ones included
    reply_tokens_max: int = 1_024
    search_pages: int = 2  # that a target has to stand on, ten products each
    trials: int = 4  # of each model at one tasklet
    temperature_e4: int = 7_000  # of trials
    chance_e4: int = 500
    student_max_e4: int = 5_000  # a student that solves more of its trials finds the tasklet trivial

    def admits(self, trace: Trace) -> bool:
        """Freeze: a trace whose outcome was a success; any with the paper's flag for failed traces."""
        return trace.facts.is_success is True or self.admits_failed


class Roles(msgspec.Struct, frozen=True, kw_only=True):
    """Which model does what; the annotator is the tasklets' author too."""

    annotator: str
    teacher: str
    student: str


class TrialVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one trace, with everything that led to it. Successes are None where no trial was run.

    `code` names the failure that stopped it, "" for a decision on its merits.
    """

    trace_id: str
    place: str
    fate: Fate
    code: str = ""
    detail: str = ""
    annotations: tuple[Annotation, ...] = ()
    tasklet: Tasklet | None = None
    student_successes: int | None = None
    teacher_successes: int | None = None


class OracleReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run: how many traces met which fate, in the order of the stages, and what was paid. `faults` counts the
    traces that a failure of the endpoint stopped, by code."""

    rules: OracleRules
    roles: Roles
    margin: int  # trials by which a teacher has to be better
    traces: int
    fates: tuple[tuple[Fate, int], ...]
    faults: dict[str, int]
    usage: tuple[Usage, ...]


class StageCost(msgspec.Struct, frozen=True, kw_only=True):
    """One stage where every admitted trace passes all of them: calls (a trial counts as one), and the most that they
    can cost; None where no price was given."""

    stage: str
    model: str
    calls: int
    most_micro_usd: int | None


def estimate(
    traces: Sequence[Trace], rules: OracleRules, roles: Roles, prices: Mapping[str, TokenPrice], policy: Policy
) -> tuple[StageCost, ...]:
    """What these traces cost at most, by stage."""
    shown = [read_trace(trace) for trace in traces if rules.admits(trace)]
    count, trials, written = len(shown), len(shown) * rules.trials, rules.reply_tokens_max
    annotating = sum(prompt_tokens_bound(annotator_chat(one, name, ())) for one in shown for name in DIMENSIONS)
    annotating += 4 * count * written  # the supervisor reads what the four others wrote
    compiling = sum(prompt_tokens_bound(author_chat(one, ("0" * 10,) * 5)) for one in shown)
    tried = trials * policy.limits.prompt_tokens, trials * policy.limits.completion_tokens

    def cost(stage: str, model: str, calls: int, tokens: tuple[int, int]) -> StageCost:
        most = prices[model].cost_micro_usd(*tokens) if model in prices else None
        return StageCost(stage=stage, model=model, calls=calls, most_micro_usd=most)

    return (
        cost("annotate", roles.annotator, 5 * count, (annotating, 5 * count * written)),
        cost("compile", roles.annotator, count, (compiling, count * written)),
        cost("student", roles.student, trials, tried),
        cost("teacher", roles.teacher, trials, tried),
    )


class _Drawn(OwnEndpoint):
    """An upstream that is asked at one temperature, with one seed."""

    def __init__(self, asker: Asker, *, temperature_e4: int, seed: int) -> None:
        super().__init__(asker.upstream)
        self._drawn = {"temperature": temperature_e4 / 10_000, "seed": seed}

    def complete(self, request: str) -> ModelReply:
        """One attempt. Raises what the endpoint raises."""
        fields: dict[str, object] = msgspec.json.decode(request)
        return super().complete(msgspec.json.encode(fields | self._drawn).decode())


def problem_of(tasklet: Tasklet, catalogue: Catalogue) -> Problem:
    """The tasklet as a problem; its answer's rules are the ids alone, which a trial looks at."""
    found = [(one, catalogue.product(one)) for one in tasklet.target_ids]
    return Problem(
        problem_id=text_hash(msgspec.json.encode(tasklet).decode())[:32],
        bucket="product" if len(found) == 1 else "shop",
        query=tasklet.prompt,
        rewards=tuple(
            RewardItem(product_id=one, title=(product.title,) if product is not None else (one,))
            for one, product in found
        ),
    )


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


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """Judges traces, one by one. Thread-safe.

    Trials are episodes, kept with their question. One in which the endpoint was at fault is no trial: it counts neither
    as solved nor as failed, and the next run runs it again.
    """

    rules: OracleRules
    roles: Roles
    bench: RunContext
    asker: Asker

    def judge(self, trace: Trace) -> TrialVerdict:
        """What becomes of one trace.

        Raises ArenaError U3001 (no such endpoint, key or model), U3002 to U3004 for one that fell silent, V2148 at the
        limit of cost. Whatever was answered is kept.
        """
        verdict = TrialVerdict(trace_id=trace.trace_id, place=trace.source.place, fate="not_admitted")
        if not self.rules.admits(trace):
            return verdict
        found = functools.partial(msgspec.structs.replace, verdict)
        shown, limits = read_trace(trace), (self.rules.reply_tokens_max, self.rules.replies_max)
        annotations: list[Annotation] = []
        fate: Fate = "not_annotated"
        try:
            for name in DIMENSIONS:
                read = functools.partial(check_annotation, trace=shown, dimension=name)
                chat = annotator_chat(shown, name, annotations)
                annotations.append(self.asker.ask_checked(self.roles.annotator, chat, *limits, read)[0])
            found = functools.partial(found, annotations=tuple(annotations))
            if not annotations[-1].train_use_decision:
                return found(fate="not_accepted")
            fate, targets = "no_tasklet", answered(trace)
            if not targets:
                return found(fate=fate, detail="the trace recommends nothing")
            author = author_chat(shown, targets)
            tasklet, _ = self.asker.ask_checked(
                self.roles.annotator, author, *limits, lambda text: check_tasklet(text, targets)
            )
            found = functools.partial(found, tasklet=tasklet)
            if missing := ungrounded(tasklet, self.bench.catalogue, self.rules.search_pages):
                return found(fate="not_grounded", detail=f"not found by the prompt's words: {', '.join(missing)}")
            fate, student, teacher = self.verify(tasklet)
            return found(fate=fate, student_successes=student, teacher_successes=teacher)
        except RefusedReplyError as refused:
            where = f"{DIMENSIONS[len(annotations)]}: " if fate == "not_annotated" else ""
            return found(fate=fate, detail=f"{where}{refused}")
        except ArenaError as error:
            if not is_of_trace(error):
                raise
            detail = neutral_text(error.failure.detail)[:_DETAIL_CHARS]
            return found(fate="not_answered", code=error.failure.code, detail=detail)

    def verify(self, tasklet: Tasklet) -> tuple[Fate, int, int | None]:
        """(fate, trials that the student solved, those that the teacher did: None where it was not needed).

        Raises as `attempt`.
        """
        rules, solved = self.rules, 0
        margin = calibrated_margin(rules.trials, rules.chance_e4)
        for number in range(rules.trials):
            solved += self.attempt(self.roles.student, tasklet, number)
            if solved * 10_000 > rules.student_max_e4 * rules.trials:
                return "trivial", solved, None
        if solved + margin > rules.trials:
            return "no_margin", solved, None
        taught = sum(self.attempt(self.roles.teacher, tasklet, number) for number in range(rules.trials))
        return "accepted" if taught - solved >= margin else "no_margin", solved, taught

    def attempt(self, model: str, tasklet: Tasklet, number: int) -> bool:
        """Whether exactly the tasklet's products were recommended in a model's trial, numbered from 0.

        Raises ArenaError A1040, U3001 to U3004 for an endpoint's fault, V2148 for the limit, V2xxx for a fault of ours.
        """
        question = {
            "tasklet": msgspec.to_builtins(tasklet),
            "model": model,
            "number": number,
            "temperature_e4": self.rules.temperature_e4,
            "policy_sha256": self.bench.policy.policy_sha256,
            "catalogue_sha256": self.bench.catalogue.content_sha256,
            "agent_sha256": text_hash(baseline_source(model)),
        }
        limits = self.bench.policy.limits
        bounds = limits.prompt_tokens, limits.completion_tokens
        return self.asker.once(model, question, bounds, lambda: self._run(model, tasklet, number)).is_solved

    def _run(self, model: str, tasklet: Tasklet, number: int) -> Answer:
        policy, problem = self.bench.policy, problem_of(tasklet, self.bench.catalogue)
        inference = msgspec.structs.replace(policy.inference, models=(model,))
        rules = msgspec.structs.replace(policy, inference=inference)
        drawn = _Drawn(self.asker, temperature_e4=self.rules.temperature_e4, seed=number)
        body = self.bench.evaluate(baseline_source(model), problem, rules, drawn, is_last=True).body
        refusals = [failure for event in body.events if (failure := getattr(event, "failure", None)) is not None]
        if refusals and not any(isinstance(event, Completion) for event in body.events):
            raise ArenaError(BAD_REQUEST, refusals[-1].detail)  # such as a prompt over its context
        is_solved = set(body.recommended or ()) == set(tasklet.target_ids) and not body.unsurfaced
        return Answer(
            is_solved=is_solved and body.failure is None,
            prompt_tokens=body.totals.prompt_tokens,
            completion_tokens=body.totals.completion_tokens,
        )

    def report(self, found: Sequence[TrialVerdict]) -> OracleReport:
        """The counts of a finished run."""
        counts = Counter(one.fate for one in found)
        return OracleReport(
            rules=self.rules,
            roles=self.roles,
            margin=calibrated_margin(self.rules.trials, self.rules.chance_e4),
            traces=len(found),
            fates=tuple((fate, counts[fate]) for fate in FATES),
            faults=dict(sorted(Counter(one.code for one in found if one.code).items())),
            usage=self.asker.usage(),
        )
