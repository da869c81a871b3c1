"""A trial: a model solves a tasklet in an episode of the arena's own, over a catalogue, with the baseline agent.

Tools, budgets, surfaced rule and catalogue are the arena's, so a solved trial would count there as well. It is
solved when exactly the tasklet's products are recommended. Draws differ by temperature and seed alone. A trial is kept
with its question; one in which the endpoint was at fault or the time over is no trial: it counts neither as solved nor
as failed, and the next run runs it again.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from arena.evaluate import EvaluatePorts, Evaluation, evaluate
from arena.policy import Policy
from foundation.canonical import text_hash
from foundation.codes.names import NO_ANSWER_TO_THIS
from foundation.errors import ArenaError
from harness.agents.registry import baseline_source
from harness.catalogue.port import Catalogue
from harness.inference.port import ModelReply, Upstream
from harness.sandbox.port import GuestCallError
from problems.model import Problem, RewardItem
from problems.titles import TitleMatcher
from training.rollouts.in_process import InProcessSandbox, OwnEndpoint
from training.trac.asking import Asker
from training.trac.model import OracleRules, Tasklet, Trial


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What trials run on."""

    policy: Policy
    catalogue: Catalogue
    titles: TitleMatcher
    upstream: Upstream


class _TrialQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides a trial."""

    tasklet: Tasklet
    model: str
    number: int
    temperature_e4: int
    policy_sha256: str
    catalogue_sha256: str
    agent_sha256: str


@dataclass(frozen=True, kw_only=True)
class Episodes:
    """`training.trac.oracle.Attempt` by episodes. Thread-safe."""

    stage: Stage
    rules: OracleRules
    asker: Asker

    def __call__(self, model: str, tasklet: Tasklet, number: int) -> bool:
        """Whether the trial was solved.

        Raises ArenaError U3001 to U3004 and U3054 for an endpoint's fault, V2148 for a limit, V2xxx for one of ours.
        """
        policy, catalogue = self.stage.policy, self.stage.catalogue
        source = baseline_source(model)
        question = _TrialQuestion(
            tasklet=tasklet,
            model=model,
            number=number,
            temperature_e4=self.rules.temperature_e4,
            policy_sha256=policy.policy_sha256,
            catalogue_sha256=catalogue.content_sha256,
            agent_sha256=text_hash(source),
        )
        limits = policy.limits
        bounds = limits.prompt_tokens, limits.completion_tokens
        drawn = _Drawn(self.stage.upstream, question, self.asker)
        return self.asker.trial(model, question, bounds, lambda: self._run(source, tasklet, drawn)).is_solved

    def _run(self, source: str, tasklet: Tasklet, drawn: _Drawn) -> Trial:
        policy = self.stage.policy
        inference = msgspec.structs.replace(policy.inference, models=(drawn.question.model,))
        evaluation = evaluate(
            source,
            problem_of(tasklet, self.stage.catalogue),
            EvaluatePorts(
                policy=msgspec.structs.replace(policy, inference=inference),
                catalogue=self.stage.catalogue,
                titles=self.stage.titles,
                sandbox=InProcessSandbox(frozenset([text_hash(source)])),
                upstreams=[drawn],
                judges=(),
                is_last=True,
            ),
        )
        if drawn.refused is not None and not drawn.is_heard:
            raise ArenaError(NO_ANSWER_TO_THIS, drawn.refused)
        totals = evaluation.body.totals
        return Trial(
            is_solved=is_solved(evaluation, tasklet),
            prompt_tokens=totals.prompt_tokens,
            completion_tokens=totals.completion_tokens,
        )


def problem_of(tasklet: Tasklet, catalogue: Catalogue) -> Problem:
    """The tasklet as a problem; its answer's rules are the ids alone, which `is_solved` looks at."""
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


def is_solved(evaluation: Evaluation, tasklet: Tasklet) -> bool:
    """Exactly the tasklet's products were recommended, and the agent did not fail."""
    body = evaluation.body
    return body.failure is None and set(body.recommended or ()) == set(tasklet.target_ids) and not body.unsurfaced


class _Drawn(OwnEndpoint):
    """An upstream that is asked at one temperature, with one seed."""

    def __init__(self, upstream: Upstream, question: _TrialQuestion, asker: Asker) -> None:
        super().__init__(upstream)
        self.question, self._asker = question, asker
        self.is_heard = False  # it answered a request of this trial
        self.refused: str | None = None  # the last request that it called malformed, such as one over its context

    def complete(self, request: str) -> ModelReply:
        """One attempt. Raises what the endpoint raises, and V2148 once the run's time is over."""
        self._asker.require_time()
        fields: dict[str, object] = msgspec.json.decode(request)
        drawn = {"temperature": self.question.temperature_e4 / 10_000, "seed": self.question.number}
        try:
            reply = super().complete(msgspec.json.encode(fields | drawn).decode())
        except GuestCallError as error:
            self.refused = error.message
            raise
        self.is_heard = True
        return reply
