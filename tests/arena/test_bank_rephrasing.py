"""A model's words are used only when every constraint survived them; otherwise the loss is named."""

from __future__ import annotations

import json
import random

import msgspec

from arena.bank.rephrasing import Sampling, reword
from harness.inference.port import ModelReply
from problems.clusters import cluster_id
from problems.constraints import say_problem, say_voucher
from problems.model import BUCKETS, Problem
from problems.synthesis import synthesize
from problems.wording import check_rewording, said_names
from tests.problems.stand import make_catalogue

PROBLEMS = synthesize(make_catalogue(600), seed=21, counts=dict.fromkeys(BUCKETS, 8))
SAMPLING = Sampling(model="wordy", seed=40)


def other_words(problem: Problem, seed: int = 1) -> str:
    """A faithful rewriting of the goods, as a good model would give it."""
    names = [" ".join(words) for words in said_names(problem)]
    return say_problem(problem.bucket, names, problem.rewards, None, random.Random(seed))


class ScriptedWriter:
    """An upstream that answers from a queue of texts and keeps the requests."""

    name = "scripted"

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.requests: list[dict[str, object]] = []

    def complete(self, request: str) -> ModelReply:
        self.requests.append(json.loads(request))
        return ModelReply(model="wordy", content=self.texts.pop(0), prompt_tokens=1, completion_tokens=1, message="{}")

    def probe(self, request: str) -> None:
        return None


def test_a_faithful_wording_is_used_and_nothing_else_changes():
    for problem in PROBLEMS:
        done = reword(problem, ScriptedWriter(other_words(problem)), SAMPLING)
        assert done.failure is None and done.attempts == 1
        assert check_rewording(problem, done.problem.query) == ()
        assert msgspec.structs.replace(done.problem, query=problem.query) == problem
        assert cluster_id(done.problem) == cluster_id(problem)
        if problem.voucher is not None:
            assert done.problem.query.endswith(say_voucher(problem.voucher))


def lose_a_value(problem: Problem) -> tuple[str, str]:
    item = next(item for item in problem.rewards if item.attributes)
    ((key, (value,)),) = item.attributes[0].items()
    return other_words(problem).replace(f"{key.replace('_', ' ')} {value}", "something nice"), value


def test_a_wording_that_loses_a_constraint_is_asked_for_again_and_told_what_was_lost():
    problem = next(problem for problem in PROBLEMS if any(item.attributes for item in problem.rewards))
    lossy, value = lose_a_value(problem)
    writer = ScriptedWriter(lossy, other_words(problem))
    done = reword(problem, writer, SAMPLING)
    assert done.failure is None and done.attempts == 2
    first, second = writer.requests
    complaint = second["messages"][-1]["content"]
    assert "missing" in complaint and value in complaint
    assert second["messages"][-2] == {"role": "assistant", "content": lossy}
    assert (first["seed"], second["seed"]) == (41, 42) and first["temperature"] == 0.9


def test_a_problem_no_reply_words_faithfully_is_refused_with_the_constraint_named():
    problem = next(problem for problem in PROBLEMS if any(item.attributes for item in problem.rewards))
    lossy, value = lose_a_value(problem)
    refused = reword(problem, ScriptedWriter(lossy, lossy, lossy), SAMPLING)
    assert refused.failure is not None and refused.attempts == 3 and refused.problem == problem
    assert refused.failure.code == "P4016" and value in refused.failure.detail


def test_what_a_model_may_do_wrong_is_refused():
    problem = next(problem for problem in PROBLEMS if problem.bucket == "shop")
    good = other_words(problem)
    services = " Cash on delivery and LazMall and free shipping and a flash sale only!"
    for text in (good + services, good + " It must cost more than 1 PHP.", "", good * 60, good[: len(good) // 3]):
        refused = reword(problem, ScriptedWriter(text), SAMPLING, attempts=1)
        assert refused.failure is not None and refused.failure.code == "P4016", text


def test_the_model_sees_neither_ids_nor_voucher():
    for problem in PROBLEMS:
        writer = ScriptedWriter(other_words(problem))
        reword(problem, writer, SAMPLING)
        sent = json.dumps(writer.requests)
        assert problem.problem_id not in sent and "voucher" not in sent
        assert not any(item.product_id in sent for item in problem.rewards)


def test_a_problem_that_does_not_say_its_own_constraints_is_not_worded():
    silent = msgspec.structs.replace(PROBLEMS[0], query="something nice")
    kept = reword(silent, ScriptedWriter(), SAMPLING)
    assert kept.problem == silent and kept.failure is not None and (kept.failure.code, kept.attempts) == ("P4016", 0)
