"""Rephrasing: a problem said in a model's words, by any OpenAI-compatible endpoint, if every constraint survives them.

What comes back is either a problem whose new query passed `problems.wording.check_rewording`, or a
refusal that names what the last attempt lost; never a wording that was not checked. The voucher paragraph stays the
benchmark's own, word for word: the model is not even shown it. The reward never changes, and neither does the leak
cluster. After a refusal the model reads which constraint was lost, never an answer's id. Rephrasing changes words
only; the problem stays as hard as it was.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import orjson

from foundation.codes import WORDING_LOSES
from foundation.errors import Failure
from harness.inference.port import Upstream
from problems.constraints import say_voucher
from problems.model import Problem
from problems.wording import Flaw, check_rewording, said_names

ATTEMPTS = 3
_QUERY_CHARS = 4_000
_SYSTEM = """You rewrite a shopper's request in other words, as a real person would write it.
Rules:
- Keep every fact: each product's name words, every value exactly as it is spelled, the name of what a value is about
  beside it (write "color family red" or "red color family"), every service, every price limit with its numbers and
  currency.
- Add no fact, no number, no service and no product.
- Keep the products in their order, each in one sentence or numbered clause of its own. Say the name of a product in its
  sentence, and everything asked of it before the next product begins.
- Keep it clear whether everything has to come from one shop.
Reply with the rewritten request alone."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How the model is asked. `seed` goes to endpoints that take one."""

    model: str
    temperature_e4: int = 9_000
    tokens_max: int = 1_024
    seed: int = 0


class Rewording(msgspec.Struct, frozen=True, kw_only=True):
    """A problem in new words, or as it was where `failure` (P4016, of the last reply) says why. `attempts`
    counts replies; 0 where the problem's own query can't be read back."""

    problem: Problem
    attempts: int
    failure: Failure | None = None


def reword(problem: Problem, upstream: Upstream, sampling: Sampling, attempts: int = ATTEMPTS) -> Rewording:
    """Ask for a wording, say what was wrong with it, and ask again, `attempts` times in all.

    Raises ArenaError U3001 to U3004 when the endpoint fails, A1040 when it refuses the request.
    """
    flaws: Sequence[Flaw] = check_rewording(problem, problem.query)
    if flaws:
        return _kept(problem, 0, flaws)
    voucher = say_voucher(problem.voucher) if problem.voucher else ""
    names = "\n".join(f"{number}. {' '.join(words)}" for number, words in enumerate(said_names(problem), start=1))
    request = f"Request:\n{problem.query.removesuffix(voucher)}\n\nName words to keep, product by product:\n{names}"
    messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": request}]
    for attempt in range(1, attempts + 1):
        body = {
            "model": sampling.model,
            "messages": messages,
            "temperature": sampling.temperature_e4 / 10_000,
            "max_tokens": sampling.tokens_max,
            "seed": sampling.seed + attempt,
        }
        reply = upstream.complete(orjson.dumps(body).decode()).content
        text = _clean(reply)
        if 0 < len(text) <= _QUERY_CHARS:
            flaws = check_rewording(problem, text + voucher)
        else:
            flaws = [Flaw(what="a request of sensible length")]
        if not flaws:
            return Rewording(problem=msgspec.structs.replace(problem, query=text + voucher), attempts=attempt)
        told = ["That changes the request:"]
        for flaw in flaws:
            place = "" if flaw.slot is None else f" (product {flaw.slot + 1})"
            told.append(f"- {'not asked for' if flaw.is_added else 'missing'}: {flaw.what}{place}")
        told.append("Rewrite the original request again, and keep to the rules.")
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": "\n".join(told)}]
    return _kept(problem, attempts, flaws)


def _kept(problem: Problem, attempts: int, flaws: Sequence[Flaw]) -> Rewording:
    failure = Failure(code=WORDING_LOSES, detail="; ".join(flaw.detail for flaw in flaws))
    return Rewording(problem=problem, attempts=attempts, failure=failure)


def _clean(reply: str) -> str:
    """The reply without a thought, without quotes around the whole, and without blanks at its ends."""
    text = reply.rpartition("</think>")[2].strip()
    if len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1]:
        text = text[1:-1].strip()
    return text
