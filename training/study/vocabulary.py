"""The study's tokenizer: Qwen3's own frame around base tokens that the market's texts have taught.

It follows from the plan and the market's train problems alone, so two studies of one plan have the same. Its
texts are episodes of the scripted expert, of the concise model and of the random tool-caller, as the chat template
writes them: requests, tool schemas, results, calls. No problem of `dev`, of the 75 or of the suite is among them.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from training.model import Decode
from training.models.render import Qwen3Codec
from training.models.tokenizer_trim import train_tokenizer
from training.rollouts.rollout import jobs_of
from training.run_context import RunContext
from training.stages.teacher import trace_of
from training.study.plan import StudyPlan
from training.study.policies import CONCISE, EXPERT, RANDOM, RandomCaller, ScriptedUpstream

_SPECIAL = re.compile(r"<\|?/?[a-z_]+\|?>")
_UNBOUNDED = 1 << 30


def make_tokenizer(plan: StudyPlan, source: Path, target: Path, bench: RunContext) -> int:
    """Write `target`, a tokenizer folder, and return its number of tokens. Raises ArenaError V2121."""
    rules = plan.vocabulary
    train = sorted(bench.problems, key=lambda problem: problem.problem_id)
    drawn = random.Random(f"vocabulary {plan.seed}").sample(train, min(rules.problems, len(train)))
    decode = Decode(temperature=0.0, turns_max=plan.turns_max)
    codec = Qwen3Codec(source)
    texts: list[str] = []
    for number, job in enumerate(jobs_of(drawn, 1, plan.seed), 1):
        scripted = ScriptedUpstream()
        for upstream, model in ((scripted, EXPERT), (scripted, CONCISE), (RandomCaller(job.seed), RANDOM)):
            trace = trace_of(bench.ask(job, upstream, model, decode))
            row = codec.row(trace.trace_id, trace.messages, trace.tools, _UNBOUNDED)
            texts += _SPECIAL.split(codec.decode(row.token_ids))
        if bench.progress:
            bench.progress("texts", number, len(drawn))
    return train_tokenizer(source, target, texts, keep=rules.tokens)
