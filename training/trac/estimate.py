"""What a run of the oracle costs, before anything is asked. Pure.

Two figures a stage, both for traces that pass every stage with first replies. `most` is a bound: prompts by
bytes, replies at their limit, trials at the policy's budgets. `likely` takes four bytes a token, replies of a quarter
of their limit, and trials as long as the trace itself. What is already answered is not taken off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from arena.policy import Policy
from training.corpus.model import Trace
from training.trac.annotation import annotator_chat
from training.trac.asking import prompt_tokens_bound
from training.trac.compilation import author_chat
from training.trac.model import DIMENSIONS, OracleRules, Price, Roles
from training.trac.oracle import admit
from training.trac.reading import read_trace

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
